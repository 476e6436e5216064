"""Runs of a pipeline with ever more recomputation, to see which arenas it leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context as Variables
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.passes.decisions import Decision, record_decisions
from fuse_opt.passes.recompute.rematerialize import RematerializePass
from fuse_opt.passes.remarks import RefusedError

Run = Callable[[ModuleOp, Sequence[ModulePass]], None]
"""Applies passes to a module."""

_TARGETS = (0.95, 0.8, 0.6, 0.4)
"""Parts of a budget that are tried as targets of recomputation, so that no more is computed again than has to be."""
_POINTWISE = RematerializePass(slower=1e9)
_ROWS = replace(_POINTWISE, rows=True)
TIERS = (_POINTWISE, _ROWS, *(replace(_ROWS, products=kept) for kept in (4, 3, 2)))
"""Recomputation without a limit of time, of ever dearer ops."""


@dataclass(frozen=True)
class Trial:
    """What a choice of passes leads to, and what they decided."""

    passes: list[ModulePass]
    module: ModuleOp
    decisions: list[Decision]

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

    def within(self, budget: int) -> Trial | None:
        """The one with the least recomputation whose arena fits; None where none does."""
        if (free := self.of()).arena <= budget:
            return free
        for tier in TIERS:
            if (whole := self.of(tier)).arena <= budget:
                parts = (self.of(replace(tier, target=int(part * budget))) for part in _TARGETS)
                return next((trial for trial in parts if trial.arena <= budget), whole)
        return None

    def least(self) -> Trial:
        """The one with the smallest arena, of those with the whole of each tier the first."""
        return min(map(self.of, (None, *TIERS)), key=lambda trial: trial.arena)

    def front(self, points: int) -> list[Trial]:
        """Those for budgets in equal steps between the largest and the smallest arena, the largest first, each once."""
        most, least = self.of().arena, self.least().arena
        budgets = (most - (most - least) * step // max(points - 1, 1) for step in range(points))
        found = [trial for budget in budgets if (trial := self.within(budget)) is not None]
        return list({trial.arena: trial for trial in reversed(found)}.values())[::-1]

    def _tried(self, tier: RematerializePass | None) -> Trial:
        passes = [
            replace(tier, device=each.device) if tier is not None and isinstance(each, RematerializePass) else each
            for each in self._passes
        ]
        copy = self._module.clone()
        with record_decisions() as decisions:
            self._run(copy, passes)
        return Trial(passes, copy, decisions)


def arena_of(function: FuncOp) -> int:
    """Bytes of the arena of a function."""
    plan = function.attributes.get(ARENA)
    size = plan.data.get("size") if isinstance(plan, DictionaryAttr) else None
    return size.value.data if isinstance(size, IntegerAttr) else 0
