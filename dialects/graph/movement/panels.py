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
    build: GraphBuilder,
    value: SSAValue,
    rows: int,
    columns: int,
    *,
    transposed: bool,
    width: int,
    group: int = 1,
    batch: Sequence[int] = (),
) -> SSAValue:
    """
    `[*batch][panels][rows][width]` of the matrices that a value holds, by rows or (transposed) by columns; zeros fill the last
    panel. With groups of rows `[*batch][panels][groups][width][group]`: neighbours of a column are side by side; zeros fill
    the last group, too.
    """
    panels, groups, outer = -(-columns // width), -(-rows // group), len(batch)
    if transposed:
        value = _permuted(build, _reshaped(build, value, (*batch, columns, rows)), outer, (1, 0))
    else:
        value = _reshaped(build, value, (*batch, rows, columns))
    if (groups * group, panels * width) != (rows, columns):
        pads = (*[0] * (outer + 2), *[0] * outer, groups * group - rows, panels * width - columns)
        value = build(PadOp, value, pads=int_array(pads))
    if group == 1:
        value = build(ReshapeOp, value, shape=int_array((*batch, rows, panels, width)))
        return _permuted(build, value, outer, (1, 0, 2))
    value = build(ReshapeOp, value, shape=int_array((*batch, groups, group, panels, width)))
    return _permuted(build, value, outer, (2, 0, 3, 1))


def unpacked(
    build: GraphBuilder,
    value: SSAValue,
    rows: int,
    columns: int,
    *,
    transposed: bool,
    extents: Sequence[int],
    outer: int = 0,
) -> SSAValue:
    """The value of these extents that `packed` was made from, with so many axes of a batch."""
    batch, (panels, groups, width, *rest) = shape(value)[:outer], shape(value)[outer:]
    group = rest[0] if rest else 1
    value = _permuted(build, value, outer, (1, 3, 0, 2) if rest else (1, 0, 2))
    value = build(ReshapeOp, value, shape=int_array((*batch, groups * group, panels * width)))
    if (groups * group, panels * width) != (rows, columns):
        limits = {"starts": [0] * (outer + 2), "stops": (*batch, rows, columns), "steps": [1] * (outer + 2)}
        value = build(SliceOp, value, **{name: int_array(numbers) for name, numbers in limits.items()})
    if transposed:
        value = _permuted(build, value, outer, (1, 0))
    return _reshaped(build, value, extents)


def _permuted(build: GraphBuilder, value: SSAValue, outer: int, axes: Sequence[int]) -> SSAValue:
    """The axes behind the outer ones in another order."""
    return build(PermuteDimsOp, value, axes=int_array((*range(outer), *(outer + axis for axis in axes))))


def _reshaped(build: GraphBuilder, value: SSAValue, extents: Sequence[int]) -> SSAValue:
    return value if shape(value) == tuple(extents) else build(ReshapeOp, value, shape=int_array(extents))
