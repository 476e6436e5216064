"""Matrix products on a device, by cuBLAS through ctypes: the backend `cublas`."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from typing import Any

from fuse_opt.lowering.program import LibraryCall
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.device_calls import (
    Address,
    Enqueue,
    Handles,
    LibraryFile,
    operands_of,
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


VARIABLE = "FUSE_OPT_CUBLAS"
LIBRARY = LibraryFile("cublas", "cuBLAS", VARIABLE, lambda: os.environ.get(VARIABLE, ""), _SIGNATURES)


class Cublas(Handles):
    """Products of one program. What cuBLAS chooses depends on shapes, types and alignment alone, and it allocates nothing."""

    def __init__(self, device: Device) -> None:
        """Raises CudaError."""
        super().__init__(LIBRARY, device)
        self._handle = self._made("cublasCreate_v2", "cublasDestroy_v2")
        self._call("cublasSetMathMode", self._handle, _NO_REDUCED_PRECISION)

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
        self._call(
            "cublasGemmStridedBatchedEx", self._handle, int(product.transposed[1]), int(product.transposed[0]),
            product.columns, product.rows, product.inner, ctypes.addressof(one),
            address(rhs), kind, product.widths[1], product.strides[1],
            address(lhs), kind, product.widths[0], product.strides[0], ctypes.addressof(zero),
            address(out), result, product.columns, product.strides[2],
            product.count, compute_type(lhs.dtype, call.implementation.endswith(_FAST)), _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def _use(self, stream: int, workspace: int, nbytes: int) -> None:
        # In this order: a stream that is set takes the workspace away.
        self._call("cublasSetStream_v2", self._handle, stream)
        self._call("cublasSetWorkspace_v2", self._handle, workspace, nbytes)


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
            sized=True,
        )


_register()
