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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fuse_opt.lowering.program import Program
from fuse_opt.lowering.program.float_formats import computed
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.guard_pages import can_guard_pages, guarded
from fuse_opt.runtime.host.c_compiler import CompilerKilled, find_c_compiler
from fuse_opt.runtime.host.thread_pool import limit_threads
from fuse_opt.tools.compiler.builders import Backend, whole_program
from fuse_opt.tools.tuning.search.slots import CALLS_BEFORE, Slots, Timed, involuntary_switches, pairs
from fuse_opt.tools.watching.units import is_float

if TYPE_CHECKING:
    from fuse_opt.tools.tuning.search.candidates import Target

Array = np.ndarray[Any, Any]

SLOW = 3.0
"""Times the default, from which on a candidate is not looked at again."""
_LOOKS, _HOPELESS = 3, 30.0
"""How often a candidate is looked at that seems slow; one that seems to take so many times as long, once."""

_PR_SET_PDEATHSIG = 1

READY, DIFFERS, FAILED, PAIRS, UNAVAILABLE, KILLED = "ready", "differs", "failed", "pairs", "unavailable", "killed"
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
    """Whether results were compared before, and times, so that it is not far slower."""
    swapped: bool = False
    """Whether the candidate gets its memory before the default does."""
    flags: tuple[str, ...] = ()
    """More arguments of the compiler, for a run that is compared and not timed."""
    target: Target = "c"
    """What language the programs are in: "cuda" ones run on the device that is there."""


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
            default, candidate = (whole_program(each, _loader(trial.target)) for each in _programs(trial))
            connection.send((READY,) if trial.known else _checked(default, candidate, sets, Path(trial.results)))
            if trial.flags:
                return
            order = (candidate, default) if trial.swapped else (default, candidate)
            made = {program: _timed(program, sets[0], trial) for program in order}
            timed = [made[default], made[candidate]]
        except CompilerKilled as error:
            connection.send((KILLED, str(error).partition(chr(10))[0]))
            return
        except (RuntimeError, ValueError, TypeError, OSError, MemoryError) as error:
            connection.send((FAILED, f"refused: {str(error).partition(chr(10))[0]}"))
            return
        ratio = 1.0 if trial.known else times_slower(*timed)
        switches = involuntary_switches if _has_wall_clock(trial) else lambda: 0
        while (count := connection.recv()) is not None:
            if ratio > SLOW:
                connection.send((FAILED, f"slow: {ratio:.1f} times the default"))
                return
            connection.send((PAIRS, pairs(timed[0], timed[1], count, switches), timed[0].least))


def _has_wall_clock(trial: Trial) -> bool:
    """Whether what else runs is in the times: threads are timed by no clock of their own."""
    return trial.target != "cuda" and trial.threads > 1


def times_slower(default: Slots, candidate: Slots) -> float:
    """
    How much longer a candidate's calls take than the default's; looked at again before it counts as slow, as whatever else runs
    may have a processor for as long as a few calls take.
    """
    least = [float("inf"), float("inf")]
    for _ in range(_LOOKS):
        for number, each in enumerate((default, candidate)):
            least[number] = min(least[number], *(each.call() for _ in range(CALLS_BEFORE)))
        if not SLOW < least[1] / max(least[0], 1e-12) < _HOPELESS:
            break
    return least[1] / max(least[0], 1e-12)


def _programs(trial: Trial) -> list[Program]:
    return [built(each, trial.target) if isinstance(each, str) else each for each in (trial.default, trial.candidate)]


def built(text: str, target: Target) -> Program:
    """The program of a module that passes have made ready."""
    from fuse_opt.tools.compiler.api import load
    from fuse_opt.tools.tuning.search.candidates import build

    return build(load(text), target)


def _loader(target: str) -> Callable[[Program], Any]:
    if target != "cuda":
        return CpuProgram
    from fuse_opt.runtime.cuda.program import CudaProgram

    return CudaProgram


def _timed(program: Backend, arrays: Sequence[Array], trial: Trial) -> Slots:
    if trial.target != "cuda":
        return Timed(program, arrays, time.perf_counter if _has_wall_clock(trial) else time.thread_time)
    from fuse_opt.tools.tuning.search.device_times import DeviceTimed

    return DeviceTimed(program, arrays)


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
