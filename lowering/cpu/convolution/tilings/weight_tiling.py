"""How a convolution's gradient by its weight is cut: panels of channels, filters of a task, blocks of positions, parts of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import gcd, prod

from fuse_opt.dialects.analysis.contractions.product_copies import TASK_OPERATIONS
from fuse_opt.dialects.analysis.contractions.weight_gradients import columns_of, joins_taps
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.tiling import FEWEST_TASKS, RATE, Tile

COPY_BYTES = 192 << 10
"""Of a block's copy of the input, about: what a second cache holds beside the sums."""
SUM_BYTES = 256 << 10
"""Of a task's sums, about."""
LONGEST_ROW = 512
"""Positions of a block's row."""
MOST_VECTORS = 4
"""Of a panel: for so many a tile has six filters, and loads as much as it multiplies in a fourth of its time."""
COPY_WORK = 1.5
"""Of an element that is copied, in multiplications of a vector by 16: it is turned, in squares."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The elements of an axis that a block copies: those that are met by any window, and no others between them."""

    step: int
    """From a copied element of the input to the next one."""
    stride: int
    """From a position to the next one, in the copy."""
    dilation: int
    taps: int

    @staticmethod
    def along(of: WindowContraction, axis: int) -> Steps:
        stride, dilation, taps = of.strides[axis], of.dilations[axis], of.window[axis]
        step = gcd(stride, dilation) if taps > 1 else stride
        return Steps(step, stride // step, dilation // step, taps)

    def count(self, positions: int) -> int:
        """Elements that windows at so many neighbouring positions meet."""
        return (positions - 1) * self.stride + self.dilation * (self.taps - 1) + 1


@dataclass(frozen=True, slots=True)
class WeightTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    tile: Tile
    filters: int
    """Of a task, which divide those of a group."""
    panels: int
    rows: int
    """Of a block, of positions."""
    columns: int
    """Of a row of a block."""
    blocks: tuple[int, int, int, int]
    """Blocks of all samples, planes, rows and columns of positions, in the order in which they are summed up."""
    parts: int
    """Of all blocks: sums of each are made apart and then joined in order."""

    @property
    def width(self) -> int:
        """Columns of a panel: channels, or those of a row of a window."""
        return self.tile.width

    @property
    def part(self) -> int:
        """Blocks of a part; the last ones may have fewer."""
        return -(-prod(self.blocks) // self.parts)

    def for_batch(self, batch: int) -> WeightTiling:
        """The same for another batch, which may leave parts without a block."""
        return replace(self, blocks=(batch, *self.blocks[1:]))


@cache
def weight_tiling(of: WindowContraction, itemsize: int) -> WeightTiling:
    """The cut of a merged contraction of elements of so many bytes, of least work."""
    return min(_cuts(of, itemsize), key=lambda cut: cut[0])[1]


def block_parts(of: WindowContraction, tasks: int, blocks: int) -> int:
    """Into how many parts of equal length all blocks are cut, where a part has so many tasks."""
    most = min(FEWEST_TASKS // tasks, blocks, of.operations // (tasks * TASK_OPERATIONS))
    return -(-blocks // -(-blocks // max(most, 1)))


def copied_elements(of: WindowContraction, rows: int, columns: int, channels: int) -> int:
    """Elements of the copy of a block of positions, of so many channels."""
    down, right = Steps.along(of, 1), Steps.along(of, 2)
    return of.window[0] * down.count(rows) * right.count(columns) * channels


def copied_channels(of: WindowContraction, width: int) -> int:
    """Channels side by side in the copy, of panels so wide."""
    return of.channels if joins_taps(of) else width


def row_taps(of: WindowContraction) -> int:
    """Taps of a window whose columns are not side by side."""
    return of.taps // of.window[2] if joins_taps(of) else of.taps


def _cuts(of: WindowContraction, itemsize: int) -> Iterator[tuple[float, WeightTiling]]:
    lanes, columns = 64 // itemsize, columns_of(of)
    for vectors in range(1, MOST_VECTORS + 1):
        width = vectors * lanes
        if (vectors > 1 and width - lanes >= columns) or (joins_taps(of) and width < columns):
            continue
        panels, taps = -(-columns // width), row_taps(of)
        least = -(-taps * width * itemsize * of.filters // SUM_BYTES)
        parts = next((n for n in range(least, of.filters) if of.filters % n == 0), of.filters)
        filters = of.filters // parts
        rows, row = _block(of, copied_channels(of, width) * itemsize)
        if vectors > 1 and not joins_taps(of) and copied_elements(of, rows, row, width) * itemsize > 2 * COPY_BYTES:
            continue
        blocks = (of.batch, of.positions[0], -(-of.positions[1] // rows), -(-of.positions[2] // row))
        joined = block_parts(of, of.groups * panels * parts, prod(blocks))
        tile = Tile.of(filters, vectors, lanes)
        cut = WeightTiling(tile, filters, panels, rows, row, blocks, joined)
        multiplied = taps * rows * row * filters * vectors / RATE[vectors] * _waste(filters, tile)
        copied = copied_elements(of, rows, row, copied_channels(of, width)) * COPY_WORK / lanes * 2
        yield panels * parts * prod(blocks) * (multiplied + copied), cut


def _waste(filters: int, tile: Tile) -> float:
    """How much longer a step takes as the tile has few filters, whose sums wait for each other or for what is loaded."""
    height = filters / tile.tiles
    return max(1.0, (height + tile.vectors) / (height * tile.vectors), 8 / (height * tile.vectors))


def _block(of: WindowContraction, bytes: int) -> tuple[int, int]:
    """Rows of positions of a block, and positions of a row, where a position has so many bytes."""
    _, height, width = of.positions
    row = -(-width // -(-width // LONGEST_ROW))
    while row > 1 and copied_elements(of, 1, row, 1) * bytes > COPY_BYTES:
        row = -(-row // 2)
    if row < width:
        return 1, row
    rows = 1
    while rows < height and copied_elements(of, rows + 1, row, 1) * bytes <= COPY_BYTES:
        rows += 1
    return -(-height // -(-height // rows)), row
