"""Runs of a pipeline with ever more recomputation, to see which arenas it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import Context as Variables
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.passes.decisions import Decision, record_decisions
from fuse_opt.passes.devices.device import find_device
from fuse_opt.passes.recompute.proposals import work_seconds
from fuse_opt.passes.recompute.rematerialize import SEARCHED, RematerializePass
from fuse_opt.passes.remarks import RefusedError

Run = Callable[[ModuleOp, Sequence[ModulePass]], None]
"""Applies passes to a module."""

_TARGETS = (0.95, 0.8, 0.6, 0.4)
"""Parts of a budget that are tried as targets of cheap recomputation, so that no more is computed again than has to be."""
_PARTS = (0.125, 0.25, 0.5, 0.75)
"""Parts of the time that all of dear recomputation takes, that are tried as its limit."""
_SEARCHED_PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""Parts of a budget, and of the arena without dear recomputation, that are tried as targets of a search for what to keep."""
_TRIED = 2
"""Dear tiers of which parts are tried, for a budget."""
_POINTWISE = RematerializePass(slower=1e9)
_ROWS = replace(_POINTWISE, rows=True)
CHEAP = (_POINTWISE, _ROWS)
"""Recomputation of all that loops compute, without a limit of time."""
DEAR = tuple(replace(_ROWS, products=kept, max_ops=512) for kept in (2, 3, 4, 6))
"""That of products, too, of which one in so many is kept."""
_SEARCHED = replace(_ROWS, products=SEARCHED, max_ops=512)
"""That of products of which those are kept that take the least work for a target."""


@dataclass(frozen=True)
class Trial:
    """What a choice of passes leads to, and what they decided."""

    passes: list[ModulePass]
    module: ModuleOp
    decisions: list[Decision]
    seconds: float
    """What is computed again takes, by the cost model."""

    @property
    def arena(self) -> int:
        """Bytes of the largest arena of a function."""
        return max((arena_of(function) for function in functions_of(self.module)), default=0)


class Trials:
    """Runs of some passes on copies of a module, each choice once. No remark, decision or fuel of the caller tells of them."""

    def __init__(self, module: ModuleOp, passes: Sequence[ModulePass], run: Run) -> None:
        """Raises RefusedError where no pass recomputes or plans."""
        names = [each.name for each in passes]
        for needed in (RematerializePass.name, "plan-memory"):
            if needed not in names:
                message = f"budget: expected a pipeline with '{needed}', got {','.join(names) or 'no passes'}"
                raise RefusedError(message, module)
        self._module, self._passes, self._run = module, list(passes), run
        self._made: dict[RematerializePass | None, Trial] = {}

    def of(self, tier: RematerializePass | None = None) -> Trial:
        """What the passes lead to with such recomputation, or as they are."""
        if (found := self._made.get(tier)) is None:
            found = self._made[tier] = Variables().run(self._tried, tier)
        return found

    def of_loops(self) -> Trial:
        """What they lead to where all is computed again that loops compute, and no product."""
        return self.of(CHEAP[-1])

    def within(self, budget: int) -> Trial | None:
        """The one with the least recomputation whose arena fits; None where none does."""
        if (free := self.of()).arena <= budget:
            return free
        for tier in CHEAP:
            if (whole := self.of(tier)).arena <= budget:
                parts = (self.of(replace(tier, target=int(part * budget))) for part in _TARGETS)
                return next((trial for trial in parts if trial.arena <= budget), whole)
        fitting = sorted(
            (tier for tier in DEAR if self.of(tier).arena <= budget), key=lambda tier: self.of(tier).seconds
        )
        found = [trial for tier in fitting[:_TRIED] for trial in self._parts(tier) if trial.arena <= budget]
        searched = next((trial for trial in self._searched(budget) if trial.arena <= budget), None)
        return min([*found, *([] if searched is None else [searched])], key=lambda trial: trial.seconds, default=None)

    def least(self) -> Trial:
        """The one with the smallest arena, of those with the whole of each tier the first."""
        dear = (*map(self.of, DEAR), *self._searched(self.of(CHEAP[-1]).arena))
        return min((*map(self.of, (None, *CHEAP)), *dear), key=lambda trial: trial.arena)

    def front(self, points: int) -> list[Trial]:
        """
        Those that no other one beats in bytes and in the time of what is computed again, the largest arena first: at most so
        many, with about equal steps between them.
        """
        every = [*map(self.of, (None, *CHEAP)), *(trial for tier in DEAR for trial in self._parts(tier))]
        every += self._searched(self.of(CHEAP[-1]).arena)
        found: list[Trial] = []
        for trial in sorted(every, key=lambda each: (each.arena, each.seconds)):
            if not found or trial.seconds < found[-1].seconds:
                found.append(trial)
        count = min(points, len(found))
        chosen = {round(k * (len(found) - 1) / max(count - 1, 1)): None for k in range(count)}
        return [found[number] for number in chosen][::-1]

    def _searched(self, nbytes: int) -> Iterator[Trial]:
        """What a search for what to keep leads to, for ever smaller parts of so many bytes."""
        return (self.of(replace(_SEARCHED, target=int(part * nbytes))) for part in _SEARCHED_PARTS)

    def _parts(self, tier: RematerializePass) -> list[Trial]:
        """The whole of a dear tier, and parts of it, by what more than free recomputation takes."""
        whole = self.of(tier)
        more = max(whole.seconds - self.of().seconds, 0.0)
        return [whole, *(self.of(replace(tier, slower=part * more)) for part in _PARTS)]

    def _tried(self, tier: RematerializePass | None) -> Trial:
        passes = [
            replace(tier, device=each.device) if tier is not None and isinstance(each, RematerializePass) else each
            for each in self._passes
        ]
        copy = self._module.clone()
        with record_decisions() as decisions:
            self._run(copy, passes)
        devices = [find_device(each.device) for each in passes if isinstance(each, RematerializePass)]
        again = [op for op in copy.walk() if RECOMPUTED in op.attributes]
        return Trial(passes, copy, decisions, sum(work_seconds(op, devices[0]) for op in again))


def arena_of(function: FuncOp) -> int:
    """Bytes of the arena of a function."""
    plan = function.attributes.get(ARENA)
    size = plan.data.get("size") if isinstance(plan, DictionaryAttr) else None
    return size.value.data if isinstance(size, IntegerAttr) else 0
