"""Slices from and up to sizes, sizes as numbers of the data, and reads at positions: one program for all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import parse, text_of
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
SLICED = """func.func @main(%x: tensor<3x?xf32> {graph.dims = ["", "n"]}, %past: tensor<?xf32> {graph.dims = ["past"]},
                     %table: tensor<40x5xf32>) -> (tensor<?x5xf32>, tensor<2x?xf32>, tensor<?xi64>, tensor<?x5xf32>) {
  %0 = graph.slice %table {starts = #graph.shape<past, 0>, stops = #graph.shape<past + n, 5>}
    : (tensor<40x5xf32>) -> tensor<?x5xf32>
  %1 = graph.slice %x {starts = array<i64: 1, 0>, stops = #graph.shape<3, past>} : (tensor<3x?xf32>) -> tensor<2x?xf32>
  %2 = graph.iota {shape = #graph.shape<n>, dtype = i64} : () -> tensor<?xi64>
  %3 = graph.full {shape = array<i64>, dtype = i64, value = #graph.size<past>} : () -> tensor<i64>
  %4 = graph.add %2, %3 : (tensor<?xi64>, tensor<i64>) -> tensor<?xi64>
  %5 = graph.take %table, %4 {axis = 0 : i64} : (tensor<40x5xf32>, tensor<?xi64>) -> tensor<?x5xf32>
  %6 = graph.exp %5 : (tensor<?x5xf32>) -> tensor<?x5xf32>
  func.return %0, %1, %4, %6 : tensor<?x5xf32>, tensor<2x?xf32>, tensor<?xi64>, tensor<?x5xf32>
}"""


def arguments(n: int, past: int) -> list[Array]:
    x, table = (np.random.default_rng(n).standard_normal(shape, np.float32) for shape in ((3, n), (40, 5)))
    return [x, np.zeros(past, np.float32), table]


@needs_compiler
@needs_guard_pages
def test_slices_of_sizes_and_sizes_as_numbers() -> None:
    """From a size, up to one, of an axis of another one; a size added to positions that are read."""
    program = fuse_opt.compile(SLICED, "cpu")
    for n, past in ((3, 1), (40 - 7, 7), (20, 20), (17, 5)):
        with guarded() as place:
            given = [place(array, at_end=n % 2 == 0) for array in arguments(n, past)]
            rows, first, at, read = map(np.array, program(*given))
            x, table = np.array(given[0]), np.array(given[2])
        np.testing.assert_array_equal(rows, table[past : past + n])
        np.testing.assert_array_equal(first, x[1:, :past])
        np.testing.assert_array_equal(at, np.arange(past, past + n))
        np.testing.assert_allclose(read, np.exp(table[past : past + n]), rtol=1e-6)
    assert isinstance(native := program.native, SpecializedPrograms) and not native.made


@needs_compiler
def test_what_is_not_on_the_axis_is_refused_at_the_call() -> None:
    """The symbols and both numbers are named; nothing runs."""
    program = fuse_opt.compile(SLICED, "cpu")
    with pytest.raises(ValueError, match=r"axis 0: the axis has 40 elements, got 41 \(n \+ past\) as the stop"):
        program(*arguments(21, 20))
    with pytest.raises(ValueError, match=r"axis 1: the axis has 4 \(n\) elements, got 5 \(past\) as the stop"):
        program(*arguments(4, 5))


def test_text_and_what_is_refused_whatever_the_sizes() -> None:
    assert text_of(parse(text := text_of(parse(SLICED)))) == text
    module = SLICED.replace("dtype = i64, value", "dtype = i1, value").replace("tensor<i64>", "tensor<i1>")
    with pytest.raises(Exception, match="expected numbers to compute with for a size, got i1"):
        parse(module)


@needs_compiler
def test_a_comparison_that_is_of_another_type_than_what_it_chooses() -> None:
    """Fuzzing's seed 410: i1 as bytes in memory of unknown extents."""
    text = """func.func @main(%x: tensor<?x?xui8> {graph.dims = ["m", "m"]}, %y: tensor<ui8>) -> tensor<?x?xui8> {
      %0 = graph.less %x, %y : (tensor<?x?xui8>, tensor<ui8>) -> tensor<?x?xi1>
      %1 = graph.where %0, %x, %y : (tensor<?x?xi1>, tensor<?x?xui8>, tensor<ui8>) -> tensor<?x?xui8>
      func.return %1 : tensor<?x?xui8>
    }"""
    program = fuse_opt.compile(text, "cpu", ["wrap-kernels"])
    for m in (1, 5):
        x = np.arange(m * m, dtype=np.uint8).reshape(m, m)
        np.testing.assert_array_equal(program(x, np.array(7, np.uint8)), np.minimum(x, 7))
    assert isinstance(native := program.native, SpecializedPrograms) and not native.made


REPEATED = """func.func @main(%x: tensor<3x?xf32> {graph.dims = ["", "n"]}, %row: tensor<1x?xf32> {graph.dims = ["", "m"]})
    -> (tensor<?x?xf32>, tensor<?x2x?xf32>) {
  %0 = graph.tile %row {repeats = #graph.shape<n, 2>} : (tensor<1x?xf32>) -> tensor<?x?xf32>
  %1 = graph.tile %row {repeats = #graph.shape<m, 2, n>} : (tensor<1x?xf32>) -> tensor<?x2x?xf32>
  %2 = graph.negative %1 : (tensor<?x2x?xf32>) -> tensor<?x2x?xf32>
  func.return %0, %2 : tensor<?x?xf32>, tensor<?x2x?xf32>
}"""


@needs_compiler
@needs_guard_pages
def test_repeats_that_are_sizes() -> None:
    assert text_of(parse(text := text_of(parse(REPEATED)))) == text
    program = fuse_opt.compile(REPEATED, "cpu")
    for n, m in ((1, 1), (2, 5), (17, 3), (4, 33)):
        x, row = np.zeros((3, n), np.float32), np.arange(m, dtype=np.float32)[None]
        wanted = [np.tile(row, (n, 2)), -np.tile(row, (m, 2, n))]
        with guarded() as place:
            found = list(map(np.array, program(place(x, at_end=True), place(row, at_end=n % 2 == 0))))
        for each, value, evaluated in zip(found, wanted, fuse_opt.evaluate(REPEATED, x, row), strict=True):
            np.testing.assert_array_equal(each, value)
            np.testing.assert_array_equal(evaluated, value)
    assert isinstance(native := program.native, SpecializedPrograms) and not native.made


PADDED = """func.func @main(%x: tensor<3x?xf32> {graph.dims = ["", "n"]}, %row: tensor<1x?xf32> {graph.dims = ["", "m"]})
    -> (tensor<4x?xf32>, tensor<?x?xf32>) {
  %0 = graph.pad %x {pads = #graph.shape<0, m, 1, 4 * ((n + 3) floordiv 4) - n>, value = 2.0 : f64}
      : (tensor<3x?xf32>) -> tensor<4x?xf32>
  %1 = graph.pad %row {pads = #graph.shape<n, 0, 0, m>, mode = "edge"} : (tensor<1x?xf32>) -> tensor<?x?xf32>
  %2 = graph.negative %1 : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %0, %2 : tensor<4x?xf32>, tensor<?x?xf32>
}"""


@needs_compiler
@needs_guard_pages
def test_pads_that_are_sizes() -> None:
    text = text_of(parse(PADDED))
    assert text_of(parse(text)) == text
    program = fuse_opt.compile(text, "cpu")
    for n, m in ((1, 1), (2, 5), (16, 3), (4, 33), (37, 2)):
        x, row = np.arange(3 * n, dtype=np.float32).reshape(3, n), np.arange(m, dtype=np.float32)[None]
        wanted = [
            np.pad(x, ((0, 1), (m, -n % 4)), constant_values=2),
            -np.pad(row, ((n, 0), (0, m)), mode="edge"),
        ]
        with guarded() as place:
            found = list(map(np.array, program(place(x, at_end=True), place(row, at_end=n % 2 == 0))))
        for each, value, evaluated in zip(found, wanted, fuse_opt.evaluate(text, x, row), strict=True):
            np.testing.assert_array_equal(each, value)
            np.testing.assert_array_equal(evaluated, value)
    assert isinstance(native := program.native, SpecializedPrograms) and not native.made
