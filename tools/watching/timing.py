"""Where the time of a call goes: each kernel's, with its bytes and what bounds it. The program that is timed is another one.

Profiling compiles the program anew with one kernel a launch, whose loops note which thread runs what; the ordinary program is the
same with and without.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.lowering.program import LibraryCall, Program, Segment
from fuse_opt.passes.devices.device import HOST, Device, find_device
from fuse_opt.passes.fusion.engine.cost_model import work
from fuse_opt.runtime.cpu.noted import NotedProgram, Piece
from fuse_opt.runtime.cpu.poison import live_after_steps
from fuse_opt.runtime.host.thread_pool import num_threads
from fuse_opt.runtime.prepared import PreparedProgram, persistent_memory
from fuse_opt.tools.source.diagnostics import format_position, source_position
from fuse_opt.tools.watching.profile import KernelProfile, Profile, united_seconds

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.traced import TracedKernel, TracedProgram

Array = npt.NDArray[Any]
_UNTIMED = 2
"""Calls before those that count."""


def profile_program(
    traced: TracedProgram,
    arrays: Sequence[Array],
    call: Callable[[], Callable[[], object]],
    bound: frozenset[int] = frozenset(),
    repeat: int = 10,
) -> Profile:
    """
    Times a program on the arrays of all its arguments but prepared ones; `call` makes an ordinary call of these ready. What
    prepares arguments is a part of each call unless all that it reads is `bound`. Raises what compiling raises.
    """
    watched = _Watched(traced, arrays, bound)
    ordinary: list[float] = []
    calls: list[_Call] = []
    for _ in range(_UNTIMED + max(repeat, 1)):
        ordinary.append(_seconds_of(call()))
        calls.append(watched.run())
    return _profile(watched.parts, calls[_UNTIMED:], ordinary[_UNTIMED:])


def _seconds_of(call: Callable[[], object]) -> float:
    """Nothing of the call stays: memory that it was given is there for the next one, as for calls before it."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@dataclass(frozen=True)
class _Call:
    """A call that was looked into."""

    pieces: tuple[Mapping[int, Sequence[Piece]], ...]
    """Of each part by step, with times from the beginning of the first part."""
    seconds: float


class _Watched:
    """A program whose calls are looked into, and the one that prepares arguments of it."""

    def __init__(self, traced: TracedProgram, arrays: Sequence[Array], bound: frozenset[int]) -> None:
        self._main = NotedProgram(traced.program)
        self._donated = [buffer.donated for buffer in traced.program.arguments]
        self._given = list(arrays)
        self.parts = [traced]
        """What a call runs, in order."""
        self._prepared: PreparedProgram | None = None
        second, preparation = traced.prepare, traced.program.prepare
        if second is None or preparation is None:
            return
        self._second = NotedProgram(second.program)
        found = PreparedProgram(self._main, self._second, preparation, persistent_memory(second.program))
        self._given = found.merged(arrays)
        found.fill(self._given, found.prepared(self._given))
        if not bound.issuperset(preparation.frozen):
            self._prepared, self.parts = found, [second, traced]

    def run(self) -> _Call:
        given = [array.copy() if donated else array for array, donated in zip(self._given, self._donated, strict=True)]
        start, begin = time.perf_counter(), 0.0
        parts: list[Mapping[int, Sequence[Piece]]] = []
        if (prepared := self._prepared) is not None:
            prepared.fill(given, prepared.prepared(given))
            parts.append(_by_step(self._second.pieces, 0.0))
            begin = time.perf_counter() - start
        self._main(*given)
        seconds = time.perf_counter() - start
        return _Call((*parts, _by_step(self._main.pieces, begin)), seconds)


def _by_step(pieces: Sequence[Piece], begin: float) -> Mapping[int, Sequence[Piece]]:
    found: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        found[piece.step].append(replace(piece, started=piece.started + begin, ended=piece.ended + begin))
    return found


def _profile(parts: Sequence[TracedProgram], calls: Sequence[_Call], ordinary: Sequence[float]) -> Profile:
    device = find_device(HOST)
    best = min(range(len(calls)), key=lambda number: calls[number].seconds)
    kernels: list[KernelProfile] = []
    for part, traced in enumerate(parts):
        live = [sum(end - start for start, end in ranges) for ranges in live_after_steps(traced.program)]
        for each in traced.kernels:
            if each.steps:
                runs = [_pieces(call.pieces[part], each) for call in calls]
                found = _kernel(each, traced.program, device, runs, best, live[each.steps.stop - 1])
                kernels.append(replace(found, prepares=traced is not parts[-1]))
    return Profile(
        parts[-1].program.name,
        tuple(kernels),
        len(calls),
        num_threads(),
        min(ordinary),
        statistics.median(ordinary),
        united_seconds(kernels) / calls[best].seconds,
        parts[-1].program.arena_bytes,
        device.name,
        device,
    )


def _pieces(by_step: Mapping[int, Sequence[Piece]], each: TracedKernel) -> tuple[Piece, ...]:
    return tuple(piece for step in each.steps for piece in by_step.get(step, ()))


def _seconds(pieces: Sequence[Piece]) -> float:
    """From the beginning of the first to the end of the last."""
    return max((p.ended for p in pieces), default=0.0) - min((p.started for p in pieces), default=0.0)


def _kernel(
    each: TracedKernel, program: Program, device: Device, runs: Sequence[Sequence[Piece]], shown: int, live: int
) -> KernelProfile:
    seconds = [_seconds(pieces) for pieces in runs]
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
        tuple(runs[shown]),
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
