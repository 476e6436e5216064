"""Candidates in processes of their own, one for each, which are started from a clean one and ended when they do not answer."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import statistics
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from fuse_opt.lowering.program import Program
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.compiling import compile_ahead
from fuse_opt.tools.tuning.search.measuring_child import DIFFERS, FAILED, KILLED, UNAVAILABLE, Trial, serve
from fuse_opt.tools.tuning.search.race import CONFIRMATION
from fuse_opt.tools.tuning.search.sanitized import why_unchecked
from fuse_opt.tools.tuning.search.server import start_server
from fuse_opt.tools.tuning.search.study import Measured, TrialFailed
from fuse_opt.tools.watching.units import distances

Array = np.ndarray[Any, Any]

START_SECONDS = 120.0
"""For a process to compile, check and time a first call."""
_ANSWER_SECONDS = 60.0
_LOOK_SECONDS = 1.0
"""How often it is looked whether a process that does not answer has been stopped."""
_PAIRS_OF_PROCESS = 3
_KILLED_AGAIN = 2
"""How often a turn is taken again whose process somebody killed."""
_MEMORY = 1 << 30
"""Bytes of arrays that waiting processes may hold together."""
_MOST = 32
_CHECKED = (
    "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=float-divide-by-zero", "-fsanitize-undefined-trap-on-error",
)  # fmt: skip
"""What C leaves undefined ends the process."""
_NOT_HERE = "its operations and addresses were not checked: compilers have no sanitizer for a GPU"
_UNCHECKED = "its operations were not checked: the compiler has no sanitizer for them"
_SPECIAL = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-42, -1e-42, 1.0, -1.0)


class ProcessBench:
    """Measures candidates of one kernel against its default; to be closed."""

    def __init__(
        self,
        site: Site,
        threads: int,
        seed: int = 0,
        sent: Callable[[Candidate], Program | str] | None = None,
        jobs: int = 1,
    ) -> None:
        """`sent` gives what a process is given of a candidate, as the site does where it is None; `jobs` compile at a time."""
        self._site, self._threads, self._sent, self._jobs = site, threads, sent or site.sent, jobs
        self._folder = Path(tempfile.mkdtemp(prefix="fuse-tune-"))
        self._default = self._sent(site.default)
        arrays = site.arguments(seed)
        self._sets: list[list[Array]] = [arrays, [_special(array) for array in arrays]]
        self._files = tuple(
            tuple(self._saved(f"{number}-{k}", array) for k, array in enumerate(given))
            for number, given in enumerate(self._sets)
        )
        moved = 3 * sum(array.nbytes for array in arrays)
        self._room = min(max(_MEMORY // max(moved, 1), 1), _MOST)
        self._open: OrderedDict[Candidate, _Child] = OrderedDict()
        self._bits: dict[Candidate, bool] = {}
        self._references: dict[int, list[Array]] = {}
        self._allowed: dict[int, list[Array]] = {}
        """By set, how far each element may be from the reference, as far as it was asked."""

    def _saved(self, name: str, array: Array) -> str:
        np.save(file := self._folder / f"{name}.npy", array)
        return str(file)

    def close(self) -> None:
        """Ends all processes and removes the files."""
        while self._open:
            self._open.popitem()[1].end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        """
        Raises TrialFailed. A confirmation takes its pairs in processes of their own: where memory happens to lie in one makes a
        program up to 5 % faster than another build of it, in all pairs of that process alike.
        """
        for _ in range(_KILLED_AGAIN):
            with suppress(_Killed):
                return self._turn(candidate, turn, pairs)
        return self._turn(candidate, turn, pairs)

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """Compiles those that are measured next."""
        sent = [self._sent(candidate) for candidate in candidates if candidate not in self._open]
        programs = [each for each in sent if isinstance(each, Program)]
        if self._jobs > 1 and self._site.target == "c" and len(programs) > 1:
            compile_ahead(programs, self._jobs, START_SECONDS)

    def _turn(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        if turn >= CONFIRMATION:
            return self._confirmed(candidate, pairs)
        if (child := self._open.pop(candidate, None)) is None:
            while len(self._open) >= self._room:
                self._open.popitem(last=False)[1].end()
            child = self._started(candidate)
        found, seconds = self._asked(child, pairs)
        self._open[candidate] = child
        return Measured(found, self._bits[candidate], seconds)

    def _asked(self, child: _Child, pairs: int) -> tuple[tuple[float, ...], float]:
        try:
            _, found, seconds = child.asked(pairs, _ANSWER_SECONDS)
        except TrialFailed:
            child.end()
            raise
        return tuple(found), seconds

    def _confirmed(self, candidate: Candidate, pairs: int) -> Measured:
        """A pair for each process: the median of a few; the two programs get their memory in turns."""
        found: list[float] = []
        least = float("inf")
        for number in range(pairs):
            child = self._started(candidate, swapped=number % 2 == 1)
            some, seconds = self._asked(child, _PAIRS_OF_PROCESS)
            child.end()
            found.append(statistics.median(some))
            least = min(least, seconds)
        return Measured(tuple(found), self._bits[candidate], least)

    def look_again(self, candidate: Candidate) -> str:
        """Runs it on the same numbers as C whose every operation is checked, and then every address. Raises TrialFailed."""
        if self._site.target != "c":
            return _NOT_HERE
        (child := self._started(candidate, _CHECKED)).end()
        skipped = [_UNCHECKED] if child.began == UNAVAILABLE else []
        skipped += filter(None, [why_unchecked(self._trial(candidate), START_SECONDS)])
        return "; ".join(skipped)

    def _trial(
        self, candidate: Candidate, known: bool = False, swapped: bool = False, flags: tuple[str, ...] = ()
    ) -> Trial:
        program = self._sent(candidate)
        place, target = str(self._folder), self._site.target
        return Trial(self._default, program, self._files, place, self._threads, known, swapped, flags, target)

    def _started(self, candidate: Candidate, flags: tuple[str, ...] = (), *, swapped: bool = False) -> _Child:
        child = _Child(self._trial(candidate, candidate in self._bits and not flags, swapped, flags))
        try:
            answer = child.answer(START_SECONDS)
            child.began = str(answer[0])
            if answer[0] == DIFFERS and candidate not in self._bits:
                self._check(candidate, answer[1])
        except TrialFailed:
            child.end()
            raise
        self._bits[candidate] = self._bits.get(candidate, True) and answer[0] != DIFFERS
        return child

    def _check(self, candidate: Candidate, different: dict[int, list[str]]) -> None:
        """Compares results that are not the default's with the reference. Raises TrialFailed."""
        if candidate.same_bits:
            raise TrialFailed("wrong: bits differ, where none of its entries may change any")
        for number, files in different.items():
            given, got = self._sets[number], [np.load(file) for file in files]
            with np.errstate(all="ignore"):
                if number not in self._references:
                    self._references[number] = self._site.reference(given)
                expected = self._references[number]
                allowed = self._allowed.get(number, [])
                if not allowed or _beyond(got, expected, allowed):
                    allowed = self._allowed[number] = self._site.allowed(given, expected, got)
            if count := _beyond(got, expected, allowed):
                raise TrialFailed(f"wrong: {count} elements are further from the reference than rounding explains")


def _beyond(got: Sequence[Array], expected: Sequence[Array], allowed: Sequence[Array]) -> int:
    """How many elements are further away than they may be."""
    return sum(int((distances(a, b) > most).sum()) for a, b, most in zip(got, expected, allowed, strict=True))


class _Killed(TrialFailed):
    """Its process or its compiler was killed, which no program does to itself: by somebody, or for want of memory."""


class _Child:
    """A process and the line to it."""

    def __init__(self, trial: Trial) -> None:
        start_server()
        context = multiprocessing.get_context("forkserver")
        self.began = ""
        """Its first word."""
        self._line, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=serve, args=(theirs, trial), daemon=True)
        self._process.start()
        theirs.close()

    def asked(self, pairs: int, seconds: float) -> Sequence[Any]:
        """The answer to a question. Raises TrialFailed."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._line.send(pairs)
        return self.answer(seconds)

    def answer(self, seconds: float) -> Sequence[Any]:
        """The next answer. Raises TrialFailed where there is none, or one that says so."""
        if not self._answers_within(seconds):
            raise TrialFailed(f"hang: no answer within {seconds:.0f} s")
        try:
            found: Sequence[Any] = self._line.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(5)
            status = self._process.exitcode
            raise (_Killed if status == -signal.SIGKILL else TrialFailed)(f"crash: {_ending(status)}") from None
        if found[0] == KILLED:
            raise _Killed(f"crash: {found[1]}")
        if found[0] == FAILED:
            raise TrialFailed(str(found[1]))
        return found

    def _answers_within(self, seconds: float) -> bool:
        """Seconds in which it, or who asks, is stopped do not count: Ctrl-Z is no hang."""
        left = seconds
        while left > 0:
            if self._line.poll(min(left, _LOOK_SECONDS)):
                return True
            left -= 0 if self._is_stopped() else _LOOK_SECONDS
        return False

    def _is_stopped(self) -> bool:
        """Whether somebody stopped it; False where the system does not say."""
        with suppress(OSError, IndexError):
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self._line.close()
        self._process.join(0.2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5)


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _special(array: Array) -> Array:
    """The array with numbers in it that arithmetic treats in ways of their own."""
    if array.dtype.kind != "f" or not prod(array.shape):
        return array
    found = array.copy()
    with np.errstate(all="ignore"):
        values = np.array(_SPECIAL).astype(array.dtype)
    flat = found.reshape(-1)
    step = max(flat.size // 97, 1)
    places = np.arange(0, flat.size, step)
    flat[places] = values[np.arange(places.size) % values.size]
    return found
