"""Last vectors of rows of any length: stored whole or by parts where masks are slow, and nothing beside them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from c_printing import BUILDS, build_helpers
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt

BUILDS_OF_ALL = [*BUILDS, pytest.param("cc", "-mavx2", id="vectors of 8, no f16")]
SUM = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]},
                     %y: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32> {
  %z = graph.add %x, %y : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  func.return %z : tensor<?x?xf32>
}"""
IMAGES = """func.func @main(%x: tensor<1x2x?x?xf32> {graph.dims = ["", "", "h", "w"]},
                     %k: tensor<2x1x3x3xf32>) -> tensor<1x2x?x?xf32> {
  %y = graph.conv %x, %k {pads = array<i64: 1, 1, 1, 1>, groups = 2 : i64}
    : (tensor<1x2x?x?xf32>, tensor<2x1x3x3xf32>) -> tensor<1x2x?x?xf32>
  func.return %y : tensor<1x2x?x?xf32>
}"""
SHORT = """func.func @main(%x: tensor<4x9xf32>) -> tensor<4x9xf32> {
  %y = graph.square %x : (tensor<4x9xf32>) -> tensor<4x9xf32>
  func.return %y : tensor<4x9xf32>
}"""

CHOSEN = """func.func @main(%x: tensor<5x21xf32>, %row: tensor<21xf32>, %keep: tensor<5x21xi1>) -> tensor<5x21xf32> {
  %y = graph.multiply %x, %row : (tensor<5x21xf32>, tensor<21xf32>) -> tensor<5x21xf32>
  %z = graph.where %keep, %y, %x : (tensor<5x21xi1>, tensor<5x21xf32>, tensor<5x21xf32>) -> tensor<5x21xf32>
  func.return %z : tensor<5x21xf32>
}"""


@pytest.mark.parametrize("compiler, machine", BUILDS_OF_ALL)
def test_as_many_elements_are_stored_as_are_left(compiler: str, machine: str, tmp_path: Path) -> None:
    """By a mask or by parts: never by both."""
    text = """void put(const float *from, float *to, long at, long count) {
  long bits = fo_stored_bits((1L << count) - 1);
  for (long lane = 0; lane < 16; ++lane) if (bits >> lane & 1) to[at + lane] = from[lane];
  fo_last_f32(from, to, at, count);
}
long place(long whole, long count) { return fo_earlier_place(whole, count); }
"""
    names = ["fo_stored_bits", "fo_last_f32", "fo_earlier_place"]
    library = build_helpers(names, text, compiler, machine, tmp_path)
    source = np.arange(1, 17, dtype=np.float32)
    for count in range(17):
        target = np.zeros(24, np.float32)
        pointers = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data)
        library.put(*pointers, ctypes.c_long(3), ctypes.c_long(count))
        np.testing.assert_array_equal(target, [0] * 3 + [*source[:count]] + [0] * (21 - count))
    library.place.restype = ctypes.c_long
    for count in (1, 15, 16, 17, 32, 33):
        whole = (count - 1) // 16 * 16
        place = library.place(ctypes.c_long(whole), ctypes.c_long(count))
        assert place in (whole, count - 16) and 0 <= place <= whole


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("n", [1, 2, 7, 15, 16, 17, 31, 32, 33, 95])
def test_rows_of_a_size_end_where_memory_does(n: int) -> None:
    rng, program = np.random.default_rng(n), fuse_opt.compile(SUM)
    x, y = rng.standard_normal((3, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    with guarded() as allocate:
        given = [allocate(each, at_end=True) for each in (x, y)]
        out = allocate(np.zeros_like(x), at_end=True)
        program(*given, out=[out])
        np.testing.assert_array_equal(out, x + y)


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("extents", [(1, 1), (5, 2), (3, 9), (4, 15), (2, 16), (3, 33), (7, 95)])
def test_rows_of_images_end_where_memory_does(extents: tuple[int, int]) -> None:
    rng, program = np.random.default_rng(extents[1]), fuse_opt.compile(IMAGES)
    x = rng.integers(-9, 9, (1, 2, *extents)).astype(np.float32)
    k = rng.integers(-9, 9, (2, 1, 3, 3)).astype(np.float32)
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    for at_end in (False, True):
        with guarded() as allocate:
            given, out = allocate(x, at_end=at_end), allocate(np.zeros_like(x), at_end=at_end)
            program(given, k, out=[out])
            np.testing.assert_array_equal(out[0], np.einsum("chwij,cij->chw", windows[0], k[:, 0]))


@needs_compiler
@needs_guard_pages
def test_short_rows_end_where_memory_does() -> None:
    x = np.random.default_rng(9).standard_normal((4, 9)).astype(np.float32)
    with guarded() as allocate:
        given, out = allocate(x, at_end=True), allocate(np.zeros_like(x), at_end=True)
        program = fuse_opt.compile(SHORT)
        program(given, out=[out])
        np.testing.assert_array_equal(out, x * x)


@needs_compiler
@needs_guard_pages
def test_rows_that_booleans_choose_in_are_stored_by_parts() -> None:
    """Booleans that are words in the last vector: their comparison is computed for all lanes, as floats are."""
    rng, program = np.random.default_rng(21), fuse_opt.compile(CHOSEN)
    assert "fo_last_f32(last" in program.source
    x, row = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 21), (21,)))
    keep = rng.random((5, 21)) < 0.5
    with guarded() as allocate:
        given = [allocate(each, at_end=True) for each in (x, row, keep)]
        out = allocate(np.zeros_like(x), at_end=True)
        program(*given, out=[out])
        np.testing.assert_array_equal(out, np.where(keep, x * row, x))
