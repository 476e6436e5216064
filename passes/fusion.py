"""The one mechanism of fusion: groups of ops, what may be merged without a cycle, and how a group becomes a kernel.

A rule says *when* two groups should be one (`Rule.consider`); this module keeps every group of a block at once, in a
graph whose contraction stays acyclic, and rewrites the block at the end. Merging is checked within a window of a
maintained topological order (Pearce & Kelly 2006), so the common cases cost nothing and none is quadratic in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue

from ..dialects.fused import KernelOp
from ..dialects.graph_op import FusionKind, GraphOp, OpaqueOp, StructuredOp, shape
from ..dialects.pull import member_ops

SEARCH_LIMIT = 4096
"""Groups visited to prove that a merge makes no cycle; beyond it the merge is refused, not the program."""


@dataclass(eq=False)
class Group:
    """Ops that are, or become, one kernel; `rank` orders groups topologically."""

    ops: list[Operation]
    rank: int
    kind: FusionKind
    count: int
    fuse_group: str | None
    no_fuse: bool
    inputs: dict[SSAValue, None]
    outputs: list[OpResult]
    producers: dict[Group, None] = field(default_factory=dict["Group", None])
    consumers: dict[Group, None] = field(default_factory=dict["Group", None])
    merged: bool = False

    @property
    def first(self) -> Operation:
        return self.ops[0]


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


class Rule(Protocol):
    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        """The groups to merge into one, a reason not to, or None when the pair is not this rule's business."""
        ...


class GroupGraph:
    """The groups of a block; merging keeps the graph between them acyclic."""

    def __init__(self, block: Block, limits: Limits) -> None:
        self.block = block
        self.limits = limits
        self.changed = False
        self.group_of: dict[Operation, Group] = {}
        self.position: dict[Operation, int] = {}
        for position, op in enumerate(block.ops):
            self.position[op] = position
            if not is_creation(op):
                self.group_of[op] = _single(op, position)
        for op, group in self.group_of.items():
            for value in used_values(op):
                if (producer := self._group_of_value(value)) is not None:
                    group.producers[producer] = None
                    producer.consumers[group] = None

    def _group_of_value(self, value: SSAValue) -> Group | None:
        return self.group_of.get(value.op) if isinstance(value, OpResult) else None

    def groups(self) -> list[Group]:
        """Every group once, in the order of its first op."""
        return list(dict.fromkeys(self.group_of.values()))

    def results(self, members: Sequence[Group]) -> list[OpResult]:
        """The values that ops outside the members use, in order of definition."""
        inside = set(members)
        values = [value for group in members for value in group.outputs if self._is_read(value, inside)]
        return sorted(values, key=lambda value: (self.position[value.op], value.index))

    def _is_read(self, value: OpResult, inside: set[Group]) -> bool:
        """Whether an op outside the groups uses the value, or a person asked to keep it."""
        if "keep_live" in value.op.attributes:
            return True
        return any(self.group_of.get(self.top(use.operation)) not in inside for use in value.uses)

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
        for group in members:
            if group.no_fuse:
                return Refusal("no-fuse", f"'{group.first.name}' carries the directive no_fuse")
        names = {group.fuse_group for group in members if group.fuse_group is not None}
        if len(names) > 1:
            return Refusal("fuse-group", f"different groups were asked for: {', '.join(sorted(names))}")
        count = sum(group.count for group in members)
        if count > self.limits.max_ops:
            return Refusal("max-ops", f"{count} ops exceed the limit of {self.limits.max_ops}", {"ops": count})
        inside = set(members)
        outside = {v for group in members for v in group.inputs if self._group_of_value(v) not in inside}
        operands = len(outside)
        if operands > self.limits.max_operands:
            message = f"{operands} operands exceed the limit of {self.limits.max_operands}"
            return Refusal("max-operands", message, {"operands": operands})
        return None

    def merge(self, members: Sequence[Group]) -> Refusal | None:
        """Makes the members one group when that leaves the graph acyclic; otherwise says why not."""
        members = list(dict.fromkeys(members))
        after = self._after(members)
        if isinstance(after, Refusal):
            return after
        low, high = min(g.rank for g in members), max(g.rank for g in members)
        if not after:
            # Nothing in the window depends on the members: all of them can move to the last one's place.
            self._join(members, high)
            return None
        inside = set(members)
        before = self._ancestors(members, low, inside)
        ranks = sorted(group.rank for group in (*before, *members, *after))
        for group, rank in zip(before, ranks, strict=False):
            group.rank = rank
        for group, rank in zip(reversed(after), reversed(ranks), strict=False):
            group.rank = rank
        self._join(members, ranks[len(before)])
        return None

    def refuse(self, members: Sequence[Group]) -> Refusal | None:
        """What `merge` would answer, without merging."""
        after = self._after(list(dict.fromkeys(members)))
        return after if isinstance(after, Refusal) else None

    def _after(self, members: list[Group]) -> list[Group] | Refusal:
        """The groups between the members that depend on them, in order; or why the members cannot be one group."""
        if (refusal := self.refuse_by_limits(members)) is not None:
            return refusal
        if len(results := self.results(members)) > self.limits.max_results:
            message = f"{len(results)} results exceed the limit of {self.limits.max_results}"
            return Refusal("max-results", message, {"results": len(results)})
        return self._descendants(members, max(group.rank for group in members), set(members))

    def _descendants(self, members: list[Group], high: int, inside: set[Group]) -> list[Group] | Refusal:
        seen: set[Group] = set()
        stack = [g for m in members for g in m.consumers if g not in inside and g.rank < high]
        while stack:
            group = stack.pop()
            if group in seen:
                continue
            seen.add(group)
            if len(seen) > SEARCH_LIMIT:
                return Refusal(
                    "search-limit", f"more than {SEARCH_LIMIT} groups lie between; a cycle was not ruled out"
                )
            for consumer in group.consumers:
                if consumer in inside:
                    name = group.first.name
                    return Refusal("cycle", f"'{name}' outside the group depends on it and feeds it: a cycle")
                if consumer.rank < high:
                    stack.append(consumer)
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
            for producer in group.producers:
                del producer.consumers[group]
                producer.consumers[target] = None
                target.producers[producer] = None
            for consumer in group.consumers:
                del consumer.producers[group]
                consumer.producers[target] = None
                target.consumers[consumer] = None
        known = sorted(target.outputs, key=lambda value: (self.position[value.op], value.index))
        target.outputs = [value for value in known if self._is_read(value, {target})] or known[-1:]
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


def _single(op: Operation, position: int) -> Group:
    ops = member_ops([op])
    read = [result for result in op.results if result.uses]
    # What nobody reads is left for dce: a kernel would hold it without a result to store.
    fusable = bool(ops) and bool(read) and isinstance(op, GraphOp | KernelOp)
    kind = max((kind_of(inner) for inner in ops), default=FusionKind.OPAQUE) if fusable else FusionKind.OPAQUE
    names = [inner.attributes.get("fuse_group") for inner in (op, *ops)]
    name = next((value.data for value in names if isinstance(value, StringAttr)), None)
    no_fuse = any("no_fuse" in inner.attributes for inner in (op, *ops))
    inputs = dict.fromkeys(value for value in op.operands if not is_creation(value.owner))
    return Group([op], position, kind, max(len(ops), 1), name, no_fuse, inputs, read or list(op.results))


def kind_of(op: GraphOp) -> FusionKind:
    """An op's fusion kind; opaque when it has no scalar meaning."""
    return op.fusion_kind() if isinstance(op, StructuredOp) else FusionKind.OPAQUE


def is_creation(op: Operation | Block) -> bool:
    """Whether an op gives one number everywhere, from nothing, so that every kernel may have its own copy."""
    if not isinstance(op, StructuredOp) or op.operands or op.stored_value() is not None:
        return False
    return op.body().function == "constant"


def used_values(op: Operation) -> Iterable[SSAValue]:
    """The values that an op or the ops nested in it use."""
    if not op.regions or isinstance(op, KernelOp):
        return op.operands
    return [value for inner in op.walk() for value in inner.operands]


def is_library(group: Group) -> bool:
    """Whether the group holds an op that only an implementation can run."""
    return any(isinstance(op, OpaqueOp) for op in member_ops(group.ops))


def space(group: Group) -> tuple[int, ...]:
    """The shape of the group's last result: that of every result, in a pointwise group."""
    return shape(group.outputs[-1])
