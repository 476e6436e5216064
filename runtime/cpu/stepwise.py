"""Programs that run launch after launch, by a parallel loop of the caller's choice: for tests, and to look between steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fuse_opt.lowering.program import Program, Segment
from fuse_opt.runtime.cpu.frames import BoundFrame, PythonCall
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
