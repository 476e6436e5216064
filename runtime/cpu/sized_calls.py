"""Calls of programs for any sizes by compiled code: frames that take what follows from the extents of a call (sized_call.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, Program, SizesLayout
from fuse_opt.runtime.buffers import AlignedArena, result_pool
from fuse_opt.runtime.cpu.frames import BoundFrame
from fuse_opt.runtime.cpu.result_memory import POOLED, ResultMemory
from fuse_opt.runtime.host.c_records import fields_of, int64_table, number_in
from fuse_opt.runtime.host.program_call import (
    Call,
    Caller,
    ProgramStruct,
    Result,
    Value,
    callable_of,
    interface_address,
)


class _Answer(ctypes.Structure):
    """The record `answer`: what calls of some extents have."""

    _fields_ = fields_of("host/sized_call.c", "answer")


class _SizedFrame(ctypes.Structure):
    """The record `sized_frame`."""

    _fields_ = fields_of("host/sized_call.c", "sized_frame")


class _Sized(ctypes.Structure):
    """The record `fuse_sized`."""

    keeps: tuple[Any, ...]
    """What it points to."""

    _fields_ = fields_of("host/sized_call.c", "fuse_sized")


_ANSWERS = number_in("host/sized_call.c", "MOST_ANSWERS")
_SYMBOLS = number_in("host/sized_call.c", "MOST_SYMBOLS")
_GROWTH = 3, 2
"""An arena that is too small grows so many times at least."""


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
        self._program, self._layout, self._frame = program, layout, frame
        self._interpreter = caller.interpreter
        fixed = [buffer for buffer in program.buffers if buffer.kind in ("argument", "result")]
        self._count, own = len(fixed), [buffer for buffer in fixed if buffer.kind == "result"]
        self._ranks = [len(buffer.shape) for buffer in fixed]
        self._dtypes = [np.dtype(NUMPY_NAMES[buffer.dtype]) for buffer in own]
        self._frames: list[tuple[BoundFrame, _SizedFrame, Any]] = []
        self._arenas: dict[int, AlignedArena] = {}
        self._results: dict[tuple[int, int], tuple[Any, ...]] = {}
        kinds = [buffer.kind for buffer in program.buffers]
        self._memory = kinds.index("arena") if "arena" in kinds else -1
        self._table = max(number for number, kind in enumerate(kinds) if kind == "constant")
        self._record = _Sized()
        self._fill(sizes, given, len(program.arguments), len(own), any(b.donated for b in fixed))
        self.add_frame()
        assert caller.call_sized is not None
        self.call: Call = callable_of(self._record, caller.call_sized)

    def _fill(self, sizes: int, given: Sequence[int], arguments: int, own: int, exclusive: bool) -> None:
        layout, record = self._layout, self._record
        numbers = int64_table(*given) if given else int64_table(0)
        whole = ProgramStruct(python=interface_address(), arguments=arguments, own=own, exclusive=exclusive)
        whole.results_given, whole.given = len(given), ctypes.addressof(numbers)
        whole.plain = tuple(given) == tuple(range(arguments, arguments + own))
        places = int64_table(*(number for place in layout.places for number in place))
        grains = int64_table(*(max(grain, 1) for grain in layout.grains))
        makers, empty, pooled = (ctypes.c_void_p * max(2 * own, 1))(), np.empty, result_pool.empty
        for number in range(own):
            makers[2 * number], makers[2 * number + 1] = id(empty), id(pooled)
        dtypes = (ctypes.c_void_p * max(own, 1))(*map(id, self._dtypes))
        record.program, record.sizes = ctypes.addressof(whole), sizes
        record.symbols, record.places = len(layout.places), ctypes.addressof(places)
        record.tasks, record.nbytes, record.arena = layout.tasks, layout.nbytes, layout.arena
        record.grains, record.table, record.memory = ctypes.addressof(grains), self._table, self._memory
        record.release, record.take = self._interpreter.release, self._interpreter.take
        record.makers, record.dtypes, record.large = ctypes.addressof(makers), ctypes.addressof(dtypes), POOLED
        grow, keep = self.grow, self.keep
        record.grow, record.keep = id(grow), id(keep)
        record.keeps = (whole, numbers, places, grains, makers, dtypes, empty, pooled, grow, keep)

    def add_frame(self) -> None:
        """One more run can be under way, as far as there may be more."""
        if len(self._frames) == len(self._record.frames):
            return
        bound, number = self._frame(), len(self._frames)
        answers = (_Answer * _ANSWERS)()
        keeps = [self._answer(answer, bound) for answer in answers]
        sized = _SizedFrame(frame=ctypes.addressof(bound.record), answers=ctypes.addressof(answers))
        sized.arena = bound.arena.nbytes
        self._frames.append((bound, sized, (answers, keeps)))
        self._record.frames[number] = ctypes.addressof(sized)
        self._record.count = number + 1

    def _answer(self, answer: _Answer, bound: BoundFrame) -> tuple[Any, ...]:
        """Gives an answer memory; values are as the frame has them, of other shapes."""
        symbols, numbers = int64_table(*[0] * len(self._layout.places)), int64_table(*[0] * (self._layout.arena + 1))
        known = (Value * max(self._count, 1)).from_address(bound.record.values)
        values = (Value * max(self._count, 1)).from_buffer_copy(known)
        at = ctypes.addressof(numbers) + 8 * self._layout.extents
        for value, rank in zip(values, self._ranks, strict=False):
            value.shape, at = at, at + 8 * rank
        answer.symbols, answer.numbers = ctypes.addressof(symbols), ctypes.addressof(numbers)
        answer.values = ctypes.addressof(values)
        return symbols, numbers, values

    def grow(self, frame: int, nbytes: int) -> None:
        """Gives a frame that does not run an arena of so many bytes or more. Raises MemoryError."""
        bound, sized, _ = self._frames[frame]
        times, by = _GROWTH
        arena = AlignedArena(max(nbytes, sized.arena * times // by), self._program.arena_alignment)
        self._arenas[frame] = arena
        if self._memory >= 0:
            bound.table[self._memory] = arena.address
        sized.arena = arena.nbytes

    def keep(self, frame: int, answer: int) -> None:
        """Gives an answer memory of its own for results."""
        _, _, (answers, keeps) = self._frames[frame]
        _, numbers, _ = keeps[answer]
        starts = [self._layout.extents + sum(self._ranks[:k]) for k in range(self._count + 1)]
        shapes = [tuple(numbers[starts[k] : starts[k + 1]]) for k in range(self._count)][
            self._count - len(self._dtypes) :
        ]
        made = [ResultMemory(shape, dtype) for shape, dtype in zip(shapes, self._dtypes, strict=True)]
        table = (Result * max(len(made), 1))(*(one.record() for one in made))
        self._results[frame, answer] = made, table
        answers[answer].results = ctypes.addressof(table)

    def last(self) -> dict[str, int] | None:
        """The values of symbols in the last call."""
        if not (address := self._record.last):
            return None
        answer = _Answer.from_address(address)
        symbols = (ctypes.c_int64 * len(self._layout.places)).from_address(answer.symbols)
        return dict(zip(self._layout.names, symbols, strict=True))

    @property
    def is_busy(self) -> bool:
        """Whether all frames run."""
        return all(bound.record.busy for bound, _, _ in self._frames)


def can_call(layout: SizesLayout | None) -> bool:
    """Whether calls can be of compiled code."""
    return layout is not None and 0 < len(layout.places) <= _SYMBOLS
