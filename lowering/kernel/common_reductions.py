"""Reductions that a pass makes twice: `mean` and `var` of one tensor both sum it, and one of them may keep the axis."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.scalar import Scalar, topological


def merge_equal_reductions(loop_body: LoopBody) -> LoopBody:
    """The pass with one of those reductions that join the same scalars over the same loop in the same way."""
    merged: dict[ScalarNode, ScalarNode] = {}
    first: dict[Hashable, ScalarNode] = {}
    nodes: list[ScalarNode] = []
    for node in loop_body.nodes:
        operands = tuple(merged.get(operand, operand) for operand in node.operands)
        changed = operands != node.operands
        new = replace(node, operands=operands) if changed else node
        if node.op is not None and node.op.COMBINE:
            key = (node.op.COMBINE, _structure(node.op.body()), dtype(node.value), operands, node.loop)
            if (found := first.setdefault(key, new)) is not new:
                merged[node] = found
                continue
        if changed:
            merged[node] = new
        nodes.append(new)
    if not merged:
        return loop_body
    stores = tuple(replace(store, node=merged.get(store.node, store.node)) for store in loop_body.stores)
    return replace(loop_body, nodes=tuple(nodes), stores=stores)


def _structure(body: Scalar) -> Hashable:
    """Equal for bodies that say the same."""
    numbers: dict[int, int] = {}
    nodes: list[Hashable] = []
    for node in topological(body):
        nodes.append((node.function, tuple(numbers[id(each)] for each in node.args), node.dtype, repr(node.value)))
        numbers[id(node)] = len(numbers)
    return tuple(nodes)
