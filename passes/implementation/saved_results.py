"""Ops whose results an implementation leaves beside those of its own op: which could be, and the kernel of both."""

from __future__ import annotations

from itertools import islice

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.fused import KernelOp, YieldOp, directives
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.fusion.engine.group_graph import GroupGraph

_MOST = 64
"""Readers of a value that are looked at: a weight may have very many."""


def readers_beside(op: Operation, graph: GroupGraph) -> list[CompositeOp | StructuredOp]:
    """
    The ops that read operands of an op and nothing else, of those to which nobody has given a directive, in the graph's order.
    None where an operand is a constant, of which each kernel has its own.
    """
    if any(is_creation(value.owner) for value in op.operands):
        return []
    operands = dict.fromkeys(op.operands)
    uses = (use for value in operands for use in islice(value.uses, _MOST))
    found = dict.fromkeys(use.operation for use in uses if use.operation is not op)
    able = [
        other
        for other in found
        if isinstance(other, CompositeOp | StructuredOp)
        and other.parent is op.parent
        and not directives(other)
        and all(value in operands for value in other.operands)
    ]
    return sorted(able, key=lambda other: graph.position[other])


def name_implementation(kernel: KernelOp, op: Operation, name: str) -> None:
    """Names what runs a kernel of an op, and what is left beside that: results of the other ops, all of them, behind its own."""
    kernel.implementation = StringAttr(name)
    if len(ops := kernel.ops()) == 1:
        return
    made = [value for inner in (op, *(other for other in ops if other is not op)) for value in inner.results]
    last = kernel.block.last_op
    assert isinstance(last, YieldOp)
    before = dict(zip(last.operands, kernel.results, strict=True))
    last.operands = made
    attributes = dict(kernel.attributes)
    new = KernelOp(kernel.operands, [v.type for v in made], kernel.detach_region(kernel.body), attributes)
    new.location, new.implementation = kernel.location, kernel.implementation
    new.saved = int_array(range(len(op.results), len(made)))
    assert kernel.parent is not None
    kernel.parent.insert_op_before(new, kernel)
    for value, result in zip(made, new.results, strict=True):
        result.name_hint = value.name_hint
        if value in before:
            before[value].replace_all_uses_with(result)
    Rewriter.erase_op(kernel)
