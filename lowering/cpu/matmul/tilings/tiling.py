"""The cut of a product: form and extents of a tile, panels of the right operand, blocks of the contracted dimension, tasks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.analysis.contractions.product_copies import (
    DEPTH,
    FEWEST_COPYING,
    FEWEST_TASKS,
    NEAR_BYTES,
    PANELS_OF_COPY,
    TASK_OPERATIONS,
)
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import CROWDED_BYTES

FEW_COLUMNS = 16
"""Below which rows of the result fill no vector, so that sums are vectors along the contracted dimension where it is long."""
SMALL_BYTES = 48 << 10
"""Of a right operand that first caches hold: it is read where it lies, too."""
ROW_SUMS_BYTES = 32 << 10
"""Of the sums of a single row that are added to at each block."""
LEAST_STRETCH = 1024
"""Of the columns that a thread gets of a single row: shorter ones take a tenth longer."""
CROWD = 9
"""Rows of a tile that are too many for such a set."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The cut of a product; all of it follows from extents and strides, so results do not depend on the threads."""

    along_depth: bool
    """Whether the vectors of a tile lie along the contracted dimension; else along the columns."""
    columns: int
    """Of a tile; of a panel as well where vectors lie along them."""
    width: int
    """Columns of a panel of the right operand."""
    last_width: int
    """Of the last panel, which may be a wider one."""
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
    copied_depth: int
    """Elements of a row of the left operand that are copied before they are read: 0, those of a block of depth, or all."""
    transposed_rows: bool
    """Whether a tile reads the left operand, or its copy, with rows side by side."""
    packs: bool
    """Whether the right operand is copied into panels."""
    pads: bool = False
    """Whether zeros lie behind the columns of the only panel, up to its width, and sums of them behind those of a tile's row."""
    tiles_copy: bool = False
    """Whether the first tile of a block of rows leaves that copy, as it reads the panel where it lies."""
    depth_first: bool = False
    """
    Whether a block of the contracted dimension goes over all panels of a task before the next one does: rows that are copied
    anew for each block are so for all of these, and a single row reads what it multiplies in long stretches.
    """
    rows_first: bool = False
    """
    Whether a tile's rows meet all panels of a task before the next ones do: of a right operand that first caches hold, so that
    rows of the result are stored whole.
    """
    copies_tiles: bool = False
    """Whether the rows of a tile, not those of a block, are copied at a time, before they meet all panels of a task."""
    panels_are_tasks: bool = False
    """Whether panels are tasks, as many of which as a second cache holds a tile's rows meet, of those that a thread has."""
    rows: Extent | None = None
    """All rows, where they are a size: then heights follow from it at the call, and are `height` at most."""
    rest: int = 0
    """Columns of the tiles of a panel that is not whole, where columns or elements to add are a size: the last one then."""
    shares_rows: bool = False
    """Whether tasks that a thread has next to each other copy rows of the left operand once, where they have the same ones."""
    few_rows: int = 0
    """Rows of such a call for which the right operand is read where it lies, though otherwise it is copied."""
    is_streamed: bool = False
    """Whether all columns of a task meet some rows of the right operand at a time, in one call for the contracted dimension."""
    is_far: bool = False
    """Whether second caches do not hold the right operand that is read so, or by vectors along the contracted dimension."""
    is_near: bool = False
    """Whether the last cache holds one that is read so."""

    def spans_tasks(self, batch: int) -> bool:
        """
        Whether panels are tasks, and some that a thread has next to each other take turns at each block of depth, or at each
        tile's rows.
        """
        return self.panels_are_tasks or (self.depth_first and not self.copied_depth and batch == 1 == self.row_blocks)

    @property
    def most_rows(self) -> int:
        """Of a tile."""
        return self.height + (self.taller > 0)

    @property
    def most_columns(self) -> int:
        """Of a panel."""
        return max(self.width, self.last_width)

    @property
    def row_blocks(self) -> int:
        return -(-self.tiles // self.block)

    @property
    def column_blocks(self) -> int:
        return -(-self.panels // self.panels_at_a_time)


def depth_blocks(depth: int, longest: int = DEPTH, multiple: int = 16) -> int:
    """How long the blocks of a contracted dimension are: about equal ones, multiples of a number."""
    block = -(-depth // -(-depth // longest))
    return min(-(-block // multiple) * multiple, depth)


def panels_at_a_time(product: Contraction, tiling: Tiling, itemsize: int, of_copy: int = PANELS_OF_COPY) -> int:
    blocks = estimate(prod(product.batch) * tiling.row_blocks)
    operations = estimate(product.operations) // (blocks * TASK_OPERATIONS)
    fewest = FEWEST_COPYING if tiling.copied_depth else FEWEST_TASKS
    wanted = min(tiling.panels, -(-fewest // blocks), max(operations, 1))
    if tiling.spans_tasks(prod(product.batch)):  # a single row
        return max(1, ROW_SUMS_BYTES // (tiling.most_columns * itemsize))
    if tiling.depth_first:
        wanted = max(wanted, -(-tiling.panels // of_copy))
    return -(-tiling.panels // max(wanted, 1))


def is_far(product: Contraction, itemsize: int) -> bool:
    """Whether second caches do not hold the right operand."""
    return product.depth * product.columns * itemsize > NEAR_BYTES


def is_crowd(distance: int, rows: int) -> bool:
    """Whether so many rows, so many bytes apart, evict each other from a first cache."""
    return distance % CROWDED_BYTES == 0 and rows >= CROWD
