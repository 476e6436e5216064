"""The products of a BLAS of mine: one file, given to any tool as --backend=my_blas.py."""

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_float, c_int
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from fuse_opt.backend import Backend, Cost, Refused, Site

try:
    package: Any = import_module("scipy_openblas32")
    LIBRARY = ctypes.CDLL(f"{package.get_lib_dir()}/lib{package.get_library()}.so")
    LIBRARY.scipy_openblas_set_num_threads(1)  # what runs in parallel is the program's pool
except (ImportError, OSError) as error:
    raise Refused(f"no scipy-openblas32: {error}") from error

backend = Backend("myblas", licence="BSD-2-Clause")


def accepts(site: Site) -> str | None:
    """None, or why not: a reason code, which the remark says."""
    a, b = site.operands
    if site.dtypes != {"f32"}:
        return "dtype"
    if len(a.shape) != 2 or len(b.shape) != 2:
        return "rank"
    return None if site.is_static and min(*a.shape, *b.shape) > 0 and max(*a.shape, *b.shape) < 2**31 else "extent"


def cost(site: Site) -> Cost:
    """Seconds, by what the machine's record says of products."""
    assert site.device is not None
    return Cost(site.operations, site.nbytes, 0.8 * site.device.product_rate("f32"), call=5e-6)


@backend.implementation("graph.matmul", accepts=accepts, cost=cost)
def matmul(inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], config: Mapping[str, Any]) -> None:
    """cblas_sgemm over arrays in C order."""
    (a, b), (c,) = inputs, outputs
    ta, tb = (bool(config.get(f"transpose_{side}")) for side in ("lhs", "rhs"))
    (m, n), k = c.shape, a.shape[0 if ta else 1]
    at = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
    LIBRARY.scipy_cblas_sgemm(
        c_int(101), c_int(112 if ta else 111), c_int(112 if tb else 111), c_int(m), c_int(n), c_int(k), c_float(1),
        at[0], c_int(a.shape[1]), at[1], c_int(b.shape[1]), c_float(0), at[2], c_int(n))  # fmt: skip
