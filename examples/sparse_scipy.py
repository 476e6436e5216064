"""Products of a left operand that is mostly zeros, by SciPy: a call of Python, given to any tool as --backend=sparse_scipy.py."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.backend import Backend, Cost, Refused, Site

try:
    sparse: Any = import_module("scipy.sparse")
except ImportError as error:
    raise Refused(f"no scipy: {error}") from error

backend = Backend("scipy", licence="BSD-3-Clause")
DENSITY = 0.02
"""The part of the left operand that is taken not to be zero: costs see types, never elements."""
STORED_RATE = 0.35
"""What a product of stored elements reaches of the rate of a dense one."""


def accepts(site: Site) -> str | None:
    """None, or why not: a reason code, which the remark says."""
    a, b = site.operands
    if site.dtypes not in ({"f32"}, {"f64"}):
        return "dtype"
    return None if len(a.shape) == len(b.shape) == 2 else "rank"


def cost(site: Site) -> Cost:
    """Seconds: of the elements that are stored, and of two passes over the left operand to find them."""
    assert site.device is not None
    rate = STORED_RATE * site.device.product_rate(site.operands[0].dtype)
    return Cost(DENSITY * site.operations, site.nbytes + site.operands[0].nbytes, rate, call=50e-6)


@backend.implementation("graph.matmul", accepts=accepts, cost=cost)
def matmul(inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], config: Mapping[str, Any]) -> None:
    """The stored elements times rows of the right operand; a zero times what is not finite is NaN, so that is not left out."""
    a, b = (x.T if config.get(f"transpose_{side}") else x for x, side in zip(inputs, ("lhs", "rhs"), strict=True))
    if np.isfinite(b).all():
        outputs[0][...] = sparse.csr_array(a) @ b
    else:
        np.matmul(a, b, out=outputs[0])
