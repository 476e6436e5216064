"""Runs of a pipeline with ever more recomputation, to see which arenas it leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import Context as Variables
from dataclasses import replace
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.decisions.steering import Recorder
from fuse_opt.passes.recompute.known_ops import KnownOps, knowing
from fuse_opt.passes.recompute.rematerialize import RematerializePass
from fuse_opt.passes.recompute.search import Search
from fuse_opt.passes.recompute.splitting.split_products import SplitProductsPass
from fuse_opt.passes.recompute.stages import Choice, Measure, Run, Stage, Trial, alive_bytes, planned_arena
from fuse_opt.passes.recompute.tiers import CHEAP, DEAR, IN_PARTS, LEVELS, many_of, searched_for
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.passes.scheduling.schedule_kernels import ScheduleKernelsPass

_SMALL = 64
"""Of values that are smaller than one in so many parts of what is alive without recomputation a budget computes none again."""
_CLOSE = 0.95
"""By which part less must be alive for one plan to be taken for smaller than another."""


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
        self._known = KnownOps()
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

    def work(self, level: int) -> float:
        """Seconds that all ops take at one of the LEVELS, by the cost model."""
        return self.choice(LEVELS[level]).work

    def keeping(self, nbytes: int) -> Iterator[tuple[int, float]]:
        """What is alive then, and the seconds of all ops, of searches for the products to keep within so many bytes, or fewer."""
        return ((choice.alive, choice.work) for choice in map(self.choice, searched_for(nbytes)))

    def arena(self, level: int, budget: int) -> int:
        """Bytes of the arena at one of the LEVELS, of kernels that work in little memory where others do not fit."""
        return self._fitting(self.choice(LEVELS[level]), budget).arena

    def within(self, budget: int) -> Trial | None:
        """One with as little recomputation as was found whose arena fits; None where none does."""
        if (found := self.found(budget)) is not None:
            return found
        return self.least if self.least.arena <= budget else None

    def found(self, budget: int) -> Trial | None:
        """The same without what is tried for the least arena, which takes long."""
        if (found := self._search().within(budget)) is not None:
            return found
        known = [trial for trial in self.made() if trial.arena <= budget]
        return min(known, key=lambda trial: trial.seconds, default=None)

    @cached_property
    def least(self) -> Trial:
        """
        The one with the smallest arena that searches look at: for its arena, and for a byte less, there is nothing smaller. It
        hangs on the program alone.
        """
        best = self._search().least()
        while best.arena:
            looked_at = [*self._looked_at(best.arena), *self._looked_at(best.arena - 1)]
            if (less := min(looked_at, key=lambda trial: trial.arena, default=best)).arena >= best.arena:
                break
            best = less
        return best

    def _looked_at(self, budget: int) -> list[Trial]:
        """What a search goes by, which may end with more bytes in less time than the smallest of them."""
        search = self._search()
        search.within(budget)
        return search.looked_at()

    def _search(self) -> Search:
        return Search(self.choice, self._fitting)

    def _fitting(self, choice: Choice, budget: int) -> Trial:
        """
        The trial of a choice; where kernels work in so much that it does not fit, one in which they work in less, and one with
        products of their own for parts of products. For a budget of 0 the smallest one.
        """
        tried = [self._trial(choice)]
        if tried[0].arena > tried[0].planned and not 0 < budget < tried[0].planned and tried[0].arena > budget:
            tried.append(self._trial(_with_little_scratch(choice)))
        if min(each.arena for each in tried) > budget and choice.reads_products_in_parts:
            tried.append(self._trial(_with_products_split(_with_little_scratch(choice))))
        return min(tried, key=lambda each: each.arena)

    def made(self) -> list[Trial]:
        """All that went through the whole pipeline until now."""
        return list(self._made.values())

    def front(self, points: int) -> list[Trial]:
        """
        Those that no other one beats in bytes and in the time of what is computed again, the largest arena first: at most so
        many, with about equal steps between them.
        """
        free = self.choice(CHEAP[-1]).alive
        every = list(map(self.choice, (None, *CHEAP, *DEAR, *searched_for(free))))
        for tier in DEAR[:IN_PARTS]:
            more = max(self.choice(tier).seconds - self.choice().seconds, 0.0)
            every += map(self.choice, many_of(tier, more, free))
        likely = _likely(list({each.key: each for each in every}.values()))
        count = min(points, len(likely))
        numbers = dict.fromkeys(round(k * (len(likely) - 1) / max(count - 1, 1)) for k in range(count))
        trials = list(dict.fromkeys(self._trial(likely[number]) for number in numbers))
        return [trials[number] for number in undominated([(trial.arena, trial.seconds) for trial in trials])][::-1]

    def _chosen(self, tier: RematerializePass | None) -> Choice:
        if tier is not None:
            tier = replace(tier, smallest_bytes=min(tier.smallest_bytes, alive_bytes(self._before.module) // _SMALL))
        passes = [
            replace(tier, device=each.device) if tier is not None and isinstance(each, RematerializePass) else each
            for each in self._passes
        ]
        with knowing(self._known):
            stage = self._before.behind(passes[self._cut : self._cut + 1], self._run)
        return Choice(passes, stage, self._known)

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


def _with_little_scratch(choice: Choice) -> Choice:
    """The same choice, of kernels that work in as little memory beside their values as they can."""
    passes = [
        replace(each, scratch="little") if isinstance(each, ScheduleKernelsPass) else each for each in choice.passes
    ]
    return replace(choice, passes=passes)


def _with_products_split(choice: Choice) -> Choice:
    """The same choice, of which products do not stay whole for the part that is read last."""
    behind = choice.passes.index(next(each for each in choice.passes if isinstance(each, RematerializePass))) + 1
    return replace(choice, passes=[*choice.passes[:behind], SplitProductsPass(), *choice.passes[behind:]])


def _likely(choices: Sequence[Choice]) -> list[Choice]:
    """Those that no other is likely to beat, by ascending bytes: arenas are other parts of what is alive, if not by much."""
    kept = [
        each
        for each in choices
        if not any(other.alive <= _CLOSE * each.alive and other.seconds <= each.seconds for other in choices)
    ]
    return sorted(kept, key=lambda each: (each.alive, each.seconds))


def undominated(points: Sequence[tuple[int, float]]) -> list[int]:
    """The numbers of those pairs of bytes and seconds that no other is at most equal to in both, by ascending bytes."""
    order = sorted(range(len(points)), key=lambda number: (*points[number], number))
    kept: list[int] = []
    for number in order:
        if not kept or points[number][1] < points[kept[-1]][1]:
            kept.append(number)
    return kept
