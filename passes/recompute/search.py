"""A search for as little recomputation as a budget needs, among trials that others may have made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuse_opt.passes.recompute.first_fit import first_that_fits
from fuse_opt.passes.recompute.rematerialize import RematerializePass
from fuse_opt.passes.recompute.stages import Choice, Trial
from fuse_opt.passes.recompute.tiers import CHEAP, DEAR, FOR_LEAST, IN_PARTS, cheap_for, parts_of, searched_for

_FAR = 1.3
"""By which part more may be alive before there are kernels than the arena is then, where nothing is known yet."""
_NEAR = 1.25
"""By which part more than a budget may be predicted of what is tried nevertheless."""
_LEAST_NEAR = 1.35
"""By which part more than the fewest bytes may be alive of what is tried for the least arena, which may need no more."""
_SEARCHES = 3
"""Searches for which products to keep whose arenas are made to know whether they fit."""
_TRIED = 6
"""Choices that are tried at most for the least arena, before a search for less."""


@dataclass(frozen=True)
class Search:
    """
    What is found hangs on the program and the budget alone, not on what was tried before: predictions are by trials of this
    search, whoever made them.
    """

    choice: Callable[[RematerializePass | None], Choice]
    fitting: Callable[[Choice, int], Trial]
    """The trial of a choice, or one of it that works in less memory if that fits where the first does not."""
    _seen: dict[object, tuple[int, Trial]] = field(default_factory=dict[object, tuple[int, Trial]])
    """By choice: bytes that are alive before there are kernels, and the trial."""

    def looked_at(self) -> list[Trial]:
        """All trials that it went by, whether it ended with them or not."""
        return [trial for _, trial in self._seen.values()]

    def within(self, budget: int) -> Trial | None:
        """One with as little recomputation as was found whose arena fits; None where none does."""
        if self._is_near(self.choice(None), budget) and (free := self._try(self.choice(None), budget)).arena <= budget:
            return free
        if (found := self._first(cheap_for(budget), budget)) is not None:
            return found
        best: Trial | None = None
        for tier in DEAR[:IN_PARTS]:
            best = self._part_within(tier, budget, best) or best
        return self._searched_within(budget, best) or best

    def least(self) -> Trial:
        """The one with the smallest arena, of those that are likely to have small ones."""
        every = [*FOR_LEAST, *searched_for(self.choice(CHEAP[-1]).alive)]
        likely = sorted({each.key: each for each in map(self.choice, every)}.values(), key=lambda each: each.alive)
        near = [each for each in likely[:_TRIED] if each.alive <= _LEAST_NEAR * likely[0].alive]
        return min((self._try(each, 0) for each in near), key=lambda trial: trial.arena)

    def _try(self, choice: Choice, budget: int) -> Trial:
        trial = self.fitting(choice, budget)
        self._seen[choice.key] = choice.alive, trial
        return trial

    def _part_within(self, tier: RematerializePass, budget: int, best: Trial | None) -> Trial | None:
        """As little of a dear tier as fits, if that takes less time than the best one known."""
        if not self._is_near(self.choice(tier), budget):
            return None
        more = max(self.choice(tier).seconds - self.choice(None).seconds, 0.0)
        return self._first([*parts_of(tier, more), tier], budget, best)

    def _searched_within(self, budget: int, best: Trial | None) -> Trial | None:
        """
        The first that fits of searches for which products to keep, those of less work first, if that takes less time than the
        best one known: in less room there may be more alive than in more.
        """
        nbytes = int(budget / self._scale(self.choice(CHEAP[-1])))
        tiers = dict.fromkeys([*searched_for(budget), *searched_for(nbytes)])
        choices = {each.key: each for each in map(self.choice, tiers)}
        tried = 0
        for choice in sorted(choices.values(), key=lambda each: (each.seconds, each.alive)):
            if tried == _SEARCHES or (best is not None and choice.seconds >= best.seconds):
                break
            if self._is_near(choice, budget):
                tried += 1
                if (trial := self._try(choice, budget)).arena <= budget:
                    return trial
        return None

    def _first(self, tiers: Sequence[RematerializePass], budget: int, best: Trial | None = None) -> Trial | None:
        """
        The first that fits of tiers with ever more recomputation; None where the last one is far from it, or the first that
        is likely to fit takes no less time than the best one known.
        """
        if not self._is_near(self.choice(tiers[-1]), budget):
            return None
        tried: dict[int, Trial] = {}

        def fits(number: int) -> bool:
            choice = self.choice(tiers[number])
            if best is not None and choice.seconds >= best.seconds:
                return False
            tried[number] = self._try(choice, budget)
            return tried[number].arena <= budget

        found = first_that_fits(
            len(tiers),
            lambda number: self._predicted(self.choice(tiers[number])) <= budget,
            fits,
            lambda number: self._is_near(self.choice(tiers[number]), budget),
        )
        return None if found is None else tried[found]

    def _scale(self, choice: Choice) -> float:
        """By which part the arena is larger than what is alive, as far as others tell: the one with the most similar number."""
        known = [(alive, trial.arena) for alive, trial in self._seen.values() if alive]
        alive, arena = min(known, key=lambda each: abs(each[0] - choice.alive), default=(1, 1))
        return arena / alive

    def _is_near(self, choice: Choice, budget: int) -> bool:
        """Whether a choice that is not likely to fit may do so."""
        return self._predicted(choice) <= (_NEAR if self._seen else _FAR) * budget

    def _predicted(self, choice: Choice) -> float:
        """About what the arena will be."""
        return choice.alive * self._scale(choice)
