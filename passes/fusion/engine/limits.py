"""What one kernel may hold: limits, directives, and why they keep groups apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.fusion.engine.groups import Group


@dataclass(frozen=True)
class Limits:
    """What one kernel may hold: graph ops, operands, results."""

    max_ops: int = 256
    max_operands: int = 64
    max_results: int = 16


class Graph(Protocol):
    """What is asked of the groups of a block."""

    @property
    def limits(self) -> Limits: ...
    @property
    def device(self) -> Device: ...
    @property
    def group_of(self) -> Mapping[Operation, Group]: ...
    @property
    def position(self) -> Mapping[Operation, int]: ...
    def top(self, op: Operation) -> Operation: ...
    def results(self, members: Sequence[Group]) -> Sequence[SSAValue]: ...


@dataclass(frozen=True)
class Refusal:
    """Why two groups stay apart: a reason code, a sentence, and the numbers behind it."""

    code: str
    """One of those in docs/fusion.md, or a new one."""
    message: str
    """What comes after "not fused with ...:"."""
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    """What the answer was computed from, by name; printed with the remark."""
    flip: str = ""
    """What would change the answer."""


def refuse_by_limits(graph: Graph, members: Sequence[Group]) -> Refusal | None:
    """Directives and limits; None when they allow one kernel."""
    count = sum([group.count for group in members])
    if count > graph.limits.max_ops:
        return _over("max-ops", "ops", count, graph.limits.max_ops)
    if any([g.is_directed for g in members]) and (refusal := _refuse_by_directives(graph, members)) is not None:
        return refusal
    if any([g.recomputed is not None for g in members]) and (refusal := _refuse_clones(members)) is not None:
        return refusal
    limit = graph.limits.max_operands
    if _sum_of_operands(members) > limit and (operands := _operand_count(members)) > limit:
        return _over("max-operands", "operands", operands, limit)
    return None


def _refuse_by_directives(graph: Graph, members: Sequence[Group]) -> Refusal | None:
    for group in members:
        if group.no_fuse:
            message = f"'{group.first.name}' carries the directive no_fuse"
            return Refusal("no-fuse", message, flip="remove no_fuse")
    names = {group.fuse_group for group in members if group.fuse_group is not None}
    if len(names) > 1:
        message = f"different groups were asked for: {', '.join(sorted(names))}"
        return Refusal("fuse-group", message, flip="give both the same fuse_group, or none")
    inside = set(members)
    for value in (value for group in members for value in group.stops):
        if any(graph.group_of.get(graph.top(use.operation)) in inside for use in value.uses):
            message = f"'{value.op.name}' carries the directive stop_fusion"
            return Refusal("stop-fusion", message, flip="remove stop_fusion")
    return None


def _refuse_clones(members: Sequence[Group]) -> Refusal | None:
    """
    Clones join their readers, and each other: with others they would be computed, and kept, as what they stand for is, where
    not all of their readers are there.
    """
    inside = set(members)
    for group in members:
        if group.recomputed is None or group.consumers.keys() <= inside:
            continue
        alike = [other for other in members if other.recomputed == group.recomputed]
        others = [other for other in members if other.recomputed != group.recomputed]
        if not all(any(other in clone.consumers for clone in alike) for other in others):
            message = f"'{group.first.name}' computes a value again for later readers, and is fused with these alone"
            return Refusal("recomputed", message, flip="leave out rematerialize")
    return None


def _operand_count(members: Sequence[Group]) -> int:
    operands = set[SSAValue]().union(*(group.inputs for group in members))
    return len(operands.difference(*(group.outputs for group in members)))


def refuse_by_results(graph: Graph, members: list[Group]) -> Refusal | None:
    """What only the merged group shows: its results, the bytes of its arguments, the scalars alive at once."""
    most, nbytes = graph.limits.max_results, graph.device.parameter_bytes
    outputs = sum([len(group.outputs) for group in members])
    if outputs > most or 8 * (_sum_of_operands(members) + outputs) > nbytes:  # else it need not be known exactly
        if (results := len(graph.results(members))) > most:
            return _over("max-results", "results", results, most)
        if (given := 8 * (_operand_count(members) + results)) > nbytes:
            return _over("parameter-bytes", "bytes of arguments", given, nbytes)
    limit = graph.device.live_values
    count = sum(group.count for group in members)
    if count // limit == max(group.count // limit for group in members):
        return None  # a few ops more; asked anew when there are `limit` more
    ops = sorted((op for group in members for op in group.ops), key=graph.position.__getitem__)
    if (live := live_values(member_ops(ops))) > limit:
        return _over("live-values", "values of an element alive at once", live, limit)
    return None


def _sum_of_operands(members: Sequence[Group]) -> int:
    """The operands of the members apart: no fewer than they have as one group."""
    return sum([len(group.inputs) for group in members])


def _over(code: str, what: str, count: int, limit: int) -> Refusal:
    numbers: dict[str, float] = {code.partition("-")[2] or code: count, "limit": limit}
    return Refusal(code, f"{count} {what} exceed the limit of {limit}", numbers, f"a limit of {count}")


def live_values(ops: Sequence[Operation]) -> int:
    """The most values of one element that are known at once when the ops run in this order, loads when first needed."""
    last = {value: step for step, op in enumerate(ops) for value in op.operands}
    ends: dict[int, list[SSAValue]] = {}
    for value, step in last.items():
        ends.setdefault(step, []).append(value)
    live: set[SSAValue] = set()
    most = 0
    for step, op in enumerate(ops):
        live.update(op.operands)
        live.update(op.results)
        most = max(most, len(live))
        live.difference_update(ends.get(step, ()))
        live.difference_update(result for result in op.results if result not in last)
    return most
