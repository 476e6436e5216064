"""How a product is cut: vectors and rows of a tile, tiles of a block of rows, blocks of the contracted dimension, tasks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.analysis.products import FEW_ROWS
from fuse_opt.dialects.interfaces.contraction import Contraction

REGISTERS = 31
"""Vectors that hold sums and elements of the right operand; one more is left for those of the left one."""
MOST_ROWS = 14
"""Of a tile: more wait for nothing, and their lines evict each other from a first cache."""
RATE = {1: 0.6, 2: 0.95, 3: 0.98, 4: 1.0, 5: 1.0, 6: 0.97, 7: 0.93, 8: 0.8}
"""By vectors of a tile side by side: how fast it is, next to the fastest (measured, AVX-512)."""
MOST_VECTORS = 8
"""Side by side, of a tile of few rows, which reads long stretches of the right operand where it lies."""
DEPTH = 256
"""Of a block of the contracted dimension: what a panel has of it stays in the second cache, and sums are short, so that rounding
errors are no larger than those of the libraries that were measured beside it."""
BLOCK_ROWS = 336
"""Of a block of rows: so many go over a panel, once it is copied, and have their sums in a second cache."""
COPY_BYTES = 256 << 10
"""Of a copy of the left operand's rows, which lies on the stack."""
CROWDED_BYTES = 1024
"""Rows at a multiple of this distance compete for a few sets of a first cache."""
CROWD = 9
"""Rows of a tile that are too many for such a set."""
FEWEST_TASKS = 16
TASK_OPERATIONS = 1 << 19


@dataclass(frozen=True, slots=True)
class Tiling:
    """The cut of a product; all of it follows from extents and strides, so results do not depend on the threads."""

    vectors: int
    width: int
    """Columns of a tile, and of a panel of the right operand."""
    panels: int
    tiles: int
    """Tiles of all rows, of `height` rows each, and the first `taller` of one more."""
    height: int
    taller: int
    block: int
    """Tiles of a block of rows."""
    depth: int
    """Of a block of the contracted dimension."""
    panels_at_a_time: int
    """Panels of a task."""
    copies_rows: bool
    """Whether a block of rows of the left operand is copied before it is read."""
    packs: bool
    """Whether the right operand is copied into panels."""

    @property
    def most_rows(self) -> int:
        """Of a tile."""
        return self.height + (self.taller > 0)

    @property
    def row_blocks(self) -> int:
        return -(-self.tiles // self.block)

    @property
    def column_blocks(self) -> int:
        return -(-self.panels // self.panels_at_a_time)


def _side_by_side(product: Contraction, lanes: int, packs: bool) -> int:
    """Vectors of a tile beside each other: as few columns too many as can be; for a few rows, as many as registers hold."""
    if not packs and product.rows < REGISTERS // 5:
        return min(MOST_VECTORS, REGISTERS // (product.rows + 1), product.columns // lanes)
    widths = [v for v in RATE if packs or v * lanes <= product.columns]
    return min(widths, key=lambda v: (-(-product.columns // (v * lanes)) * v / RATE[v], -v))


def depth_blocks(depth: int) -> int:
    """How long the blocks of a contracted dimension are: about equal ones."""
    block = -(-depth // -(-depth // DEPTH))
    return min(-(-block // 16) * 16, depth)


def choose_tiling(product: Contraction, itemsize: int) -> Tiling:
    """The cut of a product of elements of so many bytes."""
    lanes = 64 // itemsize
    packs = product.rows > FEW_ROWS
    vectors = _side_by_side(product, lanes, packs)
    most = min(MOST_ROWS, REGISTERS // vectors - 1)
    tiles = -(-product.rows // most)
    height, taller = divmod(product.rows, tiles)
    far = product.lhs[-2] * itemsize
    row_bytes = (height + (taller > 0)) * product.depth * itemsize
    crowded = far % CROWDED_BYTES == 0 and height >= CROWD and product.columns >= 256 and 4 * row_bytes <= COPY_BYTES
    copies = product.lhs[-1] != 1 or crowded
    block = max(1, min(BLOCK_ROWS // max(height, 1), tiles))
    if copies:
        block = max(1, min(block, COPY_BYTES // max(row_bytes, 1)))
    block = -(-tiles // -(-tiles // block))
    depth = depth_blocks(product.depth)
    width = vectors * lanes
    panels = -(-product.columns // width)
    blocks = prod(product.batch) * -(-tiles // block)
    wanted = min(panels, -(-FEWEST_TASKS // blocks), max(product.operations // (blocks * TASK_OPERATIONS), 1))
    return Tiling(
        vectors, width, panels, tiles, height, taller, block, depth, -(-panels // max(wanted, 1)), copies, packs
    )
