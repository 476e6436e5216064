"""Programs on a CUDA device: compiled once, bound once, then one call of the driver for all that runs on the device."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fuse_opt.lowering.program import Program, ProgramStats, Segment
from fuse_opt.runtime.cuda.arguments import Argument, Arguments, Staging
from fuse_opt.runtime.cuda.quick_calls import QuickCalls
from fuse_opt.runtime.cuda.results import Outcome, Results
from fuse_opt.runtime.cuda.run_state import RunState
from fuse_opt.runtime.cuda.steps import Steps
from fuse_opt.runtime.device.arrays import DeviceArray, stream_handle
from fuse_opt.runtime.device.compiler import (
    Cubin,
    KernelRefused,
    compile_kernels,
    find_cuda_compiler,
    kernel_resources,
    supported_arch,
)
from fuse_opt.runtime.device.driver import Device, open_device
from fuse_opt.runtime.device.driver_library import DEFAULT_STREAM, LEGACY_STREAMS, CudaError, CudaUnavailable
from fuse_opt.runtime.device.graphs import RunCounts
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.orders import Orders

Array = NDArray[Any]

__all__ = ["CudaProgram", "CudaStats", "CudaUnavailable", "KernelRefused"]


@dataclass
class CudaStats(RunCounts, ProgramStats):
    """The program's counts, what compiling it took, and what its calls have done so far."""


@dataclass(slots=True)
class _Call:
    """All that a run with given arrays needs."""

    arguments: list[Argument]
    outcome: Outcome
    streams: list[int]
    """The caller's stream first."""
    table: tuple[int, ...]
    """The addresses of the program's buffers."""
    copies: bool
    """Whether there is something to be done before or behind the kernels."""

    @property
    def results(self) -> Any:
        arrays = self.outcome.arrays
        return arrays[0] if len(arrays) == 1 else tuple(arrays)


class CudaProgram:
    """
    A program that can be called with arrays of the host and of the device, from several threads at once: its runs follow
    one another on the device.
    """

    def __init__(
        self,
        program: Program,
        cache: DiskCache | None = None,
        device: int | None = None,
        compiled: CompiledKernels | None = None,
    ) -> None:
        """
        Compiles the program, or takes it from the disk cache, and allocates its memory on the device of a number, else on
        that of the thread's current context; `compiled` has been made of the same text for others. Raises CudaUnavailable,
        KernelRefused and other CudaCompileErrors, CudaMemoryError and CudaError.
        """
        self.program = program
        self._orders = Orders.of(program)
        compiled = compiled or CompiledKernels(program, cache, device)
        self._device, self.resources = compiled.device, compiled.resources
        """By kernel: registers, spills and shared memory, where the compiler said them."""
        weakref.finalize(self, self._device.drop, vars(self)).atexit = False
        with self._device.active():
            self._state = state = compiled.state()
            self._counts, self._lock = state.counts, state.lock
            self._bind(state)

    def _bind(self, state: RunState) -> None:
        program, device, counts, stream = self.program, self._device, self._counts, state.stream
        self._stream, self._entered, self._done = stream, state.entered, state.done
        self._steps = Steps(program, device, stream, state.kernels, counts, state.shared)
        staging = Staging(program, device)
        self._arguments = Arguments(program, device, stream, staging, counts)
        self._results = Results(program, device, stream, staging, counts)
        self._arena = state.arena(program.arena_bytes)
        self._constants = state.constants(program.buffers)
        self._fixed = [0] * len(program.buffers)
        """Addresses of what stays where it is."""
        for number, buffer in enumerate(program.buffers):
            if buffer.kind in ("arena", "constant"):
                self._fixed[number] = int(self._arena if buffer.kind == "arena" else self._constants[number])
        self._quick = QuickCalls(program, device, stream.handle, self._fixed, self._results.pool)
        self._is_current = device.current_context()
        self._ordered = (stream.handle, DEFAULT_STREAM)

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self.program.source

    @property
    def stats(self) -> CudaStats:
        """The program's counts, and those of all calls so far."""
        return CudaStats(**vars(self.program.stats), **vars(self._counts))

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """
        Runs the program: one array for one result, else a tuple. Where all arrays are the host's, so are the results, and
        the call returns when they are there. With one of a device the results are arrays of the same library, and the
        call returns at once: its work is ordered with other work on `stream` (a handle, or a stream of PyCUDA, torch or
        cupy), or where that is None on the stream that the first such array belongs to.

        `out` gives an array for each result. Raises TypeError and ValueError where arrays do not fit, and CudaError.
        """
        if self._orders is not None:
            return self._orders.call(self._call, arrays, out, stream=stream)
        with self._lock:
            if self._is_current():
                return self._called(arrays, out, stream)
            with self._device.active():
                return self._called(arrays, out, stream)

    def _call(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """As a call, with the axes of all arrays as they lie in memory."""
        with self._lock, self._device.active():
            return self._called(arrays, out, stream)

    def _called(self, arrays: Sequence[Any], out: Any, stream: Any) -> Any:
        if self._steps.all_on_device and (quick := self._quick.find(arrays, out, stream)) is not None:
            results, table, handle = quick
            self._run_at(table, handle)
            return results
        with self._device.active():
            call = self._bound(arrays, out, stream)
            self._run(call)
        return call.results

    def bind(self, *arrays: Any, out: Any = None, stream: Any = None) -> Callable[[], Any]:
        """
        The call with these arrays as a function, which checks nothing and gives the same result arrays each time. It runs
        nothing yet. Arrays of the host are read when it is called, but for those that are not in C order.
        """
        if self._orders is not None:
            return lambda: self(*arrays, out=out, stream=stream)
        with self._lock, self._device.active():
            call = self._bound(arrays, out, stream)
            is_direct, stream = not call.copies, call.streams[0]
            start = self._steps.bound(call.table, stream) if is_direct and stream in self._ordered else None
        return self._run_bound(call) if start is None else self._start_bound(start, call)

    def _run_bound(self, call: _Call) -> Callable[[], Any]:
        results, table, stream, is_direct = call.results, call.table, call.streams[0], not call.copies
        lock, is_current, run_at = self._lock, self._is_current, self._run_at

        def run() -> Any:
            with lock:
                if is_direct and is_current():
                    run_at(table, stream)
                else:
                    with self._device.active():
                        self._run(call)
            return results

        return run

    def _start_bound(self, start: Callable[[], int], call: _Call) -> Callable[[], Any]:
        """A run that is one launch, on a stream that others of this program wait for by themselves."""
        results, stream, in_other_ways = call.results, call.streams[0], self._run_bound(call)
        lock, counts, ordered, state = self._lock, self._counts, self._ordered, self._state
        is_current, dropped = self._is_current, self._device.dropped
        # Then it is of a context, in another one of which the driver refuses the launch.
        is_own = stream != DEFAULT_STREAM

        def run() -> Any:
            with lock:
                if state.last in ordered and ((is_own and not dropped) or is_current()) and not start():
                    state.last = stream
                    counts.calls += 1
                    counts.kernel_launches += 1
                    return results
            return in_other_ways()

        return run

    def _run_at(self, table: tuple[int, ...], stream: int) -> None:
        """Runs on arrays that are where they are to be; the context is the current one."""
        steps = self._steps
        steps.check()
        steps.addresses.use(table)
        self._counts.calls += 1
        if steps.all_direct and stream in self._ordered and self._state.last in self._ordered:
            self._state.last = stream
            steps.launch(stream)
            return
        captured = self._is_captured(stream)
        if captured and steps.all_launches:
            steps.join_capture(stream)  # makes no graph of its own meanwhile
            return
        graphs = steps.graphs()
        if steps.follow(graphs):
            self._replay(stream, graphs, captured)
            return
        with self._device.active():
            self._run_in_steps(_Call([], Outcome(), [stream], table, False), graphs)

    def _bound(self, arrays: Sequence[Any], out: Any, stream: Any) -> _Call:
        arguments = self._arguments.adopt(arrays)
        streams = self._streams(arguments, stream)
        outcome = self._results.prepare(arguments, out, streams[0])
        table = self._fixed.copy()
        table[: len(arguments)] = [argument.address for argument in arguments]
        for number, address in outcome.addresses:
            table[number] = address
        copies = len(streams) > 1 or not outcome.direct or any(argument.pending for argument in arguments)
        return _Call(arguments, outcome, streams, tuple(table), copies)

    def _run(self, call: _Call) -> None:
        self._steps.check()  # a run on arrays of the device is over after its call
        self._steps.addresses.use(call.table)
        self._counts.calls += 1
        graphs = self._steps.graphs()
        if call.copies or not self._steps.follow(graphs):
            self._run_in_steps(call, graphs)
        else:
            self._replay(call.streams[0], graphs, self._is_captured(call.streams[0]))

    def _streams(self, arguments: Sequence[Argument], given: Any) -> list[int]:
        """
        The caller's stream first, then others that arguments are still being written on; the program's own last, as
        what DLPack has made ready for it is no wish of the caller's.
        """
        own = self._stream.handle
        named = [argument.given.stream for argument in arguments if isinstance(argument.given, DeviceArray)]
        handles = [None if given is None else stream_handle(given), *named]
        known = dict.fromkeys(DEFAULT_STREAM if h in LEGACY_STREAMS else h for h in handles if h is not None)
        others = [handle for handle in known if handle != own]
        return [*others, own] if own in known or not others else others

    def _is_captured(self, stream: int) -> bool:
        return not self._is_ordered(stream) and self._device.library.is_capturing(stream)

    def _is_ordered(self, stream: int) -> bool:
        """Whether it is the program's own stream or the default one: these wait for each other by themselves."""
        return stream in self._ordered

    def _replay(self, stream: int, graphs: Sequence[int | None], captured: bool) -> None:
        """Runs on the caller's stream; what somebody captures there has an order of its own."""
        if captured:
            self._steps.join_capture(stream)
            return
        self._order(stream)
        self._steps.run(graphs, stream)
        if not self._is_ordered(stream):
            # Now, and not when another stream needs it: the caller's may be gone then.
            self._device.library.check("cuEventRecord", self._done, stream)
        self._state.last = stream

    def _run_in_steps(self, call: _Call, graphs: Sequence[int | None]) -> None:
        """Runs on the program's own stream, which waits for the others, and the caller's waits for it."""
        own, check = self._stream.handle, self._device.library.check
        if any(map(self._is_captured, call.streams)):
            raise CudaError(
                f"'{self.program.name}': a stream that is captured takes arrays of the device alone, in C order and not the "
                "host's, and calls of libraries that were run with the same arrays twice before"
            )
        self._order(own)
        for stream in call.streams:
            if not self._is_ordered(stream):
                check("cuEventRecord", self._entered, stream)
                check("cuStreamWaitEvent", own, self._entered, 0)
        self._state.last = own
        try:
            self._arguments.upload(call.arguments)
            self._steps.run(graphs, own)
            self._results.finish(call.outcome, call.arguments, self._steps.addresses.table)
            if call.outcome.downloads:
                self._steps.check()
        finally:
            # All of them: memory of arrays may be used again on the stream that they were made on.
            waiting = [stream for stream in call.streams if not self._is_ordered(stream)]
            if waiting:
                check("cuEventRecord", self._done, own)
            for stream in waiting:
                check("cuStreamWaitEvent", stream, self._done, 0)

    def _order(self, stream: int) -> None:
        """Makes the stream wait for the last run: there is one arena."""
        last, check = self._state.last, self._device.library.check
        if self._is_ordered(stream) and self._is_ordered(last):
            return
        if self._is_ordered(last):
            check("cuEventRecord", self._done, last)
        # For equal handles, too: one may have been given to a new stream, and that of default streams of threads is
        # another stream in each of them.
        check("cuStreamWaitEvent", stream, self._done, 0)


class CompiledKernels:
    """The kernels of a text for a device, and what runs of all programs of this text share."""

    def __init__(self, program: Program, cache: DiskCache | None = None, device: int | None = None) -> None:
        """Raises CudaUnavailable, KernelRefused and other CudaCompileErrors."""
        self.device = open_device(device)
        started = time.perf_counter()
        launched = any(isinstance(step, Segment) for step in program.steps)
        self._cubin = compiled_cubin(program, self.device, cache or DiskCache()) if launched else None
        self._counts = RunCounts(compile_s=time.perf_counter() - started)
        self.resources = kernel_resources(self._cubin.log) if self._cubin else {}
        self._name = program.name
        self._state: RunState | None = None

    def state(self) -> RunState:
        """The same in each call; the context is the device's. Raises CudaError."""
        if self._state is None:
            self._state = RunState(self._name, self.device, self._cubin, self._counts)
        return self._state


def compiled_cubin(program: Program, device: Device, cache: DiskCache) -> Cubin:
    """The kernels of a program for a device, or those in the cache. Raises CudaUnavailable and CudaCompileErrors."""
    compiler = find_cuda_compiler()
    if compiler is None:
        raise CudaUnavailable("there is no nvcc (name it in FUSE_OPT_NVCC) and no NVRTC")
    return compile_kernels(compiler, program.source, supported_arch(compiler, device.arch), cache)
