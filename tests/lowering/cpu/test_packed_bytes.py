"""Products of bytes whose right operand is packed in groups once: exact at every width and depth, nothing else is touched."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import kernels, parse
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.dialects.analysis.contractions.products import product_of
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.runtime.host import thread_pool
from fuse_opt.runtime.prepared import PreparedProgram
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Array = np.ndarray[Any, Any]
ALL_PACKED = [name.replace("pack-weights", "pack-weights{smallest-bytes=0}") for name in DEFAULT_PIPELINE]


class Case:
    """The product of bytes and frozen i8, scaled by column and rounded to i8 in its kernel."""

    def __init__(
        self, rows: int, depth: int, columns: int, *, transposed: bool = False, batch: int = 1, left: str = "ui8"
    ) -> None:
        many = "" if batch == 1 else f"{batch}x"
        right = (columns, depth) if transposed else (depth, columns)
        x, w = f"tensor<{many}{rows}x{depth}x{left}>", f"tensor<{right[0]}x{right[1]}xi8>"
        y, s = f"tensor<{many}{rows}x{columns}xT>", f"tensor<{columns}xf32>"
        i, f, b = (y.replace("T", element) for element in ("i32", "f32", "i8"))
        self.text = f"""
func.func @main(%x: {x}, %w: {w} {{graph.frozen}}, %s: {s}) -> ({i}, {b}) {{
  %p = graph.matmul %x, %w {{transpose_rhs = {str(transposed).lower()}, dtype = i32}} : ({x}, {w}) -> {i}
  %z = graph.constant dense<3> : tensor<i32>
  %q = graph.subtract %p, %z : ({i}, tensor<i32>) -> {i}
  %f = graph.astype %q {{dtype = f32}} : ({i}) -> {f}
  %g = graph.multiply %f, %s : ({f}, {s}) -> {f}
  %r = graph.round %g : ({f}) -> {f}
  %y = graph.astype %r {{dtype = i8}} : ({f}) -> {b}
  func.return %q, %y : {i}, {b}
}}"""
        rng = np.random.default_rng(rows + columns)
        self.x = rng.integers(0, 256, (batch, rows, depth) if batch > 1 else (rows, depth)).astype(np.uint8)
        self.x = self.x.view(np.int8 if left == "i8" else np.uint8)
        self.w = rng.integers(-128, 128, right).astype(np.int8)
        self.s = (rng.random(columns) / 2**14).astype(np.float32)
        self.transposed = transposed

    def wanted(self) -> tuple[Array, Array]:
        w = self.w.astype(np.int64)
        sums = self.x.astype(np.int64) @ (w.T if self.transposed else w) - 3
        return sums, np.rint(sums.astype(np.float32) * self.s)

    def packed(self) -> fuse_opt.CompiledProgram:
        program = fuse_opt.compile(self.text, pipeline=ALL_PACKED)
        products = [kernel for kernel in kernels(program.module) if kernel.schedule_kind() == "matmul"]
        assert len(products) == 1 and "x4xi8>" in str(products[0].operands[-1].type) + str(products[0].operands[1].type)
        assert program.stats.library_calls == 0
        return program

    def check(self, results: Any) -> None:
        for found, wanted in zip(results, self.wanted(), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    "case",
    [
        *(Case(rows, 33, 129) for rows in (1, 2, 3, 5, 6, 7, 13)),
        *(Case(34, depth, 130) for depth in (5, 16, 18, 23, 1030)),
        *(Case(20, 40, columns) for columns in (97, 128, 161, 193)),
        Case(40, 600, 100, transposed=True),
        Case(1, 61, 190, transposed=True),
        Case(17, 300, 150, batch=3),
        *(Case(rows, 61, 190, left="i8") for rows in (1, 5, 13, 40)),
        *(Case(17, depth, 130, left="i8", transposed=True) for depth in (6, 150, 1030)),
    ],
    ids=lambda case: case.text.split("(%x: ", 1)[1].split(", %s")[0].replace("tensor", ""),
)
def test_exact_sums(case: Case) -> None:
    program = case.packed()
    case.check(program(case.x, case.w, case.s))
    case.check(program.freeze({"w": case.w})(case.x, case.s))


@needs_compiler
@pytest.mark.parametrize(("left", "largest"), [("ui8", 255), ("i8", -128), ("i8", 127)])
def test_the_largest_sums(left: str, largest: int) -> None:
    """Where instructions on pairs of bytes saturate."""
    case = Case(6, 64, 150, left=left)
    case.x[...], case.w[...] = largest, -128
    case.check(case.packed()(case.x, case.w, case.s))
    case.w[...] = 127
    case.check(case.packed()(case.x, case.w, case.s))


@needs_compiler
def test_threads_change_nothing() -> None:
    case, before = Case(150, 700, 231), thread_pool.num_threads()
    program = case.packed().freeze({"w": case.w})
    try:
        for threads in (1, 2, 4, 8):
            thread_pool.set_num_threads(threads)
            case.check(program(case.x, case.s))
    finally:
        thread_pool.set_num_threads(before)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_packed_operands_is_read() -> None:
    rng = random.Random(5)
    for _ in range(scaled(4)):
        case = Case(rng.choice((1, 4, 9, 40)), rng.choice((6, 17, 270)), rng.choice((130, 193, 260)))
        native: PreparedProgram = case.packed().native
        full = native.merged([case.x, case.w, case.s])
        results = native.prepared(full)
        with guarded() as allocate:
            native.fill(full, [allocate(np.asarray(array), at_end=True) for array in results])
            given = [allocate(case.x, at_end=True), case.w, *full[2:]]
            case.check(native.program(*given))
            del given
            full.clear()


def panels(left: str, group: int, element: str = "i8", sums: str = "i32") -> str:
    """A kernel that reads its right operand in panels, with groups of rows or without."""
    packed = f"2x8x64x{group}x{element}" if group > 1 else f"2x{8}x64x{element}"
    axes, depth = ("1, 3, 0, 2", 8 * group) if group > 1 else ("1, 0, 2", 8)
    turned = f"tensor<8x{group}x2x64x{element}>" if group > 1 else f"tensor<8x2x64x{element}>"
    x, w, y = f"tensor<6x{depth}x{left}>", f"tensor<{depth}x128x{element}>", f"tensor<6x128x{sums}>"
    given = ", dtype = i32" if sums == "i32" else ""
    return f"""func.func @main(%x: {x}, %w: tensor<{packed}>) -> {y} {{
  %r = fused.kernel(%a = %x : {x}, %b = %w : tensor<{packed}>) -> ({y}) {{
    %0 = graph.permute_dims %b {{axes = array<i64: {axes}>}} : (tensor<{packed}>) -> {turned}
    %1 = graph.reshape %0 {{shape = array<i64: {depth}, 128>}} : ({turned}) -> {w}
    %2 = graph.matmul %a, %1 {{transpose_rhs = false{given}}} : ({x}, {w}) -> {y}
    fused.yield %2 : {y}
  }}
  func.return %r : {y}
}}"""


TAKEN = {"bytes in groups": ("ui8", 4), "signed bytes in groups": ("i8", 4), "floats": ("f32", 1, "f32", "f32")}
REFUSED = {
    "bytes without groups": ("ui8", 1),
    "pairs of bytes": ("ui8", 2),
    "floats in groups": ("f32", 4, "f32", "f32"),
    "narrow floats": ("bf16", 1, "bf16", "bf16"),
}


@pytest.mark.parametrize("given", [*TAKEN.values(), *REFUSED.values()], ids=[*TAKEN, *REFUSED])
def test_panels_that_tiles_can_read(given: Any) -> None:
    """Written by hand, where no pass has looked: other panels would be read wrongly, so that no code is generated."""
    (kernel,) = kernels(parse(panels(*given)))
    if given in TAKEN.values():
        found = product_of(kernel).rhs.panels
        assert found is not None and (found.width, found.group) == (64, given[1])
        return
    with pytest.raises(Unschedulable, match="in panels, with groups of"):
        product_of(kernel)
