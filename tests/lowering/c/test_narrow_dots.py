"""Tiles whose vectors lie along the contracted dimension, of right operands that are widened as they are read."""

from __future__ import annotations

import ctypes
import platform
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
SHAPES = [(1, 4), (4, 4), (5, 3)]
"""Rows and columns."""
_CALL = """
void product_{name}(long k, const float *x, const unsigned short *w, float *sums, long add) {{
  {name}(k, x, 0, k, w, 0, k, sums, 0, {columns}, add);
}}
"""


def narrow(values: Array, element: str) -> Array:
    """Small integers, which both types have."""
    if element == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.fixture(scope="module", params=MACHINES.values(), ids=list(MACHINES))
def products(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All tiles as `product_TILE`, by what they may use of the machine: one compiler begins for them all."""
    names = {dot_name(element, *shape): shape[1] for element in NARROW for shape in SHAPES}
    text = "".join(_CALL.format(name=name, columns=columns) for name, columns in names.items())
    return build_helpers(sorted(names), text, "cc", request.param, tmp_path_factory.mktemp("dots"))


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_every_build_widens_what_it_reads(element: str, products: ctypes.CDLL, rows: int, columns: int) -> None:
    """Up to where memory ends, at lengths that are no whole vectors, or less than one."""
    product = products[f"product_{dot_name(element, rows, columns)}"]
    rng = np.random.default_rng(3)
    for depth in (*range(1, 36), 64, 130, 771, 1535, 1537, 3601):
        x, w = rng.integers(-20, 20, (rows, depth)), rng.integers(-20, 20, (columns, depth))
        with guarded() as allocate:
            given = (x.astype(np.float32), narrow(w, element), np.ones((rows, columns), np.float32))
            left, right, sums = (allocate(each, at_end=True) for each in given)
            places = [ctypes.c_void_p(each.ctypes.data) for each in (left, right, sums)]
            for add in (1, 0):
                product(ctypes.c_long(depth), *places, ctypes.c_long(add))
                np.testing.assert_array_equal(sums, add + x @ w.T)
            del left, right, sums
