"""Fuse small kernels that do not depend on each other into one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.kernel_access import kernel_access
from fuse_opt.dialects.analysis.loop_body import Unschedulable, member_ops, trace
from fuse_opt.dialects.analysis.storage import aliased_operand, byte_size, directed_results
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import is_static, shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.passes.fusion.engine.cost_model import moves_nothing
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.worklist import FusionPass, Selection
from fuse_opt.passes.options import tunable

OPEN_BINS = 64
"""Kernels of one level that are filled at a time."""


@dataclass
class _Bin:
    """Groups that are to be one kernel."""

    groups: list[Group] = field(default_factory=list[Group])
    ops: int = 0
    results: int = 0
    operands: set[SSAValue] = field(default_factory=set[SSAValue])

    def has_room(self, graph: GroupGraph, ops: int, operands: int, results: int) -> bool:
        limits = graph.limits
        operands, results = len(self.operands) + operands, self.results + results
        return (
            self.ops + ops <= limits.max_ops
            and operands <= limits.max_operands
            and results <= limits.max_results
            and 8 * (operands + results) <= graph.device.parameter_bytes
        )

    def takes(self, graph: GroupGraph, group: Group) -> bool:
        new = sum(value not in self.operands for value in group.inputs)
        return self.has_room(graph, group.count, new, len(group.outputs))

    def add(self, group: Group) -> None:
        self.groups.append(group)
        self.ops += group.count
        self.results += len(group.outputs)
        self.operands.update(group.inputs)


@dataclass
class HorizontalRule:
    """
    Groups of one level of the graph do not depend on each other, and contracting some of them changes no level. So each
    level is packed by itself, first fit in canonical order, and the packed program packs no further.
    """

    max_elements: int
    selection: Selection = field(default_factory=Selection)
    graph: GroupGraph | None = None
    chosen: dict[Group, list[Group]] = field(default_factory=dict[Group, list[Group]])
    """By group: all that are to be in one kernel with it."""
    overwritten: dict[SSAValue, Group] = field(default_factory=dict[SSAValue, Group])
    """By memory that a person wants taken over: the group that has to."""
    refused: dict[Group, tuple[Group, Refusal]] = field(default_factory=dict[Group, tuple[Group, Refusal]])
    """By group that is left out: one that it might have been packed with, and why not."""

    def partners(self, graph: GroupGraph, group: Group) -> Iterable[Group]:
        """The first group that it is to be packed with, or one that it must not be."""
        if graph is not self.graph:
            self._plan(graph)
        if (together := self.chosen.get(group)) is not None and together[0] is not group:
            return (together[0],)
        return () if group not in self.refused else (self.refused[group][0],)

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        if consumer in self.refused:
            return self.refused[consumer][1]
        members = self.chosen[consumer]
        if (refusal := graph.refuse(members)) is not None:
            for fitting in _fitted(graph, members):
                self.chosen.update(dict.fromkeys(fitting, fitting))
            members = self.chosen[consumer]
            if members[0] is consumer:
                return refusal
        for group in members:
            del self.chosen[group]
        return members

    def _plan(self, graph: GroupGraph) -> None:
        self.graph = graph
        self.chosen, self.refused = {}, {}
        self.overwritten = {memory: group for group in graph.groups() for memory in _overwritten(group)}
        levels = _levels(graph)
        if not graph.guards:
            _rank_by_level(levels)
        by_level: dict[int, list[Group]] = {}
        needed = _needed(graph)
        for group in (group for group in graph.groups() if group in needed):
            by_level.setdefault(levels[group], []).append(group)
        for groups in by_level.values():
            self._plan_level(graph, groups)

    def _plan_level(self, graph: GroupGraph, groups: list[Group]) -> None:
        offered: list[Group] = []
        left: dict[Group, Refusal] = {}
        for group in groups:
            if _is_generated(group) and self.selection.refuse([group]) is None:
                if (refusal := self._refuse(group)) is None:
                    offered.append(group)
                else:
                    left[group] = refusal
        if len(offered) > 1:  # else there is nothing to pack it with, and nothing to analyse
            for group in offered:
                if (refusal := _refuse_scheme(group)) is not None:
                    left[group] = refusal
            offered = [group for group in offered if group not in left]
        for together in _packed(graph, offered):
            if len(together) > 1:
                self.chosen.update(dict.fromkeys(together, together))
        if offered:
            self.refused.update((group, (offered[0], refusal)) for group, refusal in left.items())

    def _refuse(self, group: Group) -> Refusal | None:
        """Why a group of generated code is not to be packed, as far as that is plain to see."""
        if group.no_fuse:
            return Refusal("no-fuse", f"'{group.first.name}' carries the directive no_fuse", flip="remove no_fuse")
        if group.fuse_group is not None:
            message = f"'{group.first.name}' is in the fuse_group \"{group.fuse_group}\", and that is one kernel"
            return Refusal("fuse-group", message, flip="remove fuse_group")
        for value in group.inputs:
            owner = self.overwritten.get(_memory(value), group)
            if owner is not group:
                message = f"it reads what '{owner.first.name}' must take over, and might come after it"
                return Refusal("must-inplace", message, flip="remove must_inplace")
        if (elements := _elements(group)) > self.max_elements:
            message = f"{elements} elements are work enough for a launch; at most {self.max_elements} are packed"
            numbers: dict[str, float] = {"elements": elements, "limit": self.max_elements}
            return Refusal("large", message, numbers, f"max-elements={elements}")
        return None


def _needed(graph: GroupGraph) -> set[Group]:
    """The groups that a result of the program depends on. The others, which dce takes away, have no canonical order."""
    waiting = [group for group in graph.groups() if not isinstance(group.first, GraphOp | KernelOp)]
    needed = set(waiting)
    while waiting:
        fresh = [producer for producer in waiting.pop().producers if producer not in needed]
        needed.update(fresh)
        waiting += fresh
    return needed


def _levels(graph: GroupGraph) -> dict[Group, int]:
    """The most kernels on a path to each group, itself included; views that move nothing are none."""
    levels: dict[Group, int] = {}
    for group in sorted(graph.groups(), key=lambda group: group.rank):
        before = max((levels[producer] for producer in group.producers), default=0)
        levels[group] = before + (not moves_nothing(group))
    return levels


def _rank_by_level(levels: dict[Group, int]) -> None:
    """Another topological order, in which groups of one level are neighbours: that they make no cycle is seen at once."""
    ranks = sorted(group.rank for group in levels)
    for group, rank in zip(sorted(levels, key=lambda group: (levels[group], group.rank)), ranks, strict=True):
        group.rank = rank


def _packed(graph: GroupGraph, groups: Sequence[Group]) -> Iterator[list[Group]]:
    """The groups of one level by kernel: each goes into the first that has room."""
    bins: list[_Bin] = []
    for group, least in zip(groups, _least_left(groups), strict=True):
        place = next((place for place in bins if place.takes(graph, group)), None)
        if place is None:
            place = _Bin()
            bins.append(place)
        place.add(group)
        if not place.has_room(graph, *least) or len(bins) > OPEN_BINS:
            full = place if len(bins) <= OPEN_BINS else bins[0]
            bins.remove(full)
            yield full.groups
    yield from (place.groups for place in bins)


def _fitted(graph: GroupGraph, groups: Sequence[Group]) -> list[list[Group]]:
    """The groups by kernel where a limit holds that was not foreseen: each goes into the first that the graph allows."""
    bins: list[list[Group]] = []
    for group in groups:
        place = next((place for place in bins if graph.refuse([*place, group]) is None), None)
        if place is None:
            bins.append([group])
        else:
            place.append(group)
    return bins


def _least_left(groups: Sequence[Group]) -> list[tuple[int, int, int]]:
    """After each group the fewest ops, operands of its own and results that a later one has."""
    readers = Counter(value for group in groups for value in group.inputs)
    least: list[tuple[int, int, int]] = []
    ops = operands = results = 1 << 30
    for group in reversed(groups):
        least.append((ops, operands, results))
        ops, results = min(ops, group.count), min(results, len(group.outputs))
        operands = min(operands, sum(readers[value] == 1 for value in group.inputs))
    return least[::-1]


def _is_generated(group: Group) -> bool:
    """Whether code is generated for the group, and a launch is needed."""
    if group.kind > FusionKind.REDUCTION or moves_nothing(group):
        return False
    if any(isinstance(op, KernelOp) and op.implementation is not None for op in group.ops):
        return False
    ops = member_ops(group.ops)
    return all(is_static(value) for op in ops for value in (*op.operands, *op.results))


def _elements(group: Group) -> int:
    """The most elements that an op of the group computes or reduces."""
    return max(_space(op) for op in member_ops(group.ops) if isinstance(op, StructuredOp))


def _space(op: StructuredOp) -> int:
    return prod(shape(op.results[0])) * (prod(op.reduced_extents()) if op.COMBINE else 1)


def _refuse_scheme(group: Group) -> Refusal | None:
    """Why no loops can be generated for the group: it would run op by op, and all that it is packed with."""
    code, message = "", ""
    if len(group.ops) == 1 and isinstance(kernel := group.first, KernelOp):
        access = kernel_access(kernel, scheduled=False)
        code, message = access.code, f"it {access.message}"
        if access.scheme is not None:
            return None
    else:
        try:
            trace(group.outputs, dict.fromkeys(group.ops))
            return None
        except Unschedulable as reason:
            code, message = reason.code, str(reason)
        except VerifyException as error:
            code, message = "no-scalar", str(error)
    return Refusal(code, f"no loops can be generated for it: {message}")


def _overwritten(group: Group) -> list[SSAValue]:
    """The memory that results of the group may have to take over, because a person asked for it."""
    directed = [op.results[number] for op in group.ops for number in directed_results(op, "must_inplace")]
    sizes = {byte_size(value) for value in directed}
    return [_memory(value) for value in group.inputs if sizes and byte_size(value) in sizes]


def _memory(value: SSAValue) -> SSAValue:
    """The value whose memory it is, seen through views."""
    while isinstance(value, OpResult) and (source := aliased_operand(value.op)) is not None:
        value = source
    return value


@dataclass(frozen=True)
class FuseHorizontalPass(FusionPass):
    """Small kernels that do not depend on each other become one kernel of several parts, which is one launch.

    ```mlir
    %a = graph.exp %x : (tensor<900xf32>) -> tensor<900xf32>
    %b = graph.softmax %y : (tensor<4x100xf32>) -> tensor<4x100xf32>
    ```
    becomes, `%b` being a kernel by then, one kernel that yields both; `schedule-kernels` gives it the kind `pack`.

    Works where a launch costs more than the work; run it when all other fusion is done. Kernels that a library runs, views
    and kernels of no single pass stay apart.

    Ensures: the contracted graph is acyclic; limits and directives hold. Needs nothing; existing kernels may grow.
    """

    name = "fuse-horizontal"

    max_ops: int = 1024
    """Graph ops in one kernel."""
    max_operands: int = 256
    """Operands of one kernel."""
    max_results: int = 128
    """Results of one kernel."""
    max_elements: int = field(default=8192, metadata=tunable(1024, 65536))
    """Elements that the largest op of a kernel may compute or reduce for the kernel to be packed with others."""

    def rule(self) -> Rule:
        return HorizontalRule(self.max_elements, Selection(self.only, self.except_))
