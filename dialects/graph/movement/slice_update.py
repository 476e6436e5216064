"""Slices that are one position of an axis, and elements written over a slice.

A body chooses by position. Where an operand is not chosen, it is read all the same, so its index stays inside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import AxisOp, SlicingOp, position_on_axis, slice_properties, whole_axis
from fuse_opt.dialects.graph.movement.views import ExpandDimsOp, SliceOp, SqueezeOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.interfaces.structured_op import Overwritten
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.index_expr import Index, IndexExpr


class PositionOp(AxisOp, CompositeOp):
    """About the first operand's elements at one position, `index`, of `axis`."""

    ACCEPTS_STORAGE: ClassVar[bool] = True
    index = prop_def(IntegerAttr)

    def row_shape(self) -> tuple[int, ...]:
        """Their shape, without the axis; raises VerifyException when there is no such position."""
        source, axis, at = shape(self._operands[0]), self.checked_axis(), self.index.value.data
        extent = source[axis]
        if extent != DYNAMIC_INDEX and not -extent <= at < extent:
            raise VerifyException(f"attribute 'index': expected {-extent} <= index < {extent}, got {at}")
        return source[:axis] + source[axis + 1 :]

    def row_properties(self) -> dict[str, DenseArrayBase[IntegerType]]:
        """The properties of a slice of them."""
        source, axis = shape(self._operands[0]), self.checked_axis()
        row = position_on_axis(self.index.value.data, source[axis])
        return slice_properties([row if k == axis else whole_axis(n) for k, n in enumerate(source)], source)


@irdl_op_definition
class SelectOp(PositionOp):
    """The elements at position `index` of `axis` (0), which is gone; a negative position counts from the end."""

    name = "graph.select"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor_type(tensor(self.x).element_type, self.row_shape()),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        row = builder(SliceOp, self.x, **self.row_properties())
        return (builder(SqueezeOp, row, axes=int_array([self.checked_axis()])),)


@irdl_op_definition
class SliceScatterOp(SlicingOp):
    """`x` with `update` in place of what `graph.slice` of the same starts, stops and steps (1) reads of it."""

    name = "graph.slice_scatter"
    x = operand_def(TensorType)
    update = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        found = zip(shape(self.x), self.ranges(), strict=True)
        wanted = [n if n == DYNAMIC_INDEX else len(positions) for n, positions in found]
        check_update(self.x, self.update, wanted)
        return (tensor(self.x),)

    def overwritten(self) -> Overwritten | None:
        found = self.ranges()
        return Overwritten(0, 1, tuple([r.start for r in found])) if all(r.step == 1 for r in found) else None

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
class SelectScatterOp(PositionOp):
    """`x` with `update` at position `index` of `axis` (0), which the update has not: the inverse of `graph.select`."""

    name = "graph.select_scatter"
    x = operand_def(TensorType)
    update = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        check_update(self.x, self.update, self.row_shape())
        return (tensor(self.x),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        wide = builder(ExpandDimsOp, self.update, axis=int_value(self.checked_axis()))
        return (builder(SliceScatterOp, self.x, wide, **self.row_properties()),)


def check_update(x: SSAValue, update: SSAValue, wanted: Sequence[int]) -> None:
    """Raises VerifyException unless the update is of the shape wanted and of the element type of `x`."""
    if not agree(shape(update), wanted):
        raise VerifyException(f"operand 'update': expected shape {shape_text(wanted)}, got {shape_text(shape(update))}")
    if dtype(update) is not dtype(x):
        raise VerifyException("operand 'update': element types differ; insert graph.astype")
