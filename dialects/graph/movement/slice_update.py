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
from fuse_opt.dialects.graph.bases.movement import (
    AxisOp,
    SlicingOp,
    Span,
    position_on_axis,
    slice_properties,
    whole_axis,
)
from fuse_opt.dialects.graph.movement.views import ExpandDimsOp, SliceOp, SqueezeOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.interfaces.structured_op import Overwritten
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import is_number, may_exceed
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
        found = zip(shape(self.x), self.spans(), strict=True)
        wanted = [n if n == DYNAMIC_INDEX else span.count for n, span in found]
        check_update(self.x, self.update, wanted)
        return (tensor(self.x),)

    def overwritten(self) -> Overwritten | None:
        found = self.spans()
        return Overwritten(0, 1, tuple([s.start for s in found])) if all(s.step == 1 for s in found) else None

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return index if operand == 0 else tuple(map(_inside, index, self.spans()))

    def scalar(self, x: Scalar, update: Scalar) -> Scalar:
        written: Scalar | None = None
        for axis, (extent, span) in enumerate(zip(shape(self.x), self.spans(), strict=True)):
            if is_number(span.count) and span.count == 0:
                return x
            for test in _position_tests(axis, extent, span):
                written = test if written is None else written & test
        return update if written is None else sc.where(written, update, x)


def _inside(index: IndexExpr, span: Span) -> IndexExpr:
    """Which of the positions an index is, or a nearby one that there is."""
    last = max(span.count - 1, 0) if is_number(span.count) else span.count - 1
    if span.step > 0:
        return (index - span.start).clamp(0, last * span.step) // span.step
    low = span.start + last * span.step
    return ((index - low).clamp(0, last * -span.step) // -span.step) * -1 + last


def _position_tests(axis: int, extent: int, span: Span) -> list[Scalar]:
    """Which conditions make a position of an axis one of those given."""
    position, ends = sc.index(axis, I64), (span.start, span.start + (span.count - 1) * span.step)
    low, high = ends if span.step > 0 else ends[::-1]
    tests = [position >= low] if may_exceed(low, 0) else []
    tests += [position <= high] if may_exceed(extent - 1, high) else []
    if abs(span.step) > 1 and may_exceed(span.count, 1):
        tests.append(sc.equal((position - low) % abs(span.step), 0))
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
