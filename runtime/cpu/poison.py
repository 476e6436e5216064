"""Programs whose arena holds nothing but what is still to be read: all other bytes are NaN between the steps.

A plan that uses storage too early, a routine that leaves elements of its output out, and a kernel that reads what nobody
wrote give the same wrong result in every run, mostly NaN, where zeros or the values of an earlier run might have hidden it.
Which bytes are still to be read follows from the launches and calls, not from the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fuse_opt.lowering.program import BufferRef, Launch, LibraryCall, Program, Segment
from fuse_opt.runtime.cpu.frames import BoundFrame
from fuse_opt.runtime.cpu.program import Array
from fuse_opt.runtime.cpu.stepwise import StepwiseProgram
from fuse_opt.runtime.disk_cache import DiskCache

POISON = 0xFF
"""The byte that memory is filled with: NaN in every float type, -1 in integers."""

Range = tuple[int, int]
"""Bytes of the arena, from the first up to the second."""


class PoisonedProgram(StepwiseProgram):
    """A program that runs step by step, with the rest of the arena and all result buffers poisoned before."""

    def __init__(self, program: Program, cache: DiskCache | None = None) -> None:
        """Compiles the program as it is: for the finest steps its segments have one launch each."""
        super().__init__(program, cache)
        self._dead = [complement(live, program.arena_bytes) for live in live_after_steps(program)]

    def _take_steps(self, frame: BoundFrame, memory: list[Array]) -> None:
        arena = frame.arena.view(0, (self.program.arena_bytes,), np.uint8)
        arena[:] = POISON
        for number, *_ in self._own:
            if memory[number].size:
                memory[number].reshape(-1).view(np.uint8)[:] = POISON
        for number, dead in enumerate(self._dead):
            self._take_step(number, frame, memory)
            for start, end in dead:
                arena[start:end] = POISON


def live_after_steps(program: Program) -> list[list[Range]]:
    """By step: the bytes of the arena that a later one reads before any writes them, as disjoint ascending ranges."""
    arenas = {number for number, buffer in enumerate(program.buffers) if buffer.kind == "arena"}

    def ranges(refs: Iterable[BufferRef]) -> list[Range]:
        return [(r.offset, r.offset + r.nbytes) for r in refs if r.buffer in arenas and r.nbytes]

    live: list[Range] = []
    found: list[list[Range]] = []
    for step in reversed(program.steps):
        found.append(live)
        for reads, writes in reversed(_accesses(step)):
            live = united([*_without(live, ranges(writes)), *ranges(reads)])
    return found[::-1]


def _accesses(step: Segment | LibraryCall) -> list[tuple[Sequence[BufferRef], Sequence[BufferRef]]]:
    """What is read, and what is written as a whole, by each launch or by the call."""
    if isinstance(step, LibraryCall):
        return [(step.inputs, step.outputs)]
    return [_launch_accesses(launch) for launch in step.launches]


def _launch_accesses(launch: Launch) -> tuple[Sequence[BufferRef], Sequence[BufferRef]]:
    if launch.loads is None or launch.stores is None:
        return launch.buffers, ()
    return [launch.buffers[k] for k in launch.loads], [launch.buffers[k] for k in launch.stores]


def united(ranges: Iterable[Range]) -> list[Range]:
    """The same bytes as disjoint ranges in ascending order, none right behind another."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def complement(ranges: Sequence[Range], size: int) -> list[Range]:
    """The bytes below `size` that are in none of the disjoint ascending ranges."""
    starts = [0, *(end for _, end in ranges)]
    ends = [*(start for start, _ in ranges), size]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def _without(ranges: Sequence[Range], others: Iterable[Range]) -> list[Range]:
    """The bytes of disjoint ranges that are in none of the others."""
    left = list(ranges)
    for low, high in others:
        cut = [part for start, end in left for part in ((start, min(end, low)), (max(start, high), end))]
        left = [(start, end) for start, end in cut if start < end]
    return left
