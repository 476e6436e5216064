"""How a convolution of any extents whose filters are packed is cut: blocks of positions, and tiles of lines of these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES, PLANE_STEP, sized_block
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import estimate, smallest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.convolution.tilings.filter_tiling import DEPTH, most_positions
from fuse_opt.lowering.cpu.convolution.tilings.tiling import shared_panels


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
    (_, height, width), behind = of.positions, of.behind(2)
    parts: Extent = -(-width // block.part)
    rows: Extent = 1
    if height != 1:
        rows = smallest(height, -(-height * (smallest(width, block.part) + behind) // block.positions))
    vectors = panel * itemsize // LANE_BYTES
    tile = most_positions(vectors, vectors == 1)
    longest = block.positions + behind + (0 if height == 1 else block.part) + tile
    depth = -(-of.channels // max(-(-of.channels * of.taps // DEPTH), 1))
    tasks = estimate(of.batch * of.positions[0] * rows * parts)
    return PanelTiling(
        rows, parts, -(-longest // PLANE_STEP) * PLANE_STEP, block.plane, of.channels, PLANE_STEP, depth, panel,
        shared_panels(of.filters, panel, tasks), tile, -(-2 * tile // 3),
    )  # fmt: skip
