"""Transposes whose extents are sizes: squares that vectors turn, the last of which overlap others, and elements at the ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt

Array = np.ndarray[Any, Any]
TURNED = """func.func @main(%x: tensor<?x?xTYPE> {graph.dims = ["m", "n"]}) -> tensor<?x?xTYPE> {
  %r = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<?x?xTYPE>) -> tensor<?x?xTYPE>
  func.return %r : tensor<?x?xTYPE>
}"""
BATCHES = """func.func @main(%x: tensor<?x?x24xf32> {graph.dims = ["b", "n", ""]}) -> tensor<?x24x?xf32> {
  %r = graph.permute_dims %x {axes = array<i64: 0, 2, 1>} : (tensor<?x?x24xf32>) -> tensor<?x24x?xf32>
  func.return %r : tensor<?x24x?xf32>
}"""
TYPES = {"f32": np.float32, "f64": np.float64, "i16": np.int16, "ui8": np.uint8}
EXTENTS = (1, 3, 8, 9, 15, 16, 17, 20, 21, 31, 33, 37, 256, 259, 262)


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.arange(1, np.prod(shape) + 1).astype(dtype).reshape(shape)


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("element", TYPES)
def test_all_elements_are_moved_and_nothing_else_is_touched(element: str) -> None:
    program = fuse_opt.compile(TURNED.replace("TYPE", element))
    for number, (m, n) in enumerate((m, n) for m in EXTENTS for n in EXTENTS):
        x = numbers((m, n), TYPES[element])
        with guarded() as allocate:
            at_end = number % 2 == 0
            out = allocate(np.zeros((n, m), x.dtype), at_end=at_end)
            program(allocate(x, at_end=at_end), out=out)
            np.testing.assert_array_equal(out, x.T, f"{m} x {n}")


@needs_compiler
def test_squares_of_one_task_overlap_those_of_another() -> None:
    program = fuse_opt.compile(BATCHES)
    for b, n in ((1, 1), (3, 15), (2, 21), (5, 260), (2, 1031), (1, 4093)):
        x = numbers((b, n, 24), np.float32)
        np.testing.assert_array_equal(program(x), x.swapaxes(1, 2))
