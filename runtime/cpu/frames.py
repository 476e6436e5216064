"""What a run of a program on the CPU needs to itself: an arena, a table of addresses, and its loops bound to both."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, BufferRef, LibraryCall, Program, Segment
from fuse_opt.runtime.backends.blas.matmul import load_tasks
from fuse_opt.runtime.buffers import AlignedArena
from fuse_opt.runtime.cpu.arguments import READY, WRITEABLE, contiguous_view
from fuse_opt.runtime.cpu.native_calls import Failure, Follower, NativeCall, native_call
from fuse_opt.runtime.host.c_records import address_in
from fuse_opt.runtime.host.program_call import PHASE, REGION, Frame, Interpreter, Loop, LoopRow, Value

Array = NDArray[Any]

_SMALL = 2.0
"""Chunks of work up to which a run keeps the interpreter: letting go of it may cost more."""


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A library call from Python, with the views that stay as long as an arena does; others are None, made for each run."""

    step: LibraryCall
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    exclusive: bool
    """Whether it has threads of its own, and the pool's have nothing to do meanwhile."""


@dataclass(frozen=True, slots=True)
class BoundFrame:
    """A program bound to memory of one run."""

    arena: AlignedArena
    table: ctypes.Array[ctypes.c_void_p]
    address: int
    """Of the table."""
    pieces: tuple[int | PythonCall, ...]
    """What a run does in order: addresses of records to run, and calls."""
    record: Frame
    """Of the piece that is all of the program; where there are several it only says whether the frame is in use."""
    failures: tuple[Failure, ...]
    memory: list[Any]
    """What the records point to."""

    def check(self) -> None:
        """Raises what the last run is refused with, if it is."""
        raise_first(self.failures)


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call of a library bound to memory of one run."""

    address: int
    """Of the record to run."""
    failures: tuple[Failure, ...]
    memory: list[Any]
    """What the record points to."""

    def check(self) -> None:
        """Raises what the last run is refused with, if it is."""
        raise_first(self.failures)


def raise_first(failures: Sequence[Failure]) -> None:
    """Raises what a run was refused with; the next one starts anew."""
    for error in [error for failure in failures if (error := failure.take()) is not None][:1]:
        raise error


@dataclass(slots=True)
class _Plan:
    """Loops of the pieces, and what they point to."""

    pieces: list[list[LoopRow] | LibraryCall] = field(default_factory=list[list[LoopRow] | LibraryCall])
    memory: list[Any] = field(default_factory=list[Any])
    failures: list[Failure] = field(default_factory=list[Failure])
    native: bool = False
    """Whether there are calls among the loops."""
    blas: bool = False
    """Whether one of them calls a BLAS."""

    def rows(self) -> list[LoopRow]:
        """Those of the piece at the end."""
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, list):
            self.pieces.append(last := [])
        return last

    @property
    def loops(self) -> list[list[LoopRow]]:
        return [piece for piece in self.pieces if isinstance(piece, list)]


Noted = Callable[[int, Sequence[LoopRow]], Sequence[LoopRow]]
"""What stands in for the loops of a step, by its number, in frames."""


@dataclass(frozen=True)
class Counters:
    """How a run of a program is shared, whatever its threads."""

    foreign_calls: int
    parallel_regions: int
    barriers: int


class FrameMaker:
    """Binds a program to memory, as often as there are runs at a time."""

    def __init__(
        self,
        program: Program,
        steps: Sequence[Segment | LibraryCall],
        library: ctypes.CDLL | None,
        interpreter: Interpreter,
        any_extents: bool = False,
    ) -> None:
        """`any_extents`: frames are those of runs with other extents, too, for which calls that depend on these are Python's."""
        self._program, self._any_extents = program, any_extents
        self._steps = steps
        self._loops = [
            [address_in(library, f"{s.function}_loop_{k}") for k in range(sum(map(len, s.phases)))]
            if isinstance(s, Segment)
            else []
            for s in steps
        ]
        self._interpreter = interpreter
        self.noted: Noted = _as_they_are
        self._small = _work(program) < _SMALL
        fixed = [number for number, buffer in enumerate(program.buffers) if buffer.kind in ("argument", "result")]
        self._shapes = [(ctypes.c_int64 * len(b.shape))(*b.shape) for b in (program.buffers[n] for n in fixed)]
        self._dtypes = [np.dtype(NUMPY_NAMES[program.buffers[n].dtype]) for n in fixed]
        described = zip(fixed, self._shapes, self._dtypes, strict=True)
        self._values = (Value * max(len(fixed), 1))(*(self._value(n, shape, dtype) for n, shape, dtype in described))

    def _value(self, number: int, shape: ctypes.Array[ctypes.c_int64], dtype: np.dtype[Any]) -> Value:
        buffer = self._program.buffers[number]
        written = buffer.kind == "result" or buffer.donated
        flags = READY | (WRITEABLE if written else 0)
        nbytes = BufferRef(number, 0, buffer.shape, buffer.dtype).nbytes
        return Value(id(dtype), len(buffer.shape), ctypes.addressof(shape), nbytes, flags, written)

    def make(self, native: bool = True) -> BoundFrame:
        """A frame; with `native`, calls that compiled code can make are among its loops. Raises `MemoryError`."""
        program = self._program
        arena = AlignedArena(program.arena_bytes, program.arena_alignment)
        table = (ctypes.c_void_p * max(len(program.buffers), 1))()
        fixed: dict[int, Array] = {}
        for number, buffer in enumerate(program.buffers):
            if buffer.kind == "constant":
                fixed[number] = constant_data(buffer)
                table[number] = fixed[number].ctypes.data
            elif buffer.kind == "arena":
                table[number] = arena.address
        plan = self._planned(ctypes.addressof(table), native)

        def bound(ref: BufferRef) -> Array | None:
            if program.buffers[ref.buffer].kind == "arena":
                return arena.view(ref.offset, ref.shape, NUMPY_NAMES[ref.dtype])
            return contiguous_view(fixed[ref.buffer], ref) if ref.buffer in fixed else None

        pieces = tuple(
            self._record(piece, table, plan)
            if isinstance(piece, list)
            else PythonCall(
                piece, tuple(map(bound, piece.inputs)), tuple(map(bound, piece.written)), _is_exclusive(piece)
            )
            for piece in (plan.pieces or [[]])
        )
        record = Frame.from_address(only) if len(pieces) == 1 and isinstance(only := pieces[0], int) else Frame()
        return BoundFrame(arena, table, ctypes.addressof(table), pieces, record, tuple(plan.failures), plan.memory)

    def add_call(self, frame: BoundFrame, call: LibraryCall) -> BoundCall | None:
        """A call whose extents are numbers on the memory of a frame, where compiled code makes it."""
        refs = (*call.inputs, *call.written)
        if not all(ref.nbytes for ref in refs) or (found := native_call(call, frame.address)) is None:
            return None
        plan = _Plan()
        _add_call(plan, found, False, partial(_as_they_are, 0))
        return BoundCall(self._record(plan.rows(), frame.table, plan), tuple(plan.failures), plan.memory)

    def counters(self) -> Counters:
        """Those of the program as it is bound now."""
        loops = self._native_plan().loops
        regions = [region for piece in loops for region in _regions(piece)]
        barriers = [_barriers(region) for region in regions]
        return Counters(len(loops), sum(b is not None for b in barriers), sum(b or 0 for b in barriers))

    def compiled_calls(self) -> tuple[frozenset[int], bool]:
        """The numbers of the library calls that compiled code makes, and whether a run may be refused by one of them."""
        plan = self._native_plan()
        made = {id(piece) for piece in plan.pieces}
        calls = (
            number for number, step in enumerate(self._steps) if isinstance(step, LibraryCall) and id(step) not in made
        )
        return frozenset(calls), bool(plan.failures)

    def is_whole(self) -> bool:
        """Whether Python has nothing to do within a run."""
        plan = self._native_plan()
        return len(plan.loops) == len(plan.pieces) == 1

    def _native_plan(self) -> _Plan:
        """The plan of a run in memory that is nowhere, to be looked at and not to be taken."""
        table = (ctypes.c_void_p * max(len(self._program.buffers), 1))()
        return self._planned(ctypes.addressof(table), native=True)

    def _planned(self, table: int, native: bool) -> _Plan:
        plan = _Plan()
        covered = False
        before: Segment | None = None
        beside: list[LibraryCall] = []
        """Calls of the phase at the end of the loops."""
        for number, step in enumerate(self._steps):
            if isinstance(step, Segment):
                if not covered:
                    rows = [*self._segment_rows(number, step, table, _is_apart(before, step))]
                    plan.rows().extend(self.noted(number, rows))
                before, covered, beside = step, False, []
                continue
            before = None
            native_here = native and not (self._any_extents and takes_extents(step))
            found = native_call(step, table, self._follower(number)) if native_here else None
            if found is None:
                plan.pieces.append(step)
                beside = []
                continue
            joins = len(found.rows) == 1 and bool(beside) and not any(_conflict(step, other) for other in beside)
            beside = [*beside, step] if joins else [step] if len(found.rows) == 1 else []
            _add_call(plan, found, joins, partial(self.noted, number))
            covered = found.with_follower
        return plan

    def _segment_rows(self, number: int, segment: Segment, table: int, apart: bool) -> Iterator[LoopRow]:
        addresses = iter(self._loops[number])
        for phase_number, phase in enumerate(segment.phases):
            begins = REGION if apart and not phase_number else PHASE
            for position, loop in enumerate(phase):
                yield LoopRow(next(addresses), table, loop.tasks, loop.tasks_of_chunk, 0, 0 if position else begins)

    def _follower(self, number: int) -> Follower | None:
        """The loop behind a call, where that may run by parts."""
        call = self._steps[number]
        following = self._steps[number + 1] if number + 1 < len(self._steps) else None
        if not isinstance(call, LibraryCall) or call.epilogue is None or not isinstance(following, Segment):
            return None
        loops = [loop for phase in following.phases for loop in phase]
        if len(loops) != 1 or loops[0].whole or loops[0].bundles != ((call.epilogue,),):
            return None
        return Follower(self._loops[number + 1][0], loops[0].tasks, loops[0].tasks_of_chunk)

    def _record(self, rows: Sequence[LoopRow], table: ctypes.Array[ctypes.c_void_p], plan: _Plan) -> int:
        loops = (Loop * len(rows))(*rows)
        tasks = load_tasks() if plan.blas else None
        enter, leave = (tasks.function(f"fuse_{name}_blas") if tasks else 0 for name in ("enter", "leave"))
        kept = self._small and not plan.native
        buffers = self._program.buffers
        last = [failure.address for failure in plan.failures]
        failed = (ctypes.c_void_p * len(last))(*last)
        record = Frame(
            buffers=ctypes.addressof(table),
            arguments=sum(buffer.kind == "argument" for buffer in buffers),
            results=sum(buffer.kind == "result" for buffer in buffers),
            values=ctypes.addressof(self._values),
            loops=ctypes.addressof(loops),
            count=len(rows),
            enter=enter,
            leave=leave,
            release=0 if kept else self._interpreter.release,
            take=0 if kept else self._interpreter.take,
            failed=ctypes.addressof(failed),
            failures=len(last),
        )
        plan.memory += [loops, failed, record]
        return ctypes.addressof(record)


def constant_data(buffer: Buffer) -> Array:
    """The elements of a constant."""
    assert buffer.data is not None
    return buffer.data


def takes_extents(call: LibraryCall) -> bool:
    """Whether what runs a call is told the extents of each run."""
    offer = find_offer(call.operation, call.implementation)
    return offer is not None and offer.sized


def _is_exclusive(call: LibraryCall) -> bool:
    offer = find_offer(call.operation, call.implementation)
    return offer is not None and offer.threads == "exclusive"


def _as_they_are(number: int, rows: Sequence[LoopRow]) -> Sequence[LoopRow]:
    """What becomes of loops that nobody looks at."""
    return rows


def _add_call(
    plan: _Plan, call: NativeCall, joins: bool, noted: Callable[[Sequence[LoopRow]], Sequence[LoopRow]]
) -> None:
    first, *others = call.rows
    plan.rows().extend(noted([first._replace(first=0 if joins else PHASE), *others]))
    plan.memory += call.memory
    plan.native, plan.blas = True, plan.blas or call.calls_blas
    if call.failure is not None:
        plan.failures.append(call.failure)


def _is_apart(before: Segment | None, segment: Segment) -> bool:
    """Whether a segment was asked to be synchronised with the one just before."""
    return before is not None and None not in (before.region, segment.region) and before.region != segment.region


def _conflict(call: LibraryCall, earlier: LibraryCall) -> bool:
    """Whether a call must wait for an earlier one."""
    pairs = [(a, b) for a in call.written for b in (*earlier.inputs, *earlier.written)]
    pairs += [(a, b) for a in call.inputs for b in earlier.written]
    return any(
        a.buffer == b.buffer and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes for a, b in pairs
    )


def _regions(rows: Sequence[LoopRow]) -> list[list[LoopRow]]:
    found: list[list[LoopRow]] = []
    for row in rows:
        if not found or row.first == REGION:
            found.append([])
        found[-1].append(row)
    return found


def _barriers(region: Sequence[LoopRow]) -> int | None:
    """The barriers between the first phase that threads share and the end; None where they share none."""
    phases: list[list[LoopRow]] = []
    for row in region:
        if not phases or row.first:
            phases.append([])
        phases[-1].append(row)
    shared = [len(p) > 1 or p[0].prepare != 0 or p[0].tasks > p[0].grain for p in phases]
    return len(phases) - 1 - shared.index(True) if True in shared else None


def _work(program: Program) -> float:
    """Chunks that are worth a thread, of all launches together."""
    segments = [step for step in program.steps if isinstance(step, Segment)]
    return sum(launch.tasks / max(launch.tasks_of_chunk, 1) for segment in segments for launch in segment.launches)
