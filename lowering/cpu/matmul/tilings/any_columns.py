"""The cut of a product whose columns, or elements to add, are a size: panels of one width, of which the last is padded."""

from __future__ import annotations

from math import prod

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.analysis.contractions.product_copies import (
    BLOCK_ROWS,
    COPY_BYTES,
    DEPTH,
    FEW_ROWS,
    FEWEST_COPYING,
    FEWEST_TASKS,
    TASK_OPERATIONS,
)
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.types.extents import estimate, is_number, may_exceed, most
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.cpu.matmul.tilings.choice import NARROW_ITEMS
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import NARROW
from fuse_opt.lowering.cpu.matmul.tilings.tiling import Tiling

HEIGHT = 4
"""Rows of a tile at most: there is a function for each height, of which compilers take their time."""
VECTORS = 4
"""Side by side in a whole panel; what is left over of columns is in tiles of one."""
PANELS_OF_SUMS = 4
"""Of a task, where each block of the contracted dimension goes over all of them."""


def takes_any_columns(product: Contraction) -> bool:
    return not (is_number(product.columns) and is_number(product.depth))


def tiling_for_any_columns(
    product: Contraction,
    itemsize: int,
    arithmetic: Arithmetic,
    computed: tuple[bool, bool],
    bits: int,
    height: int = HEIGHT,
) -> Tiling:
    """
    Of columns or elements to add that are sizes; rows may be one, too. Tiles have zeros where a panel has no columns. With
    vectors of fewer bits tiles, and panels, are as wide as a vector of the widest: what is left over of columns has one, too;
    others have so many rows at most.
    """
    lanes, is_narrow = LANE_BYTES // itemsize, bits < 8 * LANE_BYTES and itemsize == NARROW_ITEMS
    width, most_rows = (lanes, NARROW.most_rows) if is_narrow else (VECTORS * lanes, height)
    if is_number(product.columns):
        width = min(width, -(-product.columns // lanes) * lanes)
    is_even = is_number(product.columns) and product.columns % width == 0
    tiles = -(-product.rows // most_rows)
    is_sized = not is_number(product.rows)
    height, taller = (most_rows, 0) if is_sized else divmod(product.rows, tiles)
    tallest = height + (taller > 0)
    depth = min(DEPTH, most(product.depth))
    transposed = product.lhs[-1] != 1 and may_exceed(product.depth, 1)
    copied = 0
    if transposed or computed[0] or arithmetic.converts:
        copied = depth
    block = max(1, BLOCK_ROWS // tallest)
    if copied:
        block = max(1, min(block, COPY_BYTES // (tallest * copied * arithmetic.left.itemsize)))
    if not is_sized:
        block = min(block, tiles)
    must_pack = computed[1] or product.rhs[-1] != 1 or arithmetic.is_narrow
    panels = -(-product.columns // width)
    depth_first = copied > 0 and may_exceed(product.depth, copied)
    some = PANELS_OF_SUMS if depth_first else _panels_at_a_time(product, panels, -(-tiles // block), copied > 0)
    return Tiling(
        False,
        width,
        width,
        width,
        panels,
        tiles,
        height,
        taller,
        block,
        depth,
        some,
        copied,
        transposed,
        True,
        pads=not is_even,
        depth_first=depth_first,
        rows=product.rows if is_sized else None,
        few_rows=0 if must_pack else FEW_ROWS,
        rest=0 if is_even else lanes,
    )


def _panels_at_a_time(product: Contraction, panels: int, row_blocks: int, copies_left: bool) -> int:
    """By the extents that are likely: a number, so that tasks follow from extents alone."""
    likely, blocks = max(estimate(panels), 1), max(estimate(prod(product.batch) * row_blocks), 1)
    operations = estimate(product.operations) // (blocks * TASK_OPERATIONS)
    wanted = min(likely, -(-(FEWEST_COPYING if copies_left else FEWEST_TASKS) // blocks), max(operations, 1))
    return -(-likely // max(wanted, 1))
