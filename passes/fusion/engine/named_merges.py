"""Merges as decisions: which ops of groups name them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from fuse_opt.passes.decisions.numbering import Numbering
from fuse_opt.passes.decisions.steering import Steering
from fuse_opt.passes.decisions.text import Decision
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph


def describe_merge(steering: Steering, graph: GroupGraph, members: Sequence[Group]) -> Decision | None:
    """The decision to merge the groups, before it is made; None when nobody takes notes."""
    if steering.recorder is None:
        return None
    return steering.describe(_neighbours(steering.recorder.numbering, graph, list(dict.fromkeys(members))))


def _neighbours(numbering: Numbering, graph: GroupGraph, members: Sequence[Group]) -> list[Operation]:
    """
    One op of each group; where groups read each other, ops that do: these belong together whatever else is fused.
    """
    chosen: dict[Group, Operation] = {}
    for reader in (*members[1:], members[0]):  # producers come first, and may be large
        for op in (named for outer in reader.ops for named in numbering.named[outer]):
            for source in numbering.sources_of(op):
                group = graph.group_of.get(graph.top(source))
                if group is not None and group is not reader and group in members:
                    chosen.setdefault(group, source)
                    chosen.setdefault(reader, op)
            if len(chosen) == len(members):
                return [chosen[member] for member in members]
    return [chosen.get(group) or next(op for outer in group.ops for op in numbering.named[outer]) for group in members]
