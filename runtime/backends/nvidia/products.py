"""Matrix products as libraries of a device have them: stacks of matrices at constant distances, and the types they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.dialects.types.extents import exact_quotient, is_number, may_exceed
from fuse_opt.lowering.program import ConfigValue, LibraryCall
from fuse_opt.runtime.backends.nvidia.device_calls import operands_of, with_room

MOST_WORKSPACE = 32 << 20
"""Bytes: what cuBLAS's manual recommends for Hopper, and more than for others."""
_LEAST_WORKSPACE = 64 << 10
"""Bytes: with 16 KiB no routine fails for want of them."""
_PARTIAL_SUMS = 32
"""Parts into which few and long sums may be cut; f32 each."""
_MOST_EXTENT = 1 << 31

NUMBERS = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
"""CUDA's numbers of element types (cudaDataType)."""
_COMPUTE = {"f64": 70}
_F32, _TF32 = 68, 77
"""What sums are computed in (cublasComputeType): f32 throughout, or operands rounded to 10 bits of fraction."""
_TYPES = {*((t, t, t) for t in NUMBERS), ("f16", "f16", "f32"), ("bf16", "bf16", "f32")}


@dataclass(frozen=True)
class Product:
    """A stack of products of matrices in C order: `out[b] = op(lhs[b]) @ op(rhs[b])`, each [rows, columns]."""

    rows: int
    columns: int
    inner: int
    count: int
    transposed: tuple[bool, bool]
    strides: tuple[int, int, int]
    """Elements from a matrix of lhs, rhs and out to the next one; 0 where all are the same."""

    @property
    def widths(self) -> tuple[int, int]:
        """Elements of a row of lhs and of rhs, as they lie in memory."""
        first, second = self.transposed
        return (self.rows if first else self.inner), (self.inner if second else self.columns)


def plan_product(
    lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], transposed: tuple[bool, bool]
) -> Product | None:
    """What np.matmul does with arrays of these shapes as one stack of products; None where it is none, or empty."""
    if len(lhs) == 1:
        lhs = (1, *lhs)
    if len(rhs) == 1:
        rhs = (*rhs, 1)
    rows, inner = reversed(lhs[-2:]) if transposed[0] else lhs[-2:]
    columns = rhs[-2] if transposed[1] else rhs[-1]
    stacks = prod(lhs[:-2]), prod(rhs[:-2])
    if 0 in (*lhs, *rhs, *out):
        return None
    if stacks[1] == 1 and not transposed[0]:
        return Product(stacks[0] * rows, columns, inner, 1, transposed, (0, 0, 0))
    count = prod(out) // (rows * columns)
    if any(stack not in (1, count) for stack in stacks):
        return None
    first, second = (may_exceed(stack, 1) for stack in stacks)
    strides = (rows * inner * first, inner * columns * second, rows * columns)
    return Product(rows, columns, inner, count, transposed, strides)


def compute_type(dtype: str, fast: bool = False) -> int:
    """cuBLAS's number for what products of an element type are summed in."""
    return _COMPUTE.get(dtype, _TF32 if fast and dtype == "f32" else _F32)


def product_of(call: LibraryCall) -> Product:
    """A library call, which an offer took, as a product."""
    lhs, rhs = operands_of(call)
    product = plan_product(lhs.shape, rhs.shape, call.outputs[0].shape, _transposed(call.config))
    assert product is not None, call
    return product


def product_refusal(site: Site) -> str | None:
    """Why a product is none for these libraries, as a code."""
    if not site.is_known:
        return "extent-unknown"
    (a, b), (out,) = site.operands, site.results
    if (a.dtype, b.dtype, out.dtype) not in _TYPES:
        return "dtype"
    if not (a.size and b.size and out.size):
        return "empty"
    product = plan_product(a.shape, b.shape, out.shape, _transposed(site.config))
    if product is None:
        return "shape"
    extents = (product.rows, product.columns, product.inner, product.count)
    # A size that large gives arrays that no device has memory for.
    return "extent" if any(is_number(n) and n >= _MOST_EXTENT for n in extents) else None


_ROW_BYTES = 16
"""Rows that begin at no multiples of it are read in small words: the rate is at most that of `products_odd`."""


def product_cost(site: Site, name: str) -> Cost:
    """At the rate that the device's file has for the implementation, with a launch."""
    assert site.device is not None
    dtype = site.operands[0].dtype
    rate = site.device.implementation_rate(name, dtype)
    if any(
        exact_quotient(tensor.shape[-1] * tensor.itemsize, _ROW_BYTES) is None
        for tensor in (*site.operands, *site.results)
        if tensor.shape
    ):
        rate = min(rate, site.device.implementation_rate("products_odd", dtype))
    return Cost(site.operations, site.nbytes, rate, site.device.launch)


def product_workspace(site: Site) -> int:
    """Room for partial sums of the result, as far as cuBLAS makes use of any."""
    wanted = _LEAST_WORKSPACE + 4 * _PARTIAL_SUMS * sum(result.size for result in site.results)
    return with_room(min(wanted, MOST_WORKSPACE))


def _transposed(config: Mapping[str, ConfigValue]) -> tuple[bool, bool]:
    return bool(config.get("transpose_lhs", 0)), bool(config.get("transpose_rhs", 0))
