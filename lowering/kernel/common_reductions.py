"""Reductions that a pass makes twice: `mean` and `var` of one tensor both sum it, and one of them may keep the axis."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from fuse_opt.dialects.analysis.loop_body import Point, Pulled
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.scalar import Scalar, topological


def merge_equal_reductions(pulled: Pulled) -> Pulled:
    """The pass with one of those reductions that join the same scalars over the same loop in the same way."""
    merged: dict[Point, Point] = {}
    first: dict[Hashable, Point] = {}
    points: list[Point] = []
    for point in pulled.points:
        operands = tuple(merged.get(operand, operand) for operand in point.operands)
        changed = operands != point.operands
        new = replace(point, operands=operands) if changed else point
        if point.op is not None and point.op.COMBINE:
            key = (point.op.COMBINE, _structure(point.op.body()), dtype(point.value), operands, point.loop)
            if (found := first.setdefault(key, new)) is not new:
                merged[point] = found
                continue
        if changed:
            merged[point] = new
        points.append(new)
    if not merged:
        return pulled
    stores = tuple(replace(store, point=merged.get(store.point, store.point)) for store in pulled.stores)
    return replace(pulled, points=tuple(points), stores=stores)


def _structure(body: Scalar) -> Hashable:
    """Equal for bodies that say the same."""
    numbers: dict[int, int] = {}
    nodes: list[Hashable] = []
    for node in topological(body):
        nodes.append((node.function, tuple(numbers[id(each)] for each in node.args), node.dtype, repr(node.value)))
        numbers[id(node)] = len(numbers)
    return tuple(nodes)
