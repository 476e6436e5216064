"""How a convolution of any extents whose filters are packed is cut: blocks of positions, and tiles of lines of these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES, PLANE_STEP, sized_block
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import estimate, smallest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.convolution.tilings.filter_tiling import DEPTH
from fuse_opt.lowering.cpu.convolution.tilings.tiling import FEWEST_TASKS
from fuse_opt.lowering.cpu.convolution.tilings.window_rows import Reach
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import MOST_ROWS, NARROW, REGISTERS


@dataclass(frozen=True, slots=True)
class PanelTiling:
    """The cut; images have `rows` times `parts` blocks, as equal as can be, of no more than so many positions."""

    rows: Extent
    """Blocks of rows."""
    parts: Extent
    """Of a row."""
    positions: int
    """Whose sums of a panel are kept, at most, with those between rows and behind the last one."""
    plane: int
    """Elements of a plane of a channel's copy, at most."""
    channels: int
    """That are copied at a time: all."""
    slack: int
    """Elements that tiles may read behind the copy."""
    depth: int
    """Channels that are summed up at a time."""
    panel: int
    """Filters side by side."""
    filters: int
    """Of a task: whole panels."""
    height: int
    """Positions of a tile."""
    shorter: int
    """Of the last one or two tiles of a line."""


@cache
def panel_tiling(of: WindowContraction, panel: int, itemsize: int) -> PanelTiling:
    """The cut of a merged contraction whose filters are in panels so wide; as many positions as caches hold."""
    block = sized_block(of, itemsize)
    assert block is not None
    (_, height, width), behind = of.positions, Reach.along(of, 2).behind
    parts: Extent = -(-width // block.part)
    rows: Extent = 1
    if height != 1:
        rows = smallest(height, -(-height * (smallest(width, block.part) + behind) // block.positions))
    tile = _height(panel * itemsize // LANE_BYTES)
    longest = block.positions + behind + (0 if height == 1 else block.part) + tile
    depth = -(-of.channels // max(-(-of.channels * of.taps // DEPTH), 1))
    panels, tasks = -(-of.filters // panel), max(estimate(of.batch * of.positions[0] * rows * parts), 1)
    some = -(-panels // min(panels, max(FEWEST_TASKS // tasks, 1)))
    return PanelTiling(
        rows, parts, -(-longest // PLANE_STEP) * PLANE_STEP, block.plane, of.channels, PLANE_STEP, depth, panel,
        some * panel, tile, -(-2 * tile // 3),
    )  # fmt: skip


def _height(vectors: int) -> int:
    """Positions of a tile whose sums registers hold, of so many vectors; of one, those of two narrow ones."""
    return NARROW.most_rows if vectors == 1 else min(MOST_ROWS, REGISTERS // vectors - 1)
