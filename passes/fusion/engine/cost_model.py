"""What a fusion saves and costs on a device: bytes that stay out of memory, launches, work done again, all in seconds.

    seconds = launches saved + bytes saved / bandwidth - work added / rate

It is a model of differences: what both ways have in common is left out. Bytes are those of whole tensors: a value that
becomes internal saves its store and each load, a value that several members read saves all loads but one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types import extents
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph

_VECTOR_BYTES = 16
"""That a thread of a GPU moves at a time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What merging some groups changes; positive `seconds` are saved."""

    bytes_saved: int
    """That are neither stored nor loaded any more."""
    work_added: int
    """Simple operations that are done again."""
    launches_saved: int
    seconds: float

    def numbers(self) -> dict[str, float]:
        """For remarks: bytes, and time in microseconds."""
        found: dict[str, float] = {"bytes_saved": self.bytes_saved, "time_saved_us": round(self.seconds * 1e6, 3)}
        if self.work_added:
            found["work_added"] = self.work_added
        return found


def estimate(graph: GroupGraph, members: Sequence[Group], work_added: int | None = None) -> Estimate:
    """The difference between the members apart and as one kernel; `work_added` where the caller knows better."""
    saved, seconds = 0, 0.0
    for nbytes, times in _crossings(graph, members):
        saved += nbytes * times
        seconds += graph.device.move_seconds(nbytes) * times
    launches = max(sum(not moves_nothing(group) for group in members) - 1, 0)
    added = recomputed_work(graph, members) if work_added is None else work_added
    seconds += launches * graph.device.launch - graph.device.work_seconds(added)
    return Estimate(saved, added, launches, seconds)


def _crossings(graph: GroupGraph, members: Sequence[Group]) -> list[tuple[int, int]]:
    """Values between or before the members: their bytes, and how often these are moved less when they are one."""
    readers: dict[SSAValue, int] = {}
    for group in members:
        for value in group.inputs:
            readers[value] = readers.get(value, 0) + 1
    inside = set(members)
    found: list[tuple[int, int]] = []
    for value, count in readers.items():
        made_inside = isinstance(value, OpResult) and graph.group_of.get(value.op) in inside
        if made_inside:
            assert isinstance(value, OpResult)
            found.append((graph.nbytes(value), count + (not graph.is_read(value, inside))))
        elif count > 1:
            found.append((graph.nbytes(value), count - 1))
    return found


def recomputed_work(graph: GroupGraph, members: Sequence[Group]) -> int:
    """Simple operations that a pointwise kernel of the members does more than they do apart; a row kernel does none."""
    if any(group.kind >= FusionKind.REDUCTION for group in members):
        return 0
    after = max(elements(graph, group) for group in members)
    return sum(
        total_work(group) * max(evaluations(graph, group, members) - elements(graph, group), 0)
        for group in members
        if elements(graph, group) < after
    )


def evaluations(graph: GroupGraph, producer: Group, members: Sequence[Group]) -> int:
    """
    How often a smaller producer's values are computed inside a pointwise kernel of the members: not for every element, but
    once for each run of elements in which they are the same, of those that a thread takes where the device does not hoist.
    """
    after = max(elements(graph, group) for group in members)
    if not graph.device.hoists:
        return after // _vectors_with_one(graph, producer, members, after)
    repeated = after
    for value in producer.outputs:
        for use in value.uses:
            if isinstance(use.operation, GraphOp) and graph.group_of.get(graph.top(use.operation)) in members:
                repeated = min(repeated, _same_run(shape(value), shape(use.operation.results[0])))
    return after // max(repeated, 1)


def _vectors_with_one(graph: GroupGraph, producer: Group, members: Sequence[Group], after: int) -> int:
    """How many elements of a thread have the same of the producer's values: all of its vector, or one."""
    width = _VECTOR_BYTES // max(dtype(value).itemsize for value in producer.outputs)
    runs = [run for value in producer.outputs for run in _runs(graph, value, members)]
    return gcd(min(runs, default=after), width)


def _runs(graph: GroupGraph, value: SSAValue, members: Sequence[Group]) -> Iterator[int]:
    """The runs of elements that get the same element of a value wherever the members broadcast it, or what they make of it."""
    waiting, seen = [value], {value}
    while waiting:
        small = waiting.pop()
        for use in small.uses:
            op = use.operation
            if graph.group_of.get(graph.top(op)) not in members:
                continue
            if isinstance(op, KernelOp):
                further = op.block.args[use.index]
            elif isinstance(op, GraphOp):
                further = op.results[0]
                if extents.estimate(graph.size(further)) > extents.estimate(graph.size(value)):
                    yield _same_run(shape(small), shape(further))
                    continue
            else:
                continue
            if further not in seen:
                seen.add(further)
                waiting.append(further)


def _same_run(small: Sequence[int], large: Sequence[int]) -> int:
    """How many neighbouring elements of `large` get the same element of `small` by broadcasting."""
    run = 1
    for back in range(1, len(large) + 1):
        if back <= len(small) and small[-back] != 1:
            break
        run *= extents.estimate(large[-back])
    return run


def elements(graph: GroupGraph, group: Group) -> int:
    """Elements of the group's last result, those of every result in a pointwise group; of sizes about so many."""
    return extents.estimate(graph.size(group.outputs[-1]))


def work(op: GraphOp) -> int:
    """Simple operations for one element of the result."""
    return sc.cost(op.body()) if isinstance(op, StructuredOp) and op.stored_value() is None else 0


def total_work(group: Group) -> int:
    """Simple operations for one element of each result of the group's ops."""
    return sum(work(op) for op in member_ops(group.ops))


def moves_nothing(group: Group) -> bool:
    """Whether all its ops are aliases, those of kernels too: no kernel is needed for them."""
    if group.moves_nothing is None:
        group.moves_nothing = all(
            all(map(_is_alias, op.ops())) if isinstance(op, KernelOp) else _is_alias(op) for op in group.ops
        )
    return group.moves_nothing


def _is_alias(op: Operation) -> bool:
    return isinstance(op, StructuredOp) and op.is_alias()
