"""Convolutions whose windows are not unfolded: which blocks are copied for products that read them at offsets."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.host.c_records import int64_table

COPIED_BYTES = 256 << 10
"""What a task copies at a time: part of a core's second cache, with room for the filters."""
WIDEST = 512
"""Columns of a block; more are cut."""
LEAST_SHARE = 0.1
"""Of the time, how much must be multiplications for the result: unfolded windows take longer to make, but waste nothing of
tiles where a result has less than a vector in a line."""
_TILE_ROWS = 8
_TILE_BYTES = 64
_COPYING = 3
"""What it costs to copy as many elements as a vector has, in multiplications of vectors."""
_LINE = 20
"""What it costs besides to copy a line."""
_TAIL = 0.5
"""Tasks that a thread waits for others to end."""
_ADDING = 4
"""What it costs to add the sums of some channels to those before, in multiplications of vectors."""
_LONGEST_SUM = 576
"""Terms that are added one by one; sums of so many are added to each other, as the blocks of a BLAS are."""
Shape = tuple[int, ...]
Attributes = tuple[Shape, Shape, Shape, int]
"""Strides, pads before and behind, dilations and groups."""
Config = Mapping[str, ConfigValue]


def attributes_of(config: Config, axes: int) -> Attributes:
    """Those of a call of a library; a number is one of them."""
    strides, dilations = (_integers(config, name, (1,) * axes) for name in ("strides", "dilations"))
    return strides, _integers(config, "pads", (0,) * 2 * axes), dilations, _integers(config, "groups", (1,))[0]


def _integers(config: Config, name: str, default: Shape) -> Shape:
    value = config.get(name, default)
    if isinstance(value, int):
        return (value,)
    return tuple(int(v) for v in value) if isinstance(value, tuple) else default


@dataclass(frozen=True)
class Windows:
    """A group of a convolution, with three spatial axes: the first ones are of one element where there are fewer."""

    item: int
    channels: int
    filters: int
    extents: Shape
    result: Shape
    window: Shape
    strides: Shape
    pads: Shape
    """Before the first elements."""
    dilations: Shape

    @staticmethod
    def of(item: int, x: Shape, weight: Shape, result: Shape, attributes: Attributes) -> Windows | None:
        """Those of a convolution of `x` over one to three axes; None where shapes do not fit together."""
        axes, (strides, pads, dilations, groups) = len(x) - 2, attributes
        if axes not in (1, 2, 3) or not len(x) == len(weight) == len(result) or groups < 1:
            return None
        if (len(strides), len(pads), len(dilations)) != (axes, 2 * axes, axes) or min((*strides, *dilations)) < 1:
            return None
        if (x[0], x[1], result[1]) != (result[0], weight[1] * groups, weight[0]) or weight[0] % groups or min(pads) < 0:
            return None
        ones = (1,) * (3 - axes)
        sizes = ones + x[2:], ones + result[2:], ones + weight[2:]
        begins = (0,) * len(ones) + pads[:axes]
        return Windows(item, weight[1], weight[0] // groups, *sizes, ones + strides, begins, ones + dilations)

    def record(
        self, samples: int, groups: int, blocks: Shape, tasks: int, grain: int, rest: Shape
    ) -> ctypes.Array[ctypes.c_int64]:
        """The record `convolution` of convolution_tasks.c."""
        sizes = (*self.extents, *self.result, *self.window, *self.strides, *self.pads, *self.dilations)
        counts = self.item, samples, groups, self.channels, self.filters
        return int64_table(*counts, *sizes, *blocks, tasks, grain, *rest)

    def reach(self, axis: int) -> int:
        """How many lines, or columns, of a plane a block reads beyond those of the result."""
        return (self.window[axis] - 1) * self.dilations[axis] // self.strides[axis]

    def planes(self) -> list[tuple[int, int, int]]:
        """What is copied of a channel: planes of the input, and of each every `stride`-th line and column."""
        met = [
            list(dict.fromkeys(k * self.dilations[axis] % self.strides[axis] for k in range(self.window[axis])))
            for axis in (1, 2)
        ]
        return [(k * self.dilations[0], h, w) for k in range(self.window[0]) for h in met[0] for w in met[1]]

    def offsets(self, channels: int, lines: int, pitch: int) -> Iterator[int]:
        """Where each place of the window finds the first element of a block, channel by channel."""
        places = list(self._places(lines, pitch))
        for channel in range(channels):
            first = channel * len(self.planes()) * lines * pitch
            yield from (first + place for place in places)

    def _places(self, lines: int, pitch: int) -> Iterator[int]:
        numbers = {plane: number for number, plane in enumerate(self.planes())}
        for d in range(self.window[0]):
            for h in range(self.window[1]):
                for w in range(self.window[2]):
                    row, row_phase = divmod(h * self.dilations[1], self.strides[1])
                    column, column_phase = divmod(w * self.dilations[2], self.strides[2])
                    plane = numbers[d * self.dilations[0], row_phase, column_phase]
                    yield (plane * lines + row) * pitch + column


@dataclass(frozen=True)
class Copies:
    """The blocks of one group of one sample."""

    filters: int
    positions: int
    """Of the result, in a block."""
    tasks: int
    fields: tuple[int, ...]
    """The end of the record `convolution`."""


def choose_copies(windows: Windows, parts: int, threads: int) -> Copies | None:
    """The blocks, where there are `parts` samples and groups of them; None where unfolding is the better way.

    That, and which sums are added to each other, does not depend on the number of threads.
    """
    planes, places = windows.planes(), prod(windows.window)
    depth, height, width = windows.result
    columns = -(-width // -(-width // WIDEST))
    pitch = columns + windows.reach(2)
    least = len(planes) * (1 + windows.reach(1)) * pitch * windows.item
    if least > COPIED_BYTES:
        return None
    channels = max(1, min(windows.channels, COPIED_BYTES // least, _LONGEST_SUM // places))
    channels = -(-windows.channels // -(-windows.channels // channels))
    blocks = _Blocks(windows, parts, columns, channels, len(planes))
    useful = windows.filters * prod(windows.result) * windows.channels * places * parts
    if useful * windows.item / _TILE_BYTES < LEAST_SHARE * blocks.best(1)[0]:
        return None
    _, rows, filters = blocks.best(threads)
    lines = rows + windows.reach(1)
    tasks = depth * -(-height // rows) * -(-width // columns) * -(-windows.filters // filters)
    table = (*(value for plane in planes for value in plane), *windows.offsets(channels, lines, pitch))
    fields = (rows, columns, channels, lines, pitch, len(planes), places, *table)
    return Copies(filters, rows * columns, tasks, fields)


@dataclass(frozen=True)
class _Blocks:
    """Which blocks there may be of so many columns, of which so many channels are copied at a time."""

    windows: Windows
    parts: int
    columns: int
    channels: int
    planes: int

    def best(self, threads: int) -> tuple[float, int, int]:
        """The time, rows and filters of the blocks that take the least time."""
        return min((self._time(threads, rows, filters), rows, filters) for rows, filters in self._choices())

    def _choices(self) -> Iterator[tuple[int, int]]:
        height, count = self.windows.result[1], self.windows.filters
        pitch = self.columns + self.windows.reach(2)
        line = self.channels * self.planes * pitch * self.windows.item
        for rows in dict.fromkeys(-(-height // k) for k in range(1, height + 1)):
            if rows == 1 or (rows + self.windows.reach(1)) * line <= COPIED_BYTES:
                for pieces in (1, 2, 4, 8):
                    yield rows, min(count, -(-count // (pieces * _TILE_ROWS)) * _TILE_ROWS)

    def _time(self, threads: int, rows: int, filters: int) -> float:
        """What the tasks of the busiest thread take, in multiplications of vectors."""
        windows = self.windows
        depth, height, width = windows.result
        lanes = _TILE_BYTES // windows.item
        pitch, lines = self.columns + windows.reach(2), rows + windows.reach(1)
        vectors = -(-((rows - 1) * pitch + self.columns) // lanes)
        computed = vectors * (1 if filters == 1 else -(-filters // _TILE_ROWS) * _TILE_ROWS)
        computed *= windows.channels * prod(windows.window) + _ADDING * -(-windows.channels // self.channels)
        copied = windows.channels * self.planes * lines * (_LINE + _COPYING * pitch / lanes)
        tasks = self.parts * depth * -(-height // rows) * -(-width // self.columns) * -(-windows.filters // filters)
        return max(-(-tasks // threads), tasks / threads + _TAIL) * (computed + copied)
