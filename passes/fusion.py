"""The one mechanism of fusion: groups of ops, what may be merged without a cycle, and how a group becomes a kernel.

A rule says *when* two groups should be one (`Rule.consider`); this module keeps every group of a block at once, in a
graph whose contraction stays acyclic, and rewrites the block at the end. Merging is checked within a window of a
maintained topological order (Pearce & Kelly 2006), so the common cases cost nothing and none is quadratic in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

from xdsl.ir import Block, Operation, OpResult, SSAValue

from ..dialects.graph_op import shape
from ..dialects.pull import member_ops
from .device import Device, find_device
from .fusion_groups import Group, canonical_order, is_creation, single, used_values

__all__ = ["Group", "GroupGraph", "Guard", "Limits", "Listener", "Refusal", "Rule"]

SEARCH_LIMIT = 4096
"""Groups visited to prove that a merge makes no cycle; beyond it the merge is refused, not the program."""


@dataclass(frozen=True)
class Limits:
    """What one kernel may hold: graph ops, operands, results."""

    max_ops: int = 256
    max_operands: int = 64
    max_results: int = 16


@dataclass(frozen=True)
class Refusal:
    """Why two groups stay apart: a reason code, a sentence, and the numbers behind it."""

    code: str
    message: str
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    flip: str = ""
    """What would change the answer."""


class Rule(Protocol):
    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        """The groups to merge into one, a reason not to, or None when the pair is not this rule's business."""
        ...


Listener = Callable[[Group, Sequence[Group]], None]
"""Told of every group that was made, and of its parts; one of the parts lives on as the group."""


class Guard(Protocol):
    """A further condition on every merge."""

    def refuse(self, graph: GroupGraph, members: Sequence[Group]) -> Refusal | None:
        """Why the members must not be one group; asked after everything else allows it."""
        ...


class GroupGraph:
    """
    The groups of a block; merging keeps the graph between them acyclic. Groups are looked at in the canonical order of
    their ops, so that the answer does not depend on how the block lists independent ops.
    """

    def __init__(self, block: Block, limits: Limits, device: Device | None = None, *, by_place: bool = False) -> None:
        """With `by_place` groups are ranked as the block lists them, else canonically."""
        self.block = block
        self.limits = limits
        self.device = device or find_device("cpu")
        self.guards: list[Guard] = []
        self.listeners: list[Listener] = []
        self.changed = False
        self._results: tuple[tuple[Group, ...], list[OpResult]] = ((), [])
        self._sizes: dict[SSAValue, int] = {}
        self.group_of: dict[Operation, Group] = {}
        self.place = {op: place for place, op in enumerate(block.ops)}
        """Where the block has each op."""
        order, alive = canonical_order(block)
        self.position = {op: position for position, op in enumerate(order)}
        """The canonical place of each op."""
        for op, position in self.position.items():
            if not is_creation(op):
                self.group_of[op] = single(op, self.place[op] if by_place else position, position < alive)
        for op, group in self.group_of.items():
            for value in used_values(op):
                if (producer := self._group_of_value(value)) is not None:
                    group.producers[producer] = None
                    producer.consumers[group] = None

    def _group_of_value(self, value: SSAValue) -> Group | None:
        return self.group_of.get(value.op) if isinstance(value, OpResult) else None

    def groups(self) -> list[Group]:
        """Every group once, in the canonical order of its first op."""
        return list(dict.fromkeys(self.group_of.values()))

    def results(self, members: Sequence[Group]) -> list[OpResult]:
        """The values that ops outside the members use, in order of definition."""
        key = tuple(members)
        if self._results[0] != key:  # rules ask, and then the merge that they propose
            inside = set(members)
            values = [value for group in members for value in group.outputs if self.is_read(value, inside)]
            if len(values) > 1:
                values.sort(key=lambda value: (self.position[value.op], value.index))
            self._results = key, values
        return self._results[1]

    def size(self, value: SSAValue) -> int:
        """Elements of a value."""
        if (found := self._sizes.get(value)) is None:
            found = self._sizes[value] = prod(shape(value))
        return found

    def is_read(self, value: OpResult, inside: set[Group]) -> bool:
        """Whether an op outside the groups uses the value, or a person asked to keep it."""
        if "keep_live" in value.op.attributes:
            return True
        for use in value.uses:
            op = use.operation
            if self.group_of.get(op if op.parent is self.block else self.top(op)) not in inside:
                return True
        return False

    def top(self, op: Operation) -> Operation:
        """The op of this block that holds `op`."""
        while op.parent is not self.block:
            parent = op.parent_op()
            if parent is None:
                return op
            op = parent
        return op

    def refuse_by_limits(self, members: Sequence[Group]) -> Refusal | None:
        """Directives and limits; None when they allow one kernel."""
        count = sum(group.count for group in members)
        if count > self.limits.max_ops:
            return _over("max-ops", "ops", count, self.limits.max_ops)
        if (refusal := self._refuse_by_directives(members)) is not None:
            return refusal
        if (operands := self._operand_count(members)) > self.limits.max_operands:
            return _over("max-operands", "operands", operands, self.limits.max_operands)
        return None

    def _refuse_by_directives(self, members: Sequence[Group]) -> Refusal | None:
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
            if any(self.group_of.get(self.top(use.operation)) in inside for use in value.uses):
                message = f"'{value.op.name}' carries the directive stop_fusion"
                return Refusal("stop-fusion", message, flip="remove stop_fusion")
        return None

    def _operand_count(self, members: Sequence[Group]) -> int:
        operands = set[SSAValue]().union(*(group.inputs for group in members))
        return len(operands.difference(*(group.outputs for group in members)))

    def _refuse_by_results(self, members: list[Group]) -> Refusal | None:
        """What only the merged group shows: its results, the bytes of its arguments, the scalars alive at once."""
        if (results := len(self.results(members))) > self.limits.max_results:
            return _over("max-results", "results", results, self.limits.max_results)
        if (nbytes := 8 * (self._operand_count(members) + results)) > self.device.parameter_bytes:
            return _over("parameter-bytes", "bytes of arguments", nbytes, self.device.parameter_bytes)
        limit = self.device.live_values
        count = sum(group.count for group in members)
        if count // limit == max(group.count // limit for group in members):
            return None  # a few ops more; asked anew when there are `limit` more
        ops = sorted((op for group in members for op in group.ops), key=self.position.__getitem__)
        if (live := live_values(member_ops(ops))) > limit:
            return _over("live-values", "values of an element alive at once", live, limit)
        return None

    def merge(self, members: Sequence[Group]) -> Refusal | None:
        """Makes the members one group when that leaves the graph acyclic; otherwise says why not."""
        members = list(dict.fromkeys(members))
        after = self._after(members)
        if isinstance(after, Refusal):
            return after
        for group, rank in self._ranks_after(members, after).items():
            group.rank = rank
        self._join(members, members[0].rank)
        return None

    def ranks_after(self, members: list[Group]) -> dict[Group, int]:
        """The ranks that change when the members, which can be, are merged: theirs is one."""
        after = self._descendants(members, max(group.rank for group in members), set(members))
        assert not isinstance(after, Refusal), "the members cannot be one group"
        return self._ranks_after(members, after)

    def _ranks_after(self, members: list[Group], after: list[Group]) -> dict[Group, int]:
        if not after:
            # Nothing in the window depends on the members: all of them can move to the last one's place.
            return dict.fromkeys(members, max(group.rank for group in members))
        before = self._ancestors(members, min(group.rank for group in members), set(members))
        ranks = sorted(group.rank for group in (*before, *members, *after))
        found = dict(zip(before, ranks, strict=False))
        found.update(zip(reversed(after), reversed(ranks), strict=False))
        return {**found, **dict.fromkeys(members, ranks[len(before)])}

    def refuse(self, members: Sequence[Group]) -> Refusal | None:
        """What `merge` would answer, without merging."""
        after = self._after(list(dict.fromkeys(members)))
        return after if isinstance(after, Refusal) else None

    def _after(self, members: list[Group]) -> list[Group] | Refusal:
        """The groups between the members that depend on them, in order; or why the members cannot be one group."""
        if (refusal := self.refuse_by_limits(members) or self._refuse_by_results(members)) is not None:
            return refusal
        after = self._descendants(members, max(group.rank for group in members), set(members))
        if isinstance(after, Refusal):
            return after
        return next((no for guard in self.guards if (no := guard.refuse(self, members)) is not None), after)

    def _descendants(self, members: list[Group], high: int, inside: set[Group]) -> list[Group] | Refusal:
        seen: set[Group] = set()
        stack = [g for m in members for g in m.consumers if g.rank < high and g not in inside]
        while stack:
            group = stack.pop()
            if group in seen:
                continue
            seen.add(group)
            if len(seen) > SEARCH_LIMIT:
                message = f"more than {SEARCH_LIMIT} groups lie between; a cycle was not ruled out"
                return Refusal("search-limit", message, flip="fewer groups between them")
            if not inside.isdisjoint(group.consumers):
                name = group.first.name
                message = f"'{name}' outside the group depends on it and feeds it: a cycle"
                return Refusal("cycle", message, flip=f"fuse '{name}' with them")
            stack += [consumer for consumer in group.consumers if consumer.rank < high]
        return sorted(seen, key=lambda group: group.rank)

    def _ancestors(self, members: list[Group], low: int, inside: set[Group]) -> list[Group]:
        seen: set[Group] = set()
        stack = [g for m in members for g in m.producers if g not in inside and g.rank > low]
        while stack:
            group = stack.pop()
            if group not in seen:
                seen.add(group)
                stack.extend(p for p in group.producers if p.rank > low and p not in inside)
        return sorted(seen, key=lambda group: group.rank)

    def _join(self, members: list[Group], rank: int) -> None:
        self._results = ((), [])
        target = max(members, key=lambda group: len(group.ops))
        inside = set(members)
        for group in members:
            if group is target:
                continue
            for op in group.ops:
                self.group_of[op] = target
            target.ops.extend(group.ops)
            target.inputs.update(group.inputs)
            target.outputs.extend(group.outputs)
            target.stops.extend(group.stops)
            for producer in group.producers:
                del producer.consumers[group]
                producer.consumers[target] = None
                target.producers[producer] = None
            for consumer in group.consumers:
                del consumer.producers[group]
                consumer.producers[target] = None
                target.consumers[consumer] = None
        known = sorted(target.outputs, key=lambda value: (self.position[value.op], value.index))
        target.outputs = [value for value in known if self.is_read(value, {target})] or known[-1:]
        for value in [v for v in target.inputs if self._group_of_value(v) is target]:
            del target.inputs[value]
        for group in inside:
            target.producers.pop(group, None)
            target.consumers.pop(group, None)
        target.ops.sort(key=self.position.__getitem__)
        target.kind = max(group.kind for group in members)
        target.count = sum(group.count for group in members)
        target.fuse_group = next((g.fuse_group for g in members if g.fuse_group is not None), None)
        target.rank, target.merged = rank, True
        self.changed = True
        for listener in self.listeners:
            listener(target, members)


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
