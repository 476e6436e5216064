"""Arrays on a device that are not PyCUDA's own: each shows its memory in one way alone."""

from __future__ import annotations

import ctypes
import types
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.runtime.device.arrays import _DLTensor  # pyright: ignore[reportPrivateUsage]

Array = NDArray[Any]


class Foreign:
    """An array that shows its memory by `__cuda_array_interface__` alone."""

    def __init__(self, array: Any, stream: int | None = None, **changed: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": stream, **changed}


_new_capsule: Any = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_new_capsule.restype = ctypes.py_object


class Exported:
    """An array that shows its memory by DLPack alone."""

    def __init__(self, array: Any, code: int) -> None:
        self.array = array
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        bits = 8 * array.dtype.itemsize
        self._tensor = _DLTensor(int(array.gpudata), 2, 0, array.ndim, code, bits, 1, self._shape, None, 0)
        self.asked: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, stream: int) -> Any:
        self.asked.append(stream)
        return _new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)


class Tensor:
    """What this package asks of a tensor of torch's, over an array of PyCUDA's; for where there is no torch."""

    def __init__(self, array: Any, dtype: str = "torch.float32") -> None:
        self.array, self.dtype, self.shape = array, dtype, array.shape
        self.is_cuda, self.device = True, types.SimpleNamespace(index=0)

    def data_ptr(self) -> int:
        return int(self.array.gpudata)

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def contiguous(self) -> Tensor:
        return Tensor(import_module("pycuda.gpuarray").to_gpu(np.ascontiguousarray(self.array.get())))

    def numpy(self) -> Array:
        return self.array.get()


def stand_in_for_torch(stream: int) -> Any:
    """A module with what this package asks of torch, on the stream of this handle."""
    gpuarray: Any = import_module("pycuda.gpuarray")

    def empty(shape: tuple[int, ...], dtype: Any, device: str) -> Tensor:
        return Tensor(gpuarray.empty(shape, dtype.removeprefix("torch.")))

    def current_stream(device: Any) -> Any:
        return types.SimpleNamespace(cuda_stream=stream)

    torch: Any = types.ModuleType("torch")
    torch.Tensor, torch.float32, torch.empty = Tensor, "torch.float32", empty
    torch.cuda = types.SimpleNamespace(current_stream=current_stream)
    return torch
