"""Whether code is generated for groups: worked out once of those that are alike, as those of a model's layers are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.kernel_access import group_structure
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.passes.fusion.engine.group_graph import Refusal

Trace = Callable[[Sequence[SSAValue], Collection[Operation]], object]
"""Raises Unschedulable where ops that give some results are no kernel of generated code."""


@dataclass
class TracedGroups:
    """Answers of one run of a rule, in which machine and sizes stay the same."""

    _answers: dict[tuple[object, ...], Refusal | None] = field(default_factory=dict[tuple[object, ...], Refusal | None])

    def refuse(self, trace: Trace, results: Sequence[SSAValue], ops: Collection[Operation]) -> Refusal | None:
        """Why ops that give the results are no kernel; what a trace says follows from what the ops are and read of each other."""
        key = (trace, *group_structure(results, ops))
        if key in self._answers:
            return self._answers[key]
        found: Refusal | None = None
        try:
            trace(results, ops)
        except Unschedulable as reason:
            found = Refusal(reason.code, str(reason))
        self._answers[key] = found
        return found
