"""Programs for a range of extents on a CUDA device: one text, compiled once, and programs for numbers that share its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fuse_opt.lowering.program import LibraryCall, Program, Segment
from fuse_opt.runtime.cuda.program import CompiledKernels, CudaProgram


class SizedCudaProgram:
    """
    A program for a range of extents: its kernels, and the programs that calls ask for, which follow one another on one stream, in
    one arena that grows.
    """

    def __init__(self, program: Program, at: Callable[[Mapping[str, int]], Program], device: int | None = None) -> None:
        """
        Compiles its text for the device of a number, else for that of the thread's current context; `at` gives what it is where
        symbols have these values. Raises CudaUnavailable and CudaCompileErrors.
        """
        self.program = program
        """With sizes in the place of numbers."""
        self._at = at
        self._kernels = CompiledKernels(program, device=device)

    def at(self, values: Mapping[str, int]) -> CudaProgram:
        """Raises what the record's evaluation raises, and CudaError."""
        return CudaProgram(without_empty_launches(self._at(values)), compiled=self._kernels)


def without_empty_launches(program: Program) -> Program:
    """A program for some extents without the launches that it has for others: a grid has a block or more."""
    steps: list[Segment | LibraryCall] = []
    left_out = 0
    for step in program.steps:
        if isinstance(step, Segment):
            launches = tuple(launch for launch in step.launches if launch.tasks)
            left_out += len(step.launches) - len(launches)
            step = replace(step, launches=launches)
        steps.append(step)
    if not left_out:
        return program
    stats = replace(program.stats, launches=program.stats.launches - left_out)
    return replace(program, steps=tuple(steps), stats=stats)
