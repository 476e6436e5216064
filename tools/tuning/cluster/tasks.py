"""What workers of a cluster run: functions of what they are given, which keep nothing that cannot be made again."""

from __future__ import annotations

import multiprocessing
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fuse_opt.lowering.program import Program
from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.runtime.cpu.program import KERNELS_STAY_FUNCTIONS
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.host.cross_compiling import Elsewhere, adopt, compile_for, for_others
from fuse_opt.runtime.host.thread_pool import limit_threads
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.backend_switch import host_device
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.processes import ProcessBench
from fuse_opt.tools.tuning.search.sites import program_seconds
from fuse_opt.tools.tuning.search.study import Measured, TrialFailed, refusal
from fuse_opt.tools.watching.machine import this_machine

_BENCHES = 2
"""Kernels whose processes a worker keeps for further turns: of two runs at most."""
_LOCK = threading.Lock()
_open: OrderedDict[SentSite, _Arrived] = OrderedDict()


@dataclass(frozen=True)
class Described:
    """A worker's machine, and how others compile for it where they can."""

    machine: Machine
    compiler: Elsewhere | None
    host: str
    """The device that its programs for "cpu" are for."""


@dataclass(frozen=True)
class SentSite:
    """A site as it travels: two equal ones are measured by the same processes."""

    kind: type[Site]
    name: str
    text: str
    """Its module."""
    default: Candidate
    seed: int
    threads: int


@dataclass(frozen=True)
class Task:
    """A turn of a candidate, with its program and the default's; a last look at a winner where it has no pairs."""

    site: SentSite
    default: Program | str
    candidate: Candidate
    program: Program | str
    turn: int
    pairs: int


class _Arrived:
    """A site that arrived, and what measures it."""

    def __init__(self, task: Task) -> None:
        sent = task.site
        self.programs = {sent.default: task.default}
        site = sent.kind.rebuilt(sent.name, load(sent.text), sent.default)
        self.bench = ProcessBench(site, sent.threads, sent.seed, self.programs.__getitem__)


def described(threads: int) -> Described | None:
    """The worker's machine; None where it has no C compiler."""
    limit_threads(threads)
    machine, compiler = this_machine(), find_c_compiler()
    return None if machine is None or compiler is None else Described(machine, for_others(compiler), host_device())


def compiled(source: str, elsewhere: Elsewhere) -> bytes | None:
    """The object of a C text for a machine that measures it; None where that machine has to make it itself."""
    with suppress(OSError):
        return compile_for(elsewhere, source, KERNELS_STAY_FUNCTIONS, DiskCache())
    return None


def measured(task: Task, *objects: bytes | None) -> Measured | str:
    """What a turn gave, or why it failed; `objects` are those of the default's and the candidate's C text."""
    multiprocessing.current_process().daemon = (
        False  # under a nanny it is one, which may start no others: ours end with it
    )
    for program, content in zip((task.default, task.program), objects, strict=False):
        _adopted(program, content)
    with _LOCK:
        try:
            arrived = _arrived(task)
            arrived.programs[task.candidate] = task.program
            if not task.pairs:
                return Measured((), True, unchecked=arrived.bench.look_again(task.candidate))
            return arrived.bench.measure(task.candidate, task.turn, task.pairs)
        except TrialFailed as failure:
            return str(failure)
        except (RuntimeError, ValueError, TypeError, OSError, MemoryError) as error:
            return refusal(error)


def seconds_of_program(text: str, threads: int) -> float:
    """The least time of a call of a whole program by its defaults."""
    limit_threads(threads)
    return program_seconds(load(text), threads)


def closed(sites: Sequence[SentSite]) -> None:
    """Ends the processes of these sites."""
    with _LOCK:
        for site in sites:
            if (arrived := _open.pop(site, None)) is not None:
                arrived.bench.close()


def _adopted(program: Program | str, content: bytes | None) -> None:
    if content is not None and not isinstance(program, str) and (compiler := find_c_compiler()) is not None:
        with suppress(OSError):
            adopt(compiler, program.source, KERNELS_STAY_FUNCTIONS, content, DiskCache())


def _arrived(task: Task) -> _Arrived:
    if (found := _open.pop(task.site, None)) is None:
        while len(_open) >= _BENCHES:
            _open.popitem(last=False)[1].bench.close()
        found = _Arrived(task)
    _open[task.site] = found
    return found
