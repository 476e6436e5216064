"""Common subexpressions: equal ops on equal operands are computed once, in a block and inside each kernel."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ..dialects.fused import directives
from ..dialects.graph_op import GraphOp

_Key = tuple[type[Operation], tuple[SSAValue, ...], frozenset[tuple[str, Attribute]], tuple[Attribute, ...]]


@dataclass(frozen=True)
class CsePass(ModulePass):
    """Value numbering of graph ops, in one sweep of each block; an op that carries a directive keeps its identity."""

    name = "cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in op.walk():
            for region in inner.regions:
                for block in region.blocks:
                    _number(block)


def _number(block: Block) -> None:
    known: dict[_Key, Operation] = {}
    for op in list(block.ops):
        if not isinstance(op, GraphOp) or directives(op):
            continue
        types = tuple(result.type for result in op.results)
        key = (type(op), tuple(op.operands), frozenset((op.properties | op.attributes).items()), types)
        first = known.setdefault(key, op)
        if first is op:
            continue
        for old, new in zip(op.results, first.results, strict=True):
            new.name_hint = new.name_hint or old.name_hint
            old.replace_all_uses_with(new)
        Rewriter.erase_op(op)
