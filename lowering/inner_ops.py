"""The ops in a block, of which passes over loops look for a few kinds again and again."""

from __future__ import annotations

from typing import TypeVar, cast

from xdsl.ir import Block, Operation

OpT = TypeVar("OpT", bound=Operation)


def inner_ops(body: Block) -> list[Operation]:
    """
    All ops in a block and in the regions of its ops, in the order of the text: what `list(body.walk())` gives, which hands each
    op through a generator for each region around it.
    """
    found: list[Operation] = []
    later: list[Operation | None] = []
    op = body.first_op
    while op is not None or later:
        if op is None:
            op = later.pop()
            continue
        found.append(op)
        following = op.next_op
        if op.regions:
            later.append(following)
            later += [block.first_op for region in reversed(op.regions) for block in reversed(region.blocks)]
            following = later.pop()
        op = following
    return found


def inner_of(body: Block, kind: type[OpT]) -> list[OpT]:
    """Those that are of one class, in the same order; xDSL's classes of ops are slow to ask whether an op is of one of others."""
    return [cast(OpT, op) for op in inner_ops(body) if type(op) is kind]
