"""Matrices with their columns in panels: the ops that put them there, and the views that undo it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp, ReshapeOp, SliceOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import shape


def packed(
    build: GraphBuilder, value: SSAValue, rows: int, columns: int, *, transposed: bool, width: int, group: int = 1
) -> SSAValue:
    """
    `[panels][rows][width]` of a matrix that a value holds, by rows or (transposed) by columns; zeros fill the last panel. With
    groups of rows `[panels][groups][width][group]`: neighbours of a column are side by side; zeros fill the last group, too.
    """
    panels, groups = -(-columns // width), -(-rows // group)
    if transposed:
        value = build(PermuteDimsOp, _reshaped(build, value, (columns, rows)), axes=int_array((1, 0)))
    else:
        value = _reshaped(build, value, (rows, columns))
    if (groups * group, panels * width) != (rows, columns):
        value = build(PadOp, value, pads=int_array((0, 0, groups * group - rows, panels * width - columns)))
    if group == 1:
        value = build(ReshapeOp, value, shape=int_array((rows, panels, width)))
        return build(PermuteDimsOp, value, axes=int_array((1, 0, 2)))
    value = build(ReshapeOp, value, shape=int_array((groups, group, panels, width)))
    return build(PermuteDimsOp, value, axes=int_array((2, 0, 3, 1)))


def unpacked(
    build: GraphBuilder, value: SSAValue, rows: int, columns: int, *, transposed: bool, extents: Sequence[int]
) -> SSAValue:
    """The value of these extents that `packed` was made from."""
    panels, groups, width, *rest = shape(value)
    group = rest[0] if rest else 1
    value = build(PermuteDimsOp, value, axes=int_array((1, 3, 0, 2) if rest else (1, 0, 2)))
    value = build(ReshapeOp, value, shape=int_array((groups * group, panels * width)))
    if (groups * group, panels * width) != (rows, columns):
        limits = {"starts": (0, 0), "stops": (rows, columns), "steps": (1, 1)}
        value = build(SliceOp, value, **{name: int_array(numbers) for name, numbers in limits.items()})
    if transposed:
        value = build(PermuteDimsOp, value, axes=int_array((1, 0)))
    return _reshaped(build, value, extents)


def _reshaped(build: GraphBuilder, value: SSAValue, extents: Sequence[int]) -> SSAValue:
    return value if shape(value) == tuple(extents) else build(ReshapeOp, value, shape=int_array(extents))
