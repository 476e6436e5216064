"""Arrays of other libraries on a device: their memory without a copy, the stream they belong to, and new ones like them.

A torch tensor is asked by its own methods, anything else by `__cuda_array_interface__` (version 3, Numba's manual) or by
DLPack (the Python array API standard).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any, Literal

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES
from fuse_opt.lowering.program.float_formats import FORMATS

Kind = Literal["torch", "cupy", "array"]

_TORCH_NAMES = {
    **{kind: name for name, kind in NUMPY_NAMES.items() if isinstance(kind, str)},
    **{narrow.foreign: narrow.name for narrow in FORMATS},
}
_OF_TORCH = {f"torch.{name}": element for name, element in _TORCH_NAMES.items()}
_TO_TORCH = {element: name for name, element in _TORCH_NAMES.items()}
_OF_TYPESTR = {np.dtype(kind).str: name for name, kind in NUMPY_NAMES.items() if np.dtype(kind).kind != "V"}
_RAW_BYTES = {f"{order}V{size}": f"{size} raw bytes" for order in "<|" for size in (1, 2)}
"""What bf16 and 8-bit floats are called where NumPy has no type for them."""
_OF_DLPACK = {
    (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64",
    (1, 8): "ui8", (1, 16): "ui16", (1, 32): "ui32", (1, 64): "ui64", (2, 16): "f16", (2, 32): "f32",
    (2, 64): "f64", (4, 16): "bf16", (6, 8): "i1", (10, 8): "f8E4M3FN", (12, 8): "f8E5M2",
}  # fmt: skip
"""By DLPack's code and bits."""
_CUDA, _CUDA_MANAGED = 2, 13
"""DLPack's numbers of devices."""


@dataclass(slots=True)  # not frozen: making one would cost three times as much
class DeviceArray:
    """Memory of somebody's array on the device."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    """The name of the element type in the IR."""
    contiguous: bool
    """In C order."""
    writeable: bool
    device: int | None
    """The number of the device, where the array says it."""
    kind: Kind
    stream: int | None
    """The handle of the stream that its maker works on, or has made it ready for, where it says one."""
    owner: Any
    """The array itself."""
    capsule: object = None
    """What keeps the memory alive besides."""

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.itemsize

    @property
    def itemsize(self) -> int:
        raw = self.dtype.endswith("raw bytes")
        return int(self.dtype[0]) if raw else np.dtype(NUMPY_NAMES[self.dtype]).itemsize

    def fits(self, dtype: str) -> bool:
        """Whether its elements are of this type, or are bytes that may be."""
        return self.dtype == dtype or self.dtype == f"{np.dtype(NUMPY_NAMES[dtype]).itemsize} raw bytes"


def device_array(value: Any, own_stream: int) -> DeviceArray | None:
    """
    The memory of an array on a device; None for one on the host. What is made ready by its library for a stream of ours
    is made ready for `own_stream`. Raises ValueError for an array that cannot be described.
    """
    if type(value) is np.ndarray:
        return None
    if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
        return _of_torch(torch, value)
    if (interface := getattr(value, "__cuda_array_interface__", None)) is not None:
        return _of_interface(value, interface)
    place = getattr(value, "__dlpack_device__", None)
    if place is not None and place()[0] in (_CUDA, _CUDA_MANAGED):
        return _of_dlpack(value, place()[1], own_stream)
    return None


def _of_torch(torch: Any, tensor: Any) -> DeviceArray | None:
    if not tensor.is_cuda:
        return None
    dtype = _OF_TORCH.get(str(tensor.dtype), str(tensor.dtype))
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return DeviceArray(
        tensor.data_ptr(), tuple(tensor.shape), dtype, tensor.is_contiguous(), True, tensor.device.index, "torch",
        stream, tensor,
    )  # fmt: skip


def _of_interface(value: object, interface: dict[str, Any]) -> DeviceArray:
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    dtype = _OF_TYPESTR.get(typestr) or _RAW_BYTES.get(typestr) or typestr
    address, readonly = interface["data"]
    itemsize = int(typestr[2:])
    contiguous = _is_contiguous(shape, interface.get("strides"), itemsize)
    kind: Kind = "cupy" if type(value).__module__.partition(".")[0] == "cupy" else "array"
    stream = interface.get("stream")
    if kind == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream().ptr
    return DeviceArray(address, shape, dtype, contiguous, not readonly, None, kind, stream, value)


def _is_contiguous(shape: Sequence[int], strides: Sequence[int] | None, unit: int) -> bool:
    """Whether elements lie in C order; `unit` is the stride of neighbours."""
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != unit:
            return False
        unit *= extent
    return True


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of: Callable[..., int] = ctypes.pythonapi.PyCapsule_GetPointer
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p


def _of_dlpack(value: Any, number: int, stream: int) -> DeviceArray:
    """The capsule keeps the memory alive: it is never marked as used, so its own destructor gives the memory back."""
    capsule = value.__dlpack__(stream=stream)
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = [tensor.strides[axis] for axis in range(tensor.ndim)] if tensor.strides else None
    dtype = _OF_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return DeviceArray(
        (tensor.data or 0) + tensor.byte_offset, shape, dtype or f"DLPack type {tensor.code}.{tensor.bits}",
        _is_contiguous(shape, strides, 1), True, number, "array", stream, value,
        capsule,
    )  # fmt: skip


def stream_handle(stream: Any) -> int:
    """
    The handle of a stream: an integer, or an object of PyCUDA (`handle`), torch (`cuda_stream`), cupy (`ptr`) or any
    with `__cuda_stream__`. Raises TypeError.
    """
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        if isinstance(found := getattr(stream, name, None), int):
            return found
    if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
        return protocol()[1]
    raise TypeError(
        f"stream: expected a handle, or a stream of PyCUDA, torch or cupy, got {type(stream).__name__}; "
        "give its handle as an integer"
    )


def contiguous_copy(array: DeviceArray) -> DeviceArray | None:
    """The array in C order, copied by its own library; None where that has no way to."""
    if array.kind == "torch":
        return _of_torch(sys.modules["torch"], array.owner.contiguous())
    if array.kind == "cupy":
        copy = sys.modules["cupy"].ascontiguousarray(array.owner)
        return _of_interface(copy, copy.__cuda_array_interface__)
    return None


def new_array(kind: Kind, device: int, shape: tuple[int, ...], dtype: str, allocate: Callable[[int], Any]) -> Any:
    """An array of a library with any content; `allocate` gives memory to those that are PyCUDA's."""
    if kind == "torch":
        torch: Any = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, _TO_TORCH[dtype]), device=f"cuda:{device}")
    numpy_type = np.dtype(NUMPY_NAMES[dtype])
    if kind == "cupy" and numpy_type.kind != "V":
        return sys.modules["cupy"].empty(shape, numpy_type)
    return import_module("pycuda.gpuarray").GPUArray(shape, numpy_type, allocator=allocate)


def torch_type(torch: Any, dtype: str) -> Any:
    """torch's name of an element type."""
    return getattr(torch, _TO_TORCH[dtype], None)


def address_of(array: Any, kind: Kind) -> int:
    """Of an array that `new_array` has made."""
    if kind == "torch":
        return array.data_ptr()
    return array.__cuda_array_interface__["data"][0]


def reshaped(array: DeviceArray, shape: tuple[int, ...], dtype: str) -> Any:
    """The array as another one over the same memory, of the same library; itself where it is as wanted already."""
    owner = array.owner
    if array.shape == shape and array.fits(dtype):
        return owner
    if array.kind == "torch":
        return owner.view(-1).view(getattr(sys.modules["torch"], _TO_TORCH[dtype])).view(shape)
    numpy_type = np.dtype(NUMPY_NAMES[dtype])
    if array.kind == "cupy":
        return owner.reshape(-1).view(numpy_type).reshape(shape)
    return import_module("pycuda.gpuarray").GPUArray(shape, numpy_type, base=owner, gpudata=array.address)
