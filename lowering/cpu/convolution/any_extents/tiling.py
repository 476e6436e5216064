"""How a convolution is cut whose images have any extents: parts of rows, and so many rows that sums have room for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from fuse_opt.dialects.analysis.contractions.packed_panels import LONGEST_PART, PLANE_STEP
from fuse_opt.dialects.analysis.contractions.product_copies import TASK_OPERATIONS
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import estimate, smallest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.convolution.tilings.tiling import (
    DEPTH,
    FEWEST_TASKS,
    FIRST_CACHE,
    MOST_SUM_BYTES,
    SUM_BYTES,
    Tile,
)

POSITIONS = (2048, 1024, 512, 384, 256, 192, 128, 64)
"""Of a block, about: as many as sums of all filters have room for."""
USUAL_POSITIONS = 512
"""Of a block, at most, whose copy and sums would fill a first cache."""
NEAR_BYTES = 24 << 10
"""Of a copy and sums that leave room in a first cache: what is copied twice, at the ends of blocks, is less of large ones."""
FAR_WEIGHT = 1 << 20
"""Bytes of filters that a second cache has no room for: fewer, larger blocks read them fewer times."""
COPY_BYTES = 128 << 10
"""Of the channels that are copied at a time, at most, if they are several."""
NARROW = 2
"""Vectors of a last panel."""
OTHER_HEIGHT = 1.05
"""Work of tiles of two heights, where others are as fast in registers: each is a function that takes long to compile."""


@dataclass(frozen=True, slots=True)
class AnyExtentsTiling:
    """
    The cut. Images have `rows` times `parts` blocks, all rows and all parts of a row as equal as can be: with rows of `pitch`
    elements a block has fewer than `positions + pitch`, whatever the extents are.
    """

    tile: Tile
    narrow: Tile | None
    """Of the last positions of a block, if they are `most_narrow` at most, as several of its panels are less work."""
    most_narrow: int
    single: Tile | None
    """Of one vector, for blocks that have no more positions, if there may be such: windows that are apart make small images."""
    filters: int
    """Of a task, which divide those of a group."""
    channels: int
    """That are copied and summed up at a time."""
    rows: Extent
    """Blocks of rows."""
    parts: Extent
    """Of a row."""
    columns: int
    """Positions whose sums are kept, with those between rows, of whole panels."""
    plane: int
    """Elements of a plane of a channel's copy, at most."""

    @property
    def slack(self) -> int:
        """Elements that tiles may read behind the copy."""
        return self.tile.width


@cache
def any_extents_tiling(of: WindowContraction, itemsize: int, register_bits: int) -> AnyExtentsTiling:
    """The cut of a merged contraction of elements of so many bytes, of least work at typical extents, for such registers."""
    cuts = (_cut(of, vectors, positions, itemsize) for vectors in range(1, 7) for positions in _room(of, itemsize))
    other = OTHER_HEIGHT if register_bits > 256 else 1.0  # of 8 rows, tiles of 16 registers are slower than of 6
    return min(cuts, key=lambda cut: _work(of, cut) * (other if cut.tile.taller else 1.0))


def _room(of: WindowContraction, itemsize: int) -> Iterator[int]:
    """Positions of a block: the most for whose sums of all filters there is room, or else the fewest."""
    whole = (of.filters + of.channels * of.planes) * itemsize
    is_far = of.filters * of.channels * of.taps * itemsize > FAR_WEIGHT
    room = MOST_SUM_BYTES if is_far else SUM_BYTES
    fitting = [
        positions
        for positions in POSITIONS
        if of.filters * positions * itemsize <= room
        and (positions <= USUAL_POSITIONS or whole * positions <= NEAR_BYTES)
    ]
    yield fitting[0] if fitting else POSITIONS[-1]


def _cut(of: WindowContraction, vectors: int, positions: int, itemsize: int) -> AnyExtentsTiling:
    lanes, (_, height, width) = 64 // itemsize, of.positions
    down, right = of.behind(1), of.behind(2)
    most = positions if height == 1 else LONGEST_PART
    longest, parts = most + right, -(-width // most)
    # Rows so long for each block: what a block has is no more than it was to have, and those of a row.
    rows: Extent = 1 if height == 1 else smallest(height, -(-height * (smallest(width, most) + right) // positions))
    whole = longest if height == 1 else positions + longest
    columns = -(-whole // (vectors * lanes)) * vectors * lanes
    filters = of.filters // _shares(of, rows * parts, columns * itemsize)
    tile = Tile.of(filters, vectors, lanes)
    narrow, panels = _narrow(filters, tile, lanes)
    plane = -(-(whole + down * longest) // PLANE_STEP) * PLANE_STEP + PLANE_STEP
    met = prod(of.window[:2]) * tile.width * itemsize
    some = max(min(DEPTH // of.taps, FIRST_CACHE // met, COPY_BYTES // (of.planes * plane * itemsize)), 1)
    channels = -(-of.channels // -(-of.channels // some))
    most_narrow = panels * narrow.width if narrow else 0
    single = _even(Tile.of(filters, 1, lanes), filters) if vectors > 1 and max(of.strides) > 1 else None
    return AnyExtentsTiling(tile, narrow, most_narrow, single, filters, channels, rows, parts, columns, plane)


def _narrow(filters: int, tile: Tile, lanes: int) -> tuple[Tile | None, int]:
    """Tiles of a narrower panel, and how many of them are less work than a whole one."""
    narrow = _even(Tile.of(filters, NARROW, lanes), filters)
    panels = (tile.vectors - 1) // NARROW
    while panels and panels * narrow.work(filters, 1, 0) >= tile.work(filters, 1, 0):
        panels -= 1
    return (narrow, panels) if panels else (None, 0)


def _even(tile: Tile, filters: int) -> Tile:
    """Of one height if that takes less than twice as many: a function is to compile for each height, of which one is enough."""
    if not tile.taller:
        return tile
    tiles = next((tiles for tiles in range(tile.tiles + 1, 2 * tile.tiles) if filters % tiles == 0), None)
    return tile if tiles is None else replace(tile, tiles=tiles, height=filters // tiles, taller=0)


def _shares(of: WindowContraction, blocks: Extent, filter_bytes: int) -> int:
    """How many tasks share the filters of a block: for room, and for enough tasks at typical extents."""
    tasks = max(estimate(of.batch * of.groups * of.positions[0] * blocks), 1)
    wanted = min(FEWEST_TASKS // tasks, estimate(of.operations) // (tasks * TASK_OPERATIONS))
    least = max(-(-of.filters * filter_bytes // (2 * SUM_BYTES)), 1)
    most = max(wanted, least)
    fitting = [n for n in range(least, of.filters + 1) if of.filters % n == 0] or [of.filters]
    return max((n for n in fitting if n <= most), default=fitting[0])


def _work(of: WindowContraction, cut: AnyExtentsTiling) -> float:
    """About, at typical extents, of an image."""
    blocks, (_, height, width) = estimate(cut.rows * cut.parts), map(estimate, of.positions)
    rows, part = -(-height // estimate(cut.rows)), -(-width // estimate(cut.parts))
    length = (rows - 1) * (part + of.behind(2)) + part
    panels = -(-length // cut.tile.width)
    sums = cut.tile.work(cut.filters, of.channels * of.taps, -(-of.channels // cut.channels))
    return blocks * panels * sums * (of.filters // cut.filters)
