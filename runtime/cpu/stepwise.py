"""Programs that run launch after launch, by a parallel loop of the caller's choice: for tests, and to look between steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, Program, Segment
from fuse_opt.runtime.cpu.arguments import contiguous_view
from fuse_opt.runtime.cpu.frames import BoundFrame, PythonCall, constant_data
from fuse_opt.runtime.cpu.program import Array, CpuProgram, call_library
from fuse_opt.runtime.disk_cache import DiskCache


class StepwiseProgram(CpuProgram):
    """A program whose steps Python takes one by one, each segment of launches and each call of a library."""

    def __init__(self, program: Program, cache: DiskCache | None = None, *, parallel_for: int | None = None) -> None:
        """`parallel_for` is the address of a function as the pool's loop (`load_pool`), which is taken where there is none."""
        super().__init__(program, cache)
        self.direct = self._in_memory = None
        self._parallel_for = self.parallel_for if parallel_for is None else parallel_for

    def _frame_maker(self) -> Callable[[], BoundFrame]:
        return partial(self._frames.make, native=False)

    def _take_steps(self, frame: BoundFrame, memory: list[Array]) -> None:
        for number in range(len(self._steps)):
            self._take_step(number, frame, memory)

    def _take_step(self, number: int, frame: BoundFrame, memory: list[Array]) -> None:
        step = self._steps[number]
        if isinstance(step, Segment):
            self._segment(step)(frame.address, self._parallel_for)
        else:
            call = next(piece for piece in frame.pieces if isinstance(piece, PythonCall) and piece.step is step)
            call_library(call, memory)


Look = Callable[[BufferRef], Array]
"""What a reference of the program means now, as an array over the same memory."""
Watch = Callable[[int, Look], None]
"""Told the number of a step, and how to look at the memory of the run."""


class WatchedProgram(StepwiseProgram):
    """A program whose memory is looked at before and after each step of a run; one run at a time."""

    def __init__(self, program: Program, cache: DiskCache | None = None) -> None:
        """Nobody looks until `before` and `after` are given."""
        super().__init__(program, cache)
        self.before: Watch = _ignore
        self.after: Watch = _ignore

    def _take_steps(self, frame: BoundFrame, memory: list[Array]) -> None:
        def look(ref: BufferRef) -> Array:
            buffer = self.program.buffers[ref.buffer]
            if buffer.kind == "arena":
                return frame.arena.view(ref.offset, ref.shape, NUMPY_NAMES[ref.dtype])
            return contiguous_view(constant_data(buffer) if buffer.kind == "constant" else memory[ref.buffer], ref)

        for number in range(len(self._steps)):
            self.before(number, look)
            self._take_step(number, frame, memory)
            self.after(number, look)


def _ignore(number: int, look: Look) -> None:
    """What is told of steps that nobody watches."""
