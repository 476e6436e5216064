"""Programs of one op that NumPy's BLAS runs, and how near products are to those in f64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fuse_opt
from fuse_opt.runtime.backends.blas import matmul as blas
from fuse_opt.runtime.backends.blas.offers import blas_problem

Array = NDArray[Any]

TOLERANCE = {"f": 2e-5, "d": 1e-12}
"""By type of element, of numbers about 1 times the root of the number of terms."""
PIPELINE = "wrap-kernels,select-implementation{prefer=blas}"


@pytest.fixture(scope="module", autouse=True)
def tasks() -> blas.Tasks:
    found = None if blas_problem() else blas.load_tasks()
    if found is None:
        pytest.skip("no OpenBLAS in NumPy, or no C compiler")
    return found


def run(op: str, inputs: Sequence[Array], shape: Sequence[int], config: Mapping[str, Any] | None = None) -> Array:
    """What the op makes of the arrays, by the BLAS unless one is empty."""
    element = {"f": "f32", "d": "f64"}[inputs[0].dtype.char]
    *types, result = ("x".join(map(str, (*extents, element))) for extents in (*(a.shape for a in inputs), shape))
    attributes = ", ".join(f"{name} = {_text(value)}" for name, value in (config or {}).items())
    operands = ", ".join(f"tensor<{t}>" for t in types)
    arguments = ", ".join(f"%{k}: tensor<{t}>" for k, t in enumerate(types))
    program = fuse_opt.compile(
        f"func.func @main({arguments}) -> tensor<{result}> {{\n"
        f"  %r = graph.{op} {', '.join(f'%{k}' for k in range(len(types)))} {{{attributes}}} : ({operands}) -> tensor<{result}>\n"
        f"  func.return %r : tensor<{result}>\n}}",
        pipeline=PIPELINE,
    )
    whole = all(0 not in extents for extents in (*(a.shape for a in inputs), shape))
    assert program.implementations == {f"{'blas' if whole else 'numpy'}.{op}": 1}
    found = program(*inputs)
    assert not whole or program.stats.foreign_calls == 1
    return found


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"array<i64: {str(value)[1:-1].rstrip(',')}>"  # pyright: ignore[reportUnknownArgumentType]
    return str(value).lower() if isinstance(value, bool) else f"{value} : i64"


def assert_close(actual: Array, expected: Array, terms: int) -> None:
    tolerance = TOLERANCE[actual.dtype.char] * max(1, terms) ** 0.5
    np.testing.assert_allclose(actual.astype(float), expected, rtol=tolerance, atol=tolerance)
