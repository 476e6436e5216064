"""How a convolution of few positions is cut, whose filters are packed: all positions, panels of filters, tiles of positions."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES, has_narrow_panels
from fuse_opt.dialects.analysis.contractions.product_copies import TASK_OPERATIONS
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.blocks import Block, copied_elements
from fuse_opt.lowering.cpu.convolution.tilings.window_rows import Reach
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import MOST_ROWS, NARROW, REGISTERS

DEPTH = 256
"""Channels and taps that are summed up at a time, about: a second cache holds what a panel has of them for all positions."""
MOST_TASKS = 8
"""Of an image, at most: each of these tasks copies what windows see where others have not."""


NEAR_BYTES = 28 << 10
"""The same in bytes of a panel and of what all its tiles read beside, where these are narrow: a first cache holds them."""
LEAST_DEPTH = 64
"""Of such channels and taps: fewer take as long to store their sums."""


def position_tiles(positions: int, vectors: int, is_narrow: bool = False) -> int:
    """
    Tiles of neighbouring positions over so many vectors of filters, or two narrow ones: as registers hold, or one if it has a row
    too many.
    """
    whole = min(MOST_ROWS, (REGISTERS + 1) // vectors - 1)
    return 1 if positions <= whole and not is_narrow else -(-positions // most_positions(vectors, is_narrow))


def most_positions(vectors: int, is_narrow: bool = False) -> int:
    """Of a tile whose sums registers hold, of so many vectors of filters, or two narrow ones."""
    return NARROW.most_rows if is_narrow else min(MOST_ROWS, REGISTERS // vectors - 1)


@dataclass(frozen=True, slots=True)
class FilterTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    block: Block
    """All positions."""
    width: int
    """Filters of a panel, and of a tile."""
    filters: int
    """Of a task: whole panels."""
    channels: int
    """That are summed up at a time."""
    lines: int
    """Stretches of neighbouring positions, `block.pitch` apart."""
    tiles: int
    """Of a line, of `height` positions each, and the first `taller` of one more."""
    height: int
    taller: int

    @property
    def rows(self) -> int:
        """Filters whose sums are kept."""
        return self.width

    @property
    def columns(self) -> int:
        """Positions whose sums are kept, of whole vectors."""
        return -(-self.block.positions(self.block.rows) // 16) * 16

    @property
    def widest(self) -> int:
        """Positions that are read behind the last one."""
        return 0


def filter_tiling(contraction: WindowContraction, width: int, itemsize: int) -> FilterTiling:
    """The cut of a merged contraction, whose filters are in panels so wide."""
    _, height, row = contraction.positions
    reach = Reach.along(contraction, 2)
    inside = contraction.reads_in_place
    pitch = contraction.extents[2] if inside else reach.pitch(row) if height > 1 else row + reach.behind
    block = Block(height, row, pitch, not inside)
    lines, length = (1, block.positions(height)) if pitch == row else (height, row)
    is_narrow = has_narrow_panels(contraction, width, itemsize)
    tiles = position_tiles(length, width * itemsize // LANE_BYTES, is_narrow)
    panels = -(-contraction.filters // width)
    most = min(MOST_TASKS // contraction.batch, contraction.operations // (contraction.batch * TASK_OPERATIONS))
    some = -(-panels // max(min(most, panels), 1))
    channels, taps = contraction.channels, contraction.taps
    seen = pitch * height if inside else copied_elements(contraction, block) // channels
    depth = min(DEPTH, _near_depth(seen, taps, width, itemsize)) if is_narrow else DEPTH
    channels = -(-channels // max(-(-channels * taps // depth), 1))
    return FilterTiling(block, width, some * width, channels, lines, tiles, *divmod(length, tiles))


def _near_depth(positions: int, taps: int, width: int, itemsize: int) -> int:
    """Channels and taps of which a first cache holds what so many positions have, and a panel."""
    return max(NEAR_BYTES // ((positions + taps * width) * itemsize) * taps, LEAST_DEPTH)
