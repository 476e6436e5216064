"""How a convolution by tiles of 2x2 positions is cut: rows of tiles, or parts of these, and panels of filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from fuse_opt.dialects.analysis.contractions.packed_panels import COLLISION, LANE_BYTES
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS, SIDE
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import estimate, smallest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.convolution.tilings.filter_tiling import most_positions, position_tiles
from fuse_opt.lowering.cpu.convolution.tilings.tiling import FEWEST_TASKS, least_work, shared_panels
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import NARROW

TASK_BYTES = 896 << 10
"""Of what a task has on the stack, at most, if it has several rows: a second cache holds it."""
DEPTH = 32
"""Channels that are summed up at a time, at most: errors are 0.77 to 0.87 of those of windows then (RMS, measured), and a first
cache holds what a panel has of them."""
JOINED_BYTES = 32 << 10
"""Of the sums of a panel that are joined and stored at a time: a first cache holds them."""
FILTER_WORK, TILE_WORK = 3.0, 40.0
"""Of a vector of filters that a task reads from a far cache, and of a vector of channels of a tile that is transformed."""


@dataclass(frozen=True, slots=True)
class WinogradTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    tile_rows: int
    """Of a task; the last one may have fewer."""
    all_rows: int
    tile_columns: int
    """Of a row: all of them."""
    width: int
    """Channels from a position of the copy to the next one."""
    pitch: int
    """From a tile's channels to those of the next one."""
    panel: int
    """Filters side by side."""
    filters: int
    """Of a task: whole panels."""
    channels: int
    """That are summed up at a time."""
    blocks: tuple[int, int]
    """Of rows of tiles, and of filters."""
    tiles: int
    """Of registers, of a row: of `height` tiles of positions each, and the first `taller` of one more."""
    height: int
    taller: int

    @property
    def rows(self) -> int:
        """Of positions."""
        return SIDE * self.tile_rows

    @property
    def columns(self) -> int:
        """Positions of a row, those of a last tile that has one too many among them."""
        return SIDE * self.tile_columns

    def joined_rows(self, itemsize: int) -> int:
        """Of tiles, whose sums are joined and stored at a time."""
        row = SIDE * self.columns * self.panel * itemsize
        return max(1, min(JOINED_BYTES // row, self.tile_rows))

    @property
    def places(self) -> int:
        """Tiles of a task."""
        return self.tile_rows * self.tile_columns


@cache
def winograd_tiling(of: WindowContraction, panel: int, itemsize: int) -> WinogradTiling:
    """The cut of a merged contraction whose filters are in panels so wide, of least work among those with enough tasks."""
    return least_work(of, _cuts(of, panel, itemsize), lambda cut: cut.blocks)


def _cuts(of: WindowContraction, panel: int, itemsize: int) -> Iterator[tuple[float, WinogradTiling]]:
    """Those of which a second cache holds what a task has, or else those of a row, with their work but for the products."""
    height, width = (-(-n // SIDE) for n in of.positions[1:])
    lanes = LANE_BYTES // itemsize
    panels, pitch = -(-of.filters // panel), of.channels + lanes * (of.channels * itemsize % COLLISION == 0)
    tiles = position_tiles(width, panel // lanes)
    channels = -(-of.channels // -(-of.channels // DEPTH))
    shared = FEWEST_TASKS // max(of.batch, 1)
    for rows in sorted({-(-height // number) for number in range(1, height + 1)}):
        copied = (SIDE * rows + SIDE) * (SIDE * width + SIDE) * of.channels
        kept = rows * width * (PRODUCTS * (pitch + panel) + SIDE * SIDE * panel)
        if rows > 1 and (copied + kept) * itemsize > TASK_BYTES:
            continue
        for parts in range(1, min(panels, max(shared, 1)) + 1):
            some = -(-panels // parts)
            blocks = -(-height // rows), -(-panels // some)
            made = rows * width * of.channels / lanes * TILE_WORK
            read = panels * panel / lanes * of.channels * PRODUCTS * FILTER_WORK
            cut = WinogradTiling(
                rows, height, width, of.channels, pitch, panel, some * panel, channels, blocks, tiles, *divmod(width, tiles)
            )  # fmt: skip
            yield blocks[0] * (blocks[1] * made + read), cut


LONGEST_PART = 32
"""Tiles of a part of a row, at most."""
FEWEST_PLACES = 12
"""Tiles of a block, about, at least."""


@dataclass(frozen=True, slots=True)
class SizedWinogradTiling:
    """
    The cut where extents are sizes: images have `block_rows` times `parts` blocks of tiles, as equal as can be, which have no
    more than `places` tiles each, whatever the extents are.
    """

    block_rows: Extent
    """Blocks of rows of tiles."""
    parts: Extent
    """Of a row of tiles."""
    places: int
    longest: int
    """Tiles of a part of a row, at most."""
    copied: int
    """Positions of the copy of what a block reads, at most."""
    width: int
    """Channels from a position of the copy to the next one."""
    pitch: int
    """From a tile's channels to those of the next one."""
    panel: int
    """Filters side by side."""
    filters: int
    """Of a task: whole panels."""
    channels: int
    """That are summed up at a time."""
    height: int
    """Tiles of positions of a tile of registers."""
    positions: int
    """Whose sums of a panel are joined and stored at a time, at most."""

    @property
    def rows(self) -> int:
        """Of positions, at most."""
        return SIDE * self.places

    @property
    def columns(self) -> int:
        """Positions of a row, at most."""
        return SIDE * self.longest

    def shares(self, filters: int) -> int:
        """Tasks that share the filters of a block."""
        return -(-filters // self.filters)


@cache
def sized_winograd_tiling(of: WindowContraction, panel: int, itemsize: int) -> SizedWinogradTiling:
    """The cut of a merged contraction whose filters are in panels so wide; as many tiles as a second cache holds."""
    lanes = LANE_BYTES // itemsize
    pitch = of.channels + lanes * (of.channels * itemsize % COLLISION == 0)
    size = (SIDE * SIDE * (of.channels + panel) + PRODUCTS * (pitch + panel)) * itemsize
    most = max(TASK_BYTES // size, FEWEST_PLACES)
    longest = min(LONGEST_PART, most)
    height, width = (-(-n // SIDE) for n in of.positions[1:])
    parts: Extent = -(-width // longest)
    rows = smallest(height, -(-height * smallest(width, longest) // most))
    # A block has at most so many rows more than the most of tiles have: one more of each, or all tiles in a single column.
    places = most + longest
    copied = max((SIDE * (places // n) + SIDE) * (SIDE * n + SIDE) for n in range(1, longest + 1))
    channels = -(-of.channels // -(-of.channels // DEPTH))
    some = shared_panels(of.filters, panel, estimate(of.batch * of.positions[0] * rows * parts))
    return SizedWinogradTiling(
        rows, parts, places, longest, copied, of.channels, pitch, panel, some, channels, _height(panel // lanes),
        max(JOINED_BYTES // (panel * itemsize), SIDE * SIDE * longest),
    )  # fmt: skip


def _height(vectors: int) -> int:
    """Rows of a tile of registers; not a few more than what narrow registers hold once or twice."""
    most = most_positions(vectors)
    return most // NARROW.most_rows * NARROW.most_rows or most
