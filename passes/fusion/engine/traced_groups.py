"""Whether code is generated for groups: worked out once of those that are alike, as those of a model's layers are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.kernel_access import group_structure
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.passes.fusion.engine.group_graph import Refusal

Trace = Callable[[Sequence[SSAValue], Collection[Operation]], object]
"""Raises Unschedulable where ops that give some results are no kernel of generated code."""
_Computed = TypeVar("_Computed")


@dataclass
class TracedGroups:
    """Answers of one run of a rule, in which machine and sizes stay the same."""

    _answers: dict[tuple[object, ...], Refusal | Sequence[Any]] = field(
        default_factory=dict[tuple[object, ...], Refusal | Sequence[Any]]
    )

    def refuse(self, trace: Trace, results: Sequence[SSAValue], ops: Collection[Operation]) -> Refusal | None:
        """Why ops that give the results are no kernel; what a trace says follows from what the ops are and read of each other."""
        found: Refusal | Sequence[Any] = self.computed(trace, None, results, ops)
        return found if isinstance(found, Refusal) else None

    def computed(
        self,
        trace: Trace,
        computes: Callable[[object], Sequence[_Computed]] | None,
        results: Sequence[SSAValue],
        ops: Collection[Operation],
    ) -> Refusal | Sequence[_Computed]:
        """
        The same, or the operands that the kernel computes where it copies them, as `computes` finds them: those of a group that
        is alike, which have the types of this one's.
        """
        key = (trace, computes, *group_structure(results, ops))
        if (found := self._answers.get(key)) is None:
            try:
                traced = trace(results, ops)
            except Unschedulable as reason:
                found = Refusal(reason.code, str(reason))
            else:
                found = () if computes is None else computes(traced)
            self._answers[key] = found
        return found
