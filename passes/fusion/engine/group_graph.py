"""The one mechanism of fusion: groups of ops, what may be merged without a cycle, and how a group becomes a kernel.

A rule says *when* two groups should be one (`Rule.consider`); this module keeps every group of a block at once, in a
graph whose contraction stays acyclic, and rewrites the block at the end. Merging is checked within a window of a
maintained topological order (Pearce & Kelly 2006), so the common cases cost nothing and none is quadratic in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

from xdsl.ir import Block, Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.passes.devices.device import Device, find_device
from fuse_opt.passes.fusion.engine.groups import Group, canonical_order, single, used_values
from fuse_opt.passes.fusion.engine.limits import Limits, Refusal, refuse_by_limits, refuse_by_results

__all__ = ["Group", "GroupGraph", "Guard", "Limits", "Listener", "Refusal", "Rule"]

SEARCH_LIMIT = 4096
"""Groups visited to prove that a merge makes no cycle; beyond it the merge is refused, not the program."""


class Rule(Protocol):
    """When two groups become one kernel; a method `partners(graph, group)` may offer other pairs than producers and readers."""

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
        self._answer: tuple[list[Group], list[Group] | Refusal] = ([], [])
        """What the members that were asked about last would lead to: rules ask, and then the merge that they propose."""
        self._sizes: dict[SSAValue, int] = {}
        self._nbytes: dict[SSAValue, int] = {}
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
        if self._results[0] != key:
            inside = set(members)
            values = [value for group in members for value in self._read_outside(group, inside)]
            if len(values) > 1:
                values.sort(key=self._order_of_values)
            self._results = key, values
        return self._results[1]

    def _order_of_values(self, value: OpResult) -> tuple[int, int]:
        return self.position[value.op], value.index

    def _read_outside(self, group: Group, inside: set[Group]) -> list[OpResult]:
        """The outputs of a group that are read outside `inside`: of a group that has readers, all that none inside reads."""
        if not group.consumers:
            return [value for value in group.outputs if self.is_read(value, inside)]
        near = group.consumers.keys() & inside
        if not near:
            return group.outputs
        return [v for v in group.outputs if not any(v in reader.inputs for reader in near) or self.is_read(v, inside)]

    def has_result(self, group: Group, inside: set[Group]) -> bool:
        """Whether a value of the group is read outside `inside`."""
        return not group.consumers.keys() <= inside or any(self.is_read(value, inside) for value in group.outputs)

    def result_sizes(self, members: Sequence[Group]) -> set[int]:
        """The numbers of elements that the results have."""
        sizes = {self.size(value) for group in members for value in group.outputs}
        return sizes if len(sizes) == 1 else {self.size(value) for value in self.results(members)}

    def size(self, value: SSAValue) -> int:
        """Elements of a value."""
        if (found := self._sizes.get(value)) is None:
            found = self._sizes[value] = prod(shape(value))
        return found

    def nbytes(self, value: SSAValue) -> int:
        """Bytes of a value's elements, of sizes about so many; 0 when they are not known."""
        if (found := self._nbytes.get(value)) is None:
            found = self._nbytes[value] = estimate(byte_size(value) or 0)
        return found

    def is_read(self, value: OpResult, inside: set[Group]) -> bool:
        """Whether an op outside the groups uses the value, or a person asked to keep it."""
        return "keep_live" in value.op.attributes or self.is_used(value, inside)

    def is_used(self, value: OpResult, inside: set[Group]) -> bool:
        """Whether an op outside the groups uses the value."""
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
        return refuse_by_limits(self, members)

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
        if self._answer[0] != members:
            self._answer = members, self._find_after(members)
        return self._answer[1]

    def _find_after(self, members: list[Group]) -> list[Group] | Refusal:
        if (refusal := self.refuse_by_limits(members) or refuse_by_results(self, members)) is not None:
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
        made = [value for group in members for value in group.outputs]
        outputs = self.results(members) or [max(made, key=self._order_of_values)]
        self._results, self._answer = ((), []), ([], [])
        target = max(members, key=lambda group: len(group.ops))
        for group in members:
            if group is target:
                continue
            for op in group.ops:
                self.group_of[op] = target
            target.ops.extend(group.ops)
            target.inputs.update(group.inputs)
            target.stops.extend(group.stops)
            for producer in group.producers:
                del producer.consumers[group]
                producer.consumers[target] = None
                target.producers[producer] = None
            for consumer in group.consumers:
                del consumer.producers[group]
                consumer.producers[target] = None
                target.consumers[consumer] = None
        target.outputs = outputs
        for value in made:
            target.inputs.pop(value, None)
        for group in members:
            target.producers.pop(group, None)
            target.consumers.pop(group, None)
        target.ops.sort(key=self.position.__getitem__)
        target.kind = max(group.kind for group in members)
        target.products = None
        target.moves_nothing = False if any(group.moves_nothing is False for group in members) else None
        target.count = sum(group.count for group in members)
        target.fuse_group = next((g.fuse_group for g in members if g.fuse_group is not None), None)
        first, *others = (group.recomputed for group in members)
        target.recomputed = first if all(each == first for each in others) else None
        target.rank, target.merged = rank, True
        self.changed = True
        for listener in self.listeners:
            listener(target, members)
