"""Sliding windows: reductions over neighbourhoods, and the windows themselves as axes.

A window starts every `strides` elements and takes every `dilations`-th one (1 and 1 when absent), `window` of them along
`axes` (the last ones when absent). Windows lie inside of the operand: pad it before where they should not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import ViewOp
from fuse_opt.dialects.graph.reductions.reductions import Joined
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import IntArray, int_array, ints, normalize_axis
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, shape_text, tensor_type
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.extents import at_least_none, is_decided
from fuse_opt.dialects.types.index_expr import Index


def positive(name: str, attribute: IntArray | None, count: int) -> tuple[int, ...]:
    """An attribute's integers, 1 everywhere when it is absent; raises VerifyException unless they are so many above 0."""
    values = ints(attribute, [1] * count)
    if len(values) != count or min(values, default=1) < 1:
        raise VerifyException(f"attribute '{name}': expected {count} integer(s) above 0, got {list(values)}")
    return values


class Windows(StructuredOp):
    """What ops on windows share: their attributes, and where windows lie."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    window = prop_def(DenseArrayBase[IntegerType])
    strides = opt_prop_def(DenseArrayBase[IntegerType])
    dilations = opt_prop_def(DenseArrayBase[IntegerType])
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def window_axes(self) -> tuple[int, ...]:
        """The axis of each of the window's extents."""
        rank, count = len(shape(self.x)), len(ints(self.window))
        if count > rank:
            raise VerifyException(f"attribute 'window': expected at most {rank} extents, got {list(ints(self.window))}")
        axes = tuple(normalize_axis(axis, rank) for axis in ints(self.axes, range(rank - count, rank)))
        if len(axes) != count or len(set(axes)) != count:
            given = list(ints(self.axes))
            raise VerifyException(
                f"attribute 'axes': expected {count} different axes, one for each extent, got {given}"
            )
        return axes

    def positions(self) -> list[int]:
        """How many windows there are on each axis; raises VerifyException where none fits."""
        axes = self.window_axes()
        extents = list(shape(self.x))
        window = positive("window", self.window, len(axes))
        strides, dilations = (
            positive("strides", self.strides, len(axes)),
            positive("dilations", self.dilations, len(axes)),
        )
        for axis, size, stride, dilation in zip(axes, window, strides, dilations, strict=True):
            span = dilation * (size - 1) + 1
            if extents[axis] == DYNAMIC_INDEX:
                continue
            if is_decided(lambda span=span, axis=axis: span > extents[axis]):
                raise VerifyException(
                    f"a window of {size} elements, {dilation} apart, does not fit on axis {axis} of "
                    f"{shape_text(shape(self.x))}; insert graph.pad"
                )
            extents[axis] = cast(int, at_least_none((extents[axis] - span) // stride + 1))
        return extents

    def in_windows(self, index: Index, inner: Index) -> Index:
        """Where the elements `inner` of the windows `index` lie."""
        axes = self.window_axes()
        steps = ints(self.strides, [1] * len(axes)), ints(self.dilations, [1] * len(axes))
        found = list(index)
        for axis, k, stride, dilation in zip(axes, inner, *steps, strict=True):
            found[axis] = index[axis] * stride + k * dilation
        return tuple(found)


class WindowReduction(Windows, Joined):
    """The elements of each window joined."""

    def reduced_extents(self) -> tuple[int, ...]:
        return ints(self.window)

    def infer_types(self) -> Sequence[AnyTensor]:
        sc.apply(self.COMBINE, self.body(), self.body())
        return (tensor_type(self.result_dtype().attribute, self.positions()),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return self.in_windows(index, reduced)


LONG_WINDOW = 32
"""Elements of a window from which on its extremum is one of those of parts, which neighbouring windows share."""


class WindowExtremum(WindowReduction):
    """The extremum of each window: that of a box is one of extrema along its axes."""

    def canonical(self) -> GraphOp | None:
        """One axis after the other, where that is less than half of the comparisons; of long ones, that of shorter ones."""
        axes = self.window_axes()
        ones = [1] * len(axes)
        along = sorted(zip(axes, ints(self.window), ints(self.strides, ones), ints(self.dilations, ones), strict=True))
        along = [(axis, size, stride, dilation) for axis, size, stride, dilation in along if size > 1 or stride > 1]
        later = [prod(stride for _, _, stride, _ in along[k + 1 :]) for k in range(len(along))]
        apart = sum(size * windows for (_, size, _, _), windows in zip(along, later, strict=True))
        if encoding(self.result) is not None:
            return None
        if len(along) == 1 and along[0][1] >= LONG_WINDOW and along[0][2] == 1:
            axis, size, _, dilation = along[0]
            step = size // 4  # four windows that cover it, neighbours of which may overlap
            along = [(axis, size - 3 * step, 1, dilation), (axis, 4, 1, step * dilation)]
        elif len(along) < 2 or 2 * apart >= prod(ints(self.window)):
            return None
        value, op = self.x, None
        for axis, *numbers in along:
            window, stride, dilation = (int_array([number]) for number in numbers)
            op = type(self).build_op(value, window=window, strides=stride, dilations=dilation, axes=int_array([axis]))
            value = op.results[0]
        return op


@irdl_op_definition
class WindowMaxOp(WindowExtremum):
    """The largest element x[i * `strides` + k * `dilations`] of each window i, over 0 <= k < `window`; NaN when any is.

    `window` lies along `axes` (the last ones when absent); `strides` and `dilations` are 1 when absent. Nothing is padded: on
    an axis of n elements there are (n - dilation * (window - 1) - 1) // stride + 1 windows, and one has to fit.
    """

    name = "graph.window_max"
    COMBINE: ClassVar[str] = "max"


@irdl_op_definition
class WindowMinOp(WindowExtremum):
    """The smallest element x[i * `strides` + k * `dilations`] of each window i, over 0 <= k < `window`; NaN when any is.

    Windows lie as those of `graph.window_max`.
    """

    name = "graph.window_min"
    COMBINE: ClassVar[str] = "min"


@irdl_op_definition
class WindowSumOp(WindowReduction):
    """The sum of the elements x[i * `strides` + k * `dilations`] of each window i, over 0 <= k < `window`.

    Windows lie as those of `graph.window_max`, and are joined as by `graph.sum`.
    """

    name = "graph.window_sum"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0


@irdl_op_definition
class SlidingWindowsOp(Windows, ViewOp):
    """The windows as trailing axes: result[i..., k...] = x[i * `strides` + k * `dilations`] (NumPy's sliding_window_view).

    Windows lie as those of `graph.window_max`; of each operand axis stays the axis of window positions.
    """

    name = "graph.sliding_windows"

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        return [*self.positions(), *ints(self.window)]

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        rank = len(shape(self.x))
        return self.in_windows(index[:rank], index[rank:])
