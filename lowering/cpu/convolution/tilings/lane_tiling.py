"""How a depthwise convolution is cut whose vectors are of channels: rows of positions, blocks of channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.tiling import least_work
from fuse_opt.lowering.cpu.convolution.tilings.weight_tiling import copied_elements

COPY_BYTES = 400 << 10
"""Of a task's copy, at most, if it has several rows: a second cache holds it, and lines are copied as they are met."""
MOST_POSITIONS = 8
"""Of a tile: two loads begin in a cycle, and none of so many sums waits for the one before."""
STRETCH_WORK, NEAR_STRETCH_WORK = 3.0, 0.5
"""Of a copy's neighbouring channels of a position, and of such a stretch that is stored, next to a vector of them: of an input
that lies in a far cache, of which other tasks read the same lines, and of one that a second cache holds (measured)."""
NEAR_INPUT = 640 << 10
"""Bytes of an image of such an input."""
FIRST_CACHE, SECOND_CACHE_WORK = 12 << 10, 1.4
"""Bytes of the lines that a row of positions sees, which taps then read from a first cache, beside what is copied and stored; the
work of a tap for others."""


@dataclass(frozen=True, slots=True)
class LaneTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    rows: int
    """Of a task, of positions; the last one may have fewer."""
    columns: int
    """Of a row: all of them."""
    width: int
    """Channels of a task, of whole vectors."""
    blocks: tuple[int, int]
    """Of channels, and of rows."""


def channels_side_by_side(of: WindowContraction) -> WindowContraction:
    """A merged depthwise convolution as if all its channels were those of one group: what of the input is read."""
    return replace(of, groups=1, channels=of.groups)


@cache
def lane_tiling(of: WindowContraction, itemsize: int) -> LaneTiling:
    """The cut of a merged contraction of elements of so many bytes, of least work among those with enough tasks."""
    return least_work(of, _cuts(of, itemsize), lambda cut: cut.blocks)


def lane_tiles(of: WindowContraction) -> tuple[int, int, int]:
    """The tiles of a row of positions: how many, of how many positions, and how many of one more."""
    row = of.positions[2]
    tiles = -(-row // MOST_POSITIONS)
    return tiles, *divmod(row, tiles)


def _cuts(of: WindowContraction, itemsize: int) -> Iterator[tuple[float, LaneTiling]]:
    """Those whose copy a second cache holds, or else of a vector of channels and a row, with their work."""
    lanes, seen = LANE_BYTES // itemsize, channels_side_by_side(of)
    height, row = of.positions[1:]
    vectors = -(-of.groups // lanes)
    is_near = prod(of.extents) * of.groups * itemsize <= NEAR_INPUT
    stretch = NEAR_STRETCH_WORK if is_near else STRETCH_WORK
    for parts in range(1, vectors + 1):
        width = -(-vectors // parts)
        for number in range(1, height + 1):
            rows = -(-height // number)
            copied = copied_elements(seen, rows, row, 1)
            is_first = copied_elements(seen, 1, row, 1) * width * LANE_BYTES <= FIRST_CACHE
            taps = of.taps / 2 * (1.0 if is_first else SECOND_CACHE_WORK)
            if copied * width * LANE_BYTES > COPY_BYTES and (rows, width) != (1, 1):
                continue
            blocks = -(-vectors // width), -(-height // rows)
            work = copied * (width + stretch) + rows * row * (width * taps + stretch)
            yield prod(blocks) * work, LaneTiling(rows, row, width * lanes, blocks)
            if rows == 1:
                break
