"""Rows that are copied with zeros around them, for machines with vectors of every length: nothing beside the source is read."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from c_printing import build_helpers
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

_CALL = """
void copy_row(const {c} *from, long step, long first, long last, {c} *to, long count) {{
  fo_row_{element}(from, -first * step, step, first, last, to, 1, count);
}}
"""


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("machine", ["-march=native", "-mavx2", ""])
@pytest.mark.parametrize(("element", "c"), [("f32", "float"), ("f64", "double")])
def test_a_row_has_zeros_around_it(element: str, c: str, machine: str, tmp_path: Path) -> None:
    library = build_helpers([f"fo_row_{element}"], _CALL.format(c=c, element=element), "cc", machine, tmp_path)
    dtype = np.dtype(np.float32 if element == "f32" else np.float64)
    for step in (1, 2, 3):
        for first, last, count in (
            (0, 0, 3),
            (0, 16, 16),
            (1, 8, 9),
            (3, 3, 20),
            (2, 33, 40),
            (17, 34, 35),
            (20, 21, 70),
        ):
            met = np.arange(1, max((last - first - 1) * step + 2, 1), dtype=dtype)
            for at_end in (False, True):
                to = np.full(count + 20, 7.5, dtype)
                with guarded() as allocate:
                    source = allocate(met, at_end=at_end)
                    pointers = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(to.ctypes.data)
                    numbers = [ctypes.c_long(n) for n in (step, first, last, count)]
                    library.copy_row(pointers[0], *numbers[:3], pointers[1], numbers[3])
                wanted = np.zeros(count, dtype)
                wanted[first:last] = met[::step][: last - first]
                np.testing.assert_array_equal(to[1 : count + 1], wanted)
                assert to[0] == 7.5 and set(to[count + 1 :]) <= {0, 7.5} and (to[count + 16 :] == 7.5).all()
