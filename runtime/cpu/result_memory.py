"""What calls of a program share: memory that nobody uses at the moment, for runs and for results."""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.runtime.buffers import result_pool
from fuse_opt.runtime.cpu.frames import BoundFrame
from fuse_opt.runtime.host.program_call import Call, Caller, ProgramStruct, Result, callable_of

Array = NDArray[Any]

POOLED = 64 << 10
"""Bytes from which on a result's memory comes from the pool of dropped ones."""
_KEPT = ((1 << 20, 4), (4 << 20, 2))
"""Up to so many bytes, of how many results a program keeps the memory: looking for it in the pool costs microseconds."""
_MISSES = 16
_MOST_IDLE = 16
"""Frames that a program keeps while nobody calls it, where there is no compiled code to keep them."""


class ResultMemory:
    """
    New arrays for one result of a program; a call makes one. Of some the program keeps the memory: a caller gets a view
    of an array that it keeps, and program_call.c takes another view once that one and all that came of it are dropped.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = tuple(shape), dtype
        nbytes = prod(shape) * dtype.itemsize
        self._pooled = nbytes >= POOLED
        count = next((count for most, count in _KEPT if nbytes <= most), 0)
        self._in_use = np.empty(0)
        self._kept: list[Any] = [self._in_use.view] * count
        """Methods that give views of arrays which nothing else refers to; at first of one that is always in use."""
        self._calls = itertools.count()

    def record(self) -> Result:
        """What program_call.c reads; valid as long as this object lives."""
        return Result(id(self._kept), id(self))

    def empty(self) -> Array:
        """An array with memory of its own."""
        return result_pool.empty(self._shape, self._dtype) if self._pooled else np.empty(self._shape, self._dtype)

    def __call__(self) -> Array:
        """
        An array where all that is kept is in use. Its memory is kept instead of others' in the first calls, and now and
        then: the caller may have dropped newer results and not those.
        """
        number = next(self._calls)
        count = len(self._kept)
        if not count or (number >= count and number % _MISSES):
            return self.empty()
        method = self.empty().view
        self._kept[number % count if number < count else number // _MISSES % count] = method
        return method()


class Calls:
    """The frames of a program, and compiled code's way into it."""

    def __init__(self, make: Callable[[], BoundFrame], caller: Caller | None, exclusive: bool) -> None:
        """`make` gives one more frame; `exclusive` says whether arguments are written to."""
        self._make = make
        self._caller = caller
        self._record = ProgramStruct(exclusive=exclusive)
        self._address = ctypes.addressof(self._record)
        self._kept: dict[int, BoundFrame] = {}
        """By address of their records those that compiled code knows."""
        # Its appends and pops are atomic: no lock that a fork could leave held in the child.
        self._idle: deque[BoundFrame] = deque(maxlen=_MOST_IDLE)

    def take(self) -> BoundFrame:
        """A frame that nobody uses."""
        if self._caller is None:
            try:
                return self._idle.pop()
            except IndexError:
                return self._make()
        if (address := self._caller.take(self._address)) is not None:
            return self._kept[address]
        frame = self._make()
        frame.record.busy = 1
        address = ctypes.addressof(frame.record)
        if self._caller.keep(self._address, address):
            self._kept[address] = frame
        return frame

    def give_back(self, frame: BoundFrame) -> None:
        if self._caller is None:
            self._idle.append(frame)
        frame.record.busy = 0

    def forget(self) -> None:
        """Lets go of the frames that nobody uses."""
        self._idle.clear()
        while self._caller is not None and (address := self._caller.take(self._address)) is not None:
            self._caller.drop(self._address, address)
            del self._kept[address]

    def direct(self, function: int, arguments: int, results: Sequence[ResultMemory], given: Sequence[int]) -> Call:
        """
        Compiled code's way into the program, by the function at an address. `results` are those that the program has
        memory for, `given` says which argument or, behind these, which of them each result of a call is.
        """
        own, record = len(results), self._record
        table = (Result * max(own, 1))(*(result.record() for result in results))
        numbers = (ctypes.c_int64 * max(len(given), 1))(*given)
        record.arguments, record.own, record.results_given = arguments, own, len(given)
        record.results, record.given = ctypes.addressof(table), ctypes.addressof(numbers)
        record.plain = tuple(given) == tuple(range(arguments, arguments + own))
        kept = self._kept

        def fail() -> None:
            thread = ctypes.c_int64(get_ident()).value  # others may have been refused, and make frames, in the meantime
            refused = next(frame for frame in list(kept.values()) if frame.record.refused == thread)
            refused.record.refused = 0
            refused.check()

        record.fail = id(fail)
        record.keeps = (table, numbers, fail, results, kept, self._make)
        return callable_of(record, function)
