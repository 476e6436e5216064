"""Fuse the products of the backward pass of attention and what is between them into one kernel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.traced_groups import TracedGroups
from fuse_opt.passes.fusion.engine.worklist import FusionPass
from fuse_opt.passes.fusion.fuse_attention import (
    FURTHEST,
    composite_offers,
    is_alias_of_result,
    is_view,
    made_inside,
    on_the_way,
    products_in,
    refuse_kernel,
)

FEWEST = 3
"""Products of a kernel; two are attention."""
NEAR = 4 * FURTHEST
"""Groups looked at before products; random numbers may be made by many."""


@dataclass
class AttentionGradientRule:
    """Products with what goes element by element from their results to other products; then views that touch such a kernel."""

    answers: dict[tuple[Group, int, Group, int], Refusal] = field(
        default_factory=dict[tuple[Group, int, Group, int], Refusal]
    )
    traced: TracedGroups = field(default_factory=TracedGroups)

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        members = _members(graph, producer, consumer)
        if members is None or isinstance(members, Refusal):
            return members
        key = (producer, producer.count, consumer, consumer.count)
        if key not in self.answers:
            refusal = graph.refuse(members) or refuse_kernel(graph, members, self.traced)
            if refusal is None:
                return members
            self.answers[key] = refusal
        return self.answers[key]


def _members(graph: GroupGraph, producer: Group, consumer: Group) -> list[Group] | Refusal | None:
    """The groups that would be one kernel, or why they are not; None where the pair is no part of one."""
    made, read = products_in(producer), products_in(consumer)
    if FEWEST <= made < FURTHEST and read == 0:
        is_behind = consumer.kind <= FusionKind.INJECTIVE and not is_alias_of_result(graph, producer, consumer)
        return [producer, consumer] if is_behind else None
    if made == 0 and FEWEST <= read < FURTHEST:
        return [producer, consumer] if is_view(producer) else None
    return _between(graph, producer) if (made, read) == (0, 1) else None


def _between(graph: GroupGraph, last: Group) -> list[Group] | Refusal | None:
    """
    The products from whose results a group is computed element by element, all that is so made of them, and the products that
    read any of that; None where there are too few of these, a refusal where something else reads it.
    """
    first, near = _sources(last)
    between = on_the_way(first, near)
    readers = dict.fromkeys(reader for group in (*first, *between) for reader in group.consumers)
    behind = [group for group in readers if group not in near]
    others = [group for group in behind if products_in(group) != 1]
    if len(first) < 2 or len(first) + len(behind) - len(others) < FEWEST:
        return None
    if others:
        message = f"'{others[0].first.name}' reads scores, or what is made of them, which would be in memory"
        return Refusal("scores-read", message, flip="compute them again for it")
    members = dict.fromkeys((*first, *between, *behind))
    return [*members, *made_inside(graph, next(iter(first)), near, members)]


def _sources(last: Group) -> tuple[dict[Group, None], dict[Group, None]]:
    """
    The products from whose results a group is computed element by element, and what is on the way or read there; the same of
    those that go element by element from what lies between it and these products, and between those that are found and
    theirs, as far as that is near. Each group is looked at once.
    """
    ends, added = {last: None}, [last]
    near, first, made = dict[Group, None](), dict[Group, None](), set[Group]()
    while added:
        new = _go_back(added, near, first)
        made.update(found := _made(new, near, first, made))
        readers = dict.fromkeys(reader for group in found for reader in group.consumers)
        added = [g for g in readers if g not in near and products_in(g) == 0 and g.kind <= FusionKind.INJECTIVE]
        if len(first) < 2 or len(near) >= NEAR:
            break
        ends.update(dict.fromkeys(added))
    if len(ends) > 1:  # the nearest to any of them come first
        near.clear()
        first.clear()
        _go_back(ends, near, first)
    return first, near


def _made(
    new: Iterable[Group], near: Mapping[Group, None], first: Mapping[Group, None], made: Set[Group]
) -> list[Group]:
    """What products give and is made of that, among new groups and those near that read them, without what was found before."""
    found: dict[Group, None] = {}
    waiting = [g for g in new if g in first or any(p in first or p in made for p in g.producers)]
    while waiting:
        if (group := waiting.pop()) not in found and group not in made:
            found[group] = None
            waiting.extend(reader for reader in group.consumers if reader in near)
    return list(found)


def _go_back(ends: Iterable[Group], near: dict[Group, None], first: dict[Group, None]) -> list[Group]:
    """Adds what groups are computed from, by ways of groups that go element by element; gives what was added."""
    new: list[Group] = []
    waiting = deque(ends)  # the nearest first
    while waiting:
        group = waiting.popleft()
        if group in near or group in first:
            continue
        if (count := products_in(group)) == 0 and group.kind <= FusionKind.INJECTIVE and len(near) < NEAR:
            near[group] = None
            waiting.extend(group.producers)
        elif count == 1:
            first[group] = None
        else:
            continue
        new.append(group)
    return new


@dataclass(frozen=True)
class FuseAttentionGradientPass(FusionPass):
    """Products of what goes element by element from other products' results become one kernel with these.

    ```mlir
    %s = graph.matmul %q, %k {transpose_rhs = true} : (Q, Q) -> S
    %d = graph.subtract %s, %logsumexp : (S, tensor<8x64x1xf32>) -> S
    %p = graph.exp %d : (S) -> S
    %dp = graph.matmul %g, %v {transpose_rhs = true} : (Q, Q) -> S
    %c = graph.subtract %dp, %delta : (S, tensor<8x64x1xf32>) -> S
    %ds = graph.multiply %p, %c : (S, S) -> S
    %dv = graph.matmul %p, %g {transpose_lhs = true} : (S, Q) -> Q
    %dk = graph.matmul %ds, %q {transpose_lhs = true} : (S, Q) -> Q
    %dq = graph.matmul %ds, %k : (S, Q) -> Q
    ```
    becomes one `fused.kernel` (`schedule = {kind = "attention_gradient"}`): what is as large as all scores is never in memory.
    What is between the products may be anything that goes element by element: scales, masks, dropout, a row's numbers. Views
    around it are read and stored by strides, as of attention.

    Refused: other types than f32 and f64, few queries, sizes; scores, or what is made of them, that are read elsewhere; rows
    that are reduced between the products. Nothing is fused for a platform on which nothing runs this. Requires: nothing.
    Ensures: as every fusion.
    """

    name = "fuse-attention-gradient"

    def rule(self) -> Rule:
        return AttentionGradientRule()

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if composite_offers(op):
            super().rewrite(ctx, op)
