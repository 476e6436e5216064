"""Boxes that begin where data says: read, and written over. One that would go over an edge is moved to lie inside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import MovingOp, slice_properties
from fuse_opt.dialects.graph.movement.read_at import index_shape
from fuse_opt.dialects.graph.movement.slice_update import SliceScatterOp, check_update
from fuse_opt.dialects.graph.movement.views import SliceOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import ints, normalize_axis
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.interfaces.structured_op import FusionKind, Overwritten, constant_of
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I32, I64
from fuse_opt.dialects.types.index_expr import Index, IndexExpr, loaded


class BoxOp(MovingOp):
    """About a box of the first operand, which begins at `starts`, one for each of `axes` (the first ones)."""

    starts = var_operand_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def checked_axes(self) -> list[int]:
        """Axes along which data says where the box begins; raises VerifyException."""
        count, rank = len(self.starts), len(shape(self._operands[0]))
        given = ints(self.axes, range(count))
        axes = [normalize_axis(axis, rank) for axis in given]
        if not axes or len(axes) != count or len(set(axes)) != count:
            raise VerifyException(
                f"attribute 'axes': expected a different axis for each of {count} starts, 1 or more, got {list(given)}"
            )
        for start in self.starts:
            if index_shape(start, "starts") or dtype(start) not in (I32, I64):
                raise VerifyException(f"operand 'starts': expected single i32 or i64, got '{start.type}'")
        return axes

    @abstractmethod
    def box(self) -> Sequence[int]:
        """Its extents along these axes."""

    def begins(self) -> dict[int, IndexExpr]:
        """Where it begins by axis, such that it lies inside."""
        extents, found = shape(self._operands[0]), dict[int, IndexExpr]()
        for axis, start, size in zip(self.checked_axes(), self.starts, self.box(), strict=True):
            found[axis] = loaded(start, (), extents[axis] - size + 1)
        return found

    def known(self) -> dict[str, DenseArrayBase[IntegerType]] | None:
        """The properties of a slice of the box, where numbers say where it begins."""
        extents, numbers = shape(self._operands[0]), [constant_of(start) for start in self.starts]
        if not all(map(is_static, self._operands)) or None in numbers:
            return None
        places = [range(n) for n in extents]
        for axis, number, size in zip(self.checked_axes(), numbers, self.box(), strict=True):
            assert number is not None and isinstance(number.value, int)
            start = min(max(number.value, 0), extents[axis] - size)
            places[axis] = range(start, start + size)
        return slice_properties(places, extents)


def _check_box(extents: Sequence[int], axes: Sequence[int], sizes: Sequence[int]) -> None:
    for axis, size in zip(axes, sizes, strict=True):
        if size != DYNAMIC_INDEX and extents[axis] != DYNAMIC_INDEX and not 0 <= size <= extents[axis]:
            raise VerifyException(f"expected a box of 0 to {extents[axis]} along axis {axis} of x, got {size}")


@irdl_op_definition
class DynamicSliceOp(BoxOp):
    """The elements of x in a box of `sizes` along `axes` (the first ones) that begins at `starts`: single i32 or i64.

    A start is limited to where the box lies inside of x, and never counts from the end: `jax.lax.dynamic_slice`.
    """

    name = "graph.dynamic_slice"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    result = result_def(TensorType)
    sizes = prop_def(DenseArrayBase[IntegerType])

    def box(self) -> Sequence[int]:
        return ints(self.sizes, ())

    def infer_types(self) -> Sequence[AnyTensor]:
        axes, extents, sizes = self.checked_axes(), list(shape(self.x)), self.box()
        if len(sizes) != len(axes):
            raise VerifyException(f"attribute 'sizes': expected {len(axes)}, one for each start, got {list(sizes)}")
        _check_box(extents, axes, sizes)
        for axis, size in zip(axes, sizes, strict=True):
            extents[axis] = size
        return (tensor_type(tensor(self.x).element_type, extents),)

    def canonical(self) -> GraphOp | None:
        """A slice, where the box begins at known places."""
        return None if (found := self.known()) is None else self.simplified(SliceOp, self.x, **found)

    def scalar(self, x: Scalar, *starts: Scalar) -> Scalar:
        return x

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        if operand:
            return ()
        begins = self.begins()
        return tuple(i + begins[axis] if axis in begins else i for axis, i in enumerate(index))


@irdl_op_definition
class DynamicUpdateSliceOp(BoxOp):
    """`x` with `update` over the box that `graph.dynamic_slice` reads at these `starts`: `jax.lax.dynamic_update_slice`.

    In place of `x`, nothing but the box is written.
    """

    name = "graph.dynamic_update_slice"
    x = operand_def(TensorType)
    update = operand_def(TensorType)
    result = result_def(TensorType)

    def box(self) -> Sequence[int]:
        return [shape(self.update)[axis] for axis in self.checked_axes()]

    def infer_types(self) -> Sequence[AnyTensor]:
        extents, axes = list(shape(self.x)), self.checked_axes()
        if len(shape(self.update)) != len(extents):
            raise VerifyException(
                f"operand 'update': expected rank {len(extents)}, got {shape_text(shape(self.update))}"
            )
        _check_box(extents, axes, self.box())
        for axis in axes:
            extents[axis] = shape(self.update)[axis]
        check_update(self.x, self.update, extents)
        return (tensor(self.x),)

    def canonical(self) -> GraphOp | None:
        """What is written over a slice, where the box begins at known places."""
        return (
            None if (found := self.known()) is None else self.simplified(SliceScatterOp, self.x, self.update, **found)
        )

    def fusion_kind(self) -> FusionKind:
        """A kernel of its own: the loops of others go over all of x."""
        return FusionKind.OPAQUE

    def overwritten(self) -> Overwritten:
        begins = self.begins()
        return Overwritten(0, 1, tuple(begins.get(axis, IndexExpr()) for axis in range(len(shape(self.x)))))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        if operand != 1:
            return () if operand else index
        begins, extents = self.begins(), shape(self.update)
        return tuple(
            (i - begins[axis]).clamp(0, max(extents[axis] - 1, 0)) if axis in begins else i
            for axis, i in enumerate(index)
        )

    def scalar(self, x: Scalar, update: Scalar, *starts: Scalar) -> Scalar:
        written: Scalar | None = None
        for axis, start, size in zip(self.checked_axes(), starts, self.box(), strict=True):
            last = shape(self.x)[axis] - size
            at = sc.minimum(sc.maximum(sc.cast(start, I64), sc.constant(0, I64)), sc.constant(last, I64))
            offset = sc.index(axis, I64) - at
            inside = (offset >= 0) & (offset < size)
            written = inside if written is None else written & inside
        return x if written is None else sc.where(written, update, x)
