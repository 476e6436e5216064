"""Matrix products on a device, by cuBLAS through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from dataclasses import dataclass
from math import prod
from typing import Any

from fuse_opt.lowering.program import LibraryCall
from fuse_opt.runtime.device.driver import CudaError, Device
from fuse_opt.runtime.device.installation import find_cuda_library

IMPLEMENTATIONS = ("numpy.matmul", "blas.matmul", "blas.matmul_epilogue")
"""What programs call a product."""
WORKSPACE = 32 << 20
"""Bytes, as cuBLAS's manual has them for Hopper. With memory of its own cuBLAS allocates none, so it can be captured."""

_TYPES = {"f32": (0, 68), "f64": (1, 70), "f16": (2, 68), "bf16": (14, 68)}
"""By element type: cuBLAS's number for it, and for what products are summed in."""
_NO_REDUCED_PRECISION = 16
_DEFAULT_ALGORITHM = -1
_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_GEMM_ARGUMENTS = (_P, _I, _I, _I, _I, _I, _P, _P, _I, _I, _L, _P, _I, _I, _L, _P, _P, _I, _I, _L, _I, _I, _I)


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
    strides = (rows * inner * (stacks[0] > 1), inner * columns * (stacks[1] > 1), rows * columns)
    return Product(rows, columns, inner, count, transposed, strides)


@functools.cache
def _library(chosen: str) -> ctypes.CDLL | None:
    """cuBLAS, at a path where one is given, which may be `off`."""
    if chosen == "off":
        return None
    try:
        library = ctypes.CDLL(chosen) if chosen else find_cuda_library("cublas")
        if library is not None:
            library.cublasGemmStridedBatchedEx.argtypes = _GEMM_ARGUMENTS
            library.cublasSetWorkspace_v2.argtypes = (_P, _P, ctypes.c_size_t)
            library.cublasSetStream_v2.argtypes = (_P, _P)
            library.cublasSetMathMode.argtypes = (_P, _I)
            library.cublasDestroy_v2.argtypes = (_P,)
        return library
    except (OSError, AttributeError) as error:
        if chosen:
            raise CudaError(f"FUSE_OPT_CUBLAS={chosen!r}: expected cuBLAS's library, or 'off' ({error})") from error
        return None


class Products:
    """Products of one program, whose runs follow one another."""

    def __init__(self, library: ctypes.CDLL, device: Device) -> None:
        """Raises CudaError."""
        self._library = library
        handle = ctypes.c_void_p()
        self._check(library.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
        self._handle = handle
        self._stream = -1
        weakref.finalize(self, device.destroy, library.cublasDestroy_v2, handle).atexit = False
        self._workspace = device.allocate(WORKSPACE, "cuBLAS")
        self._check(library.cublasSetMathMode(handle, _NO_REDUCED_PRECISION), "cublasSetMathMode")

    def _use(self, stream: int) -> None:
        if stream == self._stream:
            return
        # In this order: a new stream takes the workspace away.
        self._check(self._library.cublasSetStream_v2(self._handle, stream), "cublasSetStream")
        workspace = int(self._workspace)
        self._check(self._library.cublasSetWorkspace_v2(self._handle, workspace, WORKSPACE), "cublasSetWorkspace")
        self._stream = stream

    def enqueue(self, product: Product, dtype: str, lhs: int, rhs: int, out: int, stream: Any) -> None:
        """Enqueues a stack of products of matrices at these addresses on a stream of PyCUDA's. Raises CudaError."""
        self._use(stream.handle)
        kind, summed = _TYPES[dtype]
        scalar = ctypes.c_double if dtype == "f64" else ctypes.c_float
        one, zero = scalar(1), scalar(0)
        # cuBLAS counts along columns: to it the arrays are the transposed matrices, and out' = rhs' @ lhs'.
        widths = [
            product.rows if product.transposed[0] else product.inner,
            product.inner if product.transposed[1] else product.columns,
        ]
        status = self._library.cublasGemmStridedBatchedEx(
            self._handle, int(product.transposed[1]), int(product.transposed[0]),
            product.columns, product.rows, product.inner, ctypes.addressof(one),
            rhs, kind, widths[1], product.strides[1],
            lhs, kind, widths[0], product.strides[0], ctypes.addressof(zero),
            out, kind, product.columns, product.strides[2],
            product.count, summed, _DEFAULT_ALGORITHM,
        )  # fmt: skip
        self._check(status, "cublasGemmStridedBatchedEx")

    @staticmethod
    def _check(status: int, name: str) -> None:
        if status:
            raise CudaError(f"{name} failed with status {status}")


def make_products(device: Device) -> Products | None:
    """
    What runs products; None where there is no cuBLAS here. `$FUSE_OPT_CUBLAS` is the path of its library,
    or `off`. Raises CudaError.
    """
    library = _library(os.environ.get("FUSE_OPT_CUBLAS", ""))
    return None if library is None else Products(library, device)


def product_of(call: LibraryCall) -> tuple[Product, str] | None:
    """A library call as a product with its element type; None where it is none that cuBLAS can do."""
    if call.implementation not in IMPLEMENTATIONS:
        return None
    dtypes = {ref.dtype for ref in (*call.inputs, *call.outputs)}
    if len(dtypes) != 1 or not dtypes < _TYPES.keys():
        return None
    lhs, rhs = call.inputs
    transposed = bool(call.config.get("transpose_lhs", 0)), bool(call.config.get("transpose_rhs", 0))
    product = plan_product(lhs.shape, rhs.shape, call.outputs[0].shape, transposed)
    return None if product is None else (product, dtypes.pop())
