"""Fuse views (slices, transposes, reshapes, concats) with the elementwise ops around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects.graph_op import FusionKind, StructuredOp
from ..dialects.pull import Unschedulable, member_ops, pull
from .cost_model import elements, moves_nothing, total_work
from .fusion import Group, GroupGraph, Refusal, Rule
from .fusion_pass import FusionPass
from .fusion_rules import is_internal, refuse_multi_use, refuse_recompute, refuse_results, uses_by


class InjectiveRule:
    """One side moves elements. The producer joins its only reader, or all of its readers at once."""

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        kinds = (producer.kind, consumer.kind)
        if FusionKind.INJECTIVE not in kinds or max(kinds) > FusionKind.INJECTIVE:
            return None
        members = [producer, consumer]
        if consumer.kind <= FusionKind.BROADCAST and elements(producer) == elements(consumer):
            return refuse_results(graph, members) or members
        if is_internal(graph, producer, consumer):
            return (
                refuse_recompute(graph, producer, consumer)
                or refuse_results(graph, members)
                or _refuse_copies(graph, members)
                or members
            )
        if moves_nothing(consumer):
            message = "a view that keeps every element in its place costs nothing outside"
            return Refusal("alias", message, flip="nothing to gain")
        members = [producer, *producer.consumers]
        if any(group.kind > FusionKind.INJECTIVE for group in members):
            return refuse_multi_use()
        return refuse_results(graph, members) or _refuse_copies(graph, members) or members


def _refuse_copies(graph: GroupGraph, members: list[Group]) -> Refusal | None:
    """Refuses when reading a value at several indices would repeat too much of its computation."""
    producer, readers = members[0], members[1:]
    if uses_by(graph, producer, readers) <= len(readers) or not total_work(producer):
        return None
    ops = dict.fromkeys(op for group in members for op in group.ops)
    try:
        pulled = pull(graph.results(members), ops)
    except Unschedulable as reason:
        return Refusal(reason.code, str(reason))
    arithmetic = sum(1 for op in member_ops(ops) if isinstance(op, StructuredOp) and not op.is_view())
    repeated = sum(1 for point in pulled.points if point.op is not None and not point.op.is_view())
    if repeated > 2 * arithmetic:
        message = f"{arithmetic} ops would be computed at {repeated} places"
        return Refusal("recompute", message, {"places": repeated}, f"at most {2 * arithmetic} places")
    return None


@dataclass(frozen=True)
class FuseInjectivePass(FusionPass):
    """A view becomes an index expression of the kernel that reads or makes its operand.

    ```mlir
    %0 = graph.add %x, %b : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
    ```
    becomes one kernel that reads `%x` transposed. A value that all readers slice is computed slice by slice in one
    kernel with several results.

    Ensures: the contracted graph is acyclic; limits and directives hold. Needs nothing; existing kernels may grow.
    """

    name = "fuse-injective"

    def rule(self) -> Rule:
        return InjectiveRule()
