"""Common subexpressions: equal ops on equal operands are computed once, in a block and inside each kernel."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.fused import PartitionOp, directives, walk_open
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar.simplify import is_commutative
from fuse_opt.passes.rewrite_pass import RewritePass

_Key = tuple[type[Operation], Hashable, frozenset[tuple[str, Attribute]], tuple[Attribute, ...]]


@dataclass(frozen=True)
class CsePass(RewritePass):
    """Value numbering of graph ops, in one sweep of each block; an op that carries a directive keeps its identity.

    Operands may be swapped where that gives the same bits: x + y is y + x. Constants are equal when their bits are.
    """

    name = "cse"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for inner in walk_open(op):
            if isinstance(inner, PartitionOp):
                continue
            for region in inner.regions:
                for block in region.blocks:
                    _number(block)


def _number(block: Block) -> None:
    known: dict[_Key, Operation] = {}
    for op in list(block.ops):
        if not isinstance(op, GraphOp) or directives(op):
            continue
        types = tuple(result.type for result in op.results)
        properties = frozenset((op.properties | op.attributes).items())
        first = known.setdefault((type(op), _operands(op), properties, types), op)
        if first is op:
            continue
        for old, new in zip(op.results, first.results, strict=True):
            new.name_hint = new.name_hint or old.name_hint
            old.replace_all_uses_with(new)
        Rewriter.erase_op(op)


def _operands(op: GraphOp) -> Hashable:
    """The operands in order; of a commutative op as a set."""
    operands = tuple(op.operands)
    if len(operands) != 2 or operands[0] is operands[1] or not isinstance(op, StructuredOp) or op.COMBINE:
        return operands
    if not is_commutative(op.body()) or op.fusion_kind() > FusionKind.BROADCAST:
        return operands
    return frozenset(operands)
