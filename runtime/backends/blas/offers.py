"""What NumPy's own BLAS runs: products, and convolutions as products with windows. Nothing is loaded to answer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

from fuse_opt.dialects.implementation.offers import PointwiseOffer
from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import Config
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL, convolution_cost, product_cost
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.blas.convolution import convolution_table
from fuse_opt.runtime.backends.blas.convolution_backward import transposed_table, weight_gradient_table
from fuse_opt.runtime.backends.blas.matmul import product_table
from fuse_opt.runtime.backends.blas.routines import find_routines

_Shape = tuple[int, ...]
_Table = Callable[[int, _Shape, _Shape, _Shape, Config], "ctypes.Array[ctypes.c_int64] | None"]


def blas_problem() -> str | None:
    """Why NumPy's BLAS cannot be called by programs here."""
    if find_routines() is None:
        return "NumPy multiplies by something else than an OpenBLAS for several threads"
    return None


def _accepts(table: _Table) -> Callable[[Site], str | None]:
    """Takes what there is a plan for with integers of 32 bits, which any BLAS has."""

    def refusal(site: Site) -> str | None:
        if not site.is_static:
            return "extent-unknown"
        if site.dtypes not in ({"f32"}, {"f64"}):
            return "dtype"
        if not all(tensor.size for tensor in (*site.operands, *site.results)):
            return "empty"
        (a, b), (out,) = site.operands, site.results
        return None if table(a.itemsize, a.shape, b.shape, out.shape, site.config) is not None else "shape"

    return refusal


def _cheaper(cost: Callable[[Site], Cost]) -> Callable[[Site], Cost]:
    """What NumPy's function costs, without Python."""
    return lambda site: replace(cost(site), call=NATIVE_CALL)


def _product(item: int, a: _Shape, b: _Shape, c: _Shape, config: Config) -> ctypes.Array[ctypes.c_int64] | None:
    return product_table(False, 1, item, a, b, c, config)


def _convolution(item: int, x: _Shape, w: _Shape, y: _Shape, config: Config) -> ctypes.Array[ctypes.c_int64] | None:
    return convolution_table(False, 1, item, x, w, y, config)


def _transposed(item: int, x: _Shape, w: _Shape, y: _Shape, config: Config) -> ctypes.Array[ctypes.c_int64] | None:
    return transposed_table(False, item, x, w, y, config)


def _weight(item: int, grad: _Shape, x: _Shape, w: _Shape, config: Config) -> ctypes.Array[ctypes.c_int64] | None:
    return weight_gradient_table(False, item, grad, x, w, config)


def _offer(what: str, table: _Table, cost: Callable[[Site], Cost]) -> None:
    native_implementation(f"blas.{what}", f"numpy.{what}", f"graph.{what}", _accepts(table), _cheaper(cost))


_offer("matmul", _product, product_cost)
_offer("conv", _convolution, convolution_cost)
_offer("conv_transpose", _transposed, convolution_cost)
_offer("conv_backward_data", _transposed, convolution_cost)
_offer("conv_backward_weight", _weight, convolution_cost)
native_implementation(
    "blas.matmul_epilogue",
    "numpy.matmul",
    "graph.matmul",
    _accepts(_product),
    _cheaper(product_cost),
    epilogue=PointwiseOffer(),
)
