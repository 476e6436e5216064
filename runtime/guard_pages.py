"""Arrays that end, or begin, where a page begins that nobody may touch: a read or write beside them ends the process."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Generator
from contextlib import contextmanager
from math import prod
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
PAGE = mmap.PAGESIZE
_NONE, _READ_WRITE, _PRIVATE_ANONYMOUS = 0, 3, 0x22

can_guard_pages = sys.platform == "linux"
"""Whether pages can be guarded here: by Linux's calls."""


class Allocate(Protocol):
    """Copies an array to guarded pages, which end right behind it, or begin right before it."""

    def __call__(self, array: Array, *, at_end: bool) -> Array: ...


@contextmanager
def guarded() -> Generator[Allocate]:
    """Gives a function that copies an array to guarded pages, which are there until the end of the body. Raises MemoryError."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    taken: list[tuple[int, int]] = []

    def allocate(array: Array, *, at_end: bool) -> Array:
        size = prod(array.shape) * array.itemsize
        inside = (size // PAGE + 1) * PAGE
        base = libc.mmap(None, inside + 2 * PAGE, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"{size} bytes between guarded pages cannot be mapped")
        taken.append((base, inside + 2 * PAGE))
        if libc.mprotect(base, PAGE, _NONE) or libc.mprotect(base + PAGE + inside, PAGE, _NONE):
            raise MemoryError(f"pages beside {size} bytes cannot be guarded")
        start = base + PAGE + (inside - size if at_end else 0)
        memory: Any = (ctypes.c_char * size).from_address(start)
        copy: Array = np.frombuffer(memory, array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    try:
        yield allocate
    finally:
        for address, length in taken:
            libc.munmap(address, length)
