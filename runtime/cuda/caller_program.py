"""Programs whose caller brings memory and a stream, and makes some of the calls itself: between them run pieces of launches.

A binding is what one run at a time needs on the host: a table of addresses, which the caller fills, and the arguments of
launches. It owns no memory of the device, so that lifetimes and streams of all arrays are the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from fuse_opt.lowering.program import BufferRef, GridLaunch, Launch, LibraryCall, Program, Segment
from fuse_opt.runtime.backends.registry import DeviceLibraries
from fuse_opt.runtime.cuda.program import CudaStats, compiled_cubin
from fuse_opt.runtime.cuda.steps import Shared, Steps
from fuse_opt.runtime.device.compiler import kernel_resources
from fuse_opt.runtime.device.driver import open_device
from fuse_opt.runtime.device.driver_library import LEGACY_STREAMS
from fuse_opt.runtime.device.graphs import RunCounts
from fuse_opt.runtime.device.kernels import Kernels
from fuse_opt.runtime.disk_cache import DiskCache

Piece = Callable[[int], None]
"""Enqueues steps that follow one another on the stream with a handle."""


@dataclass(frozen=True, slots=True)
class CallerBinding:
    """What one run needs to itself; runs of a binding are on one stream."""

    table: list[int]
    """By buffer, its address: the caller's to fill before a piece runs that reads or writes it."""
    pieces: tuple[Piece, ...]
    check: Callable[[], None]
    """Raises what a run that is over is refused with."""


class CallerKernels:
    """The kernels of a text on a device, for all programs of this text that callers bind."""

    def __init__(self, program: Program, cache: DiskCache | None = None, number: int | None = None) -> None:
        """
        Compiles them for the device of a number, else for that of the thread's current context. Raises CudaUnavailable,
        KernelRefused and other CudaCompileErrors, and CudaError.
        """
        self.device = device = open_device(number)
        started = time.perf_counter()
        launched = any(isinstance(step, Segment) for step in program.steps)
        cubin = compiled_cubin(program, device, cache or DiskCache()) if launched else None
        self.counts = RunCounts(compile_s=time.perf_counter() - started)
        self.resources = kernel_resources(cubin.log) if cubin else {}
        with device.active():
            self.kernels = Kernels(device, cubin.data) if cubin else None


class CallerProgram:
    """A program on a device; not to be called with arrays, but bound."""

    def __init__(
        self,
        program: Program,
        cache: DiskCache | None = None,
        number: int | None = None,
        compiled: CallerKernels | None = None,
    ) -> None:
        """
        Compiles it for the device of a number, else for that of the thread's current context, unless its kernels are
        `compiled`. Raises what compiling them raises.
        """
        self.program = program
        compiled = compiled or CallerKernels(program, cache, number)
        self._device, self._kernels, self._counts = compiled.device, compiled.kernels, compiled.counts
        self.resources = compiled.resources
        with self._device.active():
            libraries = DeviceLibraries(self._device)
            calls = {n: step for n, step in enumerate(program.steps) if isinstance(step, LibraryCall)}
            self._foreign = frozenset(n for n, call in calls.items() if libraries.find(call.implementation) is None)

    @property
    def number(self) -> int:
        """Of the device."""
        return self._device.number

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self.program.source

    @property
    def stats(self) -> CudaStats:
        """The program's counts, and those of all runs so far."""
        return CudaStats(**vars(self.program.stats), **vars(self._counts))

    @property
    def steps(self) -> Sequence[Segment | LibraryCall]:
        return self.program.steps

    @property
    def compiled_calls(self) -> tuple[frozenset[int], bool]:
        """The numbers of the steps that are in pieces; the others are the caller's. Runs are not to be checked behind them."""
        return frozenset(range(len(self.program.steps))) - self._foreign, False

    @property
    def is_captured(self) -> bool:
        """Whether all steps but the caller's may be part of a CUDA graph."""
        calls = [s for n, s in enumerate(self.steps) if isinstance(s, LibraryCall) and n not in self._foreign]
        return all(map(DeviceLibraries.is_captured, calls))

    def bind(self, cuts: frozenset[int] = frozenset()) -> CallerBinding:
        """With pieces that end before some steps, so that the caller may drop memory there. Raises CudaError."""
        table = [0] * len(self.program.buffers)
        with self._device.active():
            shared = Shared.of(self._device)
            pieces = tuple(self._piece(steps, table, shared) for steps in pieces_of(self.program, self._foreign, cuts))
        return CallerBinding(table, pieces, shared.libraries.check)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        raise TypeError(f"'{self.program.name}' is compiled for a caller that binds it; compile it without `whole`")

    def _piece(self, steps: Sequence[Segment | LibraryCall], table: list[int], shared: Shared) -> Piece:
        part, numbers = part_of(self.program, steps)
        bound = Steps(part, self._device, shared.captured, self._kernels, self._counts, shared)
        device, is_current = self._device, self._device.current_context()
        is_capturing = device.library.is_capturing

        def active() -> AbstractContextManager[None]:
            # What is more than launches goes through PyCUDA, which knows of no context that others have made current.
            return nullcontext() if bound.all_direct and is_current() else device.active()

        def enqueue(stream: int) -> None:
            bound.addresses.use(tuple([table[number] for number in numbers]))
            if bound.all_direct:
                bound.launch(stream)
            elif stream not in LEGACY_STREAMS and is_capturing(stream):
                bound.join_capture(stream)
            else:
                graphs = bound.graphs()
                if bound.follow(graphs):
                    bound.run(graphs, stream)
                else:
                    bound.join_capture(stream)

        def run(stream: int) -> None:
            with active():
                enqueue(stream)

        return run


def pieces_of(
    program: Program, foreign: frozenset[int], cuts: frozenset[int] = frozenset()
) -> list[list[Segment | LibraryCall]]:
    """The steps between those that are the caller's, which are given by number; they are cut before some, too."""
    found: list[list[Segment | LibraryCall]] = []
    before = -2
    for number, step in enumerate(program.steps):
        if number not in foreign:
            if before != number - 1 or number in cuts:
                found.append([])
            found[-1].append(step)
            before = number
    return found


def part_of(program: Program, steps: Sequence[Segment | LibraryCall]) -> tuple[Program, tuple[int, ...]]:
    """
    Some steps as a program of the buffers that they name alone, and the numbers of these: a run of them costs no more in a
    program of thousands.
    """
    numbers = tuple(sorted({ref.buffer for step in steps for ref in _refs(step)}))
    places = {number: place for place, number in enumerate(numbers)}

    def moved(refs: Sequence[BufferRef]) -> tuple[BufferRef, ...]:
        return tuple(replace(ref, buffer=places[ref.buffer]) for ref in refs)

    def moved_launch(launch: Launch) -> Launch:
        other = launch.unaligned if isinstance(launch, GridLaunch) else None
        if isinstance(launch, GridLaunch) and other is not None:
            return replace(
                launch, buffers=moved(launch.buffers), unaligned=replace(other, buffers=moved(other.buffers))
            )
        return replace(launch, buffers=moved(launch.buffers))

    found: list[Segment | LibraryCall] = []
    for step in steps:
        if isinstance(step, LibraryCall):
            workspace = None if step.workspace is None else moved((step.workspace,))[0]
            step = replace(step, inputs=moved(step.inputs), outputs=moved(step.outputs), workspace=workspace)
        else:
            step = replace(step, launches=tuple(map(moved_launch, step.launches)))
        found.append(step)
    return replace(program, buffers=tuple(program.buffers[n] for n in numbers), steps=tuple(found)), numbers


def _refs(step: Segment | LibraryCall) -> Sequence[BufferRef]:
    if isinstance(step, LibraryCall):
        return (*step.inputs, *step.written)
    return [ref for launch in step.launches for ref in launch.buffers]
