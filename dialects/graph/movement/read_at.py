"""Indices that are positions: `checked_positions`, and `read_at`, which fusion makes an index expression of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    BoolAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.bases.movement import AxisOp, MovingOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    dtype,
    shape,
    shape_text,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import BOOL, I32, I64
from fuse_opt.dialects.types.extents import most
from fuse_opt.dialects.types.index_expr import Index, constant, loaded
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr


def index_shape(value: SSAValue, name: str = "indices") -> tuple[int, ...]:
    """The shape of an operand of indices; raises VerifyException when its elements are no integers."""
    element = dtype(value)
    if element.is_float or element is BOOL:
        raise VerifyException(f"operand '{name}': expected integers, got '{value.type}'; insert graph.astype")
    return shape(value)


@irdl_op_definition
class CheckedPositionsOp(OpaqueOp):
    """Indices of an axis of `extent` as positions from 0 on: i32, of an axis of 2**31 or more i64.

    Raises for one that is out of range, in the name of what reads at them: `op`, along its `axis`. The extent may be a size
    (`#graph.size<n>`).
    """

    name = "graph.checked_positions"
    indices = operand_def(TensorType)
    result = result_def(TensorType)
    extent = prop_def(Attribute)
    axis = prop_def(IntegerAttr)
    op = prop_def(StringAttr)
    wrap_negative = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        element = I32 if most(self._extent()) < 2**31 else I64
        return (tensor_type(element.attribute, index_shape(self.indices)),)

    def _extent(self) -> Extent:
        match self.extent:
            case SizeAttr(data=extent) | IntegerAttr(value=IntAttr(data=extent)):
                return extent
            case _:
                raise VerifyException(
                    f"attribute 'extent': expected an integer or a '#graph.size', got '{self.extent}'"
                )


@irdl_op_definition
class ReadAtOp(AxisOp, MovingOp):
    """Element by element the one of x at that position, but for `axis` (default -1), where `positions` says it.

    As `take_along_axis`, whose indices are limited to what is there in place of being refused, and never count from the end
    (NumPy's mode "clip"). Of an axis without elements 0.
    """

    name = "graph.read_at"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    DEFAULT_AXIS: ClassVar[int] = -1
    x = operand_def(TensorType)
    positions = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (along_type(self.x, self.positions, self.checked_axis()),)

    def scalar(self, x: Scalar, positions: Scalar) -> Scalar:
        return x

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axis, extents = self.checked_axis(), shape(self.x)
        at = tuple(constant(0) if n == 1 else i for n, i in zip(shape(self.positions), index, strict=True))
        if operand == 1:
            return at
        own = [constant(0) if n == 1 else i for n, i in zip(extents, index, strict=True)]
        own[axis] = loaded(self.positions, at, extents[axis])
        return tuple(own)


def along_type(x: SSAValue, indices: SSAValue, axis: int) -> AnyTensor:
    """What is read of x at indices along an axis; raises VerifyException where they do not go together."""
    source, given = shape(x), index_shape(indices)
    if len(source) != len(given):
        raise VerifyException(
            f"expected indices of rank {len(source)} as x has, got {shape_text(given)}; insert graph.expand_dims"
        )
    others = broadcast_shapes([(*s[:axis], 1, *s[axis + 1 :]) for s in (source, given)])
    return tensor_type(tensor(x).element_type, [*others[:axis], given[axis], *others[axis + 1 :]])


def checked_positions(builder: GraphBuilder, op: OpaqueOp, indices: SSAValue, axis: int, extent: Extent) -> SSAValue:
    """The positions that indices of an op name; checked as the op says."""
    wraps = {} if (given := op.properties.get("wrap_negative")) is None else {"wrap_negative": given}
    stated = SizeAttr(extent) if isinstance(extent, Size) else int_value(extent)
    names = {"extent": stated, "axis": int_value(axis), "op": StringAttr(op.name), **wraps}
    return builder(CheckedPositionsOp, indices, **names)
