"""Runs of a pipeline with ever more recomputation, to see which arenas it leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context as Variables
from dataclasses import dataclass, replace
from functools import cached_property

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.passes.decisions import Decision
from fuse_opt.passes.decisions.steering import Recorder
from fuse_opt.passes.recompute.first_fit import first_that_fits
from fuse_opt.passes.recompute.rematerialize import SEARCHED, RematerializePass
from fuse_opt.passes.recompute.stages import Choice, Run, Stage
from fuse_opt.passes.remarks import RefusedError

_TARGETS = (0.95, 0.8, 0.6, 0.4)
"""Parts of a budget that are tried as targets of cheap recomputation, so that no more is computed again than has to be."""
_PARTS = (0.125, 0.25, 0.5, 0.75)
"""Parts of the time that all of dear recomputation takes, that are tried as its limit."""
_SEARCHED_PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""Parts of a budget, and of the arena without dear recomputation, that are tried as targets of a search for what to keep."""
_IN_PARTS = 2
"""Dear tiers of which parts are looked at."""
_FAR = 1.3
"""By which part more may be alive before there are kernels than the arena is then, where nothing is known yet."""
_NEAR = 1.25
"""By which part more than a budget may be predicted of what is tried nevertheless."""
_TRIED = 4
"""Choices that are tried at most for the least arena."""
_POINTWISE = RematerializePass(slower=1e9)
_ROWS = replace(_POINTWISE, rows=True)
CHEAP = (_POINTWISE, _ROWS)
"""Recomputation of all that loops compute, without a limit of time."""
DEAR = tuple(replace(_ROWS, products=kept, max_ops=512) for kept in (2, 3, 4))
"""That of products, too, of which one in so many is kept."""
_SEARCHED = replace(_ROWS, products=SEARCHED, max_ops=512)
"""That of products of which those are kept that take the least work for a target."""

LEVELS = (None, CHEAP[-1], DEAR[0])
"""Recomputation as the passes do it, of all that loops compute, and of half of the products, too."""


Measure = Callable[[ModuleOp], int]
"""Bytes of the arena of a program whose values have places in memory."""


@dataclass(frozen=True, eq=False)
class Trial:
    """What a choice of passes leads to, and what they decided."""

    choice: Choice
    module: ModuleOp
    decisions: list[Decision]
    measure: Measure

    @property
    def passes(self) -> list[ModulePass]:
        return self.choice.passes

    @property
    def seconds(self) -> float:
        """What is computed again takes, by the cost model."""
        return self.choice.seconds

    @cached_property
    def arena(self) -> int:
        """Bytes of the largest arena."""
        return self.measure(self.module)


class Trials:
    """
    Runs of some passes on copies of a module. No remark, decision or fuel of the caller tells of them.

    What is behind `rematerialize` runs for those ways to recompute alone that are likely to be wanted, each once: how many
    bytes are alive before there are kernels says which, by what it said of the arenas of others.
    """

    def __init__(
        self, module: ModuleOp, passes: Sequence[ModulePass], run: Run, measure: Measure | None = None
    ) -> None:
        """
        `measure` knows what kernels work in behind all values, too; without it an arena is what was planned for values. Raises
        RefusedError where no pass recomputes or plans.
        """
        names = [each.name for each in passes]
        for needed in (RematerializePass.name, "plan-memory"):
            if needed not in names:
                message = f"budget: expected a pipeline with '{needed}', got {','.join(names) or 'no passes'}"
                raise RefusedError(message, module)
        self._whole, self._passes, self._run = Stage(module, Recorder()), list(passes), run
        self._text = str(module)
        self._measure = planned_arena if measure is None else measure
        self._cut = names.index(RematerializePass.name)
        self._choices: dict[RematerializePass | None, Choice] = {}
        self._made: dict[object, Trial] = {}

    def are_of(self, module: ModuleOp, passes: Sequence[ModulePass]) -> bool:
        """Whether they are what one would make of the module and the passes."""
        return self._passes == list(passes) and self._text == str(module)

    def of(self, tier: RematerializePass | None = None) -> Trial:
        """What the passes lead to with such recomputation, or as they are."""
        return self._trial(self.choice(tier))

    def choice(self, tier: RematerializePass | None = None) -> Choice:
        """What is computed again with such options, or as the passes are."""
        if (found := self._choices.get(tier)) is None:
            found = self._choices[tier] = Variables().run(self._chosen, tier)
        return found

    def alive(self, level: int) -> int:
        """About the bytes that are alive at once at one of the LEVELS of recomputation."""
        return self.choice(LEVELS[level]).alive

    def arena(self, level: int) -> int:
        """Bytes of the arena at one of the LEVELS."""
        return self.of(LEVELS[level]).arena

    def within(self, budget: int) -> Trial | None:
        """One with as little recomputation as was found whose arena fits; None where none does."""
        if self._is_near(self.choice(), budget) and (free := self.of()).arena <= budget:
            return free
        if (found := self._first(_cheap(budget), budget)) is not None:
            return found
        best: Trial | None = None
        for tier in DEAR[:_IN_PARTS]:
            best = self._part_within(tier, budget, best) or best
        nbytes = int(budget / self._scale(self.choice(CHEAP[-1])))
        return self._first(_searched(nbytes), budget, best) or best

    def _part_within(self, tier: RematerializePass, budget: int, best: Trial | None) -> Trial | None:
        """As little of a dear tier as fits, if that takes less time than the best one known."""
        if not self._is_near(self.choice(tier), budget):
            return None
        more = max(self.choice(tier).seconds - self.choice().seconds, 0.0)
        return self._first([*(replace(tier, slower=part * more) for part in _PARTS), tier], budget, best)

    def _first(self, tiers: Sequence[RematerializePass], budget: int, best: Trial | None = None) -> Trial | None:
        """
        The first that fits of tiers with ever more recomputation; None where the last one is far from it, or the first that
        is likely to fit takes no less time than the best one known.
        """
        if not self._is_near(self.choice(tiers[-1]), budget):
            return None

        def fits(number: int) -> bool:
            choice = self.choice(tiers[number])
            return (best is None or choice.seconds < best.seconds) and self._trial(choice).arena <= budget

        found = first_that_fits(
            len(tiers),
            lambda number: self._predicted(self.choice(tiers[number])) <= budget,
            fits,
            lambda number: self._is_near(self.choice(tiers[number]), budget),
        )
        return None if found is None else self.of(tiers[found])

    def least(self) -> Trial:
        """The one with the smallest arena, of those that are likely to have small ones the first."""
        likely = sorted(map(self.choice, (*CHEAP, *DEAR, *self._choices)), key=lambda each: each.alive)
        near = [each for each in likely[:_TRIED] if each.alive <= _NEAR * likely[0].alive]
        return min(map(self._trial, near), key=lambda trial: trial.arena)

    def made(self) -> list[Trial]:
        """All that went through the whole pipeline until now."""
        return list(self._made.values())

    def front(self, points: int) -> list[Trial]:
        """
        Those that no other one beats in bytes and in the time of what is computed again, the largest arena first: at most so
        many, with about equal steps between them.
        """
        every = list(map(self.choice, (None, *CHEAP, *DEAR, *_searched(self.choice(CHEAP[-1]).alive))))
        every += [part for tier in DEAR[:_IN_PARTS] for part in self._parts(tier)]
        likely = [every[number] for number in undominated([(choice.alive, choice.seconds) for choice in every])]
        count = min(points, len(likely))
        numbers = dict.fromkeys(round(k * (len(likely) - 1) / max(count - 1, 1)) for k in range(count))
        trials = list(dict.fromkeys(self._trial(likely[number]) for number in numbers))
        return [trials[number] for number in undominated([(trial.arena, trial.seconds) for trial in trials])][::-1]

    def _parts(self, tier: RematerializePass) -> list[Choice]:
        """A dear tier in parts, by what more than free recomputation takes."""
        more = max(self.choice(tier).seconds - self.choice().seconds, 0.0)
        return [self.choice(replace(tier, slower=part * more)) for part in _PARTS]

    def _scale(self, choice: Choice) -> float:
        """By which part the arena is larger than what is alive, as far as others tell: the one with the most similar number."""
        known = [trial for trial in self._made.values() if trial.choice.alive]
        nearest = min(known, key=lambda trial: abs(trial.choice.alive - choice.alive), default=None)
        return 1.0 if nearest is None else nearest.arena / nearest.choice.alive

    def _is_near(self, choice: Choice, budget: int) -> bool:
        """Whether a choice that is not likely to fit may do so."""
        return self._predicted(choice) <= (_NEAR if self._made else _FAR) * budget

    def _predicted(self, choice: Choice) -> float:
        """About what the arena will be."""
        return choice.alive * self._scale(choice)

    def _chosen(self, tier: RematerializePass | None) -> Choice:
        passes = [
            replace(tier, device=each.device) if tier is not None and isinstance(each, RematerializePass) else each
            for each in self._passes
        ]
        stage = self._before.behind(passes[self._cut : self._cut + 1], self._run)
        return Choice(passes, stage)

    @cached_property
    def _before(self) -> Stage:
        """What the passes before `rematerialize` lead to."""
        return self._whole.behind(self._passes[: self._cut], self._run)

    def _trial(self, choice: Choice) -> Trial:
        if (found := self._made.get(choice.key)) is None:
            found = self._made[choice.key] = Variables().run(self._tried, choice)
        return found

    def _tried(self, choice: Choice) -> Trial:
        if any(getattr(each, "tuned", "") for each in choice.passes):  # a measured plan is of the whole program
            made = self._whole.behind(choice.passes, self._run)
        else:
            made = choice.stage.behind(choice.passes[self._cut + 1 :], self._run)
        return Trial(choice, made.module, made.notes.decisions, self._measure)


def _cheap(budget: int) -> list[RematerializePass]:
    """Ever more of what loops compute, so that no more is computed again than a budget needs."""
    return [each for tier in CHEAP for each in (*(replace(tier, target=int(p * budget)) for p in _TARGETS), tier)]


def _searched(nbytes: int) -> list[RematerializePass]:
    """Searches for what to keep, for ever smaller parts of so many bytes."""
    return [replace(_SEARCHED, target=int(part * nbytes)) for part in _SEARCHED_PARTS]


def undominated(points: Sequence[tuple[int, float]]) -> list[int]:
    """The numbers of those pairs of bytes and seconds that no other is at most equal to in both, by ascending bytes."""
    order = sorted(range(len(points)), key=lambda number: (*points[number], number))
    kept: list[int] = []
    for number in order:
        if not kept or points[number][1] < points[kept[-1]][1]:
            kept.append(number)
    return kept


def planned_arena(module: ModuleOp) -> int:
    """Bytes of the largest arena that was planned for values."""
    return max(map(arena_of, functions_of(module)), default=0)


def arena_of(function: FuncOp) -> int:
    """Bytes of the arena that was planned for the values of a function."""
    plan = function.attributes.get(ARENA)
    size = plan.data.get("size") if isinstance(plan, DictionaryAttr) else None
    return size.value.data if isinstance(size, IntegerAttr) else 0
