"""Slices that are one position of an axis, and elements written over a slice.

A body chooses by position. Where an operand is not chosen, it is read all the same, so its index stays inside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import MovingOp, axis_of, slice_properties, slice_ranges
from fuse_opt.dialects.graph.movement.views import ExpandDimsOp, SliceOp, SqueezeOp
from fuse_opt.dialects.interfaces.op import CompositeOp, GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array, int_value, ints
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.index_expr import Index, IndexExpr


@irdl_op_definition
class SelectOp(CompositeOp):
    """The elements at position `index` of `axis` (0), which is gone; a negative position counts from the end."""

    name = "graph.select"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    result = result_def(TensorType)
    index = prop_def(IntegerAttr)
    axis = opt_prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source = shape(self.x)
        axis = axis_of(self.axis, len(source))
        check_position(self.index, source[axis])
        return (TensorType(tensor(self.x).element_type, source[:axis] + source[axis + 1 :]),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        source = shape(self.x)
        axis = axis_of(self.axis, len(source))
        row = builder(SliceOp, self.x, **row_properties(source, axis, self.index))
        return (builder(SqueezeOp, row, axes=int_array([axis])),)


@irdl_op_definition
class SliceScatterOp(MovingOp):
    """`x` with `update` in place of what `graph.slice` of the same starts, stops and steps (1) reads of it."""

    name = "graph.slice_scatter"
    x = operand_def(TensorType)
    update = operand_def(TensorType)
    result = result_def(TensorType)
    starts = prop_def(DenseArrayBase[IntegerType])
    stops = prop_def(DenseArrayBase[IntegerType])
    steps = opt_prop_def(DenseArrayBase[IntegerType])

    def ranges(self) -> list[range]:
        """The positions written on each axis of known extent."""
        source = shape(self.x)
        return slice_ranges(source, ints(self.starts), ints(self.stops), ints(self.steps, [1] * len(source)))

    def infer_types(self) -> Sequence[AnyTensor]:
        found = zip(shape(self.x), self.ranges(), strict=True)
        wanted = [n if n == DYNAMIC_INDEX else len(positions) for n, positions in found]
        check_update(self.x, self.update, wanted)
        return (tensor(self.x),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return index if operand == 0 else tuple(map(_inside, index, self.ranges()))

    def scalar(self, x: Scalar, update: Scalar) -> Scalar:
        written: Scalar | None = None
        for axis, (extent, positions) in enumerate(zip(shape(self.x), self.ranges(), strict=True)):
            if not positions:
                return x
            for test in _position_tests(axis, extent, positions):
                written = test if written is None else written & test
        return update if written is None else sc.where(written, update, x)


def _inside(index: IndexExpr, positions: range) -> IndexExpr:
    """Which of the positions an index is, or a nearby one that there is."""
    last = max(len(positions) - 1, 0)
    if positions.step > 0:
        return (index - positions.start).clamp(0, last * positions.step) // positions.step
    low = positions.start + last * positions.step
    return ((index - low).clamp(0, last * -positions.step) // -positions.step) * -1 + last


def _position_tests(axis: int, extent: int, positions: range) -> list[Scalar]:
    """Which conditions make a position of an axis one of those given."""
    position, low, high = sc.index(axis, I64), min(positions), max(positions)
    tests = [position >= low] if low > 0 else []
    tests += [position <= high] if high < extent - 1 else []
    if len(positions) > 1 and abs(positions.step) > 1:
        tests.append(sc.equal((position - low) % abs(positions.step), 0))
    return tests


@irdl_op_definition
class SelectScatterOp(CompositeOp):
    """`x` with `update` at position `index` of `axis` (0), which the update has not: the inverse of `graph.select`."""

    name = "graph.select_scatter"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    update = operand_def(TensorType)
    result = result_def(TensorType)
    index = prop_def(IntegerAttr)
    axis = opt_prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source = shape(self.x)
        axis = axis_of(self.axis, len(source))
        check_position(self.index, source[axis])
        wanted = source[:axis] + source[axis + 1 :]
        check_update(self.x, self.update, wanted)
        return (tensor(self.x),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        source = shape(self.x)
        axis = axis_of(self.axis, len(source))
        wide = builder(ExpandDimsOp, self.update, axis=int_value(axis))
        return (builder(SliceScatterOp, self.x, wide, **row_properties(source, axis, self.index)),)


def check_position(position: IntegerAttr, extent: int) -> None:
    """Raises VerifyException when there is no such position on an axis; negative ones count from the end."""
    at = position.value.data
    if extent != DYNAMIC_INDEX and not -extent <= at < extent:
        raise VerifyException(f"attribute 'index': expected {-extent} <= index < {extent}, got {at}")


def row_properties(source: Sequence[int], axis: int, position: IntegerAttr) -> dict[str, DenseArrayBase[IntegerType]]:
    """The properties of a slice of one position of an axis."""
    at = position.value.data % source[axis]
    return slice_properties([range(n) if k != axis else range(at, at + 1) for k, n in enumerate(source)], source)


def check_update(x: SSAValue, update: SSAValue, wanted: Sequence[int]) -> None:
    """Raises VerifyException unless the update is of the shape wanted and of the element type of `x`."""
    if not agree(shape(update), wanted):
        raise VerifyException(f"operand 'update': expected shape {shape_text(wanted)}, got {shape_text(shape(update))}")
    if dtype(update) is not dtype(x):
        raise VerifyException("operand 'update': element types differ; insert graph.astype")
