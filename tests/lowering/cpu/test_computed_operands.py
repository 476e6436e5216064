"""Products whose kernel computes operands as it copies them: dequantised weights, activations, scales by row and column."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.product_copies import times_copied
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.cpu.matmul.tilings.choice import choose_tiling
from fuse_opt.lowering.program import Array
from fuse_opt.lowering.program.float_formats import NARROW, widen

DEQUANTISED = """    %q = graph.astype %w {dtype = f32} : (WS) -> WF
    %z = graph.subtract %q, %s : (WF, ST) -> WF
    %d = graph.multiply %z, %s : (WF, ST) -> WF
"""


def dequantised(extents: Sequence[int], transposed: bool, stored: str = "i8", left: str = "") -> str:
    """A product of an operand, by what `left` makes of %x, with weights that have a scale for each column."""
    rows, depth, columns = extents
    weight, scale = (f"{columns}x{depth}", f"{columns}x1") if transposed else (f"{depth}x{columns}", f"{columns}")
    operand = "%l" if left else "%x"
    text = f"""
func.func @main(%xs: XT, %ws: WS, %ss: ST) -> YT {{
  %y = fused.kernel(%x = %xs : XT, %w = %ws : WS, %s = %ss : ST) -> (YT) attributes {{schedule = {{kind = "matmul"}}}} {{
{left}{DEQUANTISED}    %p = graph.matmul {operand}, %d {{transpose_rhs = {str(transposed).lower()}}} : (XT, WF) -> YT
    %r = graph.relu %p : (YT) -> YT
    fused.yield %r : YT
  }}
  func.return %y : YT
}}"""
    types = {"XT": f"{rows}x{depth}xf32", "YT": f"{rows}x{columns}xf32", "WF": f"{weight}xf32"}
    types |= {"WS": f"{weight}x{stored}", "ST": f"{scale}xf32"}
    for short, kind in types.items():
        text = text.replace(short, f"tensor<{kind}>")
    return text


SILU = "    %l = graph.silu %x : (XT) -> XT\n"
LEFT_BY_ROW = """    %m = graph.slice %x {starts = array<i64: 0, 0>, stops = array<i64: ROWS, 1>} : (XT) -> tensor<ROWSx1xf32>
    %l = graph.add %x, %m : (XT, tensor<ROWSx1xf32>) -> XT
"""


def doubles(array: Array) -> Array:
    """The values in f64; narrow floats are bytes where nothing has a type for them."""
    return (widen(array) if array.dtype in NARROW.values() else array).astype(np.float64)


def check(text: str, atol: float = 2e-4) -> None:
    module = parse(text)
    arguments = random_arguments(module, 1)
    program = fuse_opt.compile(text)
    assert [kernel.schedule_kind() for kernel in kernels(program.module)] == ["matmul"]
    assert program.stats.library_calls == 0
    wanted = doubles(evaluate(module, arguments)[0])
    scale = max(float(np.abs(wanted).max(initial=1.0)), 1.0)
    np.testing.assert_allclose(doubles(program(*arguments)), wanted, rtol=1e-4, atol=atol * scale)


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 17, 50, 65, 100])
def test_dequantised_weights(rows: int, transposed: bool) -> None:
    for depth, columns in ((1, 5), (70, 33), (300, 65), (530, 130)):
        check(dequantised((rows, depth, columns), transposed))


@needs_compiler
@pytest.mark.parametrize("stored", ["ui8", "i16", "f16", "i32"])
def test_of_any_stored_type(stored: str) -> None:
    check(dequantised((9, 70, 50), True, stored))
    check(dequantised((90, 70, 50), False, stored))


@needs_compiler
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 40, 3), (37, 1100, 40), (400, 1300, 70), (70, 64, 1)])
def test_both_operands(rows: int, depth: int, columns: int) -> None:
    for left in (SILU, LEFT_BY_ROW.replace("ROWS", str(rows))):
        check(dequantised((rows, depth, columns), False, "i8", left))
        check(dequantised((rows, depth, columns), True, "i8", left))


def operand_pairs(element: str, result: str, batch: str, body: str) -> str:
    """A kernel that computes %l and %d of the operands' types from %x and %w."""
    wider = "" if element == result else f"{{dtype = {result}}} "
    text = f"""
func.func @main(%xs: XT, %ws: WT) -> YT {{
  %y = fused.kernel(%x = %xs : XT, %w = %ws : WT) -> (YT) attributes {{schedule = {{kind = "matmul"}}}} {{
{body}    %p = graph.matmul %l, %d {wider}: (XT, WT) -> YT
    fused.yield %p : YT
  }}
  func.return %y : YT
}}"""
    types = {"XT": f"{batch}37x45x{element}", "WT": f"{batch}45x50x{element}", "YT": f"{batch}37x50x{result}"}
    for short, kind in types.items():
        text = text.replace(short, f"tensor<{kind}>")
    return text


BOTH = """    %l = graph.abs %x : (XT) -> XT
    %d = graph.multiply %w, %w : (WT, WT) -> WT
"""


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("element", "result"), [("f64", "f64"), ("f16", "f16"), ("bf16", "f32"), ("bf16", "bf16"), ("i8", "i32")]
)
@pytest.mark.parametrize("batch", ["", "3x", "2x2x"])
def test_element_types_and_batches(element: str, result: str, batch: str) -> None:
    """Values are rounded to the operand's type, and copied as that or as a wider one, or in groups."""
    check(operand_pairs(element, result, batch, BOTH), 2e-3 if element == "bf16" else 2e-4)


@needs_compiler
def test_pairs_of_bf16() -> None:
    text = operand_pairs("bf16", "f32", "", BOTH).replace('kind = "matmul"', 'kind = "matmul", math = "fast"')
    check(text, 1e-2)


@needs_compiler
def test_turned_and_computed() -> None:
    """Elements are computed in the order in which they are read, and turned in registers."""
    kind, other = "tensor<45x70xf32>", "tensor<70x45xf32>"
    for rows in (1, 70):
        text = f"""
func.func @main(%xs: tensor<{rows}x70xf32>, %ws: {kind}) -> tensor<{rows}x45xf32> {{
  %y = fused.kernel(%x = %xs : tensor<{rows}x70xf32>, %w = %ws : {kind}) -> (tensor<{rows}x45xf32>)
      attributes {{schedule = {{kind = "matmul"}}}} {{
    %n = graph.negative %w : ({kind}) -> {kind}
    %t = graph.permute_dims %n {{axes = array<i64: 1, 0>}} : ({kind}) -> {other}
    %e = graph.exp %t : ({other}) -> {other}
    %p = graph.matmul %x, %e : (tensor<{rows}x70xf32>, {other}) -> tensor<{rows}x45xf32>
    fused.yield %p : tensor<{rows}x45xf32>
  }}
  func.return %y : tensor<{rows}x45xf32>
}}"""
        check(text)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(5)
    for _ in range(6):
        extents = rng.choice((1, 6, 33, 70)), rng.choice((1, 16, 33, 300)), rng.choice((1, 8, 17, 65, 100))
        text = dequantised(extents, rng.random() < 0.5, "i8", SILU if rng.random() < 0.5 else "")
        module = parse(text)
        wanted, program = evaluate(module, random_arguments(module, 1))[0], fuse_opt.compile(text)
        with guarded() as allocate:
            arguments = [allocate(np.asarray(a), at_end=True) for a in random_arguments(module, 1)]
            out = allocate(np.zeros_like(wanted), at_end=True)
            program(*arguments, out=out)
            np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=2e-4 * max(float(np.abs(wanted).max()), 1.0))
            del arguments, out


@needs_compiler
def test_threads_change_no_bit() -> None:
    text = dequantised((150, 700, 131), True, "i8", SILU)
    arguments = random_arguments(parse(text), 1)
    program = fuse_opt.compile(text)
    found = by_threads(lambda: program(*arguments).tobytes())
    assert len(set(found)) == 1


def test_the_estimate_of_copies_is_near_what_is_generated() -> None:
    """What decides on fusion, and the cut of the product: within a factor of 2.5, and mostly equal."""
    rng, equal, count = random.Random(3), 0, 300
    for _ in range(count):
        rows, depth, columns = (rng.choice((16, 64, 197, 512, 2048, 4096)) for _ in range(3))
        batch = rng.choice(((), (), (4,)))
        lhs, rhs = (rows * depth, depth, 1)[-2 - len(batch) :], (depth * columns, columns, 1)[-2 - len(batch) :]
        product = Contraction(batch, rows, columns, depth, lhs, rhs)
        tiling = choose_tiling(product, 4, computed=(True, True))
        left, right = times_copied(product, 4, True)
        assert 0.4 <= left / tiling.column_blocks <= 2.5, (product, tiling)
        assert 0.4 <= right / tiling.row_blocks <= 2.5, (product, tiling)
        equal += (left, right) == (tiling.column_blocks, tiling.row_blocks)
    assert equal > 0.5 * count, equal
