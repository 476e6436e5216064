"""The search for one kernel: what is tried in which order, the race, the confirmation, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import exp, log
from typing import Protocol, runtime_checkable

from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.race import (
    FIRST,
    MARGIN,
    TOO_BUSY,
    Asked,
    Prepare,
    Raced,
    Verdict,
    confirm,
    first_turn,
    least_visible,
    run_race,
    spread,
)
from fuse_opt.tools.tuning.search.sampling import combinations

FULL = 64
"""Distinct programs that are all tried; of more a sample."""
_OPENING = 0.6
"""Of the time for a kernel, what may be spent until all are in the race."""


class TrialFailed(Exception):
    """A candidate cannot be used: it was refused, crashed, hung, was wrong, far slower, or its times are no numbers."""


def refusal(error: Exception) -> str:
    """Why a candidate has no program."""
    return f"refused: {str(error).partition(chr(10))[0]}"


@dataclass(frozen=True)
class Measured:
    """Pairs of one turn, and whether the candidate's results are the default's, bit for bit."""

    pairs: tuple[float, ...]
    same_bits: bool
    seconds: float = 0.0
    """Of the fastest call of the default."""
    unchecked: str = ""
    """Of a last look: what was not looked at, and why."""


class Bench(Protocol):
    """What measures: processes with a clock, or a table of times."""

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        """Raises TrialFailed."""
        ...

    def look_again(self, candidate: Candidate) -> str:
        """The last look at a winner, which may take long; what was not looked at, and why. Raises TrialFailed."""
        ...

    def close(self) -> None:
        """Lets go of what it holds."""
        ...


@runtime_checkable
class WideBench(Bench, Protocol):
    """One that measures several candidates side by side."""

    def together(self, asked: Sequence[Asked]) -> Iterator[tuple[Asked, Measured | TrialFailed]]:
        """What came of each, as it comes."""
        ...


@runtime_checkable
class AheadBench(Bench, Protocol):
    """One that makes several candidates ready side by side, and measures them one after the other."""

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """Makes those ready that are measured next."""
        ...


@dataclass
class Limit:
    """How long a kernel may be searched: so many trials, or until a time of the clock, or until somebody interrupts."""

    clock: Callable[[], float]
    trials: int | None = None
    seconds: float | None = None
    interrupted: Callable[[], bool] = lambda: False
    used: int = 0
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def is_spent(self, share: float = 1.0) -> bool:
        """Whether this share of it is."""
        if self.interrupted() or (self.trials is not None and self.used >= self.trials):
            return True
        return self.seconds is not None and self.clock() - self._start >= share * self.seconds

    def share(self) -> float:
        """How much of it is spent."""
        spent = 0.0 if self.seconds is None else (self.clock() - self._start) / max(self.seconds, 1e-9)
        return max(spent, 0.0 if self.trials is None else self.used / max(self.trials, 1))

    def left(self) -> float | None:
        """Seconds, where it is one of time."""
        return None if self.seconds is None else max(self.seconds - (self.clock() - self._start), 0.0)

    def is_over(self) -> bool:
        """Whether the race must end now: trials that were made may be raced to the end."""
        return self.interrupted() or (self.seconds is not None and self.clock() - self._start >= self.seconds)


@dataclass
class Outcome:
    """What a search came to; without a winner the default stays."""

    site: Site
    winner: Candidate | None = None
    verdict: Verdict | None = None
    """Of the confirmation, of a winner or of one that was refused."""
    refused: Candidate | None = None
    """Who won the race, and was not confirmed."""
    same_bits: bool = True
    unchecked: str = ""
    """What the last look at the winner left out, and why."""
    trials: int = 0
    duplicates: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """By schedule, why it was left out."""
    tried: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Schedules in the order of their trials, with the speed-up that their first pairs showed."""
    spread: float = 0.0
    visible: float = 1.0
    """The least speed-up that could be seen."""
    exhausted: bool = False
    """Whether all was tried that there is."""
    seconds: float = 0.0

    @property
    def best(self) -> float:
        """The logarithm of the largest speed-up by first pairs, 0 where none is faster."""
        return max([0.0, *(log(speedup) for _, speedup in self.tried)])

    @property
    def is_noisy(self) -> bool:
        return self.spread > TOO_BUSY


class Study:
    """A search under way; the same seed and the same pairs give the same one."""

    def __init__(
        self,
        site: Site,
        bench: Bench,
        limit: Limit,
        *,
        seed: int = 0,
        same_bits: bool = False,
        text: Callable[[Candidate], str] | None = None,
        width: int = 1,
        prepare: Prepare = lambda asked: None,
        told: Callable[[Outcome, Limit], None] = lambda outcome, limit: None,
    ) -> None:
        """
        `text` tells programs of candidates apart, by those of the site where it is None; `prepare` is told what is measured next,
        `width` candidates at a time, `told` how far the search is. Raises what lowering raises.
        """
        self.site, self.limit = site, limit
        self._text = text or site.text
        self._bench, self._seed, self._same_bits = bench, seed, same_bits
        self._width, self._prepare, self._told = width, prepare, told
        self.outcome = Outcome(site)
        self._bits: dict[Candidate, bool] = {}
        self._shown = {site.default: 0.0}
        self._texts: set[str] = set()
        self._is_cut = False

    def run(self, earlier: Sequence[Candidate] = ()) -> Outcome:
        """`earlier` are tried first: what others found for the kernel, or for one like it."""
        self._texts.add(self._text(self.site.default))
        entrants, complete = self._opened([*earlier, *self.site.changes(self._same_bits)])
        better = [each.candidate for each in entrants if each.median > 0]
        room = max(FULL - self.outcome.trials, 0)
        more = combinations(self.site, better, self._seed, room, self._shown.get)
        found, whole = self._opened(more)
        self.outcome.exhausted = complete and whole
        entrants += found
        if entrants:
            self.outcome.spread = max(spread(each.pairs) for each in entrants[: len(entrants) // 2 + 1])
            self.outcome.visible = least_visible(max(entrants, key=lambda each: spread(each.pairs)).pairs)
        self._confirm(run_race(entrants, self._measure, self.limit.is_over, self._prepare))
        return self.outcome

    def _opened(self, candidates: Iterable[Candidate]) -> tuple[list[Raced], bool]:
        """Those that have another text than all before and do not fail, with their first pairs; and whether time was left."""
        entrants: list[Raced] = []
        others = self._others(candidates)
        while some := list(islice(others, self._width)):
            self._prepare([(candidate, 0, FIRST) for candidate in some])
            for candidate in some:
                if (raced := first_turn(candidate, self._measure)) is not None:
                    entrants.append(raced)
                    self._shown[candidate] = raced.median
                    self.outcome.tried.append((candidate.text, exp(raced.median)))
        return entrants, not self._is_cut

    def _others(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those that have another text than all before, as trials, until the time for them is spent."""
        for candidate in candidates:
            if self.limit.is_spent(_OPENING):
                self._is_cut = True
                return
            if self._is_another(candidate):
                self.limit.used += 1
                self.outcome.trials += 1
                yield candidate

    def _is_another(self, candidate: Candidate) -> bool:
        """Whether its program differs from all before; one that has none has failed."""
        try:
            key = self._text(candidate)
        except TrialFailed as failure:
            self.outcome.failed[candidate.text] = str(failure)
            return False
        except Exception as error:  # whatever lowering says of it: the default stands
            self.outcome.failed[candidate.text] = refusal(error)
            return False
        if key in self._texts:
            self.outcome.duplicates += 1
            return False
        self._texts.add(key)
        return True

    def _measure(self, candidate: Candidate, turn: int, pairs: int) -> Sequence[float] | None:
        try:
            found = self._bench.measure(candidate, turn, pairs)
        except TrialFailed as failure:
            self.outcome.failed[candidate.text] = str(failure)
            return None
        self._bits[candidate] = found.same_bits
        self._told(self.outcome, self.limit)
        self.outcome.seconds = found.seconds or self.outcome.seconds
        return found.pairs

    def _holds(self, winner: Candidate) -> bool:
        try:
            self.outcome.unchecked = self._bench.look_again(winner)
        except TrialFailed as failure:
            self.outcome.failed[winner.text] = str(failure)
            return False
        return True

    def _confirm(self, finalists: Sequence[Raced]) -> None:
        """Takes the fastest if fresh pairs say so, too."""
        if not finalists or finalists[0].median < MARGIN / 2:
            return
        best = finalists[0]
        verdict = self.outcome.verdict = confirm(best, self._measure)
        if verdict is None:
            return
        if verdict.accepted and self._holds(best.candidate):
            self.outcome.winner, self.outcome.same_bits = best.candidate, self._bits[best.candidate]
        else:
            self.outcome.refused = best.candidate
