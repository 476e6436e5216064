"""Where attention's two passes are in a block: what makes a result of a product's rows of scores, and what its gradients."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp

FURTHEST = 64
"""Ops looked at between products."""


@dataclass(frozen=True, slots=True)
class Half:
    """The forward or the backward pass: products that give scores, what is made of these, products that read it as rows."""

    firsts: tuple[OpaqueOp, ...]
    between: tuple[Operation, ...]
    """That depend on scores, in the block's order."""
    ends: tuple[OpaqueOp, ...]

    @property
    def scores(self) -> int:
        """Elements of each value of scores."""
        return prod(shape(self.firsts[0].results[0]))

    def members(self) -> dict[Operation, None]:
        return dict.fromkeys((*self.firsts, *self.between, *self.ends))

    def can_be_one(self, offers: Iterable[Offer]) -> bool:
        """Whether code of one kernel is generated for it."""
        results, members = [op.results[0] for op in self.ends], self.members()
        for offer in offers:
            assert offer.trace is not None
            try:
                offer.trace(results, members)
            except Unschedulable:
                continue
            return True
        return False


def is_product(op: object) -> bool:
    return isinstance(op, OpaqueOp) and op.contraction() is not None and not directives(op)


def halves_of(product: OpaqueOp, place: Mapping[Operation, float]) -> tuple[Half | None, Half | None]:
    """
    What may be the forward and the backward pass over the scores that a product of a block gives, ops of which have these
    places; either may be missing.
    """
    ends = _ends(product, place)
    forward = next(filter(None, (_forward(product, end, place) for end in ends)), None)
    others = [end for end in ends if forward is None or end not in forward.ends]
    backward = _half(others, FusionKind.INJECTIVE, place) if others else None
    if backward is not None and (product not in backward.firsts or len(backward.firsts) < 2):
        backward = None
    return forward, backward


def _ends(product: OpaqueOp, place: Mapping[Operation, float]) -> list[OpaqueOp]:
    """The products whose left operands are computed element by element from scores, in order; none where that is too much."""
    scores = product.results[0]
    count = prod(shape(scores))
    found: dict[OpaqueOp, None] = {}
    made, waiting = set[Operation](), [scores]
    while waiting:
        value = waiting.pop()
        for use in value.uses:
            op = use.operation
            if isinstance(op, OpaqueOp):
                if use.index == 0 and is_product(op) and op in place:
                    found[op] = None
            elif isinstance(op, StructuredOp) and op not in made and op in place:
                if op.fusion_kind() > FusionKind.INJECTIVE or prod(shape(op.results[0])) != count:
                    continue
                made.add(op)
                waiting.append(op.results[0])
        if len(made) > FURTHEST:
            return []
    return sorted(found, key=place.__getitem__)


def _half(
    ends: Sequence[OpaqueOp], most: FusionKind, place: Mapping[Operation, float], only: OpaqueOp | None = None
) -> Half | None:
    """
    What the left operands of products are made of, by ops of such kinds at most, as far as that is near; None where another
    product than the `only` one is among it.
    """
    near, firsts = dict[Operation, None](), dict[OpaqueOp, None]()
    waiting = deque[SSAValue](end.operands[0] for end in ends)
    while waiting and len(near) < FURTHEST:
        op = waiting.popleft().owner
        if not isinstance(op, Operation) or op not in place or op in near or op in firsts:
            continue
        if isinstance(op, OpaqueOp) and is_product(op):
            if only not in (None, op):
                return None
            firsts[op] = None
        elif isinstance(op, StructuredOp) and op.stored_value() is None and op.fusion_kind() <= most:
            near[op] = None
            waiting.extend(op.operands)
    between: dict[Operation, None] = dict.fromkeys(firsts)
    for op in sorted(near, key=place.__getitem__):
        if any(value.owner in between for value in op.operands):
            between[op] = None
    order = place.__getitem__
    return Half(tuple(sorted(firsts, key=order)), tuple(op for op in between if op not in firsts), tuple(ends))


def _forward(product: OpaqueOp, end: OpaqueOp, place: Mapping[Operation, float]) -> Half | None:
    """From scores to a product that takes their rows as rows, by way of a reduction of rows."""
    contraction = end.contraction()
    if contraction is None or contraction.lhs[-1] != 1:
        return None
    half = _half([end], FusionKind.REDUCTION, place, only=product)
    if half is None or half.firsts != (product,):
        return None
    return half if any(isinstance(op, StructuredOp) and op.COMBINE for op in half.between) else None


def made_from_positions(block: Block) -> set[Operation]:
    """
    The ops that give, element by element, what follows from positions and single numbers alone, as causal masks and random
    numbers do.
    """
    found = set[Operation]()
    for op in block.ops:
        if not isinstance(op, StructuredOp) or op.stored_value() is not None or directives(op):
            continue
        is_known = all(value.owner in found or prod(shape(value)) == 1 for value in op.operands)
        if is_known and op.fusion_kind() <= FusionKind.INJECTIVE:
            found.add(op)
    return found


def read_elsewhere(ops: Iterable[Operation], inside: Collection[Operation]) -> dict[Operation, list[Operation]]:
    """Those of the ops whose results others than those inside read, with these."""
    found: dict[Operation, list[Operation]] = {}
    for op in ops:
        others = [use.operation for result in op.results for use in result.uses if use.operation not in inside]
        if others:
            found[op] = others
    return found
