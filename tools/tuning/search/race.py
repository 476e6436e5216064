"""Who is faster, from pairs of times taken in turns: a race that slow ones leave early, and a verdict on fresh pairs alone.

A pair is the logarithm of the default's time over a candidate's, so that 0 is a tie and larger is faster. Nothing here looks at a
clock: the same pairs give the same verdicts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, comb, exp, log

from fuse_opt.tools.tuning.search.candidates import Candidate

FIRST, LAST = 4, 32
"""Pairs of the first turn of a race, and of the last; each has twice as many as the one before."""
FINALISTS = 3
HOPELESS = log(0.97)
"""A median below it ends a candidate's race."""
MARGIN = log(1.02)
"""What has to be won: nearer ties keep the default, so that two runs choose the same."""
CONFIRMATION = 100
"""Turns from this on take fresh pairs, which decide."""
ROUNDS = 2
"""Of a confirmation: what chance gave in one it does not give again in the next."""
LEAST_PAIRS, MOST_PAIRS = 24, 96
"""Of a round."""
_FIRST_LOOK = 3
"""The part of a round after which a candidate that is slower than the default is given up."""
_DOUBT = 0.01
"""How often a round may be wrong about a candidate that is as fast as the default, but for the margin."""
_NEEDED = 3.0 * 1.25
"""Standard errors of a median of pairs that a gain has to be beyond."""
TOO_BUSY = 0.2

Measure = Callable[[Candidate, int, int], Sequence[float] | None]
"""Pairs of a candidate, for a turn of so many; None where it failed."""
Asked = tuple[Candidate, int, int]
"""A candidate, its turn, and how many pairs that has."""
Prepare = Callable[[Sequence[Asked]], None]
"""Is told what will be measured next, for who can do that side by side."""


@dataclass(frozen=True)
class Verdict:
    """What a confirmation says."""

    accepted: bool
    low: float
    median: float
    high: float
    """Of the speed-up, with the bounds between which its median is, with 99 %."""
    pairs: int


@dataclass(frozen=True)
class Raced:
    """A candidate that is still in the race, and its pairs so far."""

    candidate: Candidate
    pairs: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.pairs)


def first_turn(candidate: Candidate, measure: Measure) -> Raced | None:
    """The candidate with the pairs of the first turn; None where it failed."""
    found = measure(candidate, 0, FIRST)
    return None if found is None else Raced(candidate, tuple(found))


def run_race(
    entrants: Sequence[Raced],
    measure: Measure,
    stopped: Callable[[], bool] = lambda: False,
    prepare: Prepare = lambda asked: None,
) -> list[Raced]:
    """
    Who is left, the fastest first, after turns with twice as many pairs each, of which the better half takes the next; none that
    its pairs say is slower than the default. Earlier entrants win ties.
    """
    alive = _ranked(entrants)
    turn, count = 0, FIRST
    while alive and not stopped():
        turn, count = turn + 1, count * 2
        alive = alive[: max(FINALISTS, ceil(len(alive) / 2))]
        prepare([(each.candidate, turn, count) for each in alive])
        alive = _ranked([more for each in alive if (more := _again(each, turn, count, measure)) is not None])
        if count >= LAST or (len(alive) <= FINALISTS and turn > 1):
            break
    return [each for each in alive if each.median > 0]


def _again(raced: Raced, turn: int, count: int, measure: Measure) -> Raced | None:
    found = measure(raced.candidate, turn, count)
    return None if found is None else Raced(raced.candidate, (*raced.pairs, *found))


def _ranked(raced: Sequence[Raced]) -> list[Raced]:
    return sorted((each for each in raced if each.median > HOPELESS), key=lambda each: -each.median)


def spread(pairs: Sequence[float]) -> float:
    """The standard deviation of one pair, by the median distance from the median."""
    middle = statistics.median(pairs)
    return 1.4826 * statistics.median(abs(pair - middle) for pair in pairs)


def pairs_needed(winner: Raced) -> int:
    """How many fresh pairs tell the winner's gain from nothing."""
    gain = max(winner.median, MARGIN)
    return min(max(ceil((_NEEDED * spread(winner.pairs) / gain) ** 2), LEAST_PAIRS), MOST_PAIRS)


def least_visible(pairs: Sequence[float]) -> float:
    """The least speed-up that so noisy pairs can show."""
    return exp(_NEEDED * spread(pairs) / MOST_PAIRS**0.5)


def confirm(winner: Raced, measure: Measure) -> Verdict | None:
    """
    What fresh pairs say of a winner: in every round by itself their bound has to be above a tie, and in all together the median
    beyond the margin; None where it failed. A round ends early only with a refusal, so that looking early gives chance no
    further try.
    """
    needed, pairs, verdict = pairs_needed(winner), list[float](), None
    for turn in range(CONFIRMATION, CONFIRMATION + 2 * ROUNDS, 2):
        first = measure(winner.candidate, turn, needed // _FIRST_LOOK)
        if first is None or not statistics.median(first) > 0:
            return None if first is None else replace(judge([*pairs, *first]), accepted=False)
        rest = measure(winner.candidate, turn + 1, needed - len(first))
        if rest is None:
            return None
        pairs += [*first, *rest]
        verdict = judge(pairs)
        if not _is_bounded([*first, *rest]):
            return replace(verdict, accepted=False)
    return verdict


def judge(pairs: Sequence[float]) -> Verdict:
    """
    What fresh pairs say: accepted where the one-sided 99 % bound of their median by signs is above a tie, and the median beyond
    the margin.
    """
    ordered, median = sorted(pairs), statistics.median(pairs)
    outer = _rank(len(ordered), _DOUBT / 2) or 0
    low, high = ordered[outer], ordered[len(ordered) - 1 - outer]
    return Verdict(_is_bounded(pairs) and median >= MARGIN, exp(low), exp(median), exp(high), len(ordered))


def _is_bounded(pairs: Sequence[float]) -> bool:
    """Whether their median is above a tie, but with the doubt."""
    rank = _rank(len(pairs), _DOUBT)
    return rank is not None and sorted(pairs)[rank] > 0


@cache
def _rank(count: int, doubt: float) -> int | None:
    """The place, from below, of the pair that a median lies above but with that doubt; None for too few pairs."""
    below, found = 0.0, None
    for place in range(count // 2):
        below += comb(count, place) / 2.0**count
        if below > doubt:
            break
        found = place
    return found
