"""What was found of the time of a program: as a table, and as trace events that chrome://tracing and Perfetto open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuse_opt.passes.devices.device import Device
from fuse_opt.runtime.cpu.noted import Piece

Event = dict[str, Any]
_PROGRAM, _COMPILING = 1, 2
"""Processes."""
_KERNELS, _THREADS = 1, 100
"""The first rows: of kernels, which have further ones where kernels run side by side, and of threads."""


@dataclass(frozen=True)
class KernelProfile:
    """A kernel in the calls that were timed."""

    name: str
    ops: tuple[str, ...]
    place: str
    """In the source; empty where it is not known."""
    ran: str
    """What ran it: generated code, or the implementation that was called."""
    schedule: str
    bytes_read: int
    bytes_written: int
    operations: int
    least: float
    median: float
    """Seconds."""
    pieces: tuple[Piece, ...]
    """What each thread ran of it in the call that is shown, with times from its beginning."""
    bound: str
    """What bounds it by the device's figures: memory, caches, arithmetic or launch."""
    roofline: float
    """Share of the time that the bound alone takes."""
    live: int
    """Bytes of the arena that are alive behind it."""
    prepares: bool = False
    """Whether it computes from frozen arguments that are not bound, so that each call runs it."""

    @property
    def start(self) -> float:
        """Seconds from the beginning of the call that is shown."""
        return min((piece.started for piece in self.pieces), default=0.0)

    @property
    def end(self) -> float:
        """The same of its end."""
        return max((piece.ended for piece in self.pieces), default=0.0)

    @property
    def busy(self) -> float:
        """Seconds of all threads together in the call that is shown."""
        return sum(piece.ended - piece.started for piece in self.pieces)

    @property
    def threads(self) -> int:
        """How many ran pieces of it in that call."""
        return len({piece.thread for piece in self.pieces})

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return (self.bytes_read + self.bytes_written) / max(self.least, 1e-12)


@dataclass(frozen=True)
class Profile:
    """What was found of a program."""

    name: str
    kernels: tuple[KernelProfile, ...]
    calls: int
    threads: int
    call_least: float
    call_median: float
    """Seconds of ordinary calls, taken in turns with those that were looked into."""
    covered: float
    """Share of the call that is shown which kernels take: what is left is between them."""
    arena_bytes: int
    device: str
    """Whose figures the roofline has."""
    roof: Device

    @property
    def seconds(self) -> float:
        """Of all kernels in the fastest call of each."""
        return sum(kernel.least for kernel in self.kernels)

    def text(self) -> str:
        """A table of kernels, those that take the longest first."""
        rows = [HEADS, *(cells(kernel, self.seconds) for kernel in by_time(self))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        lines = [
            "  ".join(
                c.rjust(w) if 1 <= k <= 6 else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, summary(self)])

    def trace(self, steps: Sequence[tuple[str, float]] = ()) -> dict[str, Any]:
        """
        Trace events as chrome://tracing and Perfetto read them: kernels, the live bytes of the arena, and as a second process the
        steps of compiling, a name and seconds each.
        """
        return trace_events(self, steps)

    def save(self, path: str | Path) -> Path:
        """Writes the trace as JSON; returns where it is. Raises OSError."""
        path = Path(path)
        path.write_text(json.dumps(self.trace()), encoding="utf-8")
        return path


HEADS = ("kernel", "us", "median", "share", "MB", "GB/s", "roofline", "bound by", "run by")


def by_time(profile: Profile) -> list[KernelProfile]:
    """The kernels, those that take the longest first."""
    return sorted(profile.kernels, key=lambda kernel: -kernel.least)


def cells(kernel: KernelProfile, total: float) -> tuple[str, ...]:
    """A row of the table."""
    return (
        kernel.name,
        f"{1e6 * kernel.least:.1f}",
        f"{1e6 * kernel.median:.1f}",
        f"{100 * kernel.least / max(total, 1e-12):.1f}%",
        f"{1e-6 * (kernel.bytes_read + kernel.bytes_written):.3f}",
        f"{1e-9 * kernel.bandwidth:.2f}",
        f"{100 * kernel.roofline:.0f}%",
        kernel.bound,
        f"{kernel.ran}{f' ({kernel.schedule})' if kernel.schedule else ''}",
    )


def summary(profile: Profile) -> str:
    """What the table does not say."""
    return (
        f"{len(profile.kernels)} kernels take {1e6 * profile.seconds:.1f} us, an ordinary call {1e6 * profile.call_least:.1f} us "
        f"(median {1e6 * profile.call_median:.1f}, {profile.calls} calls, {profile.threads} threads); of the call that is shown "
        f"kernels are {100 * profile.covered:.1f}%; arena {profile.arena_bytes} bytes; roofline of device '{profile.device}' "
        "(fuse-run --calibrate writes this machine's)"
    )


def united_seconds(kernels: Sequence[KernelProfile]) -> float:
    """In the call that is shown, how long any of these kernels runs."""
    seconds = reached = 0.0
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        seconds += max(kernel.end - max(kernel.start, reached), 0.0)
        reached = max(reached, kernel.end)
    return seconds


def trace_events(profile: Profile, steps: Sequence[tuple[str, float]] = ()) -> Event:
    """The object form: events of the fastest call that was looked into, and of the steps of compiling one after another."""
    events = [_name("process_name", _PROGRAM, 0, f"{profile.name}: a call"), *_program(profile), *_threads(profile)]
    if steps:
        events.append(_name("process_name", _COMPILING, 0, "compiling"))
        events.append(_name("thread_name", _COMPILING, _KERNELS, "passes and the C compiler"))
        begin = 0.0
        for name, seconds in steps:
            events.append(_span(_COMPILING, _KERNELS, name, begin, begin + seconds, {}))
            begin += seconds
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": _other(profile)}


def _program(profile: Profile) -> Iterator[Event]:
    """The call, its kernels as wholes, and what is alive behind each."""
    ends = [0.0]
    """Of the last kernel of each row."""
    yield _counter(0.0, 0)
    for kernel in sorted(profile.kernels, key=lambda kernel: (kernel.start, kernel.end)):
        lane = next((lane for lane, end in enumerate(ends) if end <= kernel.start), len(ends))
        ends[lane : lane + 1] = [kernel.end]
        yield _span(_PROGRAM, _KERNELS + lane, kernel.name, kernel.start, kernel.end, _arguments(kernel))
        yield _counter(kernel.end, kernel.live)
    yield _span(_PROGRAM, _KERNELS, profile.name, 0.0, max(ends), _other(profile))
    for lane in range(len(ends)):
        yield _name("thread_name", _PROGRAM, _KERNELS + lane, "kernels side by side with others" if lane else "kernels")


def _threads(profile: Profile) -> Iterator[Event]:
    """What each thread runs of which kernel."""
    for thread in sorted({piece.thread for kernel in profile.kernels for piece in kernel.pieces}):
        name = f"thread {thread} of {profile.threads}" if thread else "thread 0, the caller's"
        yield _name("thread_name", _PROGRAM, _THREADS + thread, name)
    for kernel in profile.kernels:
        for piece in kernel.pieces:
            first, end = piece.tasks
            said = {"tasks": f"{first} to {end - 1}", "kernel us": round(1e6 * (kernel.end - kernel.start), 3)}
            yield _span(_PROGRAM, _THREADS + piece.thread, kernel.name, piece.started, piece.ended, said)


def _arguments(kernel: KernelProfile) -> Event:
    return {
        "ops": ", ".join(kernel.ops),
        "source": kernel.place,
        "run by": kernel.ran,
        "schedule": kernel.schedule,
        "bytes read": kernel.bytes_read,
        "bytes written": kernel.bytes_written,
        "operations": kernel.operations,
        "GB/s": round(1e-9 * kernel.bandwidth, 3),
        "roofline share": round(kernel.roofline, 4),
        "bound by": kernel.bound,
        "least us": round(1e6 * kernel.least, 3),
        "median us": round(1e6 * kernel.median, 3),
        "threads": kernel.threads,
        "pieces": len(kernel.pieces),
        "us of all threads": round(1e6 * kernel.busy, 3),
        "prepares frozen arguments": kernel.prepares,
    }


def _other(profile: Profile) -> Event:
    return {
        "calls": profile.calls,
        "threads": profile.threads,
        "call least us": round(1e6 * profile.call_least, 3),
        "arena bytes": profile.arena_bytes,
        "device": profile.device,
    }


def _span(process: int, row: int, name: str, begin: float, end: float, arguments: Event) -> Event:
    times = {"ts": 1e6 * begin, "dur": 1e6 * (end - begin)}
    return {"ph": "X", "name": name, "cat": "fuse-opt", "pid": process, "tid": row, **times, "args": arguments}


def _counter(at: float, nbytes: int) -> Event:
    return {"ph": "C", "name": "live arena bytes", "pid": _PROGRAM, "ts": 1e6 * at, "args": {"bytes": nbytes}}


def _name(kind: str, process: int, row: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": row, "args": {"name": name}}
