"""How a depthwise convolution is cut whose vectors are of channels and which reads its input where that lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.tiling import least_work

WEIGHT_BYTES = 12 << 10
"""Of all taps of the channels of a task, at most, if it has several vectors: a first cache has them beside what they meet."""
_TILE_POSITIONS = 8
"""Of a tile: two loads begin in a cycle, and none of so many sums waits for the one before."""
_ROW_WORK = 0.02
"""Of a row of positions that a task begins with, whose input another one has read, next to a row."""


@dataclass(frozen=True, slots=True)
class InsideTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    rows: int
    """Of a task, of positions; the last one may have fewer."""
    width: int
    """Channels of a task, of whole vectors; the last one may have fewer."""
    blocks: tuple[int, int]
    """Of channels, and of rows."""


def inside(of: WindowContraction, axis: int) -> tuple[int, int]:
    """The first position along an axis whose window lies inside of the input, and the first one behind it whose does not."""
    begin, stride, count = of.begins[axis], of.strides[axis], of.positions[axis]
    seen = of.dilations[axis] * (of.window[axis] - 1) + 1
    first = min(-(-begin // stride), count)
    return first, max(first, min((of.extents[axis] + begin - seen) // stride + 1, count))


def reads_inside(of: WindowContraction, itemsize: int) -> bool:
    """
    Whether a merged depthwise contraction reads an input that has its channels innermost where it lies: of planes whose windows
    mostly are inside, and of channels that fill vectors.
    """
    if not of.x_last or of.has_any_extents or of.groups % (LANE_BYTES // itemsize):
        return False
    if (of.extents[0], of.positions[0], of.window[0], of.begins[0]) != (1, 1, 1, 0):
        return False
    first, last = inside(of, 2)
    return 2 * (last - first) >= of.positions[2]


def inside_tiles(of: WindowContraction) -> tuple[int, int, int]:
    """The tiles of the positions of a row that are inside: how many, of how many positions, and how many of one more."""
    first, last = inside(of, 2)
    tiles = -(-(last - first) // _TILE_POSITIONS)
    return tiles, *divmod(last - first, tiles)


@cache
def inside_tiling(of: WindowContraction, itemsize: int) -> InsideTiling:
    """The cut of a merged contraction of elements of so many bytes, of least work among those with enough tasks."""
    return least_work(of, _cuts(of, itemsize), lambda cut: cut.blocks)


def _cuts(of: WindowContraction, itemsize: int) -> Iterator[tuple[float, InsideTiling]]:
    lanes, height = LANE_BYTES // itemsize, of.positions[1]
    vectors, most = of.groups // lanes, max(1, WEIGHT_BYTES // (of.taps * LANE_BYTES))
    for parts in range(-(-vectors // most), vectors + 1):
        width = -(-vectors // parts)
        panels = -(-vectors // width)
        for rows in range(1, height + 1):
            blocks = panels, -(-height // rows)
            work = panels * (height + _ROW_WORK * blocks[1])
            yield work, InsideTiling(rows, width * lanes, blocks)
