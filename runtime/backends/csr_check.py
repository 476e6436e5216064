"""Whether arrays of a caller are a pattern of rows, by csr_check.c."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import runtime_text

Array = NDArray[Any]

_TASK = "fuse_csr_check"
_POSITIONS = (np.dtype(np.int32), np.dtype(np.int64))
_pointed: Callable[[Array], ctypes.c_char] = ctypes.c_char.from_buffer  # pyright: ignore[reportAssignmentType]


@functools.cache
def _checker() -> Callable[..., int] | None:
    """The compiled loop; None without a C compiler."""
    if (compiler := find_c_compiler()) is None:
        return None
    try:
        found: Any = compiler.load_shared(runtime_text("backends/csr_check.c"), DiskCache(), [_TASK])[_TASK]
    except (CompileError, OSError):
        return None
    found.argtypes, found.restype = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4, ctypes.c_int64
    return found


def is_pattern(indptr: Array, indices: Array, columns: int) -> bool:
    """
    Whether `indices` are columns below `columns` that ascend in each row, and `indptr`, of one element or more, says where
    rows begin. False, too, where that is not known: for arrays of other types than i32 and i64, and without a C compiler.
    """
    if (check := _checker()) is None or not indptr.size:
        return False
    if indptr.dtype not in _POSITIONS or indices.dtype not in _POSITIONS:
        return False
    if not (
        indptr.flags.c_contiguous and indices.flags.c_contiguous and indptr.flags.aligned and indices.flags.aligned
    ):
        return False
    sizes = indptr.dtype.itemsize * 16 + indices.dtype.itemsize
    return check(_address(indptr), _address(indices), indptr.size - 1, indices.size, columns, sizes) == 1


def _address(array: Array) -> int:
    try:
        return ctypes.addressof(_pointed(array))
    except (TypeError, ValueError):  # read-only, or empty
        return array.ctypes.data
