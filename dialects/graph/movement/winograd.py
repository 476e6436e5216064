"""Filters of 3x3 taps as sums for tiles of 2x2 positions take them: the ops that transform them, and the op that undoes it.

A filter g becomes G g G^T with the rows (1, 0, 0), (1/2, 1/2, 1/2), (1/2, -1/2, 1/2), (0, 0, 1) of G (Winograd 1980; Lavin and
Gray 2016: F(2x2, 3x3)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import slice_properties
from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp, SubtractOp
from fuse_opt.dialects.graph.movement.join_split import ConcatOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp, ReshapeOp, SliceOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS, READ, TransformedWeight

TAPS = 3
"""Of a filter, along an axis; a transformed one has as many parts as a tile reads elements."""


def _transformed(build: GraphBuilder, value: SSAValue, axis: int) -> SSAValue:
    """G times the three parts along an axis."""
    first, middle, last = _parts(build, value, axis)
    half = scalar_constant(build, 0.5, value)
    outer = build(AddOp, first, last)
    both = (build(op, outer, middle) for op in (AddOp, SubtractOp))
    return build(ConcatOp, first, *(build(MultiplyOp, each, half) for each in both), last, axis=int_value(axis))


def _parts(build: GraphBuilder, value: SSAValue, axis: int) -> list[SSAValue]:
    """Those of one element along an axis."""
    extents = shape(value)
    places = [[range(n) for n in extents] for _ in range(extents[axis])]
    for number, ranges in enumerate(places):
        ranges[axis] = range(number, number + 1)
    return [build(SliceOp, value, **slice_properties(ranges, extents)) for ranges in places]


@irdl_op_definition
class WinogradTapsOp(TransformedWeight):
    """The weight [filters, channels, 3, 3] of which the operand [panels, 16, channels, width] has the transforms G g G^T.

    `filters` leaves out what fills the last panel. Taps in the middle are differences of transforms, so the result is the
    weight to rounding. Code of convolutions by F(2x2, 3x3) reads the operand, and computes no result.
    """

    name = "graph.winograd_taps"
    SLACK: ClassVar[float] = 4.0
    transforms = operand_def(TensorType)
    filters = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def transforms_of(cls, build: GraphBuilder, weight: SSAValue, width: int) -> SSAValue:
        filters, channels, *_ = shape(weight)
        panels = -(-filters // width)
        if panels * width != filters:
            weight = build(PadOp, weight, pads=int_array([0, 0, 0, 0, panels * width - filters, 0, 0, 0]))
        value = build(ReshapeOp, weight, shape=int_array((panels, width, channels, TAPS, TAPS)))
        value = build(PermuteDimsOp, value, axes=int_array((3, 4, 0, 2, 1)))
        for axis in (0, 1):
            value = _transformed(build, value, axis)
        value = build(ReshapeOp, value, shape=int_array((PRODUCTS, panels, channels, width)))
        return build(PermuteDimsOp, value, axes=int_array((1, 0, 2, 3)))

    @classmethod
    def seen(cls, build: GraphBuilder, transforms: SSAValue, filters: int) -> SSAValue:
        return build(cls, transforms, filters=int_value(filters))

    def infer_types(self) -> Sequence[AnyTensor]:
        extents, filters = shape(self.transforms), self.filters.value.data
        if len(extents) != 4 or extents[1] != PRODUCTS or min(extents) < 1 or not dtype(self.transforms).is_float:
            raise VerifyException(
                f"expected floats [panels, {PRODUCTS}, channels, width] of known extents, got {shape_text(extents)}"
            )
        if not (extents[0] - 1) * extents[3] < filters <= extents[0] * extents[3]:
            raise VerifyException(
                f"attribute 'filters': expected as many as {extents[0]} panels of {extents[3]} are needed for, got {filters}"
            )
        return (tensor_type(tensor(self.transforms).element_type, [filters, extents[2], TAPS, TAPS]),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        panels, _, channels, width = shape(self.transforms)
        value = builder(ReshapeOp, self.transforms, shape=int_array((panels, READ, READ, channels, width)))
        for axis in (1, 2):
            first, plus, minus, last = _parts(builder, value, axis)
            value = builder(ConcatOp, first, builder(SubtractOp, plus, minus), last, axis=int_value(axis))
        value = builder(PermuteDimsOp, value, axes=int_array((0, 4, 3, 1, 2)))
        value = builder(ReshapeOp, value, shape=int_array((panels * width, channels, TAPS, TAPS)))
        ranges = [range(self.filters.value.data), range(channels), range(TAPS), range(TAPS)]
        return (builder(SliceOp, value, **slice_properties(ranges, shape(value))),)
