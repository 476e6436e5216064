"""Rows that are copied with zeros around them, for machines with vectors of every length: nothing beside the source is read."""

from __future__ import annotations

import ctypes
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from c_printing import build_helpers
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

ROOM = 48
"""Elements behind the last row: some are zeros, fewer than a vector has may be, and others are not."""
BEHIND = (4, 19, 32)
"""Elements behind the last row that are zeros: fewer than a vector has, and more, after which none is."""
_CALL = """
void copy_rows(const {c} *from, long row, long step, long first, long last, {c} *to, long count, long behind) {{
  fo_rows_{element}(from, -first * step - row, row, step, first, last, to, 1, count, 1, 3, 3 * count + behind, 2, 2 * row,
      3 * count + {room});
}}
"""


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("machine", ["-march=native", "-mavx2", ""])
@pytest.mark.parametrize(("element", "c"), [("f32", "float"), ("f64", "double")])
def test_rows_have_zeros_around_them(element: str, c: str, machine: str, tmp_path: Path) -> None:
    library = build_helpers(
        [f"fo_rows_{element}"], _CALL.format(c=c, element=element, room=ROOM), "cc", machine, tmp_path
    )
    dtype = np.dtype(np.float32 if element == "f32" else np.float64)
    ends = ((0, 0, 3), (0, 16, 16), (1, 8, 9), (3, 3, 20), (2, 33, 40), (17, 34, 35), (20, 21, 70), (5, 300, 301))
    for (first, last, count), step, at_end, zeros in product(ends, (1, 2, 3), (False, True), BEHIND):
        met = np.arange(1, max((last - first - 1) * step + 2, 1), dtype=dtype)
        rows = np.stack([met, -met, 2 * met, 3 * met])
        to = np.full(2 * (3 * count + ROOM) + 1, 7.5, dtype)
        with guarded() as allocate:
            source = allocate(rows.ravel(), at_end=at_end)
            numbers = [ctypes.c_long(n) for n in (len(met), step, first, last)]
            pointers = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(to.ctypes.data)
            library.copy_rows(pointers[0], *numbers, pointers[1], ctypes.c_long(count), ctypes.c_long(zeros))
        assert to[0] == 7.5
        for channel, found in enumerate(to[1:].reshape(2, -1)):
            wanted = np.zeros((3, count), dtype)
            wanted[1:, first:last] = rows[2 * channel :][:2, ::step][:, : last - first]
            np.testing.assert_array_equal(found[: 3 * count].reshape(3, count), wanted)
            behind = found[3 * count :]
            assert (behind[:zeros] == 0).all() and set(behind) <= {0, 7.5}
            assert (behind[zeros if zeros >= 16 else 20 :] == 7.5).all(), (count, zeros)
