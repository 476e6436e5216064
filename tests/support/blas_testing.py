"""The tasks over NumPy's BLAS, and how near products are to those in f64."""

from __future__ import annotations

import pytest

from fuse_opt.runtime.backends.blas import matmul as blas

TOLERANCE = {"e": 4e-3, "f": 2e-5, "d": 1e-12}
"""By type of element, of numbers about 1 times the root of the number of terms."""


@pytest.fixture(scope="module", autouse=True)
def tasks() -> blas.Tasks:
    found = blas.load_tasks()
    if found is None:
        pytest.skip("no OpenBLAS in NumPy, or no C compiler")
    return found
