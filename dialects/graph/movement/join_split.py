"""Movement: operands joined, and taken apart.

A body chooses by position. Where an operand is not chosen, it is read all the same, so its index stays inside of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import AxisOp, MovingOp, axis_of, slice_properties, whole_axis
from fuse_opt.dialects.graph.movement.capacity import LeadingOp, UpdateSliceOp
from fuse_opt.dialects.graph.movement.slice_update import SelectOp
from fuse_opt.dialects.graph.movement.views import ExpandDimsOp, SliceOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.properties import int_value, ints
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.interfaces.structured_op import Growth
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.dialects.types.symbolic_shape import SizeAttr


def joined_shape(values: Sequence[SSAValue], axis: int) -> list[int]:
    """What the operands' shapes say together, but for `axis`; raises VerifyException when they differ there or in type."""
    first, known = values[0], list(shape(values[0]))
    for number, value in enumerate(values):
        other = shape(value)
        if len(other) != len(known) or not agree(other[:axis] + other[axis + 1 :], (*known[:axis], *known[axis + 1 :])):
            raise VerifyException(
                f"operand {number}: expected shape {shape_text(known)} but for axis {axis}, got {shape_text(other)}"
            )
        if dtype(value) is not dtype(first):
            raise VerifyException(f"operand {number}: element types differ; insert graph.astype")
        known = [m if n == DYNAMIC_INDEX else n for n, m in zip(known, other, strict=True)]
    return known


MOST_JOINED = 32
"""Operands of a concatenation that kernels tell apart by position; of more, each would be looked for among too many."""


@irdl_op_definition
class ConcatOp(AxisOp, MovingOp):
    """The operands one after another along `axis` (0)."""

    name = "graph.concat"
    operands_ = var_operand_def(TensorType)
    result = result_def(TensorType)

    def _offsets(self) -> list[int]:
        axis = self.checked_axis()
        return [0, *accumulate(shape(value)[axis] for value in self._operands[:-1])]

    def infer_types(self) -> Sequence[AnyTensor]:
        if not self._operands:
            raise VerifyException("expected at least one operand")
        axis = self.checked_axis()
        extents = joined_shape(self._operands, axis)
        along = [shape(value)[axis] for value in self._operands]
        extents[axis] = DYNAMIC_INDEX if DYNAMIC_INDEX in along else sum(along)
        return (tensor_type(tensor(self._operands[0]).element_type, extents),)

    def canonical(self) -> GraphOp | None:
        """Without the operands that are empty along the axis; of many, that of the ones side by side."""
        axis = self.checked_axis()
        filled = [value for value in self._operands if shape(value)[axis]] or [self._operands[0]]
        if len(filled) > MOST_JOINED:
            return self._joined_by_parts(filled, axis)
        if len(filled) == len(self._operands):
            return None
        return self.simplified(ConcatOp, *filled, axis=int_value(axis))

    def _joined_by_parts(self, operands: Sequence[SSAValue], axis: int) -> GraphOp | None:
        starts = range(0, len(operands), MOST_JOINED)
        parts = [ConcatOp.build_op(*operands[k : k + MOST_JOINED], axis=int_value(axis)) for k in starts]
        found = self.simplified(ConcatOp, *(part.results[0] for part in parts), axis=int_value(axis))
        for part in parts if found is None else ():
            part.erase()
        return found

    def growth(self) -> Growth | None:
        axis, (first, *rest) = self.checked_axis(), self._operands
        before, after = shape(first)[axis], shape(self.result)[axis]
        if not rest or DYNAMIC_INDEX in (before, after):
            return None

        def in_room(build: GraphBuilder, room: SSAValue) -> tuple[SSAValue, SSAValue]:
            more = rest[0] if len(rest) == 1 else build(ConcatOp, *rest, axis=int_value(axis))
            whole = build(UpdateSliceOp, room, more, axis=int_value(axis), start=SizeAttr(before))
            return whole, build(LeadingOp, whole, axis=int_value(axis), count=SizeAttr(after))

        return Growth(0, axis, in_room)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axis = self.checked_axis()
        before = sum(shape(value)[axis] for value in self._operands[:operand])
        return self._index(axis, before, shape(self._operands[operand])[axis], index)

    def operand_indices(self, index: Index, reduced: Index) -> Iterator[Index]:
        axis, before = self.checked_axis(), 0
        for value in self._operands:
            yield self._index(axis, before, extent := shape(value)[axis], index)
            before += extent

    def _index(self, axis: int, before: int, extent: int, index: Index) -> Index:
        inside = (index[axis] - before).clamp(0, max(extent - 1, 0), loose=True)
        return (*index[:axis], inside, *index[axis + 1 :])

    def scalar(self, *operands: Scalar) -> Scalar:
        position = sc.index(self.checked_axis(), I64)
        stops = [*self._offsets()[1:], 0]
        present = [k for k, value in enumerate(self._operands) if shape(value)[self.checked_axis()]] or [0]
        chosen = operands[present[-1]]
        for k in reversed(present[:-1]):
            chosen = sc.where(position < stops[k], operands[k], chosen)
        return chosen


@irdl_op_definition
class StackOp(CompositeOp):
    """The operands, all of one shape, one after another along a new `axis` (0) of the result."""

    name = "graph.stack"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    operands_ = var_operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not self._operands:
            raise VerifyException("expected at least one operand")
        rank = len(shape(self._operands[0]))
        axis = axis_of(self.axis, rank + 1)
        extents = joined_shape(self._operands, rank)
        extents.insert(axis, len(self._operands))
        return (tensor_type(tensor(self._operands[0]).element_type, extents),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axis = int_value(axis_of(self.axis, len(shape(self._operands[0])) + 1))
        wide = [builder(ExpandDimsOp, value, axis=axis) for value in self._operands]
        return (builder(ConcatOp, *wide, axis=axis),)


@irdl_op_definition
class SplitOp(AxisOp, CompositeOp):
    """Consecutive parts along `axis` (0): of the extents `sizes`, or of equal extents, as many as `parts`."""

    name = "graph.split"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    results_ = var_result_def(TensorType)
    sizes = opt_prop_def(DenseArrayBase[IntegerType])
    parts = opt_prop_def(IntegerAttr)

    def extents(self) -> list[int]:
        """The parts' extents along the axis; `?` when they depend on what is not known."""
        if (self.sizes is None) == (self.parts is None):
            raise VerifyException("expected one of the attributes 'sizes' and 'parts'")
        whole = shape(self.x)[self.checked_axis()]
        if self.parts is not None:
            parts = self.parts.value.data
            if parts < 1 or (whole != DYNAMIC_INDEX and whole % parts):
                raise VerifyException(
                    f"attribute 'parts': expected a positive divisor of the extent {whole}, got {parts}; "
                    "or give 'sizes'"
                )
            return [whole if whole == DYNAMIC_INDEX else whole // parts] * parts
        sizes = list(ints(self.sizes))
        if not sizes or min(sizes) < 0 or whole not in (DYNAMIC_INDEX, sum(sizes)):
            raise VerifyException(f"attribute 'sizes': expected extents >= 0 that make {whole} together, got {sizes}")
        return sizes

    def infer_types(self) -> Sequence[AnyTensor]:
        extents, axis = self.extents(), self.checked_axis()
        if self.results and len(self.results) != len(extents):
            raise VerifyException(f"expected {len(extents)} results, got {len(self.results)}")
        source, element = shape(self.x), tensor(self.x).element_type
        return [tensor_type(element, [*source[:axis], n, *source[axis + 1 :]]) for n in extents]

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        source, axis, start = shape(self.x), self.checked_axis(), 0
        found: list[SSAValue] = []
        for size in self.extents():
            positions = [range(start, start + size) if k == axis else whole_axis(n) for k, n in enumerate(source)]
            found.append(builder(SliceOp, self.x, **slice_properties(positions, source)))
            start += size
        return found


@irdl_op_definition
class UnstackOp(AxisOp, CompositeOp):
    """One result for each position of `axis` (0), which is gone."""

    name = "graph.unstack"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    results_ = var_result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        source = shape(self.x)
        axis = self.checked_axis()
        if source[axis] == DYNAMIC_INDEX:
            raise VerifyException(f"axis {axis} of {shape_text(source)}: expected a static extent; run infer-shapes")
        if self.results and len(self.results) != source[axis]:
            raise VerifyException(f"expected {source[axis]} results, got {len(self.results)}")
        return [tensor_type(tensor(self.x).element_type, source[:axis] + source[axis + 1 :])] * source[axis]

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axis = self.checked_axis()
        count = shape(self.x)[axis]
        return [builder(SelectOp, self.x, axis=int_value(axis), index=int_value(at)) for at in range(count)]
