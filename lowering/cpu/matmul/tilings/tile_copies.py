"""Rows of groups of narrow elements that are copied for a tile at a time, to whole lines, before they meet all panels of a task.

A matrix register loads 16 rows: those that cross lines take two loads each, those at a multiple of 1 KiB evict each other, and
those that are no whole groups end in a part of one. The copy of a tile's rows lies in a first cache for all panels.
"""

from __future__ import annotations

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.analysis.contractions.product_copies import BLOCK_ROWS, LONGEST_COPY
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.c.headers.matrix_tiles import FEWEST_ROWS

CROWDED_BYTES = 1024
"""Rows at a multiple of this distance compete for a few sets of a first cache."""
PANELS_BYTES = 768 << 10
"""Of the panels of a task that each copy of rows meets: a second cache holds them."""
FEWEST_PANELS = 4
"""Of all columns, such that panels alone are enough for tasks; for more tasks than that, rows would be copied too often."""
TALL_BLOCK_ROWS = 1344
"""Of a block of rows, of which each copies its panels."""
BESIDE_PANELS_BYTES, FEWEST_BESIDE_PANELS = 256 << 10, 64
"""
About those of a block of rows that tiles for narrow vectors read where they lie, and its rows at least: a second cache holds it
while panels that were packed before the call come from a third one, so that rows need no copies (.94 to .98 of the time of copies
and longer blocks on Zen 4; where panels are packed in the call, each block would do so again).
"""
FAR_PANELS_BYTES = 16 << 20
"""Of all panels: more come from memory for each block of rows, of which there are fewer then."""


def copies_tiles(product: Contraction, group: int, itemsize: int) -> bool:
    """Whether rows of groups of so many elements, side by side, are copied so (measured: 0.5 to 0.95 of the time)."""
    if group == 1 or product.lhs[-1] != 1 or product.rows < FEWEST_ROWS or product.depth * itemsize > LONGEST_COPY:
        return False
    distance = product.lhs[-2] * itemsize
    return product.depth % group > 0 or distance % LANE_BYTES > 0 or distance % CROWDED_BYTES == 0


def tiles_of_block(tiles: int, height: int, panels: int) -> int:
    """Tiles of a block of rows: of few panels there are more blocks, for more tasks."""
    rows = BLOCK_ROWS if panels < FEWEST_PANELS else TALL_BLOCK_ROWS
    return -(-tiles // -(-tiles * height // rows))


def panels_of_copies(panels: int, panel_bytes: int) -> int:
    """Of a task at most: about as many in each part of them."""
    return -(-panels // -(-panels // max(PANELS_BYTES // panel_bytes, 1)))


def rows_beside_panels(product: Contraction, itemsize: int) -> int:
    """Of a block of rows at most, where panels are in memory before the call."""
    if product.depth * product.columns * itemsize > FAR_PANELS_BYTES:
        return BLOCK_ROWS
    blocks = product.rows * product.depth * itemsize // BESIDE_PANELS_BYTES
    return max(-(-product.rows // max(blocks, 1)), FEWEST_BESIDE_PANELS)
