"""A first product of each kind by the library, compared with what it has to be, before it is trusted with others."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from fuse_opt.runtime.backends.onednn.library import Library, OneDnnError, load_library
from fuse_opt.runtime.backends.onednn.primitives import Bound, Dense, Problem, primitive_of
from fuse_opt.runtime.buffers import AlignedArena

_NUMPY = {"f32": np.float32, "i32": np.int32, "i8": np.int8, "ui8": np.uint8}


class _Argument(ctypes.Structure):
    """The record dnnl_exec_arg_t."""

    _fields_ = (("number", ctypes.c_int), ("memory", ctypes.c_void_p))


def arguments_of(bound: Bound) -> ctypes.Array[_Argument]:
    """The arguments of a call, whose memory objects have no memory yet."""
    return (_Argument * len(bound.numbers))(*zip(bound.numbers, bound.memory, strict=True))


def usable_library() -> Library:
    """The library, when it is there and multiplies as it should. Raises OneDnnError."""
    library = load_library()
    if not multiplies(library, "f32", "f32", "f32"):
        raise OneDnnError("a product of 4x4 f32 by oneDNN is wrong")
    return library


@functools.cache
def multiplies(library: Library, a: str, b: str, c: str) -> bool:
    """
    Whether a small product is right. Bytes are as large as they can be: where a machine has no instruction for sums of
    such products in 32 bits, the library uses one that saturates at 16 bits. True of types that it has no product of.
    """
    if not {a, b, c} <= _NUMPY.keys():
        return True
    lhs, rhs = (_numbers(_NUMPY[name]) if name == "f32" else _extremes(_NUMPY[name]) for name in (a, b))
    out: Any = np.full((4, 4), -1, _NUMPY[c])
    src, weights, dst = (Dense.in_order((4, 4), name) for name in (a, b, c))
    problem = Problem(src, weights, dst)
    try:
        primitive = primitive_of(library, problem)
        bound = Bound(primitive)
        scratch = AlignedArena(primitive.scratchpad_bytes, 64)
        addresses = [array.ctypes.data for array in (lhs, rhs, out)]
        for memory, address in zip(bound.memory, [*addresses, scratch.address], strict=False):
            library.call("dnnl_memory_set_data_handle", memory, address)
        with library.one_thread():
            arguments = arguments_of(bound)
            library.call("dnnl_primitive_execute", primitive.handle, bound.stream, len(arguments), arguments)
    except OneDnnError:
        return True  # who asks for such a product hears of it
    return bool((out == lhs.astype(np.int64) @ rhs.astype(np.int64)).all())


def _numbers(dtype: Any) -> Any:
    return np.arange(16, dtype=dtype).reshape(4, 4) - 5


def _extremes(dtype: Any) -> Any:
    """Pairs of the largest and the least number in all combinations."""
    most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
    return np.array([[most] * 4, [least] * 4, [most] * 2 + [least] * 2, [most, least] * 2], dtype)
