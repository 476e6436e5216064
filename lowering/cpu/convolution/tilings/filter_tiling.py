"""How a convolution of few positions is cut, whose filters are packed: all positions, panels of filters, tiles of positions."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.blocks import Block
from fuse_opt.lowering.cpu.convolution.tilings.window_rows import Reach
from fuse_opt.lowering.cpu.matmul.tile_shapes import MOST_ROWS, REGISTERS
from fuse_opt.lowering.cpu.matmul.tiling import TASK_OPERATIONS

DEPTH = 256
"""Channels and taps that are summed up at a time, about: a second cache holds what a panel has of them for all positions."""
MOST_TASKS = 8
"""Of an image, at most: each of these tasks copies what windows see where others have not."""


def position_tiles(positions: int, vectors: int) -> int:
    """Tiles of neighbouring positions over so many vectors of filters: as registers hold, or one if it has a row too many."""
    most = min(MOST_ROWS, REGISTERS // vectors - 1)
    whole = min(MOST_ROWS, (REGISTERS + 1) // vectors - 1)
    return 1 if positions <= whole else -(-positions // most)


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
    tiles = position_tiles(length, width * itemsize // LANE_BYTES)
    panels = -(-contraction.filters // width)
    most = min(MOST_TASKS // contraction.batch, contraction.operations // (contraction.batch * TASK_OPERATIONS))
    some = -(-panels // max(min(most, panels), 1))
    channels = -(-contraction.channels // max(-(-contraction.channels * contraction.taps // DEPTH), 1))
    return FilterTiling(block, width, some * width, channels, lines, tiles, *divmod(length, tiles))
