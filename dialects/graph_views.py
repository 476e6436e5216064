"""Views and movement: the operand's elements at other indices. Each record states where an element comes from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from . import scalar as sc
from .dtypes import I64
from .graph_elementwise import broadcast_shapes
from .graph_op import (
    AnyTensor,
    GraphOp,
    StructuredOp,
    agree,
    dtype,
    int_array,
    ints,
    normalize_axis,
    shape,
    shape_text,
    tensor,
)
from .index_expr import Index, constant, delinearize, linearize
from .scalar import Scalar


class ViewOp(StructuredOp):
    """One operand, moved and not computed with."""

    def scalar(self, x: Scalar) -> Scalar:
        return x

    @abstractmethod
    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        """The result's shape; raises VerifyException when the properties do not fit the operand."""

    def infer_types(self) -> Sequence[AnyTensor]:
        (x,) = self._operands
        return (TensorType(tensor(x).element_type, self.view_shape(shape(x))),)


@irdl_op_definition
class ReshapeOp(ViewOp):
    """The same elements in row-major order under another shape."""

    name = "graph.reshape"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    shape = prop_def(DenseArrayBase[IntegerType])

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        target = ints(self.shape)
        if DYNAMIC_INDEX not in source and prod(source) != prod(target):
            raise VerifyException(
                f"cannot reshape {shape_text(source)} ({prod(source)} elements) "
                f"to {shape_text(target)} ({prod(target)} elements)"
            )
        return target

    def canonical(self) -> GraphOp | None:
        inner = self.x.owner
        return ReshapeOp.build_op(inner.x, shape=self.shape) if isinstance(inner, ReshapeOp) else None

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return delinearize(linearize(index, ints(self.shape)), shape(self.x))


@irdl_op_definition
class PermuteDimsOp(ViewOp):
    """Result axis k is operand axis `axes[k]`."""

    name = "graph.permute_dims"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = prop_def(DenseArrayBase[IntegerType])

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        axes = ints(self.axes)
        if sorted(axes) != list(range(len(source))):
            raise VerifyException(f"attribute 'axes': expected a permutation of 0..{len(source) - 1}, got {list(axes)}")
        return [source[axis] for axis in axes]

    def canonical(self) -> GraphOp | None:
        inner = self.x.owner
        if not isinstance(inner, PermuteDimsOp):
            return None
        first = ints(inner.axes)
        return PermuteDimsOp.build_op(inner.x, axes=int_array([first[axis] for axis in ints(self.axes)]))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axes = ints(self.axes)
        return tuple(index[axes.index(axis)] for axis in range(len(axes)))


@irdl_op_definition
class BroadcastToOp(ViewOp):
    """NumPy broadcasting, explicit."""

    name = "graph.broadcast_to"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    shape = prop_def(DenseArrayBase[IntegerType])

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        target = ints(self.shape)
        if len(target) < len(source) or broadcast_shapes([source, target]) != target:
            raise VerifyException(f"shape {shape_text(source)} does not broadcast to {shape_text(target)}")
        return target

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        source = shape(self.x)
        trailing = index[len(index) - len(source) :]
        return tuple(constant(0) if n == 1 else i for n, i in zip(source, trailing, strict=True))


@irdl_op_definition
class SliceOp(ViewOp):
    """NumPy's basic slice with a start, stop and step for every axis; negative ones count from the end.

    With a negative step, a stop below `-extent` means "past the first element".
    """

    name = "graph.slice"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    starts = prop_def(DenseArrayBase[IntegerType])
    stops = prop_def(DenseArrayBase[IntegerType])
    steps = opt_prop_def(DenseArrayBase[IntegerType])

    def ranges(self) -> list[range]:
        """The positions read on each axis."""
        source = shape(self.x)
        starts, stops = ints(self.starts), ints(self.stops)
        steps = ints(self.steps, [1] * len(source))
        if not len(starts) == len(stops) == len(steps) == len(source):
            raise VerifyException(f"expected {len(source)} starts, stops and steps, one for each axis of the operand")
        if DYNAMIC_INDEX in source or 0 in steps:
            raise VerifyException("expected static extents and steps other than 0")
        limits = zip(starts, stops, steps, source, strict=True)
        return [range(*slice(start, stop, step).indices(n)) for start, stop, step, n in limits]

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        return [len(positions) for positions in self.ranges()]

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return tuple(i * positions.step + positions.start for i, positions in zip(index, self.ranges(), strict=True))


@irdl_op_definition
class ConcatOp(StructuredOp):
    """The operands one after another along `axis`."""

    name = "graph.concat"
    operands_ = var_operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)

    def _axis(self) -> int:
        axis = 0 if self.axis is None else self.axis.value.data
        return normalize_axis(axis, len(shape(self._operands[0])))

    def _offsets(self) -> list[int]:
        extents = [shape(value)[self._axis()] for value in self._operands]
        return [sum(extents[:k]) for k in range(len(extents))]

    def infer_types(self) -> Sequence[AnyTensor]:
        if not self._operands:
            raise VerifyException("expected at least one operand")
        axis = self._axis()
        shapes = [shape(value) for value in self._operands]
        first = shapes[0]
        for number, (value, other) in enumerate(zip(self._operands, shapes, strict=True)):
            same = len(other) == len(first)
            if not same or not agree(other[:axis] + other[axis + 1 :], first[:axis] + first[axis + 1 :]):
                raise VerifyException(
                    f"operand {number}: expected shape {shape_text(first)} but for axis {axis}, got {shape_text(other)}"
                )
            if dtype(value) is not dtype(self._operands[0]):
                raise VerifyException(f"operand {number}: element types differ; insert graph.astype")
        extents = [
            next((n for n in column if n != DYNAMIC_INDEX), DYNAMIC_INDEX) for column in zip(*shapes, strict=True)
        ]
        along = [s[axis] for s in shapes]
        extents[axis] = DYNAMIC_INDEX if DYNAMIC_INDEX in along else sum(along)
        return (TensorType(tensor(self._operands[0]).element_type, extents),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axis, extent = self._axis(), shape(self._operands[operand])[self._axis()]
        inside = (index[axis] - self._offsets()[operand]).clamp(0, max(extent - 1, 0))
        return (*index[:axis], inside, *index[axis + 1 :])

    def scalar(self, *operands: Scalar) -> Scalar:
        position = sc.index(self._axis(), I64)
        stops = [*self._offsets()[1:], 0]
        present = [k for k, value in enumerate(self._operands) if shape(value)[self._axis()]] or [0]
        chosen = operands[present[-1]]
        for k in reversed(present[:-1]):
            chosen = sc.where(position < stops[k], operands[k], chosen)
        return chosen
