"""
Plans of which none is smaller and faster than another: ways to compute values again, edits one by one, then together for memory
and for time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import exp
from statistics import median

from fuse_opt.passes.recompute.trials import undominated
from fuse_opt.tools.tuning.joint.pareto import Point
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.race import FIRST, LEAST_PAIRS, judge
from fuse_opt.tools.tuning.search.study import Bench, Limit, TrialFailed

_TURN = 300
"""Of the pairs that confirm a plan, each in a process of its own."""
_PAIRS = 12
"""Of those that confirm a plan of fewer bytes, which nobody claims to be faster: enough to say between which times it is."""
_SINGLE = 0.5
"""Of the limit, for edits one by one."""
_TOGETHER = 0.8
"""The same until plans are confirmed."""

Better = Callable[["_Tried", "_Tried"], bool]
Order = Callable[["_Tried"], tuple[float, float, str]]


@dataclass(frozen=True)
class _Tried:
    """A plan, by its first pairs."""

    candidate: Candidate
    arena: int
    speedup: float


@dataclass
class TradeOffs:
    """What a search for plans that no other beats in memory and time came to."""

    points: list[Point]
    """Of those that were confirmed, the rules' plan first."""
    trials: int = 0
    seconds: float = 0.0
    """Of a call of the rules' plan."""
    failed: list[str] = field(default_factory=list[str])
    """Why plans were left out."""

    def best(self) -> list[Point]:
        """Those that no other beats, by ascending bytes."""
        kept = undominated([(point.arena, 1 / point.speedup[1]) for point in self.points])
        return [self.points[number] for number in kept]

    def said(self) -> str:
        """A sentence about them."""
        best, tried = self.best(), f"{self.trials} plans tried"
        if len(best) == 1 and not best[0].edits:
            return f"no plan beats the rules' one in memory or time: {tried}"
        first, last = best[0], best[-1]
        if len(best) == 1:
            return f"one plan beats all others: {first.arena} bytes at {first.speedup[1]:.3f}x of the speed: {tried}"
        return (
            f"{len(best)} plans that no other beats, from {first.arena} bytes at {first.speedup[1]:.3f}x of the speed to "
            f"{last.arena} at {last.speedup[1]:.3f}x: {tried}"
        )


def entry_of(program: ProgramSite, point: Point, before: int) -> dict[str, object]:
    """What a tuned file has of a plan; nothing of the rules' one."""
    if not point.edits:
        return {}
    return program.entry(point.edits, point.speedup, {"arena": [before, point.arena]})


def trade_offs(program: ProgramSite, bench: Callable[[], Bench], limit: Limit, same_bits: bool) -> TradeOffs:
    """
    The plans of a program that no other beats in memory and time, each confirmed by fresh pairs. Raises what passes and lowering
    raise of the default.
    """
    rules = _Tried(program.default, program.program(program.default).arena_bytes, 1.0)
    found = TradeOffs([Point({}, rules.arena, (1.0, 1.0, 1.0))])
    search = _Search(program, bench(), limit, found, {program.text(program.default)})
    try:
        alone = [rules]
        for candidate in chain(() if same_bits else program.recomputations(), program.changes(same_bits)):
            if limit.is_spent(_SINGLE):
                break
            limit.used += 1
            alone += search.tried(candidate)
        for better, order in ((_is_smaller, _by_size), (_is_faster, _by_speed)):
            alone += search.together(alone, better, order)
        search.confirm([alone[number] for number in undominated([(each.arena, 1 / each.speedup) for each in alone])])
    finally:
        search.bench.close()
    found.trials = limit.used
    return found


def _is_smaller(one: _Tried, other: _Tried) -> bool:
    return one.arena < other.arena


def _is_faster(one: _Tried, other: _Tried) -> bool:
    return one.speedup > other.speedup


def _by_size(one: _Tried) -> tuple[float, float, str]:
    return one.arena, -one.speedup, one.candidate.text


def _by_speed(one: _Tried) -> tuple[float, float, str]:
    return -one.speedup, one.arena, one.candidate.text


@dataclass
class _Search:
    program: ProgramSite
    bench: Bench
    limit: Limit
    found: TradeOffs
    texts: set[str]
    """Of what was tried: others that print the same are not."""

    def tried(self, candidate: Candidate) -> list[_Tried]:
        """The plan with its first pairs; nothing where there is no such program, it is another one's, or wrong."""
        try:
            text, arena = self.program.text(candidate), self.program.program(candidate).arena_bytes
        except Exception:  # whatever passes and lowering say of it: the default stands
            return []
        if text in self.texts:
            return []
        self.texts.add(text)
        try:
            measured = self.bench.measure(candidate, 0, FIRST)
        except TrialFailed as failure:
            self.found.failed.append(f"{candidate.text}: {failure}")
            return []
        self.found.seconds = measured.seconds or self.found.seconds
        return [_Tried(candidate, arena, exp(median(measured.pairs)))]

    def together(self, alone: Sequence[_Tried], better: Better, order: Order) -> list[_Tried]:
        """The best one, and each further one that makes it better yet with it."""
        rules, *others = alone
        kept, taken = list[_Tried](), rules
        for each in sorted((one for one in others if better(one, rules)), key=order):
            edits = taken.candidate.settings if taken is not rules else {}
            if each.candidate.settings.keys() & edits.keys():
                continue
            if not edits:
                taken = each
                continue
            if self.limit.is_spent(_TOGETHER):
                break
            self.limit.used += 1
            keeps = taken.candidate.same_bits and each.candidate.same_bits
            both = Candidate.of({**edits, **each.candidate.settings}, keeps)
            for more in self.tried(both):
                kept.append(more)
                taken = more if better(more, taken) else taken
        return kept

    def confirm(self, front: Sequence[_Tried]) -> None:
        """
        Keeps what fresh pairs say of those that no other beats by their first ones. What has no smaller arena than the rules'
        plan has to be faster beyond the margin: of near ties the rules' plan stays.
        """
        for each in front:
            if each.candidate == self.program.default:
                continue
            pairs = _PAIRS if each.arena < self.found.points[0].arena else LEAST_PAIRS
            try:
                verdict = judge(self.bench.measure(each.candidate, _TURN, pairs).pairs)
            except TrialFailed as failure:
                self.found.failed.append(f"{each.candidate.text}: {failure}")
                continue
            if each.arena >= self.found.points[0].arena and not verdict.accepted:
                continue
            speedup = verdict.low, verdict.median, verdict.high
            self.found.points.append(Point(each.candidate.settings, each.arena, speedup))
