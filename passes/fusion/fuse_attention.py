"""Fuse two products and the rows between them: attention as one kernel, with the views around it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.bare_ops import bare_source, is_creation
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.switch import allowed_composites
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.passes.fusion.engine.cost_model import moves_nothing
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.rule_checks import is_internal
from fuse_opt.passes.fusion.engine.traced_groups import TracedGroups
from fuse_opt.passes.fusion.engine.worklist import FusionPass

FURTHEST = 64
"""Groups looked at between two products."""


@dataclass
class AttentionRule:
    """Two products with what is on the way from one to the other; then views, one at a time, that touch such a kernel."""

    answers: dict[tuple[Group, int, Group, int], Refusal] = field(
        default_factory=dict[tuple[Group, int, Group, int], Refusal]
    )
    traced: TracedGroups = field(default_factory=TracedGroups)

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        members = self._members(graph, producer, consumer)
        if members is None:
            return None
        key = (producer, producer.count, consumer, consumer.count)
        if key in self.answers:
            return self.answers[key]
        refusal = graph.refuse(members) or refuse_kernel(graph, members, self.traced)
        if refusal is None:
            return members
        self.answers[key] = refusal
        return refusal

    def _members(self, graph: GroupGraph, producer: Group, consumer: Group) -> list[Group] | None:
        """The groups that would be one kernel; None where the pair is no part of attention."""
        counts = [products_in(group) for group in (producer, consumer)]
        if counts == [2, 0]:
            if consumer.kind > FusionKind.INJECTIVE or is_alias_of_result(graph, producer, consumer):
                return None
            return [producer, consumer]
        if counts == [0, 2]:
            return [producer, consumer] if is_view(producer) else None
        return _between(graph, producer, consumer) if counts == [0, 1] else None


def is_alias_of_result(graph: GroupGraph, producer: Group, consumer: Group) -> bool:
    """Whether a reader is another view of what is stored for others anyway."""
    return moves_nothing(consumer) and not is_internal(graph, producer, consumer)


def is_view(group: Group) -> bool:
    """Whether there are but views, and conversions to wider floats."""
    return all(isinstance(op, StructuredOp) and (op.is_view() or op.widens()) for op in member_ops(group.ops))


def products_in(group: Group) -> int:
    """How many products there are among the ops; many where one of them is another opaque op."""
    if group.kind < FusionKind.OPAQUE:
        return 0
    if group.products is None:
        found = [op for op in member_ops(group.ops) if isinstance(op, OpaqueOp)]
        is_known = found and all(op.contraction() is not None for op in found)
        group.products = len(found) if is_known else FURTHEST
    return group.products


def _between(graph: GroupGraph, last: Group, second: Group) -> list[Group] | None:
    """The second product with all on the way to its left operand, by way of a group, from the product before it."""
    op = next(op for op in member_ops(second.ops) if isinstance(op, OpaqueOp))
    source = bare_source(op.operands[0])
    if not isinstance(source, OpResult) or graph.group_of.get(graph.top(source.op)) is not last:
        return None
    seen: dict[Group, None] = {}
    first: dict[Group, None] = {}
    reduces = False
    stack = [last]
    while stack:
        group = stack.pop()
        if group in seen or group in first:
            continue
        if (count := products_in(group)) == 0 and group.kind <= FusionKind.REDUCTION and len(seen) < FURTHEST:
            seen[group] = None
            reduces = reduces or group.kind == FusionKind.REDUCTION
            stack.extend(group.producers)
        elif count == 1:
            first[group] = None
    if len(first) != 1 or not reduces:
        return None
    (start,) = first
    members = {start: None, second: None, **dict.fromkeys(on_the_way((start,), seen))}
    return [*members, *made_inside(graph, start, seen, members)]


def on_the_way(start: Collection[Group], near: dict[Group, None]) -> list[Group]:
    """Those of the groups that need what the first ones make."""
    found = dict.fromkeys(start)
    for group in sorted(near, key=lambda group: group.rank):
        if not found.keys().isdisjoint(group.producers):
            found[group] = None
    return [group for group in found if group not in start]


def made_inside(graph: GroupGraph, start: Group, near: dict[Group, None], members: dict[Group, None]) -> list[Group]:
    """
    Those of the groups that only the members read and that take less memory to make than to read: those made from positions
    alone, as a causal mask is, and what is as large as the scores but for what it is made from, as random numbers are.
    """
    scores = max(map(graph.size, start.outputs))
    inside, found = set(members), list[Group]()
    for group in sorted(near, key=lambda group: -group.rank):
        if group in inside or not group.consumers.keys() <= inside:
            continue
        read = _read_bytes(graph, group, near)
        is_large = scores == min(map(graph.size, group.outputs), default=0)
        if read == 0 or (read is not None and is_large and read < sum(map(graph.nbytes, group.outputs))):
            inside.add(group)
            found.append(group)
    return found


def _read_bytes(graph: GroupGraph, group: Group, near: dict[Group, None]) -> int | None:
    """Bytes of the values that are not computed nearby and that a group is made from; None where a row is reduced for it."""
    read: dict[SSAValue, None] = {}
    stack, seen = [group], set[Group]()
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        if one.kind > FusionKind.INJECTIVE:
            return None
        made = {value for producer in one.producers if producer in near for value in producer.outputs}
        read.update((value, None) for value in one.inputs if value not in made and _is_read(value.owner))
        stack.extend(producer for producer in one.producers if producer in near)
    return sum(max(graph.nbytes(value), 1) for value in read)


def _is_read(owner: object) -> bool:
    return not (isinstance(owner, Operation) and is_creation(owner))


def refuse_kernel(graph: GroupGraph, members: Sequence[Group], traced: TracedGroups) -> Refusal | None:
    """Why no code is generated for the members as one kernel."""
    ops = dict.fromkeys(op for group in members for op in group.ops)
    marked = next((op for op in (*ops, *member_ops(ops)) if "must_inplace" in op.attributes), None)
    if marked is not None:
        message = f"'{marked.name}' carries must_inplace, and nothing is written in place with other ops"
        return Refusal("must-inplace", message, flip="remove must_inplace")
    refusal: Refusal | None = None
    for offer in composite_offers(next(iter(ops))):
        assert offer.trace is not None
        found = traced.refuse(offer.trace, graph.results(members), ops)
        if found is None:
            return None
        refusal = refusal or found
    return refusal


def composite_offers(op: Operation) -> list[Offer]:
    """What runs several opaque ops at once on the machine that the module is made for, by backends that it allows."""
    return [offer for offer in allowed_composites(op) if offer.trace]


@dataclass(frozen=True)
class FuseAttentionPass(FusionPass):
    """Two products, and what makes rows of the first one the left operand of the second, become one kernel.

    ```mlir
    %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<8x64x32xf32>, tensor<8x64x32xf32>) -> tensor<8x64x64xf32>
    %p = graph.softmax %s {axis = -1 : i64} : (tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
    %o = graph.matmul %p, %v : (tensor<8x64x64xf32>, tensor<8x64x32xf32>) -> tensor<8x64x32xf32>
    ```
    becomes one `fused.kernel` (softmax is decomposed before), whose rows of scores are never in memory. What is between the
    products may be anything that goes over these rows: scales, masks, biases by position, softmax or another norm. Views in
    front of an operand, as of heads that are parts of one tensor, and behind the result are read and stored by strides.

    Few queries, as of a token that is decoded, meet keys and values where these lie, if elements of each lie side by side.

    Refused: other types than f32 and f64, few queries of others, keys and values that do not lie in a cache, a result of the
    first product that is read elsewhere but as rows; on a GPU also what is no softmax, whose weights go key by key. Nothing is
    fused for a platform on which nothing runs several opaque ops at once. Requires: nothing. Ensures: as every fusion.
    """

    name = "fuse-attention"

    def rule(self) -> Rule:
        return AttentionRule()

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if composite_offers(op):
            super().rewrite(ctx, op)
