"""Sums and extrema along rows whose length is a size: of long rows two vectors of accumulators in registers take turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.lowering.cpu.packed.packed_rows import LONGEST

LENGTHS = (*range(1, 35), 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 300)
ROWS = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> (tensor<?xf32>, tensor<?xf32>) {
  %s = graph.sum %x {axes = array<i64: 1>} : (tensor<?x?xf32>) -> tensor<?xf32>
  %m = graph.max %x {axes = array<i64: 1>} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %s, %m : tensor<?xf32>, tensor<?xf32>
}"""
PLANES = """func.func @main(%x: tensor<?x3x2x?xf32> {graph.dims = ["m", "", "", "n"]}) -> tensor<?x2xf32> {
  %s = graph.sum %x {axes = array<i64: 1, 3>} : (tensor<?x3x2x?xf32>) -> tensor<?x2xf32>
  func.return %s : tensor<?x2xf32>
}"""


@needs_compiler
def test_rows_of_all_lengths_are_reduced_whole() -> None:
    """Whole numbers, of which sums are exact in any order: no element is left out or counted twice."""
    program, rng = fuse_opt.compile(ROWS), np.random.default_rng(7)
    for n in LENGTHS:
        x = rng.integers(-99, 99, (5, n)).astype(np.float32)
        sums, most = program(x)
        np.testing.assert_array_equal(sums, x.sum(1))
        np.testing.assert_array_equal(most, x.max(1))
    assert "vector_size" in program.source


def _joined(row: np.ndarray[Any, Any], vectors: int = 16) -> np.float32:
    """What the row comes to where sums are joined in that order; something is left over of each row."""
    whole, sums = (len(row) - 1) // vectors * vectors, np.zeros((2, vectors), np.float32)
    paired = whole if whole >= 64 else 0
    for number, begin in enumerate(range(0, paired, vectors)):
        sums[number % 2] += row[begin : begin + vectors]
    one = sums[0] + sums[1]
    for begin in range(paired, whole, vectors):
        one += row[begin : begin + vectors]
    one[: len(row) - whole] += row[whole:]
    while len(one) > 1:
        one = one[: len(one) // 2] + one[len(one) // 2 :]
    return one[0]


@needs_compiler
def test_the_order_of_a_sum_depends_on_the_length_alone() -> None:
    program, rng = fuse_opt.compile(ROWS), np.random.default_rng(9)
    for n in LENGTHS:
        x = rng.standard_normal((3, n)).astype(np.float32)
        sums = program(x)[0].tolist()
        in_order = [np.add.accumulate(row)[-1] for row in x]  # of rows several of which are in a vector
        assert sums == [_joined(row) for row in x] or (n <= LONGEST and sums == in_order), n


NORM = """func.func @main(%x: XF {graph.dims = ["m", "n"]}, %w: tensor<?xf32> {graph.dims = ["n"]}) -> XF {
  %y = graph.layer_norm %x, %w, %w {axis = -1 : i64, epsilon = 1.000000e-03 : f64} : (XF, tensor<?xf32>, tensor<?xf32>) -> XF
  func.return %y : XF
}""".replace("XF", "tensor<?x?xf32>")


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("n", [511, 512, 513, 529, 1024, 1041, 4096])
def test_a_row_has_the_bits_of_a_first_one_beside_the_row_before(n: int) -> None:
    """Odd numbers of whole vectors, too: the first row of a task is summed alone, and threads have tasks of their own."""
    x, w = (np.random.default_rng(n).standard_normal(shape).astype(np.float32) for shape in ((1, n), (n,)))
    program = fuse_opt.compile(NORM)
    x = x + np.float32(0.1) * np.arange(48, dtype=np.float32)[:, None]
    together = program(x, w)
    np.testing.assert_array_equal(together, np.concatenate([program(row[None], w) for row in x]))


@needs_compiler
@pytest.mark.parametrize("n", [1, 15, 16, 17, 33, 64, 100])
def test_accumulators_of_several_loops_are_joined_once(n: int) -> None:
    x = np.random.default_rng(n).integers(-99, 99, (4, 3, 2, n)).astype(np.float32)
    np.testing.assert_array_equal(fuse_opt.compile(PLANES)(x), x.sum((1, 3)))


SHAPE = "#graph.shape<n{least = 2, most = 33}, m{least = 2, most = 33}>"
WIDENED = """func.func @main(%x: XF) -> (tensor<1x1xf16>, XF) {
  %y = graph.layer_norm %x, %x, %x {axis = -2 : i64, epsilon = 1.000000e-03 : f64} : (XF, XF, XF) -> XF
  %m = graph.min %x {keepdims = true, axes = array<i64: -2, 1>} : (XF) -> tensor<1x1xf16>
  func.return %m, %y : tensor<1x1xf16>, XF
}""".replace("XF", f"tensor<?x?xf16, {SHAPE}>")
"""Kernels of which `fuse-siblings` makes one that widens, keeps what it widened three times, and takes the least of all."""


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("shape", [(2, 2), (7, 20), (33, 33), (2, 8), (31, 32)])
def test_accumulators_are_no_registers_where_what_is_left_over_is_stored_by_a_call(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float16)
    program = fuse_opt.compile(WIDENED, "cpu", ["decompose", "fuse-siblings"])
    least, normal = program(x)
    expected = fuse_opt.evaluate(WIDENED, x)
    assert float(np.asarray(least)[0, 0]) == float(x.min())
    np.testing.assert_allclose(np.asarray(normal, np.float32), np.asarray(expected[1], np.float32), 2e-2, 2e-2)
