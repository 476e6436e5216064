"""What pooling ops share: the windows along each spatial axis, how a tensor is padded for them, and divided by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerType,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import ConstantOp, scalar_constant
from fuse_opt.dialects.graph.creation.filled import FullOp, IotaOp
from fuse_opt.dialects.graph.elementwise.arithmetic import DivideOp, MultiplyOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.windows.windows import WindowSumOp, positive
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import flag, float_value, int_array, int_value, ints, shape_attribute
from fuse_opt.dialects.interfaces.shapes import dtype, shape, shape_text, tensor
from fuse_opt.dialects.types.extents import at_least_none, is_number, least, may_exceed


@dataclass(frozen=True)
class PoolAxis:
    """Where windows lie along a spatial axis of known extent."""

    extent: int
    kernel: int
    stride: int
    low: int
    high: int
    dilation: int
    ceil: bool

    @property
    def span(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def windows(self) -> int:
        """With `ceil` the last one may reach beyond the padding behind, but none starts in that."""
        room = self.extent + self.low + self.high - self.span
        if self.ceil:
            room += self.stride - 1 - max(self.high - self.span + self.stride, 0)
        return cast(int, at_least_none(room // self.stride + 1))

    @property
    def behind(self) -> int:
        """
        The padding that the last window reaches into, with what it needs beyond `high`. Of an extent that is a size, as much as
        it ever is: no more windows fit into that.
        """
        if not is_number(self.extent):
            return min(self.high + self.stride, self.span) - 1 if self.ceil else self.high
        return max((self.windows - 1) * self.stride + self.span - self.low - self.extent, 0)

    def counts(self, with_pads: bool) -> list[int]:
        """
        How many elements each window is of, with the given padding or without; never what `ceil` lets it reach beyond. One number
        where no window reaches beyond elements.
        """
        if not self.ceil and (with_pads or not (self.low or self.high)):
            return [self.kernel]
        first = -self.low if with_pads else 0
        last = self.extent + (self.high if with_pads else 0)
        starts = [number * self.stride - self.low for number in range(self.windows)]
        return [sum(first <= at + k * self.dilation < last for k in range(self.kernel)) for at in starts]

    def counts_follow_from_size(self, with_pads: bool) -> bool:
        """Whether windows are of unlike numbers of elements, as many as the size that the extent is says."""
        return not is_number(self.extent) and (self.ceil or (not with_pads and bool(self.low or self.high)))

    def has_empty(self) -> bool:
        """Whether a window has padding alone; one without gaps, or with smaller ones, has not: paddings are smaller than it."""
        return self.dilation > max(least(self.extent), 1) and 0 in self.counts(False)


class Pool(CompositeOp):
    """What pooling and its backward forms share: attributes, and the windows that follow from them."""

    kernel_shape = prop_def(DenseArrayBase[IntegerType])
    strides = opt_prop_def(DenseArrayBase[IntegerType])
    pads = opt_prop_def(DenseArrayBase[IntegerType])
    dilations = opt_prop_def(DenseArrayBase[IntegerType])
    ceil_mode = opt_prop_def(BoolAttr)

    def axes_of(self, extents: Sequence[int]) -> list[PoolAxis | None]:
        """The windows along spatial axes, None where the extent is not known; raises VerifyException."""
        count = len(extents)
        kernel = positive("kernel_shape", self.kernel_shape, count)
        strides, dilations = positive("strides", self.strides, count), positive("dilations", self.dilations, count)
        pads = ints(self.pads, [0] * 2 * count)
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        if len(pads) != 2 * count or any(not 0 <= p < span for p, span in zip(pads, [*spans, *spans], strict=True)):
            raise VerifyException(
                f"attribute 'pads': expected {2 * count} integers >= 0 below the extents {spans} of a window, "
                f"got {list(pads)}"
            )
        along = zip(extents, kernel, strides, pads[:count], pads[count:], dilations, strict=True)
        found = [None if axis[0] == DYNAMIC_INDEX else PoolAxis(*axis, ceil=flag(self.ceil_mode)) for axis in along]
        for number, axis in enumerate(found):
            if axis is not None and (not may_exceed(axis.windows, 0) or axis.has_empty()):
                raise VerifyException(
                    f"a window of {axis.span} elements on spatial axis {number} of {shape_text(extents)} has no element "
                    "that is not padding, or does not fit; take a smaller kernel_shape or other pads"
                )
        return found

    def known_axes(self, extents: Sequence[int]) -> list[PoolAxis]:
        return [axis for axis in self.axes_of(extents) if axis is not None]

    def pooled(self, x: SSAValue) -> tuple[int, ...]:
        """The shape of what is pooled from an operand."""
        axes = self.axes_of(spatial_extents(x))
        return (*shape(x)[:2], *(DYNAMIC_INDEX if axis is None else axis.windows for axis in axes))

    def windows(self, axes: Sequence[PoolAxis]) -> dict[str, DenseArrayBase[IntegerType]]:
        """The properties of ops on windows of a padded operand."""
        return {
            "window": int_array([axis.kernel for axis in axes]),
            "strides": int_array([axis.stride for axis in axes]),
            "dilations": int_array([axis.dilation for axis in axes]),
        }

    def padded(self, builder: GraphBuilder, x: SSAValue, axes: Sequence[PoolAxis], value: int | float) -> SSAValue:
        """A value of which the last axes are spatial, with the padding that windows reach into."""
        return padded_by(builder, x, [axis.low for axis in axes], [axis.behind for axis in axes], value)

    def window_elements(self) -> int:
        return prod(ints(self.kernel_shape))


def require_floats(value: SSAValue) -> None:
    if not (element := dtype(value)).is_float:
        raise VerifyException(f"expected elements of floats to average, got {element}; insert graph.astype")


def spatial_extents(value: SSAValue) -> tuple[int, ...]:
    """The extents after the first two; raises VerifyException unless there are 1 to 3."""
    if len(extents := shape(value)) not in (3, 4, 5):
        raise VerifyException(
            f"expected a tensor [N, C, spatial...] with 1 to 3 spatial axes, got {shape_text(extents)}"
        )
    return extents[2:]


def padded_by(
    builder: GraphBuilder,
    x: SSAValue,
    low: Sequence[int],
    high: Sequence[int],
    value: int | float = 0,
    mode: str = "constant",
) -> SSAValue:
    """Elements added before and after the last axes, or taken away where the numbers are negative; `mode`: as PadOp has it."""
    if not any((*low, *high)):
        return x
    other = [0] * (len(shape(x)) - len(low))
    pads = int_array([*other, *low, *other, *high])
    if mode != "constant":
        return builder(PadOp, x, pads=pads, mode=StringAttr(mode))
    number = float_value(value) if dtype(x).is_float else int_value(int(value))
    return builder(PadOp, x, pads=pads, value=number)


def flat_places(builder: GraphBuilder, extents: Sequence[int]) -> SSAValue:
    """The row-major positions in a shape, as i64."""
    places = builder(IotaOp, shape=shape_attribute([prod(extents)]), dtype=i64)
    return builder(ReshapeOp, places, shape=shape_attribute(extents))


def divided_by_counts(builder: GraphBuilder, x: SSAValue, axes: Sequence[PoolAxis], with_pads: bool) -> SSAValue:
    """A value of which the last axes are window positions, divided by how many elements each window is of."""
    counts = {n: axis.counts(with_pads) for n, axis in enumerate(axes) if not axis.counts_follow_from_size(with_pads)}
    same = prod(values[0] for values in counts.values() if len(set(values)) == 1)
    varied = [(place, values) for place, values in counts.items() if len(set(values)) > 1]
    if not varied and len(counts) == len(axes):
        return builder(MultiplyOp, x, scalar_constant(builder, 1.0 / same, x))
    divisor: SSAValue | None = None
    for place, values in varied:
        extents = [len(values), *[1] * (len(axes) - 1 - place)]
        factor = float_constant(builder, extents, [n * (same if divisor is None else 1) for n in values], x)
        divisor = factor if divisor is None else builder(MultiplyOp, divisor, factor)
    for place, axis in enumerate(axes):
        if place not in counts:
            factor = _counted(builder, axis, with_pads, same if divisor is None else 1, x)
            factor = builder(ReshapeOp, factor, shape=shape_attribute([axis.windows, *[1] * (len(axes) - 1 - place)]))
            divisor = factor if divisor is None else builder(MultiplyOp, divisor, factor)
    assert divisor is not None
    return builder(DivideOp, x, divisor)


def _counted(builder: GraphBuilder, axis: PoolAxis, with_pads: bool, times: int, like: SSAValue) -> SSAValue:
    """How many elements, so many times, each window is of along an axis whose extent is a size: sums of ones padded alike."""
    low, high = (axis.low, axis.high) if with_pads else (0, 0)
    extents, element = shape_attribute([axis.extent + low + high]), tensor(like).element_type
    ones = builder(FullOp, shape=extents, value=float_value(float(times)), dtype=element)
    padded = padded_by(builder, ones, [axis.low - low], [axis.behind - high], 0)
    said = {"window": axis.kernel, "strides": axis.stride, "dilations": axis.dilation}
    return builder(WindowSumOp, padded, **{name: int_array([number]) for name, number in said.items()})


def float_constant(builder: GraphBuilder, extents: Sequence[int], values: Sequence[float], like: SSAValue) -> SSAValue:
    element = tensor(like).element_type
    assert isinstance(element, AnyFloat)
    return builder(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(TensorType(element, extents), values))
