"""Products of csr matrices and dense ones on a device, by cuSPARSE through ctypes: the backend `cusparse`.

The library takes a pattern whose entries end where its arrays do. Ours have a capacity, and how many entries there are is known
on the device alone. So what is behind the last entry is given to the last row, as zeros: nothing waits for the device, and a call
is part of a graph. The same kernels look at the pattern first, as the library reads where it says.

No algorithm of it (12.6, on an H200) is right of infinities and has the same bits in each run. `CSR_ALG3`, said to have them, has
other ones for rows of very different lengths, and makes NaN of rows that read nothing infinite where others do. The one taken
keeps rows apart, but adds long ones in any order: it is for `numerics=fast`, where its backend is named (`--backend=cusparse`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.csr_products import moved_bytes
from fuse_opt.runtime.backends.nvidia.device_calls import (
    WORKSPACE_ALIGNMENT,
    Address,
    Checks,
    DeviceLibrary,
    Enqueue,
    Handles,
    LibraryFile,
    with_room,
)
from fuse_opt.runtime.backends.nvidia.products import NUMBERS
from fuse_opt.runtime.device.driver import Device

# Values of enums in cusparse.h.
_AS_IT_IS, _INDEX_I32, _FROM_ZERO, _ROW_MAJOR = 0, 2, 0, 2
_BY_ROWS = 6
"""CUSPARSE_SPMM_CSR_ALG2, for matrices whose rows are contiguous."""
_NOWHERE = WORKSPACE_ALIGNMENT
"""Where arrays are said to be until the first run."""
_LIBRARYS_OWN = 1 << 20
"""Bytes planned for the library's buffer, whose size its documentation does not tell."""
_MOST_EXTENT = 1 << 31
_LAUNCHES = 5
"""Three kernels before, and some two of the library's."""

_P, _I, _S, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int64
_PRODUCT = (_P, _I, _I, _P, _P, _P, _P, _P, _I, _I, _P)
_SIGNATURES = {
    "cusparseCreate": (_P,),
    "cusparseDestroy": (_P,),
    "cusparseSetStream": (_P, _P),
    "cusparseCreateCsr": (_P, _L, _L, _L, _P, _P, _P, _I, _I, _I, _I),
    "cusparseCsrSetPointers": (_P, _P, _P, _P),
    "cusparseDestroySpMat": (_P,),
    "cusparseCreateDnMat": (_P, _L, _L, _L, _P, _I, _I),
    "cusparseDnMatSetValues": (_P, _P),
    "cusparseDestroyDnMat": (_P,),
    "cusparseSpMM_bufferSize": _PRODUCT,
    "cusparseSpMM": _PRODUCT,
}

VARIABLE = "FUSE_OPT_CUSPARSE"
LIBRARY = LibraryFile("cusparse", "cuSPARSE", VARIABLE, lambda: os.environ.get(VARIABLE, ""), _SIGNATURES)


@dataclass(frozen=True)
class _Pattern:
    """Where in a workspace the pattern for the library is, and its buffer."""

    ends: BufferRef
    columns: BufferRef
    entries: BufferRef
    broken: BufferRef
    buffer: BufferRef


@dataclass(frozen=True)
class _Bound:
    """A product as the library has it."""

    matrices: tuple[int, int, int]
    scalars: Any
    """One and zero."""
    memory: Any
    """The library's buffer where it asked for more than was planned."""
    before: Enqueue
    """What runs before the call."""


class Cusparse(Handles):
    """Products of one program."""

    def __init__(self, device: Device, kernels: DeviceLibrary) -> None:
        """With what runs kernels of our own. Raises CudaError."""
        super().__init__(LIBRARY, device)
        self._kernels = kernels
        self._handle = self._made("cusparseCreate", "cusparseDestroy")

    def check(self) -> None:
        """Raises what a run that is over is refused with: for a pattern that is none."""
        if isinstance(self._kernels, Checks):
            self._kernels.check()

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues a product with the kernels around it."""
        indptr, indices, values, x = call.inputs
        (out,) = call.outputs
        kind = NUMBERS[values.dtype]
        pattern = _pattern(call)
        matrices = (
            self._sparse((out.shape[0], x.shape[0], indices.shape[0]), kind),
            self._dense(x.shape, kind),
            self._dense(out.shape, kind),
        )
        scalars = ((ctypes.c_double if kind == NUMBERS["f64"] else ctypes.c_float) * 2)(1, 0)
        wanted = ctypes.c_size_t()
        self._call("cusparseSpMM_bufferSize", *self._arguments(matrices, scalars, kind), ctypes.addressof(wanted))
        memory = self._buffer(wanted.value, pattern.buffer, "cuSPARSE's buffer")
        padded = (pattern.ends, pattern.columns, pattern.entries, pattern.broken)
        step = LibraryCall(
            "gpu.csr_padded", call.operation, (indptr, indices, values), padded, {"columns": x.shape[0]}, call.run
        )
        before = self._kernels.bound(step, address)
        return partial(self._enqueue, _Bound(matrices, scalars, memory, before), pattern, call, address)

    def _enqueue(self, bound: _Bound, pattern: _Pattern, call: LibraryCall, address: Address, stream: Any) -> None:
        x = call.inputs[3]
        bound.before(stream)
        sparse, dense, result = bound.matrices
        self._call("cusparseSetStream", self._handle, stream.handle)
        self._call("cusparseCsrSetPointers", sparse, *map(address, (pattern.ends, pattern.columns, pattern.entries)))
        self._call("cusparseDnMatSetValues", dense, address(x))
        self._call("cusparseDnMatSetValues", result, address(call.outputs[0]))
        buffer = address(pattern.buffer) if bound.memory is None else int(bound.memory)
        self._call("cusparseSpMM", *self._arguments(bound.matrices, bound.scalars, NUMBERS[x.dtype]), buffer)

    def _arguments(self, matrices: tuple[int, int, int], scalars: Any, kind: int) -> tuple[int, ...]:
        one = ctypes.addressof(scalars)
        zero = one + ctypes.sizeof(scalars) // 2
        sparse, dense, result = matrices
        return self._handle, _AS_IT_IS, _AS_IT_IS, one, sparse, dense, zero, result, kind, _BY_ROWS

    def _sparse(self, extents: tuple[int, int, int], kind: int) -> int:
        create, destroy = "cusparseCreateCsr", "cusparseDestroySpMat"
        nowhere, numbers = (_NOWHERE,) * 3, (_INDEX_I32, _INDEX_I32, _FROM_ZERO, kind)
        return self._made(create, destroy, *extents, *nowhere, *numbers)

    def _dense(self, shape: tuple[int, ...], kind: int) -> int:
        rows, columns = shape
        create, destroy = "cusparseCreateDnMat", "cusparseDestroyDnMat"
        return self._made(create, destroy, rows, columns, columns, _NOWHERE, kind, _ROW_MAJOR)


def _pattern(call: LibraryCall) -> _Pattern:
    """Where the parts of the workspace are, each at a multiple of WORKSPACE_ALIGNMENT."""
    slot = call.workspace
    assert slot is not None, call
    rows, capacity = call.inputs[0].shape[0], call.inputs[1].shape[0]
    found, at = list[BufferRef](), slot.offset
    for count, dtype in ((rows, "i32"), (capacity, "i32"), (capacity, call.inputs[2].dtype), (1, "i32")):
        at += -at % WORKSPACE_ALIGNMENT
        found.append(BufferRef(slot.buffer, at, (count,), dtype))
        at += found[-1].nbytes
    at += -at % WORKSPACE_ALIGNMENT
    ends, columns, entries, broken = found
    return _Pattern(ends, columns, entries, broken, BufferRef(slot.buffer, at, (slot.offset + slot.nbytes - at,), "i8"))


def _accepts(site: Site) -> str | None:
    if not site.is_static:
        return "extent-unknown"
    indptr, indices, values, x = site.operands
    if values.dtype not in ("f32", "f64"):
        return "dtype"  # of others it is not said in what sums are between the parts of a row
    if not all(tensor.size for tensor in (*site.operands, *site.results)):
        return "empty"
    if x.shape[1] == 1:
        return "vector"  # for which it may take another algorithm
    if indices.size > (indptr.size - 1) * x.shape[0]:
        return "capacity"  # more entries than the matrix has elements: the library refuses it
    extents: Sequence[int] = (indptr.size, indices.size, *x.shape)
    return "extent" if max(extents) >= _MOST_EXTENT else None


def _cost(site: Site) -> Cost:
    """
    It divides entries among threads, however rows share them; but there are kernels before it, which copy pattern and values.
    """
    assert site.device is not None
    indices, values = site.operands[1:3]
    copied = 2 * indices.size * (4 + values.itemsize)
    return Cost(nbytes=moved_bytes(site) + copied, call=_LAUNCHES * site.device.launch)


def _workspace(site: Site) -> int:
    """A pattern of its own, and what the library works in."""
    indptr, indices, values, _ = site.operands
    parts = (4 * indptr.size, 4 * indices.size, values.itemsize * values.size, 4)
    return with_room(sum(-(-part // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT for part in parts) + _LIBRARYS_OWN)


def _register() -> None:
    native_implementation(
        "cusparse.csr_matmul",
        "numpy.csr_matmul",
        "graph.csr_matmul",
        _accepts,
        _cost,
        workspace=_workspace,
        optional=True,
        numerics="fast",
        platform="cuda",
    )


_register()
