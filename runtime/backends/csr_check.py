"""Whether arrays of a caller are a pattern of rows, by csr_check.c."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, runtime_text
from fuse_opt.runtime.host.program_call import callable_of, load_caller
from fuse_opt.runtime.host.thread_pool import pool_library

Array = NDArray[Any]

_SOURCE = "backends/csr_check.c"
_TASKS = ("fuse_csr_check", "fuse_stored_ready")
_POSITION = np.dtype(np.int32)
_POSITIONS = (_POSITION, np.dtype(np.int64))
_pointed: Callable[[Array], ctypes.c_char] = ctypes.c_char.from_buffer  # pyright: ignore[reportAssignmentType]


class _Stored(ctypes.Structure):
    """The record `fuse_stored`."""

    keeps: tuple[Any, ...]
    """What it points to."""

    _fields_ = fields_of(_SOURCE, "fuse_stored")


@functools.cache
def _library() -> Any:
    """The compiled functions; None without a C compiler."""
    if (compiler := find_c_compiler()) is None:
        return None
    try:
        text = "".join(map(runtime_text, ("host/python_objects.c", _SOURCE)))
        return compiler.load_shared(text, DiskCache(), _TASKS, ["-funroll-loops"])
    except (CompileError, OSError):
        return None


@functools.cache
def _checker() -> Callable[..., int] | None:
    if (library := _library()) is None:
        return None
    found: Any = library.fuse_csr_check
    found.argtypes, found.restype = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4, ctypes.c_int64
    return found


def ready_check(
    rows: int, capacity: int, columns: int, dtype: np.dtype[Any], row: Sequence[int]
) -> Callable[[Array, Array, Array], object]:
    """
    A function of indptr, indices and values, with a `row` of elements each, that gives None where these are arrays of i32 and
    of `dtype` which a program takes as they are, and a pattern; another object where that is not so, or not known.
    """
    library = _library()
    if library is None or pool_library() is None or load_caller().call is None:
        return _not_known
    shape = (ctypes.c_int64 * (1 + len(row)))(capacity, *row)
    record = _Stored(0, rows, capacity, columns, id(_POSITION), id(dtype), len(shape), ctypes.addressof(shape))
    record.keeps = (shape, dtype)
    return callable_of(record, address_in(library, "fuse_stored_ready"))


def _not_known(indptr: Array, indices: Array, values: Array) -> object:
    return NotImplemented


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
