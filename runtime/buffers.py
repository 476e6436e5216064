"""Memory of programs: arenas for their intermediate values, outputs that give their memory back when dropped."""

from __future__ import annotations

import ctypes
import math
import mmap
import operator
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""

_HUGE_PAGE = 2 << 20
_SMALL_ARRAY = 64 << 10
_LONG_UNUSED = 4096
"""Arrays made since memory was last used, from which on it is given back."""


def _map_aligned(nbytes: int, alignment: int) -> tuple[mmap.mmap, int]:
    """
    Zeroed memory and the offset in it from which `nbytes` are aligned. It is private to the process: a child made by
    fork gets a copy, where Python's anonymous mappings are otherwise shared with it. Raises `MemoryError`.
    """
    huge = nbytes >= _HUGE_PAGE
    alignment = max(alignment, _HUGE_PAGE if huge else mmap.PAGESIZE)
    slack = alignment if alignment > mmap.PAGESIZE else 0
    try:
        memory = mmap.mmap(-1, max(nbytes, 1) + slack, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{nbytes} bytes cannot be mapped: {error}") from error
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory, -_address(memory) % alignment


def _address(memory: mmap.mmap | bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class AlignedArena:
    """One block of zeroed memory for the intermediate values of a program, in huge pages where it is large."""

    def __init__(self, nbytes: int, alignment: int = ALIGNMENT) -> None:
        """
        Maps `nbytes` bytes at a multiple of `alignment` bytes. Raises `ValueError` for a negative size or an alignment
        that is not a power of two, `MemoryError` where the system has not that much.
        """
        if nbytes < 0:
            raise ValueError(f"arena size: expected 0 bytes or more, got {nbytes}")
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"arena alignment: expected a power of two of bytes, got {alignment}")
        self.nbytes = nbytes
        self._memory, self._start = _map_aligned(nbytes, alignment)
        self.address = _address(self._memory) + self._start
        """Of the first byte; valid as long as the arena or a view of it lives."""

    def view(self, offset: int, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """
        The array of `shape` and `dtype`, in C order, that lies `offset` bytes into the arena; it shares the memory and
        keeps it alive. Raises `ValueError` if it does not lie inside or a dimension is negative, `TypeError` for
        Python objects.
        """
        dimensions, kind, needed = _checked(shape, dtype)
        if offset < 0 or needed > self.nbytes - offset:
            raise ValueError(
                f"view of {needed} bytes at offset {offset}: expected inside the arena's {self.nbytes} bytes"
            )
        return np.ndarray(dimensions, kind, self._memory, self._start + offset)


@dataclass(eq=False, slots=True)
class _Block:
    memory: mmap.mmap
    start: int
    nbytes: int
    filed: int = 0
    """How many arrays the pool had made when this one's memory came back."""


class RecyclingPool:
    """
    Arrays whose memory is used again for later ones once the caller has dropped them with every view of them.

    Fresh memory costs a page fault for each page first written, which is more than the arithmetic of most kernels. What
    the pool holds, in use or not, is at most what was in use at one time, and one array more: a process needs that little
    more memory than one that gives back all that is dropped. Threads may share a pool; a child made by fork starts with an
    empty one.
    """

    def __init__(self, max_idle_bytes: int = 1 << 30) -> None:
        """
        Keeps at most `max_idle_bytes` bytes of dropped memory; beyond that the longest unused goes back first, as does
        what was not used for the last thousands of arrays.
        """
        self._max_idle_bytes = max_idle_bytes
        self._start_empty()
        _pools.add(self)

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._idle_bytes = self._live_bytes = self._peak_bytes = self._largest = self._made = 0
        self._idle: dict[int, list[_Block]] = {}
        self._returned: deque[_Block] = deque()

    @property
    def idle_bytes(self) -> int:
        """Bytes kept for later arrays now."""
        self._settle()
        return self._idle_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of arrays in use and of what is kept for later ones, now."""
        self._settle()
        return self._idle_bytes + self._live_bytes

    def trim(self) -> None:
        """Gives back all memory that is kept for later arrays; what is in use stays."""
        self._settle()
        dropped: list[_Block] = []
        with self._lock:
            self._drop_beyond(0, dropped)
        self._settle()

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """
        A new C-ordered array with any content, its data at a multiple of 64 bytes, as valid as one of `numpy.empty`.
        Raises `ValueError` for negative dimensions, `TypeError` for Python objects, `MemoryError`.
        """
        dimensions, kind, nbytes = _checked((shape,) if isinstance(shape, int) else shape, dtype)
        if nbytes < _SMALL_ARRAY:
            return _small_array(dimensions, kind, nbytes)
        block = self._take(_size_class(nbytes))
        owner = (ctypes.c_char * nbytes).from_buffer(block.memory, block.start)
        # At exit arrays may still be in use: the memory must not come back then.
        weakref.finalize(owner, self._give_back, weakref.ref(self), block).atexit = False
        return np.ndarray(dimensions, kind, memoryview(owner))

    def _take(self, nbytes: int) -> _Block:
        self._settle()
        dropped: list[_Block] = []
        with self._lock:
            self._made += 1
            blocks = self._idle.get(nbytes)
            block = blocks.pop() if blocks else None
            self._idle_bytes -= nbytes if block else 0
            self._live_bytes += nbytes
            self._peak_bytes = max(self._peak_bytes, self._live_bytes)
            self._largest = max(self._largest, nbytes)
            self._drop_beyond(self._peak_bytes + self._largest - self._live_bytes, dropped)
            self._drop_unused(nbytes, dropped)
        dropped.clear()
        self._settle()
        return block or self._mapped(nbytes)

    def _mapped(self, nbytes: int) -> _Block:
        """Fresh memory; where the system has not that much, after what is idle went back."""
        try:
            return _Block(*_map_aligned(nbytes, ALIGNMENT), nbytes)
        except MemoryError:
            self.trim()
        try:
            return _Block(*_map_aligned(nbytes, ALIGNMENT), nbytes)
        except MemoryError:
            with self._lock:
                self._live_bytes -= nbytes
            raise

    @staticmethod
    def _give_back(pool: weakref.ref[RecyclingPool], block: _Block) -> None:
        if (alive := pool()) is not None:
            alive._returned.append(block)
            alive._settle()

    def _settle(self) -> None:
        """
        Files what was returned. The garbage collector may run a finalizer in any thread at any point, even under the
        lock, so a finalizer never waits for it: whoever has the lock looks again after letting it go.
        """
        while self._returned and self._lock.acquire(blocking=False):
            dropped: list[_Block] = []
            try:
                while self._returned:
                    self._file(self._returned.popleft(), dropped)
            finally:
                self._lock.release()

    def _file(self, block: _Block, dropped: list[_Block]) -> None:
        """Keeps `block` as the latest used; what exceeds the bound goes to `dropped`, to be unmapped without a lock."""
        self._live_bytes = max(self._live_bytes - block.nbytes, 0)  # a child has blocks of its parent, too
        if block.nbytes > self._max_idle_bytes:
            dropped.append(block)
            return
        block.filed = self._made
        blocks = self._idle.pop(block.nbytes, [])
        blocks.append(block)
        self._idle[block.nbytes] = blocks
        self._idle_bytes += block.nbytes
        self._drop_beyond(self._max_idle_bytes, dropped)

    def _drop_beyond(self, most: int, dropped: list[_Block]) -> None:
        """Moves what is idle beyond `most` bytes to `dropped`, the longest unused first."""
        while self._idle_bytes > most:
            nbytes, blocks = next(iter(self._idle.items()))
            if blocks:
                dropped.append(blocks.pop(0))
                self._idle_bytes -= nbytes
            else:
                del self._idle[nbytes]

    def _drop_unused(self, nbytes: int, dropped: list[_Block]) -> None:
        """Moves a block of this size, and of the size that was longest not asked for, to `dropped` if it is not needed."""
        for size in {nbytes, next(iter(self._idle), nbytes)}:
            blocks = self._idle.get(size)
            if blocks and self._made - blocks[0].filed > _LONG_UNUSED:
                dropped.append(blocks.pop(0))
                self._idle_bytes -= size


_pools: weakref.WeakSet[RecyclingPool] = weakref.WeakSet()


def _empty_pools_of_child() -> None:
    """Another thread may have held a lock, its lists half changed, when the process was forked."""
    for pool in _pools:
        pool._start_empty()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_empty_pools_of_child)

result_pool = RecyclingPool()
"""The memory of results, of all programs of the process."""


def _size_class(nbytes: int) -> int:
    """`nbytes` rounded up by at most an eighth; the excess is not touched, so it costs next to no memory."""
    step = max(1 << (nbytes.bit_length() - 4), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _small_array(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> NDArray[Any]:
    memory = bytearray(nbytes + ALIGNMENT)
    return np.ndarray(shape, dtype, memory, -_address(memory) % ALIGNMENT)


def _checked(shape: Sequence[int], dtype: DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Dimensions and dtype as NumPy's own types for them, and the bytes of such an array."""
    dimensions = tuple(map(operator.index, shape))
    if min(dimensions, default=0) < 0:
        raise ValueError(f"shape {dimensions}: expected dimensions of 0 or more")
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"'{kind}' arrays cannot lie in raw memory: expected numbers or booleans")
    return dimensions, kind, math.prod(dimensions) * kind.itemsize
