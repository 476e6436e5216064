"""Placement: one operand padded, rolled, repeated, cut diagonally."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import copysign, prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import MovingOp, ViewOp
from fuse_opt.dialects.graph.creation.constant import number_of
from fuse_opt.dialects.interfaces.properties import ints, normalize_axis, stated_extents
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import is_decided, is_number, may_exceed
from fuse_opt.dialects.types.index_expr import Index, IndexExpr, constant, delinearize, linearize
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr


@irdl_op_definition
class PadOp(MovingOp):
    """With elements added around: `pads` before each axis, then after each (ONNX Pad); negative ones take away.

    `mode` "constant" (default) adds `value` (0), "edge" the nearest element, "reflect" mirrors about the first and the
    last element, "wrap" starts again at the other end; over and over where more is added than there is. Pads may be sizes that
    are never negative, `pads = #graph.shape<0, 0, 0, n>`.
    """

    name = "graph.pad"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    pads = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)
    mode = opt_prop_def(StringAttr)
    value = opt_prop_def(Attribute)

    def _mode(self) -> str:
        return "constant" if self.mode is None else self.mode.data

    def _pads(self) -> list[tuple[int, int]]:
        pads, rank = stated_extents(self.pads), len(shape(self.x))
        if len(pads) != 2 * rank:
            raise VerifyException(f"attribute 'pads': expected {2 * rank} integers, got {list(pads)}")
        return list(zip(pads[:rank], pads[rank:], strict=True))

    def zeros_around(self) -> list[tuple[int, int]] | None:
        """How many zeros come before and behind each axis, where all that is added is zeros and nothing is taken away."""
        value = number_of("value", self.value, dtype(self.x))
        is_zero = self._mode() == "constant" and value == 0 and copysign(1.0, value) > 0
        pads = self._pads()
        return pads if is_zero and all(is_number(n) and n >= 0 for n in chain(*pads)) else None

    def infer_types(self) -> Sequence[AnyTensor]:
        mode, source = self._mode(), shape(self.x)
        if mode not in ("constant", "edge", "reflect", "wrap"):
            raise VerifyException(f'attribute \'mode\': expected "constant", "edge", "reflect" or "wrap", got "{mode}"')
        if self.value is not None and mode != "constant":
            raise VerifyException(f'attribute \'value\': expected with mode "constant" only, got mode "{mode}"')
        number_of("value", self.value, dtype(self.x))
        extents: list[int] = []
        is_said = DYNAMIC_INDEX not in source  # or nobody asks for sizes
        for axis, (n, (low, high)) in enumerate(zip(source, self._pads(), strict=True)):
            is_known = n != DYNAMIC_INDEX and (is_said or (is_number(low) and is_number(high)))
            extents.append(n + low + high if is_known else DYNAMIC_INDEX)
            if is_known and extents[-1] < 0:
                raise VerifyException(f"attribute 'pads': {-low - high} elements are taken from the {n} of axis {axis}")
            if n == 0 and mode != "constant" and extents[-1]:
                raise VerifyException(f'axis {axis} of {shape_text(source)} is empty: mode "{mode}" has nothing to add')
        return (tensor_type(tensor(self.x).element_type, extents),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        limits = zip(index, shape(self.x), self._pads(), strict=True)
        return tuple(self._origin(i, n, low, high) for i, n, (low, high) in limits)

    def _origin(self, i: IndexExpr, n: int, low: int, high: int) -> IndexExpr:
        if n + low + high == 0 or is_decided(lambda: n <= 1):
            return constant(0)
        match self._mode():
            case "wrap":
                return (i + -low % n) % n
            case "reflect" if max(low, high) < n:
                p = i - low
                return p - p.clamp(-max(low, 0), 0) * 2 - (p - (n - 1)).clamp(0, max(high, 0)) * 2
            case "reflect":
                period = 2 * (n - 1)
                p = (i + -low % period) % period
                return p - (p - (n - 1)).clamp(0, n - 1) * 2
            case _:
                return (i - low).clamp(0, n - 1)

    def scalar(self, x: Scalar) -> Scalar:
        if self._mode() != "constant":
            return x
        value = sc.constant(number_of("value", self.value, dtype(self.x)), x.dtype)
        if 0 in shape(self.x):
            return value
        inside: Scalar | None = None
        for axis, (n, (low, high)) in enumerate(zip(shape(self.x), self._pads(), strict=True)):
            position = sc.index(axis, I64)
            tests = ([position >= sc.constant(low, I64)] if may_exceed(low, 0) else []) + (
                [position < sc.constant(low + n, I64)] if may_exceed(high, 0) else []
            )
            for test in tests:
                inside = test if inside is None else inside & test
        return x if inside is None else sc.where(inside, x, value)


@irdl_op_definition
class RollOp(ViewOp):
    """Elements `shifts[k]` further along `axes[k]`; what passes the end comes in again at the start.

    Without `axes` there is one shift, of the elements in row-major order.
    """

    name = "graph.roll"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    shifts = prop_def(DenseArrayBase[IntegerType])
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        self._by_axis()
        return source

    def _by_axis(self) -> list[int]:
        """The shift of every axis; shifts of one axis add up."""
        shifts, rank = ints(self.shifts), len(shape(self.x))
        total = [0] * rank
        axes = [] if self.axes is None else [normalize_axis(axis, rank) for axis in ints(self.axes)]
        if len(shifts) != (1 if self.axes is None else len(axes)):
            raise VerifyException(
                f"attribute 'shifts': expected one for each of the axes {axes}, or one without axes, got {list(shifts)}"
            )
        for axis, shift in zip(axes, shifts, strict=False):
            total[axis] += shift
        return total

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        source = shape(self.x)
        if self.axes is None:
            (shift,), count = ints(self.shifts), prod(source)
            return delinearize(_rolled(linearize(index, source), shift, count), source)
        return tuple(map(_rolled, index, self._by_axis(), source))


def _rolled(i: IndexExpr, shift: int, extent: int) -> IndexExpr:
    return (i + -shift % extent) % extent if extent else constant(0)


@irdl_op_definition
class TileOp(ViewOp):
    """The operand `repeats[k]` times along axis k (NumPy's tile): missing leading repeats are 1, missing axes new.

    Repeats may be sizes, `repeats = #graph.shape<n, 1>`.
    """

    name = "graph.tile"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    repeats = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        repeats = stated_extents(self.repeats)
        if any(is_decided(lambda n=n: n < 0) for n in repeats):
            raise VerifyException(f"attribute 'repeats': expected integers >= 0, got {list(repeats)}")
        rank = max(len(source), len(repeats))
        extents = (*[1] * (rank - len(source)), *source)
        counts = (*[1] * (rank - len(repeats)), *repeats)
        if DYNAMIC_INDEX in source:  # nobody asks for sizes
            counts = tuple(count if is_number(count) else DYNAMIC_INDEX for count in counts)
        return [DYNAMIC_INDEX if DYNAMIC_INDEX in (n, k) else n * k for n, k in zip(extents, counts, strict=True)]

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        source = shape(self.x)
        trailing = index[len(index) - len(source) :]
        return tuple(i % n if n else constant(0) for i, n in zip(trailing, source, strict=True))


@irdl_op_definition
class RepeatOp(ViewOp):
    """Each element `repeats` times in a row along `axis` (NumPy's repeat); of all elements in one row without an axis."""

    name = "graph.repeat"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    repeats = prop_def(IntegerAttr)
    axis = opt_prop_def(IntegerAttr)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        count = self.repeats.value.data
        if count < 0:
            raise VerifyException(f"attribute 'repeats': expected an integer >= 0, got {count}")
        if self.axis is None:
            return [DYNAMIC_INDEX if DYNAMIC_INDEX in source else prod(source) * count]
        axis = normalize_axis(self.axis.value.data, len(source))
        return [n if k != axis or n == DYNAMIC_INDEX else n * count for k, n in enumerate(source)]

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        count, source = max(self.repeats.value.data, 1), shape(self.x)
        if self.axis is None:
            return delinearize(index[0] // count, source)
        axis = normalize_axis(self.axis.value.data, len(source))
        return tuple(i // count if k == axis else i for k, i in enumerate(index))


@irdl_op_definition
class DiagonalOp(ViewOp):
    """The elements at (k, k + `offset`) of the matrices in `axis1` (-2) and `axis2` (-1), as the result's last axis."""

    name = "graph.diagonal"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    offset = opt_prop_def(IntegerAttr)
    axis1 = opt_prop_def(IntegerAttr)
    axis2 = opt_prop_def(IntegerAttr)

    def _axes(self) -> tuple[int, int]:
        rank = len(shape(self.x))
        given = ((self.axis1, -2), (self.axis2, -1))
        first, second = (normalize_axis(default if a is None else a.value.data, rank) for a, default in given)
        if first == second:
            raise VerifyException(f"attributes 'axis1' and 'axis2': expected two axes, got {first} twice")
        return first, second

    def _offset(self) -> int:
        return 0 if self.offset is None else self.offset.value.data

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        axes, offset = self._axes(), self._offset()
        rows, columns = (source[axis] for axis in axes)
        known = DYNAMIC_INDEX not in (rows, columns)
        count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0) if known else DYNAMIC_INDEX
        return [*(n for axis, n in enumerate(source) if axis not in axes), count]

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        (first, second), offset = self._axes(), self._offset()
        empty = not shape(self.result)[-1]  # its first element would lie outside
        kept, at = iter(index[:-1]), constant(0) if empty else index[-1]
        places = {first: at + (0 if empty else max(-offset, 0)), second: at + (0 if empty else max(offset, 0))}
        return tuple(places[axis] if axis in places else next(kept) for axis in range(len(shape(self.x))))


class Triangle(MovingOp):
    """The matrices of the last two axes, with 0 outside of a triangle that the diagonal `k` (0) bounds."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    k = opt_prop_def(IntegerAttr)

    def _diagonal(self) -> int:
        return 0 if self.k is None else self.k.value.data

    def infer_types(self) -> Sequence[AnyTensor]:
        if len(shape(self.x)) < 2:
            raise VerifyException(f"expected matrices, of rank 2 or more, got {shape_text(shape(self.x))}")
        return (tensor(self.x),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return index

    def distance(self) -> Scalar:
        """How far right of the main diagonal an element lies."""
        rank = len(shape(self.x))
        return sc.index(rank - 1, I64) - sc.index(rank - 2, I64)

    def limits(self) -> tuple[int, int]:
        """The smallest and the largest distance there is."""
        rows, columns = shape(self.x)[-2:]
        return 1 - rows, columns - 1


@irdl_op_definition
class TrilOp(Triangle):
    """The elements x[..., i, j] with j - i <= `k` (0) of the matrices in the last two axes, and 0 for the others."""

    name = "graph.tril"

    def scalar(self, x: Scalar) -> Scalar:
        if is_static(self.x) and self.limits()[1] <= self._diagonal():
            return x
        return sc.where(self.distance() <= self._diagonal(), x, 0)


@irdl_op_definition
class TriuOp(Triangle):
    """The elements x[..., i, j] with j - i >= `k` (0) of the matrices in the last two axes, and 0 for the others."""

    name = "graph.triu"

    def scalar(self, x: Scalar) -> Scalar:
        if is_static(self.x) and self.limits()[0] >= self._diagonal():
            return x
        return sc.where(self.distance() >= self._diagonal(), x, 0)
