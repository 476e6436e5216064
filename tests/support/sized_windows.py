"""Convolutions and poolings of images whose batch, height and width are symbols, for random programs over symbols."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.graph.contractions.convolution import ConvOp, ConvTransposeOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp
from fuse_opt.dialects.graph.elementwise.piecewise_activations import ReluOp
from fuse_opt.dialects.graph.windows.pooling import AvgPoolOp, GlobalAvgPoolOp, MaxPoolOp
from fuse_opt.dialects.interfaces.properties import bool_value, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.dialects.types.extents import is_number, most
from fuse_opt.dialects.types.size import Extent, symbol

if TYPE_CHECKING:
    from sized_programs import SizedWriter

_BATCHES = ((1, 3), (1, 4), (2, 5))
_SIDES = ((1, 18), (3, 24), (2, 20), (5, 33))
_CHANNELS = (1, 2, 3, 4, 8, 16)
_MOST_SUMMED = 1 << 8
"""Channels of a window's filters at most, so that what a convolution reads stays small."""


def image_symbols(rng: random.Random) -> list[Extent]:
    """Of a batch, a height and a width; now and then images are squares."""
    sides = [symbol(name, *rng.choice(_SIDES)) for name in ("height", "width")]
    return [symbol("batch", *rng.choice(_BATCHES)), sides[0], sides[rng.random() < 0.8]]


class WindowSteps:
    """What adds an op over windows to a function under construction."""

    def __init__(self, writer: SizedWriter, image: Sequence[Extent]) -> None:
        self._writer, self._rng, self._image = writer, writer.rng, image

    def step(self) -> None:
        x = self._pick()
        window = self._rng.choice([self._conv] * 3 + [self._depthwise] * 2 + [self._pointwise] * 2 + [self._pool] * 3)
        found = window(x)
        if found is not None and self._rng.random() < 0.3:
            self._writer.add(ReluOp, found)

    def _pick(self) -> SSAValue:
        """An image there is, or an argument."""
        found = [value for value in self._writer.values if _is_image(value)]
        if found and self._rng.random() < 0.8:
            return self._rng.choice(found[-4:])
        batch, *sides = self._image
        element = F32 if self._rng.random() < 0.9 else F64
        return self._writer.argument(element, [batch, self._rng.choice(_CHANNELS), *sides])  # pyright: ignore[reportArgumentType]

    def _windows(self, kernel: tuple[int, int], dilated: bool = True) -> dict[str, Attribute]:
        """Strides, zeros around, and gaps between the elements of a window."""
        rng = self._rng
        found: dict[str, Attribute] = {}
        if rng.random() < 0.5:
            found["strides"] = int_array([rng.choice([1, 2, 2, 3]) for _ in kernel])
        if rng.random() < 0.7:
            pads = [k // 2 for k in kernel] if rng.random() < 0.7 else [rng.randint(0, k - 1) for k in kernel]
            found["pads"] = int_array([*pads, *(pads if rng.random() < 0.8 else [0, 0])])
        if dilated and rng.random() < 0.15:
            found["dilations"] = int_array([2, 2])
        return found

    def _side(self) -> tuple[int, int]:
        return self._rng.choice([(3, 3), (3, 3), (3, 3), (5, 5), (2, 2), (1, 3), (7, 2)])

    def _conv(self, x: SSAValue) -> SSAValue | None:
        """In groups now and then, or transposed."""
        channels, kernel = shape(x)[1], self._side()
        filters = self._rng.choice(_CHANNELS)
        if self._rng.random() < 0.2:
            return self._filtered(ConvTransposeOp, x, [channels, filters, *kernel], self._windows(kernel, False))
        groups = self._rng.choice([1, 1, 1, 2, 4])
        groups = groups if channels % groups == 0 and filters % groups == 0 else 1
        options = {**self._windows(kernel), "groups": int_value(groups)}
        return self._filtered(ConvOp, x, [filters, channels // groups, *kernel], options)

    def _depthwise(self, x: SSAValue) -> SSAValue | None:
        channels, kernel = shape(x)[1], self._side()
        options = {**self._windows(kernel), "groups": int_value(channels)}
        return self._filtered(ConvOp, x, [channels, 1, *kernel], options)

    def _pointwise(self, x: SSAValue) -> SSAValue | None:
        options: dict[str, Attribute] = {"strides": int_array([2, 2])} if self._rng.random() < 0.2 else {}
        return self._filtered(ConvOp, x, [self._rng.choice(_CHANNELS), shape(x)[1], 1, 1], options)

    def _filtered(
        self, op_type: type[ConvOp | ConvTransposeOp], x: SSAValue, filters: list[int], options: dict[str, Attribute]
    ) -> SSAValue | None:
        """With a bias for each channel behind it now and then."""
        found = self._writer.add(op_type, x, self._writer.argument(dtype(x), filters), **options)
        if found is None or self._rng.random() < 0.6:
            return found
        return self._writer.add(AddOp, found, self._writer.argument(dtype(x), [shape(found)[1], 1, 1]))

    def _pool(self, x: SSAValue) -> SSAValue | None:
        kernel = self._rng.choice([(2, 2), (3, 3), (3, 3), (1, 2)])
        options = {"kernel_shape": int_array(kernel), **self._windows(kernel, False)}
        if self._rng.random() < 0.4:
            options["ceil_mode"] = bool_value(True)
        match self._rng.randrange(5):
            case 0 | 1:
                return self._writer.add(MaxPoolOp, x, **options)
            case 2 | 3:
                counted = bool_value(self._rng.random() < 0.3)
                return self._writer.add(AvgPoolOp, x, **options, count_include_pad=counted)
            case _:
                return self._writer.add(GlobalAvgPoolOp, x)


def _is_image(value: SSAValue) -> bool:
    extents = shape(value)
    if len(extents) != 4 or not dtype(value).is_float or not is_number(extents[1]):
        return False
    return extents[1] <= _MOST_SUMMED and all(most(extent) > 1 for extent in extents[2:])
