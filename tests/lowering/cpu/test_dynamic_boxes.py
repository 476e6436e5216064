"""Boxes that begin where data says: read by loops over the box, and written so, in place or behind a copy."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

TYPES = "(tensor<19x21xf32>, tensor<4x11xf32>, tensor<i32>, tensor<i64>) -> tensor<19x21xf32>"
UPDATE = f"""func.func @main(%x: tensor<19x21xf32>MARK, %u: tensor<4x11xf32>, %i: tensor<i32>, %j: tensor<i64>)
    -> tensor<19x21xf32> {{
  %e = graph.multiply %u, %u : (tensor<4x11xf32>, tensor<4x11xf32>) -> tensor<4x11xf32>
  %k = graph.add %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i32>
  %0 = graph.dynamic_update_slice %x, %e, %k, %j : {TYPES}
  func.return %0 : tensor<19x21xf32>
}}"""
READ = """func.func @main(%x: tensor<19x21xf32>, %i: tensor<i32>, %j: tensor<i64>) -> tensor<11x4xf32> {
  %k = graph.add %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i32>
  %0 = graph.dynamic_slice %x, %k, %j {sizes = array<i64: 4, 11>}
    : (tensor<19x21xf32>, tensor<i32>, tensor<i64>) -> tensor<4x11xf32>
  %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<4x11xf32>) -> tensor<11x4xf32>
  %2 = graph.exp %1 : (tensor<11x4xf32>) -> tensor<11x4xf32>
  func.return %2 : tensor<11x4xf32>
}"""
PLACES = [(0, 0), (3, 7), (-2, 90), (2**30, -(2**40))]


@needs_compiler
@pytest.mark.parametrize("mark", ["", " {graph.donated}"], ids=["copied", "in place"])
def test_updates(mark: str) -> None:
    source = UPDATE.replace("MARK", mark)
    program, rng = fuse_opt.compile(source), np.random.default_rng(1)
    assert program.stats.arena_bytes < 19 * 21 * 4, "x is not copied to the arena"
    for i, j in PLACES:
        x, u = (rng.standard_normal(extents).astype(np.float32) for extents in ((19, 21), (4, 11)))
        row, column = np.clip((2 * i + 2**31) % 2**32 - 2**31, 0, 15), np.clip(j, 0, 10)
        wanted = x.copy()
        wanted[row : row + 4, column : column + 11] = u * u
        given = (u, np.array(i, np.int32), np.array(j, np.int64))
        np.testing.assert_array_equal(fuse_opt.evaluate(source, x, *given), wanted)
        np.testing.assert_array_equal(program(x.copy(), *given), wanted)


@needs_compiler
def test_a_donated_operand_is_written_over_in_place() -> None:
    """Nothing but the box is: no loop goes over the elements of x."""
    program = fuse_opt.compile(UPDATE.replace("MARK", " {graph.donated}"))
    assert "x[" not in program.source
    copied = fuse_opt.compile(UPDATE.replace("MARK", ""))
    assert copied.source.count("static void kernel_dynamic_update_slice") == 2


@needs_compiler
def test_reads_go_over_the_box_alone() -> None:
    program, x = fuse_opt.compile(READ), np.arange(19 * 21, dtype=np.float32).reshape(19, 21) / 400
    assert program.stats.kernels == 1
    for i, j in PLACES[:3]:
        row, column = np.clip(2 * i, 0, 15), np.clip(j, 0, 10)
        wanted = np.exp(x[row : row + 4, column : column + 11].T)
        found = program(x, np.array(i, np.int32), np.array(j, np.int64))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "types", "problem"),
    [
        ("sizes = array<i64: 20>", "tensor<i64>", "expected a box of 0 to 19 along axis 0 of x, got 20"),
        ("sizes = array<i64: 2, 3>", "tensor<i64>", "expected 1, one for each start"),
        ("sizes = array<i64: 2>", "tensor<1xi64>", "expected single i32 or i64"),
        ("sizes = array<i64: 2>", "tensor<i8>", "expected single i32 or i64"),
        ("axes = array<i64: 0, 1>, sizes = array<i64: 2>", "tensor<i64>", "a different axis for each of 1 starts"),
    ],
)
def test_refusals(attributes: str, types: str, problem: str) -> None:
    text = f"""func.func @main(%x: tensor<19x21xf32>, %i: {types}) -> tensor<2x21xf32> {{
  %0 = graph.dynamic_slice %x, %i {{{attributes}}} : (tensor<19x21xf32>, {types}) -> tensor<2x21xf32>
  func.return %0 : tensor<2x21xf32>
}}"""
    with pytest.raises(Exception, match=problem):
        fuse_opt.compile(text, "reference")
