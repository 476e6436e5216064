"""Buffers with room for more than they hold, as caches that grow: their leading part, and elements written behind it.

Where it ends is a size, whose symbols are extents of arguments or values of size arguments (`graph.size`). What the buffer has
no room for is refused at the call, before anything runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import AxisOp, MovingOp, ViewOp
from fuse_opt.dialects.graph.movement.slice_update import check_update
from fuse_opt.dialects.interfaces.op import Limit
from fuse_opt.dialects.interfaces.shapes import AnyTensor, are_sizes_asked_for, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, Overwritten
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import is_decided, is_number
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.dialects.types.size import Extent
from fuse_opt.dialects.types.symbolic_shape import SizeAttr

_ROOM = "'{name}', positions of axis {axis}: the buffer has room for {{most}}, got {{least}}"
_SIGN = "'{name}', attribute '{attribute}': expected a size that is never negative, got {{most}}"


class RoomOp(AxisOp, MovingOp):
    """About the positions of an axis up to a size."""

    ATTRIBUTE: ClassVar[str]
    """The property that says it."""

    @property
    def said(self) -> Extent:
        """What the property says."""
        return cast(SizeAttr, self.properties[self.ATTRIBUTE]).data

    @abstractmethod
    def stop(self) -> Extent:
        """The first position that is not meant; DYNAMIC_INDEX where it is not known."""

    def call_limits(self) -> Sequence[Limit]:
        axis, names = self.checked_axis(), {"name": self.name, "attribute": self.ATTRIBUTE}
        found = [Limit(_SIGN.format(**names), 0, self.said)]
        if DYNAMIC_INDEX not in (stop := self.stop(), room := shape(self._operands[0])[axis]):
            found.append(Limit(_ROOM.format(axis=axis, **names), stop, room))
        return found

    def check_limits(self) -> None:
        """Raises VerifyException where they are broken whatever the symbols are."""
        for limit in self.call_limits():
            if is_decided(lambda limit=limit: limit.least > limit.most):
                raise VerifyException(limit.problem(str(limit.least), str(limit.most)))


@irdl_op_definition
class LeadingOp(RoomOp, ViewOp):
    """The first `count` (`#graph.size<n + 1>`) positions of `axis` (0): what a buffer with room for more holds."""

    name = "graph.leading"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    count = prop_def(SizeAttr)

    ATTRIBUTE: ClassVar[str] = "count"

    def stop(self) -> Extent:
        return self.said

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        self.check_limits()
        axis = self.checked_axis()
        count = cast(int, self.count.data) if are_sizes_asked_for() or is_number(self.count.data) else DYNAMIC_INDEX
        return (*source[:axis], count, *source[axis + 1 :])

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return index


@irdl_op_definition
class UpdateSliceOp(RoomOp):
    """`x` with `update` in place of its positions `start` (`#graph.size<n>`) and on along `axis` (0).

    In place of `x`, whose caller gives it up (`graph.donated`), nothing but these is written.
    """

    name = "graph.update_slice"
    x = operand_def(TensorType)
    update = operand_def(TensorType)
    result = result_def(TensorType)
    start = prop_def(SizeAttr)

    ATTRIBUTE: ClassVar[str] = "start"

    def stop(self) -> Extent:
        count = shape(self.update)[self.checked_axis()]
        return DYNAMIC_INDEX if count == DYNAMIC_INDEX else self.start.data + count

    def infer_types(self) -> Sequence[AnyTensor]:
        axis, extents = self.checked_axis(), list(shape(self.x))
        if len(shape(self.update)) == len(extents):
            extents[axis] = shape(self.update)[axis]
        check_update(self.x, self.update, extents)
        self.check_limits()
        return (tensor(self.x),)

    def fusion_kind(self) -> FusionKind:
        """A kernel of its own: the loops of others go over all of the buffer."""
        return FusionKind.OPAQUE

    def overwritten(self) -> Overwritten:
        axis = self.checked_axis()
        starts = [self.start.data if k == axis else 0 for k in range(len(shape(self.x)))]
        return Overwritten(0, 1, tuple(starts))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        if operand == 0:
            return index
        axis = self.checked_axis()
        inside = (index[axis] - cast(int, self.start.data)).clamp(0, shape(self.update)[axis] - 1)
        return (*index[:axis], inside, *index[axis + 1 :])

    def scalar(self, x: Scalar, update: Scalar) -> Scalar:
        axis, start = self.checked_axis(), cast(int, self.start.data)
        if is_number(count := shape(self.update)[axis]) and count == 0:
            return x
        position = sc.index(axis, I64)
        return sc.where((position >= start) & (position < start + count), update, x)
