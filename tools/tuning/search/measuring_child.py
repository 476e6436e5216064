"""The process that runs a candidate: it may crash, hang or write where it likes, and nothing but its own trial is lost."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import log
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np

from fuse_opt.lowering.program import Program
from fuse_opt.lowering.program.float_formats import computed
from fuse_opt.runtime.buffers import result_pool
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.guard_pages import can_guard_pages, guarded
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.host.thread_pool import limit_threads
from fuse_opt.runtime.prepared import PreparedProgram
from fuse_opt.tools.compiler.builders import Backend, whole_program
from fuse_opt.tools.watching.units import is_float

Array = np.ndarray[Any, Any]

SLOT_SECONDS = 8e-3
_LEAST_CALLS = 2
_BATCH_SECONDS = 100e-6
"""A clock is looked at so often at most."""
SLOW = 3.0
"""Times the default, from which on a candidate is not looked at again."""
_CALLS_BEFORE = 3

_PR_SET_PDEATHSIG = 1

READY, DIFFERS, FAILED, PAIRS, UNAVAILABLE = "ready", "differs", "failed", "pairs", "unavailable"
"""Words of answers."""


@dataclass(frozen=True)
class Trial:
    """What a process is started with."""

    default: Program | str
    candidate: Program | str
    """Programs, or the text of modules after all passes: what calls libraries is made where it runs."""
    inputs: tuple[tuple[str, ...], ...]
    """Files of arrays: of each set, one for each argument."""
    results: str
    """The folder for results that are not the default's."""
    threads: int
    known: bool = False
    """Whether results were compared before."""
    swapped: bool = False
    """Whether the candidate gets its memory before the default does."""
    flags: tuple[str, ...] = ()
    """More arguments of the compiler, for a run that is compared and not timed."""


def serve(connection: Connection, trial: Trial) -> None:
    """Checks a candidate, says what came out, and then answers each number with so many pairs until nobody asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
    _end_with_parent()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            if trial.flags and not compiles_with(trial.flags):
                connection.send((UNAVAILABLE,))
                return
            limit_threads(trial.threads)
            sets = [[np.load(file, mmap_mode="r") for file in files] for files in trial.inputs]
            programs = [built(each) if isinstance(each, str) else each for each in (trial.default, trial.candidate)]
            default, candidate = (whole_program(each, CpuProgram) for each in programs)
            connection.send((READY,) if trial.known else _checked(default, candidate, sets, Path(trial.results)))
            if trial.flags:
                return
            clock = time.thread_time if trial.threads == 1 else time.perf_counter
            order = (candidate, default) if trial.swapped else (default, candidate)
            made = {program: Timed(program, sets[0], clock) for program in order}
            timed = [made[default], made[candidate]]
        except (RuntimeError, ValueError, TypeError, OSError, MemoryError) as error:
            connection.send((FAILED, f"refused: {str(error).partition(chr(10))[0]}"))
            return
        first, second = (min(each.call() for _ in range(_CALLS_BEFORE)) for each in timed)
        while (count := connection.recv()) is not None:
            if second > SLOW * first:
                connection.send((FAILED, f"slow: {second / first:.1f} times the default"))
                return
            connection.send((PAIRS, pairs(timed[0], timed[1], count), timed[0].least))


def built(text: str) -> Program:
    """The program of a module that passes have made ready."""
    from fuse_opt.lowering.emit import build_program
    from fuse_opt.tools.compiler.api import load

    return build_program(load(text))


def compiles_with(flags: Sequence[str]) -> bool:
    """Has all that this process compiles from now on compiled with these flags, too; whether a compiler works so."""
    if (compiler := find_c_compiler()) is None:
        return False
    said = os.environ.get("FUSE_OPT_CC")
    os.environ["FUSE_OPT_CC"] = f"{said or shlex.quote(compiler.path)} {shlex.join(flags)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return find_c_compiler() is not None


def _end_with_parent() -> None:
    """Ends this process, whatever it does, with the one that started it (Linux)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _checked(default: Backend, candidate: Backend, sets: Sequence[Sequence[Array]], folder: Path) -> tuple[Any, ...]:
    """Whether results are the default's, bit for bit, whatever lies beside arrays; else they are left in files."""
    different: dict[int, list[str]] = {}
    for number, arrays in enumerate(sets):
        expected = results_of(default(*map(np.array, arrays)))
        for at_end in (True, False) if can_guard_pages else (None,):
            got = _guarded_results(candidate, arrays, expected, at_end)
            if not all(map(_is_same, got, expected)):
                different[number] = []
                for k, array in enumerate(got):
                    np.save(file := folder / f"result-{number}-{k}.npy", array)
                    different[number].append(str(file))
    return (DIFFERS, different) if different else (READY,)


def _guarded_results(
    program: Backend, arrays: Sequence[Array], expected: Sequence[Array], at_end: bool | None
) -> list[Array]:
    if at_end is None:
        return results_of(program(*map(np.array, arrays)))
    with guarded() as allocate:
        given = [allocate(array, at_end=at_end) for array in arrays]
        out = [allocate(np.zeros_like(array), at_end=at_end) for array in expected]
        program(*given, out=out)
        return [array.copy() for array in out]


def results_of(found: Any) -> list[Array]:
    """Copies of what a call gave."""
    arrays = cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,)
    return [np.array(array) for array in arrays]


def _is_same(got: Array, expected: Array) -> bool:
    """Bit for bit, but for what NaN holds besides."""
    if got.tobytes() == expected.tobytes():
        return True
    if not is_float(expected.dtype):
        return False
    a, b = computed(got), computed(expected)
    return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))).all())


class Timed:
    """A program with arguments in aligned memory, and a clock."""

    def __init__(self, backend: Backend, arrays: Sequence[Array], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._given = [result_pool.empty(array.shape, array.dtype) for array in arrays]
        for copy, array in zip(self._given, arrays, strict=True):
            np.copyto(copy, array)
        self._program, self._full = _ready(backend, self._given)
        taken = zip(self._full, self._program.program.arguments, strict=True)
        donated = {id(array) for array, buffer in taken if buffer.donated}
        self._restored = [pair for pair in zip(self._given, arrays, strict=True) if id(pair[0]) in donated]
        self._batch = 1
        once = max(min(self.call() for _ in range(_CALLS_BEFORE)), 1e-8)
        if not self._restored:
            self._batch = max(round(_BATCH_SECONDS / once), 1)
        self.batches = max(round(SLOT_SECONDS / (once * self._batch)), _LEAST_CALLS)
        self.least = once

    def call(self) -> float:
        """Seconds of a call, the mean of a few where one is short."""
        for copy, array in self._restored:
            np.copyto(copy, array)
        start = self._clock()
        for _ in range(self._batch):
            self._program(*self._full)
        return (self._clock() - start) / self._batch

    def slot(self) -> float:
        """The least of the calls of a few milliseconds."""
        found = min(self.call() for _ in range(self.batches))
        self.least = min(self.least, found)
        return found


def _ready(backend: Backend, arrays: Sequence[Array]) -> tuple[CpuProgram, Sequence[Any]]:
    """What a call runs, with all that it takes: what follows from frozen arguments is computed once, as for callers that bind."""
    if not isinstance(backend, PreparedProgram):
        return cast("CpuProgram", backend), arrays
    full = backend.merged(arrays)
    backend.fill(full, backend.prepared(full))
    return cast("CpuProgram", backend.program), full


def pairs(default: Timed, candidate: Timed, count: int) -> list[float]:
    """Logarithms of the default's time over the candidate's, in slots side by side, each first in every second pair."""
    found: list[float] = []
    for number in range(count):
        order = (default, candidate) if number % 2 == 0 else (candidate, default)
        seconds = {each: each.slot() for each in order}
        if min(seconds.values()) <= 0:
            found.append(float("nan"))
            continue
        found.append(log(seconds[default] / seconds[candidate]))
    return found
