"""Products whose right operands are packed once: the sums of those that are not, at every width, and nothing else is touched."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import kernels, optimized, parse, random_arguments
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.packed_panels import NARROW_BITS
from fuse_opt.dialects.analysis.contractions.products import MATMUL
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.cpu.matmul.tilings.choice import choose_tiling
from fuse_opt.lowering.emit.c import build_program
from fuse_opt.runtime.prepared import PreparedProgram
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Array = np.ndarray[Any, Any]
ALL_PACKED = [name.replace("pack-weights", "pack-weights{smallest-bytes=0}") for name in DEFAULT_PIPELINE]
NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64}


class Case:
    """relu(x @ w + b), with w frozen or not."""

    def __init__(
        self, rows: int, depth: int, columns: int, *, batch: int = 1, transposed: bool = False, element: str = "f32"
    ) -> None:
        many = "" if batch == 1 else f"{batch}x"
        right = (columns, depth) if transposed else (depth, columns)
        x, w = f"tensor<{many}{rows}x{depth}x{element}>", f"tensor<{right[0]}x{right[1]}x{element}>"
        y, b = f"tensor<{many}{rows}x{columns}x{element}>", f"tensor<{columns}x{element}>"
        self.text = f"""
func.func @main(%x: {x}, %w: {w} FROZEN, %b: {b}) -> {y} {{
  %p = graph.matmul %x, %w {{transpose_rhs = {str(transposed).lower()}}} : ({x}, {w}) -> {y}
  %a = graph.add %p, %b : ({y}, {b}) -> {y}
  %y = graph.relu %a : ({y}) -> {y}
  func.return %y : {y}
}}"""
        rng = np.random.default_rng(rows + columns)
        shapes = ((batch, rows, depth) if batch > 1 else (rows, depth)), right, (columns,)
        self.x, self.w, self.b = (rng.standard_normal(shape).astype(NUMPY[element]) for shape in shapes)

    def plain(self) -> Array:
        program = fuse_opt.compile(self.text.replace("FROZEN", ""))
        return cast(Array, program(self.x, self.w, self.b))

    def packed(self) -> fuse_opt.CompiledProgram:
        program = fuse_opt.compile(self.text.replace("FROZEN", "{graph.frozen}"), pipeline=ALL_PACKED)
        assert program.stats.prepared_bytes >= self.w.nbytes
        return program


@needs_compiler
@pytest.mark.parametrize(("x", "w", "options"), [
    ("2x3x21x70xf32", "2x3x70x150xf32", "{transpose_rhs = false}"),
    ("3x21x70xf64", "3x150x70xf64", "{transpose_rhs = true}"),
    ("3x21x70xui8", "3x150x70xi8", "{transpose_rhs = true, dtype = i32}"),
])  # fmt: skip
def test_each_matrix_of_a_batch_is_packed(x: str, w: str, options: str) -> None:
    element = "i32" if "ui8" in x else x[-3:]
    y = f"{x.rpartition('x70x')[0]}x150x{element}"
    text = f"""
func.func @main(%x: tensor<{x}>, %w: tensor<{w}> FROZEN) -> tensor<{y}> {{
  %y = graph.matmul %x, %w {options} : (tensor<{x}>, tensor<{w}>) -> tensor<{y}>
  func.return %y : tensor<{y}>
}}"""
    arguments = random_arguments(parse(text.replace("FROZEN", "")), 3)
    plain = fuse_opt.compile(text.replace("FROZEN", ""))
    program = fuse_opt.compile(text.replace("FROZEN", "{graph.frozen}"), pipeline=ALL_PACKED)
    assert program.stats.prepared_bytes >= arguments[1].nbytes
    assert_equal(program(*arguments), plain(*arguments))


def assert_equal(got: Array, wanted: Array) -> None:
    """The same bits in whole vectors; what is left over may be computed in a narrower tile, which rounds its own way."""
    whole = wanted.shape[-1] // 16 * 16
    np.testing.assert_array_equal(got[..., : whole - 16], wanted[..., : whole - 16])
    scale = 1e-5 if wanted.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(got, wanted, rtol=scale, atol=scale * float(np.abs(wanted).max()))


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    "case",
    [
        *(Case(rows, 33, 129) for rows in range(1, 8)),
        *(Case(34, 19, columns) for columns in (97, 128, 161, 193)),
        Case(40, 600, 100, transposed=True),
        Case(50, 61, 190, transposed=True),
        Case(35, 300, 150, batch=3),
        Case(1, 40, 150, batch=5),
        Case(50, 300, 77, element="f64", transposed=True),
        Case(3, 270, 130, element="f64"),
        Case(49, 512, 352),
    ],
    ids=lambda case: (
        case.text.split("tensor<", 1)[1].split(">")[0] + " " + case.text.split("tensor<", 2)[2].split(">")[0]
    ),
)
def test_the_same_sums_as_unpacked(case: Case) -> None:
    program = case.packed()
    assert program.stats.library_calls == 0
    wanted = case.plain()
    assert_equal(program(case.x, case.w, case.b), wanted)
    assert_equal(program.freeze({"w": case.w})(case.x, case.b), wanted)


@needs_compiler
def test_few_rows_of_a_transposed_operand() -> None:
    """Which a library may multiply where it is not packed: packed, it is as one that is not transposed."""
    for rows in (1, 4, 31):
        case, plain = Case(rows, 300, 200, transposed=True), Case(rows, 300, 200)
        program, plain.x, plain.w, plain.b = case.packed(), case.x, case.w.T.copy(), case.b
        assert program.stats.library_calls == 0
        assert_equal(program(case.x, case.w, case.b), plain.plain())


def test_few_rows_ask_for_nothing_as_panels_lie_side_by_side() -> None:
    for rows in (1, 3, 4):
        x, w, y = f"tensor<{rows}x512xf32>", "tensor<512x1024xf32>", f"tensor<{rows}x1024xf32>"
        module = optimized(
            f"""
func.func @main(%x: {x}, %w: {w} {{graph.frozen}}) -> {y} {{
  %y = graph.matmul %x, %w : ({x}, {w}) -> {y}
  func.return %y : {y}
}}""",
            DEFAULT_PIPELINE,
        )
        source = build_program(module).source
        wide = source.split("void fo_tile_f32_")[1].split("#else")[0]
        assert ("__builtin_prefetch(next" in wide or "__builtin_prefetch(q" in wide) == (rows > 3)


@needs_compiler
def test_an_operand_that_is_a_view_of_a_weight() -> None:
    """The second of three matrices, turned: the views in the kernel become a part of what packs it."""
    text = """
func.func @main(%x: tensor<40x90xf32>, %w: tensor<3x150x90xf32> {graph.frozen}) -> tensor<40x150xf32> {
  %y = fused.kernel(%a = %x : tensor<40x90xf32>, %b = %w : tensor<3x150x90xf32>) -> (tensor<40x150xf32>) {
    %s = graph.slice %b {starts = array<i64: 1, 0, 0>, stops = array<i64: 2, 150, 90>}
        : (tensor<3x150x90xf32>) -> tensor<1x150x90xf32>
    %m = graph.reshape %s {shape = array<i64: 150, 90>} : (tensor<1x150x90xf32>) -> tensor<150x90xf32>
    %t = graph.permute_dims %m {axes = array<i64: 1, 0>} : (tensor<150x90xf32>) -> tensor<90x150xf32>
    %p = graph.matmul %a, %t : (tensor<40x90xf32>, tensor<90x150xf32>) -> tensor<40x150xf32>
    fused.yield %p : tensor<40x150xf32>
  }
  func.return %y : tensor<40x150xf32>
}"""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 90), (3, 150, 90)))
    program = fuse_opt.compile(text, pipeline=ALL_PACKED)
    assert program.stats.prepared_bytes >= 4 * 150 * 90 and program.stats.library_calls == 0
    np.testing.assert_allclose(program.freeze({1: w})(x), x @ w[1].T, rtol=1e-4, atol=1e-4)


@needs_compiler
def test_a_weight_that_changes_is_packed_anew() -> None:
    case = Case(40, 60, 200)
    program = case.packed().freeze({"w": case.w})
    first = program(case.x, case.b)
    other = case.w[::-1].copy()
    program.freeze({"w": other})
    np.testing.assert_allclose(program(case.x, case.b), np.maximum(case.x @ other + case.b, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(program.freeze({"w": case.w})(case.x, case.b), first)


@needs_compiler
def test_a_weight_that_is_written_in_place_between_calls_is_packed_anew() -> None:
    case = Case(40, 60, 200)
    memory = np.stack([case.w, case.w])
    program = case.packed().freeze({"w": memory[1:].reshape(60, 200)})
    for change in (0, 1, 0, 2):
        memory[1, 7, change::3] += change
        np.testing.assert_allclose(program(case.x, case.b), np.maximum(case.x @ memory[1] + case.b, 0), 1e-4, 1e-4)


def test_rows_that_meet_panels_in_memory_are_read_where_they_lie() -> None:
    """Blocks of them are about a quarter of a second cache, but not of panels that no cache holds."""
    product = Contraction((), 591, 384, 1536, (1536, 1), (384, 1))
    assert choose_tiling(product, 4, bits=NARROW_BITS).copied_depth
    read = choose_tiling(product, 4, packed=16, bits=NARROW_BITS)
    assert read.copied_depth == 0 and 8 <= read.row_blocks <= 10
    one = choose_tiling(replace(product, rows=64), 4, packed=16, bits=NARROW_BITS)
    far = choose_tiling(replace(product, columns=1 << 12), 4, packed=16, bits=NARROW_BITS)
    assert (one.row_blocks, far.row_blocks) == (1, 2)


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = Case(150, 500, 231)
    program = case.packed().freeze({"w": case.w})
    results = by_threads(lambda: program(case.x, case.b).copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@needs_compiler
@needs_guard_pages
def test_nothing_beside_packed_operands_is_read() -> None:
    rng = random.Random(5)
    for _ in range(4):
        rows, depth, columns = rng.choice((1, 4, 9, 40)), rng.choice((2, 17, 270)), rng.choice((130, 193, 260))
        case = Case(rows, depth, columns, transposed=rows > 32 and rng.random() < 0.5)
        native: PreparedProgram = case.packed().native
        full = native.merged([case.x, case.w, case.b])
        results = native.prepared(full)
        with guarded() as allocate:
            native.fill(full, [allocate(np.asarray(array), at_end=True) for array in results])
            given = [full[0], case.w, *full[2:]]
            assert_equal(native.program(*given), case.plain())
            del given
            full.clear()


@pytest.mark.sampled(9)
@needs_compiler
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("width", [2, 8, 16, 20, 120, 136, 240, 256, 512])
def test_panels_of_any_width(width: int, element: str) -> None:
    """Those that a program has by itself; no tile reads panels without a vector, or of more than registers hold."""
    w, y = f"tensor<33x{width * 2}x{element}>", f"tensor<7x{width * 2}x{element}>"
    panels = w.replace(">", f", #graph.panel<axis = 1, width = {width}>>")
    text = f"""
func.func @main(%x: tensor<7x33x{element}>, %w: {w}) -> {y} {{
  %p = graph.to_layout %w : ({w}) -> {panels}
  %y = graph.matmul %x, %p : (tensor<7x33x{element}>, {panels}) -> {y}
  func.return %y : {y}
}}"""
    module = parse(text)
    passes = ("wrap-kernels", "schedule-kernels", "select-implementation", "plan-memory")
    x, given = random_arguments(module, 1)
    program = fuse_opt.compile(text, pipeline=passes)
    np.testing.assert_allclose(program(x, given), x @ given, rtol=1e-3 if element == "f32" else 1e-11)
    lanes = 64 // x.itemsize
    taken = [kernel for kernel in kernels(optimized(text, passes[:3])) if kernel.schedule_kind() == MATMUL]
    assert bool(taken) == (lanes <= width <= 15 * lanes)
