"""Calls of programs for any sizes by compiled code: frames that take what follows from the extents of a call (sized_call.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, Program, SizesLayout
from fuse_opt.runtime.buffers import result_pool
from fuse_opt.runtime.cpu.frames import BoundFrame
from fuse_opt.runtime.cpu.result_memory import POOLED, ResultMemory
from fuse_opt.runtime.cpu.sized_frames import Answer, SizedFrame, sized_record
from fuse_opt.runtime.host.c_records import int64_table, number_in
from fuse_opt.runtime.host.program_call import (
    Call,
    Caller,
    ProgramStruct,
    Result,
    callable_of,
    interface_address,
)

_SYMBOLS = number_in("host/sized_call.c", "MOST_SYMBOLS")


class SizedCalls:
    """
    One program for any sizes: its frames have an arena that grows, and remember what followed from extents that were met last.
    Nothing that they have moves while they run.
    """

    def __init__(
        self,
        program: Program,
        layout: SizesLayout,
        sizes: int,
        caller: Caller,
        frame: Callable[[], BoundFrame],
        given: Sequence[int],
    ) -> None:
        """
        `program` is that for some extents, `sizes` the address of its function `fuse_sizes`, `frame` gives one more frame for
        them. `given` says which argument or own result each result is.
        """
        self._program, self._layout, self._frame, self._caller = program, layout, frame, caller
        own = [buffer for buffer in program.buffers if buffer.kind == "result"]
        self._first = sum(len(buffer.shape) for buffer in program.arguments)
        self._ranks = [len(buffer.shape) for buffer in own]
        self._dtypes = [np.dtype(NUMPY_NAMES[buffer.dtype]) for buffer in own]
        self._frames: list[SizedFrame] = []
        self._results: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._record = sized_record(layout, sizes, caller)
        self._fill(given, len(program.arguments), len(own), any(buffer.donated for buffer in program.arguments))
        self.add_frame()
        assert caller.call_sized is not None
        self.call: Call = callable_of(self._record, caller.call_sized)

    def _fill(self, given: Sequence[int], arguments: int, own: int, exclusive: bool) -> None:
        record = self._record
        numbers = int64_table(*given) if given else int64_table(0)
        whole = ProgramStruct(python=interface_address(), arguments=arguments, own=own, exclusive=exclusive)
        whole.results_given, whole.given = len(given), ctypes.addressof(numbers)
        whole.plain = tuple(given) == tuple(range(arguments, arguments + own))
        places = int64_table(*(number for place in self._layout.places for number in place))
        makers, empty, pooled = (ctypes.c_void_p * max(2 * own, 1))(), np.empty, result_pool.empty
        for number in range(own):
            makers[2 * number], makers[2 * number + 1] = id(empty), id(pooled)
        dtypes = (ctypes.c_void_p * max(own, 1))(*map(id, self._dtypes))
        record.program, record.places = ctypes.addressof(whole), ctypes.addressof(places)
        record.makers, record.dtypes, record.large = ctypes.addressof(makers), ctypes.addressof(dtypes), POOLED
        grow, keep = self.grow, self.keep
        record.grow, record.keep = id(grow), id(keep)
        record.keeps += (whole, numbers, places, makers, dtypes, empty, pooled, grow, keep)

    def add_frame(self) -> None:
        """One more run can be under way, as far as there may be more."""
        if (number := len(self._frames)) == len(self._record.frames):
            return
        frame = SizedFrame(self._program, self._layout, self._record, self._caller, self._frame(), number)
        self._frames.append(frame)
        self._record.frames[number] = ctypes.addressof(frame.record)
        self._record.count = number + 1

    def grow(self, frame: int, nbytes: int) -> None:
        """Gives a frame that does not run an arena of so many bytes or more. Raises MemoryError."""
        self._frames[frame].grow(nbytes)

    def keep(self, frame: int, answer: int) -> None:
        """Gives an answer memory of its own for results."""
        found = self._frames[frame]
        extents = iter(found.numbers(answer)[self._layout.extents + self._first : self._layout.nbytes])
        shapes = [tuple(islice(extents, rank)) for rank in self._ranks]
        made = [ResultMemory(shape, dtype) for shape, dtype in zip(shapes, self._dtypes, strict=True)]
        table = (Result * max(len(made), 1))(*(one.record() for one in made))
        self._results[frame, answer] = made, table
        found.answers[answer].results = ctypes.addressof(table)

    def last(self) -> dict[str, int] | None:
        """The values of symbols in the last call."""
        if not (address := self._record.last):
            return None
        answer = Answer.from_address(address)
        symbols = (ctypes.c_int64 * len(self._layout.places)).from_address(answer.symbols)
        return dict(zip(self._layout.names, symbols, strict=True))

    def forget_last(self) -> None:
        """Calls of others came after that one."""
        self._record.last = 0

    @property
    def is_busy(self) -> bool:
        """Whether all frames run."""
        return all(frame.bound.record.busy for frame in self._frames)


def can_call(layout: SizesLayout | None) -> bool:
    """Whether calls can be of compiled code."""
    return layout is not None and 0 < len(layout.places) == len(layout.names) <= _SYMBOLS
