"""Questions that several fusion rules ask about groups: sizes, work, and who else reads a value."""

from __future__ import annotations

from math import prod

from ..dialects import scalar as sc
from ..dialects.graph_op import GraphOp, StructuredOp, shape
from ..dialects.pull import member_ops
from .fusion import Group, GroupGraph, Refusal
from .fusion_groups import space

CHEAP_WORK = 4
"""Simple operations an element may cost and still be computed again rather than stored."""


def elements(group: Group) -> int:
    """Elements of the group's results."""
    return prod(space(group))


def work(op: GraphOp) -> int:
    """Simple operations for one element of the result."""
    return sc.cost(op.body()) if isinstance(op, StructuredOp) and op.stored_value() is None else 0


def total_work(group: Group) -> int:
    return sum(work(op) for op in member_ops(group.ops))


def is_internal(graph: GroupGraph, producer: Group, consumer: Group) -> bool:
    """Whether nobody but the consumer reads the values that it takes from the producer."""
    if len(producer.consumers) == 1:
        return True
    for op in producer.ops:
        for value in op.results:
            readers = {graph.group_of.get(graph.top(use.operation)) for use in value.uses} - {producer}
            if consumer in readers and len(readers) > 1:
                return False
    return True


def refuse_recompute(producer: Group, consumer: Group) -> Refusal | None:
    """Refuses to compute dear values once for every place that they are broadcast to."""
    before, after = elements(producer), elements(consumer)
    cost = total_work(producer)
    if after <= before or cost <= CHEAP_WORK:
        return None
    message = f"{cost} operations would run {after} times instead of {before}; cheaper stored and read again"
    return Refusal("recompute", message, {"work": cost, "times": after, "instead_of": before})


def refuse_results(graph: GroupGraph, members: list[Group]) -> Refusal | None:
    """Refuses results of unequal sizes, which one loop cannot store."""
    sizes = sorted({prod(shape(value)) for value in graph.results(members)})
    if len(sizes) < 2:
        return None
    return Refusal("unequal-results", f"results of {', '.join(map(str, sizes))} elements would share one loop")


def uses_by(graph: GroupGraph, producer: Group, readers: list[Group]) -> int:
    """How many operands of the readers' ops are results of the producer."""
    return sum(
        1
        for op in producer.ops
        for result in op.results
        for use in result.uses
        if graph.group_of.get(graph.top(use.operation)) in readers
    )
