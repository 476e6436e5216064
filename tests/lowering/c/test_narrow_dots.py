"""Tiles whose vectors lie along the contracted dimension, of right operands that are widened as they are read."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import build_helpers
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

from fuse_opt.lowering.c.headers.product_dots import NARROW, dot_name

Array = np.ndarray[Any, Any]
MACHINES = {"native": "-march=native", "halves": "-mavx2 -mf16c", "halves one by one": "-mavx", "one by one": ""}
if platform.machine() != "x86_64":
    del MACHINES["halves"], MACHINES["halves one by one"]
_CALL = """
void product(long k, const float *x, const unsigned short *w, float *sums, long add) {{
  {name}(k, x, 0, k, w, 0, k, sums, 0, {columns}, add);
}}
"""


def narrow(values: Array, element: str) -> Array:
    """Small integers, which both types have."""
    if element == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (4, 4), (5, 3)])
def test_every_build_widens_what_it_reads(element: str, machine: str, rows: int, columns: int, tmp_path: Path) -> None:
    """Up to where memory ends, at lengths that are no whole vectors, or less than one."""
    name = dot_name(element, rows, columns)
    library = build_helpers([name], _CALL.format(name=name, columns=columns), "cc", machine, tmp_path)
    rng = np.random.default_rng(3)
    for depth in (*range(1, 36), 64, 130, 771):
        x, w = rng.integers(-20, 20, (rows, depth)), rng.integers(-20, 20, (columns, depth))
        with guarded() as allocate:
            given = (x.astype(np.float32), narrow(w, element), np.ones((rows, columns), np.float32))
            left, right, sums = (allocate(each, at_end=True) for each in given)
            places = [ctypes.c_void_p(each.ctypes.data) for each in (left, right, sums)]
            for add in (1, 0):
                library.product(ctypes.c_long(depth), *places, ctypes.c_long(add))
                np.testing.assert_array_equal(sums, add + x @ w.T)
            del left, right, sums
