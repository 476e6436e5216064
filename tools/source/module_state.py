"""What verifiers look at in a module, to see whether a pass has changed any of it: a seventh of the time that verifying takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

_OfOp: TypeAlias = tuple[
    Operation,
    Block | None,
    Sequence[SSAValue],
    Sequence[Attribute],
    Sequence[Block],
    Mapping[str, Attribute],
    Mapping[str, Attribute],
    Sequence[tuple[Region, Sequence[tuple[Block, Region | None, Sequence[Attribute]]]]],
]
State: TypeAlias = Sequence[_OfOp]
"""
Of all ops and blocks, in their order: where they stand, what they read, their types, properties and attributes. A module is in
the same state where nothing that a verifier may look at has changed.
"""


def state_of(root: Operation) -> State:
    """The state of an op and all in it."""
    found: list[_OfOp] = []
    pending = [root]
    while pending:
        op = pending.pop()
        types = [result.type for result in op.results]
        # The views that `operands` and `successors` are cost more than all else here; a change gives an op another tuple.
        operands, successors = op._operands, op._successors  # pyright: ignore[reportPrivateUsage]
        regions = [
            (region, [(b, b.parent, [argument.type for argument in b.args]) for b in region.blocks])
            for region in op.regions
        ]
        found.append((op, op.parent, operands, types, successors, {**op.properties}, {**op.attributes}, regions))
        _add_inner(op, pending)
    return found


def is_in(root: Operation, state: State) -> bool:
    """Whether the op and all in it are in a state that it was in before."""
    place, count, pending = 0, len(state), [root]
    while pending:
        op = pending.pop()
        if place == count:
            return False
        was, parent, operands, types, successors, properties, attributes, regions = state[place]
        place += 1
        if was is not op or parent is not op.parent or properties != op.properties or attributes != op.attributes:
            return False
        if op._operands != operands or op._successors != successors:  # pyright: ignore[reportPrivateUsage]
            return False
        if len(op.results) != len(types) or len(op.regions) != len(regions):
            return False
        for result, type_ in zip(op.results, types, strict=True):
            if result.type is not type_ and result.type != type_:
                return False
        if regions:
            if not all(map(_is_region_in, op.regions, regions)):
                return False
            _add_inner(op, pending)
    return place == count


def _is_region_in(
    region: Region, state: tuple[Region, Sequence[tuple[Block, Region | None, Sequence[Attribute]]]]
) -> bool:
    was, blocks = state
    if was is not region or len(region.blocks) != len(blocks):
        return False
    return all(
        block is now and parent is now.parent and types == [argument.type for argument in now.args]
        for now, (block, parent, types) in zip(region.blocks, blocks, strict=True)
    )


def _add_inner(op: Operation, pending: list[Operation]) -> None:
    for region in op.regions:
        for block in region.blocks:
            inner = block.first_op
            while inner is not None:
                pending.append(inner)
                inner = inner.next_op
