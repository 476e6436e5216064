"""Where the time of a call goes: each kernel's, with its bytes and what bounds it. The program that is timed is another one.

Profiling compiles the program anew with one kernel a launch and looks at the clock between them; the ordinary program is the same
with and without.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy.typing as npt
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.lowering.emit.traced import TracedKernel, TracedProgram, trace_program
from fuse_opt.lowering.program import LibraryCall, Program, Segment
from fuse_opt.passes.devices.device import HOST, Device, find_device
from fuse_opt.passes.fusion.engine.cost_model import work
from fuse_opt.runtime.cpu.poison import live_after_steps
from fuse_opt.runtime.cpu.stepwise import Look, WatchedProgram
from fuse_opt.runtime.host.thread_pool import num_threads
from fuse_opt.tools.source.diagnostics import format_position, source_position
from fuse_opt.tools.watching.profile import KernelProfile, Profile

Array = npt.NDArray[Any]


def profile_program(
    module: ModuleOp, function: str | None, arrays: Sequence[Array], call: Callable[..., object], repeat: int = 10
) -> Profile:
    """
    Times a function of a module that passes have planned for the CPU, on the arrays of all its arguments but prepared ones;
    `call` runs the ordinary program on such arrays.

    Raises ValueError where another function prepares arguments, and what compiling raises.
    """
    traced = trace_program(module, function)
    if traced.prepare is not None:
        raise ValueError("profile: expected a program without prepared arguments; compile it without graph.frozen")
    watched = _Clock(traced.program)
    ordinary: list[float] = []
    for _ in range(2 + max(repeat, 1)):
        given = watched.fresh(arrays)
        start = time.perf_counter()
        call(*given)
        ordinary.append(time.perf_counter() - start)
        watched.run(arrays)
    return _profile(traced, watched.calls[2:], watched.seconds[2:], ordinary[2:])


class _Clock:
    """A program whose steps are timed."""

    def __init__(self, program: Program) -> None:
        self._watched = WatchedProgram(program)
        self._watched.before, self._watched.after = self._before, self._after
        self.calls: list[list[tuple[float, float]]] = []
        """Of each call, when each step begins and how long it takes."""
        self._donated = [buffer.donated for buffer in program.arguments]
        self._begin = self._first = 0.0
        self.seconds: list[float] = []
        """Of each call."""

    def fresh(self, arrays: Sequence[Array]) -> list[Array]:
        """The arguments of a call, with copies of those that it overwrites."""
        return [array.copy() if donated else array for array, donated in zip(arrays, self._donated, strict=True)]

    def run(self, arrays: Sequence[Array]) -> None:
        given = self.fresh(arrays)
        self.calls.append([])
        self._first = time.perf_counter()
        self._watched(*given)
        self.seconds.append(time.perf_counter() - self._first)

    def _before(self, step: int, look: Look) -> None:
        self._begin = time.perf_counter()

    def _after(self, step: int, look: Look) -> None:
        end = time.perf_counter()
        self.calls[-1].append((self._begin - self._first, end - self._begin))


def _profile(
    traced: TracedProgram,
    calls: Sequence[Sequence[tuple[float, float]]],
    whole: Sequence[float],
    ordinary: Sequence[float],
) -> Profile:
    program, device = traced.program, find_device(HOST)
    live = [sum(end - start for start, end in ranges) for ranges in live_after_steps(program)]
    best = whole.index(min(whole))
    shown = calls[best]
    covered = sum(seconds for _, seconds in shown) / whole[best]
    kernels = tuple(
        _kernel(each, program, device, calls, shown, live[each.steps.stop - 1]) for each in traced.kernels if each.steps
    )
    least, median = min(ordinary), statistics.median(ordinary)
    return Profile(
        program.name,
        kernels,
        len(calls),
        num_threads(),
        least,
        median,
        covered,
        program.arena_bytes,
        device.name,
        device,
    )


def _kernel(
    each: TracedKernel,
    program: Program,
    device: Device,
    calls: Sequence[Sequence[tuple[float, float]]],
    shown: Sequence[tuple[float, float]],
    live: int,
) -> KernelProfile:
    seconds = [sum(call[step][1] for step in each.steps) for call in calls]
    steps = [program.steps[number] for number in each.steps]
    read, written = (sum(moved) for moved in zip(*map(_moved, steps), strict=True))
    operations, rate = _operations(each.kernel, device)
    bounds = _bounds(read + written, operations, rate, device)
    bound = max(bounds, key=lambda name: bounds[name])
    position = source_position(each.kernel)
    called = next((step.implementation for step in steps if isinstance(step, LibraryCall)), "generated")
    return KernelProfile(
        each.name,
        tuple(op.name for op in each.kernel.ops() if op.operands),
        "" if position is None else format_position(*position),
        called,
        each.kernel.schedule_kind() or "",
        read,
        written,
        operations,
        min(seconds),
        statistics.median(seconds),
        shown[each.steps.start][0],
        sum(shown[step][1] for step in each.steps),
        bound,
        bounds[bound] / max(min(seconds), 1e-12),
        live,
    )


def _moved(step: Segment | LibraryCall) -> tuple[int, int]:
    """Bytes read and written, counted as the program's statistics count them."""
    if isinstance(step, LibraryCall):
        return step.moved
    read = sum(launch.buffers[k].nbytes for launch in step.launches for k in launch.loads or ())
    return read, sum(launch.buffers[k].nbytes for launch in step.launches for k in launch.stores or ())


def _operations(kernel: OutlinedOp, device: Device) -> tuple[int, float]:
    """How many operations it makes, and how many of such a second the device makes."""
    products = simple = 0
    for op in kernel.ops():
        if isinstance(op, OpaqueOp):
            found = op.contraction() or op.window_contraction() or op.weight_gradient() or op.input_gradient()
            products += 0 if found is None else found.operations
        elif isinstance(op, StructuredOp):
            simple += work(op) * prod(shape(op.results[0])) * (prod(op.reduced_extents()) if op.COMBINE else 1)
    return products + simple, device.product_rate("f32") if products else device.rate


def _bounds(nbytes: int, operations: int, rate: float, device: Device) -> dict[str, float]:
    """Seconds that each bound alone takes."""
    level = "caches" if nbytes <= device.cache_bytes else "memory"
    return {
        level: nbytes / (device.cache_bandwidth if level == "caches" else device.bandwidth),
        "arithmetic": operations / rate,
        "launch": device.launch,
    }
