"""Cuts of a training graph into a forward and a backward graph: which one to take within a budget. Knows no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from math import inf
from typing import Any, Protocol, cast

from fuse_opt.tools.compiler import api


class Trials(Protocol):
    """What passes make of a graph at levels of recomputation: as they are, of all that loops compute, of products, too."""

    def alive(self, level: int) -> int: ...
    def work(self, level: int) -> float: ...
    def keeping(self, nbytes: int) -> Iterable[tuple[int, float]]: ...
    def arena(self, level: int, budget: int) -> int: ...
    def found(self, budget: int) -> Any: ...
    @property
    def least(self) -> Any: ...


LOOPS, PRODUCTS = 1, 2
"""Levels above 0, which is recomputation as the passes do it."""

_FAR = 1.3
"""By which part more may be alive than is needed, where nothing is known yet."""
_SURE = 0.85
"""The part of a budget that is likely to be enough where products are computed again."""
_NEAR = 1.25
"""By which part more may be alive with a cut than with another one whose arenas are made to know the least budget."""
_FURTHER = 2
"""Cuts that keep more than one that fits, or is likely to, that are searched for less work."""
_CLOSE = 1.05
"""By which part less work than the least found is guessed of cuts that are searched, which takes long."""
_TRIED = 4
"""Cuts whose arenas are made to know the least budget."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A forward and a backward graph, and the bytes that the one keeps for the other."""

    saved: int
    graphs: tuple[Any, Any]
    trials: Callable[[Any, str], Trials | None]

    @cached_property
    def tried(self) -> dict[str, Trials]:
        """By kind: of the backward graph, then of the forward one, whose arena is mostly the smaller."""
        found = {kind: self.trials(self.graphs[number], kind) for number, kind in ((1, "backward"), (0, "forward"))}
        return {kind: trials for kind, trials in found.items() if trials is not None}

    def predicted(self, level: int, scales: Mapping[str, float]) -> float:
        """About the bytes that are needed, without the passes behind recomputation; `scales` are arenas to what is alive."""
        arenas = (trials.alive(level) * scales.get(kind, 1.0) for kind, trials in self.tried.items())
        return self.saved + max(arenas, default=0.0)

    def fits(self, level: int, budget: int, scales: dict[str, float]) -> bool:
        """Whether what is needed is within a budget; the scales are those of these graphs then, as far as it takes to tell."""
        for kind, trials in self.tried.items():
            arena = trials.arena(level, budget - self.saved)
            if alive := trials.alive(level):
                scales[kind] = arena / alive
            if self.saved + arena > budget:
                return False
        return True

    def work(self, budget: int) -> float:
        """Seconds that the ops of its graphs take within a budget, with what they compute again; infinity without room."""
        total = 0.0
        for trials in self.tried.values():
            if (found := trials.found(budget - self.saved)) is None:
                return inf
            total += found.work
        return total

    def guess(self, budget: int, scales: Mapping[str, float]) -> float:
        """About the seconds that the ops of its graphs take within a budget; `scales` are arenas to what is alive."""
        return sum(_guess(trials, budget - self.saved, scales.get(kind, 1.0)) for kind, trials in self.tried.items())

    def may_fit(self, budget: int) -> bool:
        """Whether no more than a budget is alive in some way to recompute."""
        room = budget - self.saved
        return room >= 0 and all(_may_fit(trials, room) for trials in self.tried.values())

    @cached_property
    def alive(self) -> int:
        """About the bytes that are needed at least."""
        least = (min(map(trials.alive, (0, LOOPS, PRODUCTS))) for trials in self.tried.values())
        return self.saved + max(least, default=0)

    @cached_property
    def least(self) -> int:
        """Bytes that are needed, as far as is found."""
        return self.saved + max((trials.least.arena for trials in self.tried.values()), default=0)

    def refusal(self, budget: int) -> ValueError:
        """Says why a budget is not kept, and which one is."""
        if not self.tried:
            return ValueError(
                f"option 'budget': values that are kept from the forward to the backward graph take {self.saved} bytes"
            )
        trials = max(self.tried.values(), key=lambda each: each.least.arena)
        over = api.over_budget(cast(Any, trials), max(budget - self.saved, 0))
        kept = f"of {budget} bytes values that are kept from the forward to the backward graph take {self.saved}"
        return ValueError(f"option 'budget': {kept}; {over}; with those {self.least}B")


def _guess(trials: Trials, room: int, scale: float) -> float:
    """
    About the seconds within so many bytes: as all that loops compute computed again takes; where that does not fit, as those
    products kept that take the least work, or as large a part of half of the products computed again as it takes to fit.
    """
    loops, products = (scale * trials.alive(level) for level in (LOOPS, PRODUCTS))
    if loops <= room:
        return trials.work(LOOPS)
    part = min((loops - room) / max(loops - products, 1.0), 1.0)
    halved = trials.work(LOOPS) + part * max(trials.work(PRODUCTS) - trials.work(LOOPS), 0.0)
    kept = min((work for alive, work in trials.keeping(int(room / scale)) if scale * alive <= room), default=inf)
    return kept if kept < halved or (products > room and kept < inf) else halved


def _may_fit(trials: Trials, room: int) -> bool:
    alive = (trials.alive(level) for level in (0, LOOPS, PRODUCTS))
    kept = (alive for alive, _ in trials.keeping(room))
    return any(nbytes <= room for nbytes in chain(alive, kept))


@dataclass(frozen=True)
class CutSearch:
    """Looks at cuts, which have numbers: those that keep the most come first."""

    budget: int
    count: int
    """Of cuts."""
    cut: Callable[[int], Cut]
    """By number of the share that is kept."""
    scales: dict[str, float] = field(default_factory=dict[str, float])
    """Arenas to what is alive, by kind of graph, as the last trials were."""

    def choice(self) -> Cut | None:
        """None where none is found that fits."""
        for level in (0, LOOPS):
            found = api.first_that_fits(
                self.count,
                partial(self._is_likely, level, self.budget),
                lambda number, level=level: self.cut(number).fits(level, self.budget, self.scales),
                lambda number, level=level: not self.scales and self._is_likely(level, _FAR * self.budget, number),
            )
            if found is not None:
                return self._of_least_work(found, self.cut(found))
        asked: dict[int, float] = {}

        def is_sure(number: int) -> bool:
            cut = self.cut(number)
            asked[number] = cut.predicted(PRODUCTS, self.scales) if cut.saved <= self.budget else inf
            return asked[number] <= _SURE * self.budget

        first = bisect_left(range(self.count), True, key=is_sure)
        first = first if first < self.count else min(asked, key=asked.__getitem__)
        return None if asked[first] == inf else self._of_least_work(first)

    def _of_least_work(self, number: int, best: Cut | None = None) -> Cut | None:
        """
        The cut of a number, which is `best` where it is known to fit, or one that keeps more and works less, and fits, too: what
        is needed does not always become less with what is kept, and what is likely is often more than is needed. Where none is
        known to fit, one that keeps less may be it. Guesses say which are searched for what they take, as few as that is.
        """
        last = self.cut(number)
        others = {cut.saved: cut for cut in map(self.cut, range(self.count if best is None else number))}
        others.pop(last.saved, None)
        guessed = {cut: cut.guess(self.budget, self.scales) for cut in others.values() if cut.may_fit(self.budget)}
        order = sorted(guessed, key=guessed.__getitem__)
        if best is None:
            guessed[last] = last.guess(self.budget, self.scales)
            first = sorted([*order[:_FURTHER], last], key=guessed.__getitem__)
            order = [*first, *order[_FURTHER : _FURTHER + 1]]
        else:
            del order[_FURTHER:]
        least = inf if best is None or not order else best.work(self.budget)
        for tried, cut in enumerate(order):
            if best is not None and (tried > _FURTHER or _CLOSE * guessed[cut] >= least):
                break
            if (work := cut.work(self.budget)) < least:
                best, least = cut, work
        return best

    def least(self) -> Cut:
        """The cut that needs least, whatever the budget."""
        found = {(cut.saved, cut.alive): cut for cut in map(self.cut, range(self.count))}
        cuts = sorted(found.values(), key=lambda cut: cut.alive)
        near = [cut for cut in cuts[:_TRIED] if cut.alive <= _NEAR * cuts[0].alive]
        return min(near, key=lambda cut: cut.least)

    def _is_likely(self, level: int, budget: float, number: int) -> bool:
        cut = self.cut(number)
        return cut.saved <= self.budget and cut.predicted(level, self.scales) <= budget
