"""Frames of programs for any sizes: what follows from the extents of a run is computed by the program's text (sized_call.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from fuse_opt.lowering.program import Program, SizesLayout
from fuse_opt.runtime.buffers import AlignedArena
from fuse_opt.runtime.cpu.bindings import Binding, binding_of
from fuse_opt.runtime.cpu.frames import BoundFrame
from fuse_opt.runtime.host.c_records import fields_of, int64_table, number_in
from fuse_opt.runtime.host.program_call import Caller, Frame, Value


class Answer(ctypes.Structure):
    """The record `answer`: what calls of some extents have."""

    _fields_ = fields_of("host/sized_call.c", "answer")


class FrameRecord(ctypes.Structure):
    """The record `sized_frame`."""

    _fields_ = fields_of("host/sized_call.c", "sized_frame")


class SizedRecord(ctypes.Structure):
    """The record `fuse_sized`."""

    keeps: tuple[Any, ...]
    """What it points to."""

    _fields_ = fields_of("host/sized_call.c", "fuse_sized")


_ANSWERS = number_in("host/sized_call.c", "MOST_ANSWERS")
_GROWTH = 3, 2
"""An arena that is too small grows so many times at least."""


def sized_record(layout: SizesLayout, sizes: int, caller: Caller) -> SizedRecord:
    """What frames of a program have in common; `sizes` is the address of its function `fuse_sizes`."""
    grains, chunks = int64_table(*(max(grain, 1) for grain in layout.grains), 1), int64_table(*layout.chunks, 0)
    record = SizedRecord(sizes=sizes, symbols=len(layout.names), table=layout.buffer)
    record.tasks, record.works, record.nbytes, record.arena = layout.tasks, layout.works, layout.nbytes, layout.arena
    record.grains, record.chunks = ctypes.addressof(grains), ctypes.addressof(chunks)
    record.release, record.take = caller.interpreter.release, caller.interpreter.take
    record.keeps = (grains, chunks)
    return record


class SizedFrame:
    """
    What a run of a program for any sizes needs to itself: its arena grows, and it remembers what followed from extents that were
    met last. Nothing that it has moves while it runs.
    """

    def __init__(
        self,
        program: Program,
        layout: SizesLayout,
        common: SizedRecord,
        caller: Caller,
        bound: BoundFrame,
        number: int = 0,
    ) -> None:
        """`bound` is a frame of the program for some extents."""
        self.bound, self.arena = bound, bound.arena
        self._layout, self._common, self._caller = layout, common, caller
        self._alignment = program.arena_alignment
        kinds = [buffer.kind for buffer in program.buffers]
        self._buffer = kinds.index("arena") if "arena" in kinds else -1
        records = [piece for piece in bound.pieces if isinstance(piece, int)]
        pieces = (ctypes.c_void_p * max(len(records), 1))(*records)
        if not records:
            pieces[0] = ctypes.addressof(bound.record)
        self._first = Frame.from_address(pieces[0] or 0)
        self.answers = (Answer * _ANSWERS)()
        self._keeps: Any = pieces, [self._answer(answer) for answer in self.answers]
        self.record = FrameRecord(
            pieces=ctypes.addressof(pieces), count=len(records), number=number, answers=ctypes.addressof(self.answers)
        )
        self.record.arena = bound.arena.nbytes
        self._wanted = int64_table(*[0] * max(len(layout.names), 1))
        self._taken = ctypes.addressof(common), ctypes.addressof(self.record), ctypes.addressof(self._wanted)

    def _answer(self, answer: Answer) -> tuple[Any, ...]:
        """Gives an answer memory; values are as the frame has them, of other shapes."""
        layout, record = self._layout, self._first
        symbols, numbers = int64_table(*[0] * max(len(layout.names), 1)), int64_table(*[0] * (layout.arena + 1))
        count = record.arguments + record.results
        values = (Value * max(count, 1))()
        if count:
            ctypes.memmove(values, record.values, ctypes.sizeof(values))
        at = ctypes.addressof(numbers) + 8 * layout.extents
        for value in values[:count]:
            value.shape, at = at, at + 8 * value.dimensions
        answer.symbols, answer.numbers = ctypes.addressof(symbols), ctypes.addressof(numbers)
        answer.values = ctypes.addressof(values)
        return symbols, numbers, values

    @property
    def binding(self) -> Binding:
        """The frame for who fills its table; the arena there is its first one."""
        return binding_of(self.bound)

    def numbers(self, answer: int) -> Sequence[int]:
        """Those of an answer."""
        return self._keeps[1][answer][1]

    def take(self, symbols: Sequence[int]) -> bool:
        """
        Makes the frame, which must not run, one for these values of symbols; whether the program is for them. Raises MemoryError.
        """
        self._wanted[: len(symbols)] = symbols  # none where nothing follows from symbols
        while (needed := self._caller.take_sizes(*self._taken)) > 0:
            self.grow(needed)
        return needed == 0

    def taken(self) -> ctypes.Array[ctypes.c_int64]:
        """The numbers that it has now."""
        answer = Answer.from_address(self.record.current)
        return (ctypes.c_int64 * (self._layout.arena + 1)).from_address(answer.numbers)

    def grow(self, nbytes: int) -> None:
        """Gives the frame, which must not run, an arena of so many bytes or more. Raises MemoryError."""
        times, by = _GROWTH
        self.arena = AlignedArena(max(nbytes, self.record.arena * times // by), self._alignment)
        if self._buffer >= 0:
            self.bound.table[self._buffer] = self.arena.address
        self.record.arena = self.arena.nbytes
