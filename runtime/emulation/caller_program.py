"""CUDA programs that are bound to a caller's memory, on the CPU: what `runtime/cuda/caller_program.py` does on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuse_opt.lowering.program import GridLaunch, LibraryCall, Program, ProgramStats, Segment
from fuse_opt.runtime.emulation.program import Kernels


@dataclass(frozen=True, slots=True)
class EmulatedBinding:
    """What one run needs to itself."""

    table: list[int]
    pieces: tuple[Callable[[int], None], ...]
    check: Callable[[], None]


@dataclass
class EmulatedStats(ProgramStats):
    """The program's counts."""

    compile_s: float = 0.0


class EmulatedCallerProgram:
    """A program whose kernels run one after another on the processor, on memory of the host; all calls are the caller's."""

    number = None
    """It is on no device."""

    def __init__(self, program: Program, kernels: Kernels | None = None) -> None:
        """`kernels` where they are built already. Raises EmulationError."""
        self.program = program
        self._kernels = kernels if kernels is not None or not program.source else Kernels(program.source)

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self.program.source

    @property
    def stats(self) -> EmulatedStats:
        return EmulatedStats(**vars(self.program.stats))

    @property
    def steps(self) -> Sequence[Segment | LibraryCall]:
        return self.program.steps

    @property
    def compiled_calls(self) -> tuple[frozenset[int], bool]:
        """The numbers of the steps that are in pieces; the others are the caller's."""
        return frozenset(n for n, step in enumerate(self.steps) if isinstance(step, Segment)), False

    @property
    def is_captured(self) -> bool:
        """Whether all steps but the caller's might be part of a CUDA graph."""
        return True

    def bind(self, cuts: frozenset[int] = frozenset()) -> EmulatedBinding:
        """With pieces that end before some steps, too."""
        table = [0] * len(self.program.buffers)
        groups: list[list[Segment]] = []
        before: object = None
        for number, step in enumerate(self.steps):
            if isinstance(step, Segment):
                if not isinstance(before, Segment) or number in cuts:
                    groups.append([])
                groups[-1].append(step)
            before = step
        return EmulatedBinding(table, tuple(self._piece(group, table) for group in groups), lambda: None)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        raise TypeError(f"'{self.program.name}' is compiled for a caller that binds it; compile it without `whole`")

    def _piece(self, segments: Sequence[Segment], table: list[int]) -> Callable[[int], None]:
        launches = [launch for segment in segments for launch in segment.launches]

        def run(stream: int) -> None:
            assert self._kernels is not None
            for launch in launches:
                assert isinstance(launch, GridLaunch)
                self._kernels.launch(launch, [table[ref.buffer] + ref.offset for ref in launch.buffers])

        return run
