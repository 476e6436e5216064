"""Matrix products on a device, by cuBLAS through ctypes: the backend `cublas`."""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import partial
from typing import Any

from fuse_opt.lowering.program import LibraryCall
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.device_calls import (
    Address,
    Enqueue,
    check,
    load_library,
    load_problem,
    operands_of,
    required,
    workspace_at,
)
from fuse_opt.runtime.backends.nvidia.products import (
    NUMBERS,
    Product,
    compute_type,
    product_cost,
    product_of,
    product_refusal,
    product_workspace,
)
from fuse_opt.runtime.device.driver import Device

VARIABLE = "FUSE_OPT_CUBLAS"
_NO_REDUCED_PRECISION = 16
"""Math mode: sums of 16-bit products are f32 throughout. Its other bits would allow TF32."""
_DEFAULT_ALGORITHM = -1
_FAST = "_fast"
_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_SIGNATURES = {
    "cublasGemmStridedBatchedEx": (
        _P, _I, _I, _I, _I, _I, _P, _P, _I, _I, _L, _P, _I, _I, _L, _P, _P, _I, _I, _L, _I, _I, _I,
    ),
    "cublasCreate_v2": (_P,),
    "cublasSetWorkspace_v2": (_P, _P, ctypes.c_size_t),
    "cublasSetStream_v2": (_P, _P),
    "cublasSetMathMode": (_P, _I),
    "cublasDestroy_v2": (_P,),
}  # fmt: skip


def _chosen() -> str:
    return os.environ.get(VARIABLE, "")


def _library() -> ctypes.CDLL | None:
    return load_library(VARIABLE, _chosen(), "cublas", _SIGNATURES)


def cublas_problem() -> str | None:
    """Why cuBLAS cannot be called here; it is loaded for that."""
    return load_problem(VARIABLE, _chosen(), "cuBLAS", _library)


class Cublas:
    """Products of one program. What cuBLAS chooses depends on shapes, types and alignment alone, and it allocates nothing."""

    def __init__(self, device: Device) -> None:
        """Raises CudaError."""
        self._library = required(_library(), "cuBLAS", VARIABLE)
        handle = ctypes.c_void_p()
        check(self._library.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
        self._handle = handle
        weakref.finalize(self, device.destroy, self._library.cublasDestroy_v2, handle).atexit = False
        check(self._library.cublasSetMathMode(handle, _NO_REDUCED_PRECISION), "cublasSetMathMode")

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues a product."""
        return partial(self._enqueue, product_of(call), call, address)

    def _enqueue(self, product: Product, call: LibraryCall, address: Address, stream: Any) -> None:
        (lhs, rhs), (out,) = operands_of(call), call.outputs
        self._use(stream.handle, *workspace_at(call, address))
        kind, result = NUMBERS[lhs.dtype], NUMBERS[out.dtype]
        scalar = ctypes.c_double if out.dtype == "f64" else ctypes.c_float
        one, zero = scalar(1), scalar(0)
        # cuBLAS counts along columns: to it the arrays are the transposed matrices, and out' = rhs' @ lhs'.
        status = self._library.cublasGemmStridedBatchedEx(
            self._handle, int(product.transposed[1]), int(product.transposed[0]),
            product.columns, product.rows, product.inner, ctypes.addressof(one),
            address(rhs), kind, product.widths[1], product.strides[1],
            address(lhs), kind, product.widths[0], product.strides[0], ctypes.addressof(zero),
            address(out), result, product.columns, product.strides[2],
            product.count, compute_type(lhs.dtype, call.implementation.endswith(_FAST)), _DEFAULT_ALGORITHM,
        )  # fmt: skip
        check(status, "cublasGemmStridedBatchedEx")

    def _use(self, stream: int, workspace: int, nbytes: int) -> None:
        # In this order: a stream that is set takes the workspace away.
        check(self._library.cublasSetStream_v2(self._handle, stream), "cublasSetStream")
        check(self._library.cublasSetWorkspace_v2(self._handle, workspace, nbytes), "cublasSetWorkspace")


def _register() -> None:
    """With `_fast` products of f32 round their operands to TF32."""
    for name in ("cublas.matmul", f"cublas.matmul{_FAST}"):
        native_implementation(
            name,
            "numpy.matmul",
            "graph.matmul",
            product_refusal,
            partial(product_cost, name=name),
            workspace=product_workspace,
            numerics="fast" if name.endswith(_FAST) else "strict",
            platform="cuda",
        )


_register()
