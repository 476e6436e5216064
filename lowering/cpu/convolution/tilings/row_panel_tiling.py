"""How a convolution is cut that has channels innermost in its result and its filters in panels: rows of positions, panels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from fuse_opt.dialects.analysis.contractions.packed_panels import COLLISION, LANE_BYTES, LARGEST_COPY, has_narrow_panels
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.filter_tiling import DEPTH, position_tiles
from fuse_opt.lowering.cpu.convolution.tilings.tiling import FEWEST_TASKS, least_work
from fuse_opt.lowering.cpu.convolution.tilings.weight_tiling import copied_elements

NARROW_DEPTH = 400
"""Channels and taps that are summed up at a time over panels of narrow vectors, about: whole lines of channels (measured)."""
SUM_BYTES = 128 << 10
"""Of the sums of a panel at all positions of a task, at most, if it has several rows."""
FAR_FILTERS = 512 << 10
"""Bytes of all filters that a second cache does not keep beside a copy."""
NEAR_WORK, FAR_WORK = 0.5, 3.0
"""Of a vector of filters that a task reads, and of one that was not kept, next to a vector that is copied."""


@dataclass(frozen=True, slots=True)
class RowPanelTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    rows: int
    """Of a task, of positions; the last one may have fewer."""
    columns: int
    """Of a row: all of them."""
    width: int
    """From a position of a copy to the next one."""
    panel: int
    """Filters side by side."""
    filters: int
    """Of a task: whole panels."""
    channels: int
    """That are summed up at a time."""
    blocks: tuple[int, int]
    """Of rows, and of filters."""
    tiles: int
    """Of a row, of `height` positions each, and the first `taller` of one more."""
    height: int
    taller: int


@cache
def row_panel_tiling(of: WindowContraction, panel: int, itemsize: int) -> RowPanelTiling:
    """The cut of a merged contraction whose filters are in panels so wide, of least work among those with enough tasks."""
    return least_work(of, _cuts(of, panel, itemsize), lambda cut: cut.blocks)


def _cuts(of: WindowContraction, panel: int, itemsize: int) -> Iterator[tuple[float, RowPanelTiling]]:
    """Those whose copy and sums a second cache holds, or else those of a row, with their work but for the sums."""
    height, row = of.positions[1:]
    panels, lanes = -(-of.filters // panel), LANE_BYTES // itemsize
    width = of.channels + lanes * (of.channels * itemsize % COLLISION == 0)
    is_narrow = has_narrow_panels(of, panel, itemsize)
    tiles = position_tiles(row, panel // lanes, is_narrow)
    channels = -(-of.channels // max(-(-of.channels * of.taps // DEPTH), 1))
    if is_narrow:
        channels = min(max(round(NARROW_DEPTH / (of.taps * lanes)), 1) * lanes, of.channels)
    weights = of.channels * of.taps * panel / lanes
    far = weights * panels * LANE_BYTES > FAR_FILTERS
    for number in range(1, height + 1):
        rows = -(-height // number)
        copied = copied_elements(of, rows, row, width)
        if rows > 1 and (copied * itemsize > LARGEST_COPY or rows * row * panel * itemsize > SUM_BYTES):
            continue
        for parts in range(1, min(panels, FEWEST_TASKS) + 1):
            some = -(-panels // parts)
            blocks = -(-height // rows), -(-panels // some)
            work = blocks[1] * copied / lanes + panels * weights * (FAR_WORK if far else NEAR_WORK)
            yield (
                blocks[0] * work,
                RowPanelTiling(rows, row, width, panel, some * panel, channels, blocks, tiles, *divmod(row, tiles)),
            )
        if rows == 1:
            break
