"""How a product is cut, by its extents and strides, the elements that it is computed in, and what is in copies."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES, NARROW_BITS, is_narrow
from fuse_opt.dialects.analysis.contractions.product_copies import (
    COPY_BYTES,
    DEPTH,
    FEW_ROWS,
    FEW_TRANSPOSED,
    FEWEST_COPYING,
    LONGEST_COPY,
    NEAR_BYTES,
    NEAR_COPY_BYTES,
    PANELS_OF_COPY,
    PANELS_OF_NEAR_COPY,
    TASK_OPERATIONS,
    copies_near,
    most_block_rows,
    near_depth,
)
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.lowering.cpu.matmul.tilings.any_rows import tiling_for_any_rows
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.cpu.matmul.tilings.dots import DOT_ROWS, is_aligned_by_copying, longest_dots
from fuse_opt.lowering.cpu.matmul.tilings.streamed_rows import is_streamed, streamed
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import (
    TALL_BLOCK_ROWS,
    copies_tiles,
    panels_of_copies,
    rows_beside_panels,
    tiles_of_block,
)
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import (
    NARROW,
    WIDE,
    TileShape,
    Vectors,
    best_shape,
    dot_shape,
    grouped_shape,
    padded_shape,
    panel_shape,
)
from fuse_opt.lowering.cpu.matmul.tilings.tiling import (
    FEW_COLUMNS,
    SMALL_BYTES,
    Tiling,
    depth_blocks,
    is_crowd,
    is_far,
    panels_at_a_time,
)

FEWEST_NARROW, FILLED = 8, 2 / 3
"""Of columns next to the narrow vectors that hold them: tiles of these, of rows as they lie, are faster than such sums (9 and 10
columns 0.9 times as fast, 11 to 15 1.0 to 2.4, 8 1.0 to 1.6; measured)."""
SHORT_DEPTH = 16
"""Of the contracted dimension: below it, joining the elements of such sums takes as long as the products."""
PADDED_DEPTH = 64
"""Of the contracted dimension: up to it, columns that fill most of a vector are in one with zeros behind them, of which a row's
sums are one, too (measured)."""
MOST_VECTORS = {1: 8, 2: 8, 3: 7, 4: 6, 5: 5, 7: 3, 8: 3, 9: 3}
"""
By rows of a product: side by side, of its tile, which reads long stretches of the right operand where it lies. One tile of all
rows reads it once: 7 to 9 rows are 1.1 to 1.4 times as fast as in two tiles of four vectors, 6 as fast.
"""
ROW_DEPTH = 32
"""Of a block of the contracted dimension of a single row, which goes over all columns: as many streams, each of a row of the
right operand, as processors ask ahead for."""
NEAR_ROWS = 64
"""Rows from which on a task has one block of them, or several."""
NEAR_DEPTH = 128
"""Of the block of the contracted dimension for which a first cache holds a panel's part of it, and what tiles read beside: the
first tile, which leaves it there, and others are 1.04 to 1.13 times as fast as with a part in a second cache (measured). Panels
for narrow vectors have that of a longer block there, but where rows of the left operand lie side by side: each step meets a line
of its own of these, which the next tiles meet, too (0.83 to 1.0 of the time, measured)."""
NARROW_ITEMS = 4
"""Bytes of elements whose panels tasks copy for tiles for narrow vectors; those of f64 gain nothing there (measured)."""
NARROW_DEPTH = 256
"""Of such a block with narrow tiles, where the contracted dimension is more than NARROW_WHOLE: what a panel has of it leaves a
first cache room for rows of the left operand and of the result (1.02 to 1.04 of the rate; measured)."""
NARROW_WHOLE = 512
"""Of one that is a block as a whole: what follows has the sums of a tile at a time then (1.03 to 1.08 of the rate; measured)."""
FEW_DEPTH = 128
"""The same of few rows on processors with narrow vectors: what OpenBLAS adds up at a time there is shorter than DEPTH."""
GROUP_DEPTH = 256
"""Groups of a block of depth: a first cache holds a panel's, and setting up matrix registers is little beside them."""
SUMMED_DEPTH = 512
"""The same where tiles keep the sums of their rows for other panels, which they do for a whole depth."""
DOT_GROUPS = 16
"""Tiles of such sums side by side: their columns are a panel."""
COMPUTED_DOT_GROUPS = 4
"""The same of a right operand that is computed in a copy."""
COMPUTED_BYTES = 32 << 10
"""Of such a copy that few rows meet: a first cache holds it."""
NEAR_RIGHT = 28 << 10
"""Bytes of a right operand that first caches hold beside rows of the left one and of the result."""
DEEP_BYTES = 512 << 10
"""Of all rows of a left operand: of more, second caches lose those that one panel has met before the next one does. Rows of 3,072
and 4,096 elements are 1.14 to 1.29 times as fast where each block of depth meets several panels (measured)."""
DEEP_SUMS_BYTES = 256 << 10
"""Of the sums of these panels, which each block adds to."""
FEWEST_TILES = 12
"""That read panels of narrow elements often enough: those of fewer do so while a first cache has what was copied."""
SHORTEST_BLOCK = 48
"""Rows of a block at least, where there are more of them for more tasks."""
WIDENED_BYTES = 512 << 10
"""Of rows of narrow elements that are copied into wider ones: for each block of them the panels are widened again, so there are
fewer of these than where panels are copied as they are (measured: 0.90 to 0.98 of the time)."""


def choose_tiling(
    product: Contraction,
    itemsize: int,
    arithmetic: Arithmetic | None = None,
    packed: int | None = None,
    computed: tuple[bool, bool] = (False, False),
    bits: int = 8 * WIDE.size,
) -> Tiling:
    """
    The cut of a product of elements of so many bytes, or of narrow ones as they are computed in wider ones; `packed` is the
    width of the panels that the right operand is in already, `computed` whether operands are in no memory but copies, `bits`
    those of the vectors that tiles of many rows are cut for.
    """
    lanes = WIDE.lanes(itemsize)
    group, stored, converts, sums_rows = 1, itemsize, False, False
    if arithmetic is not None:
        group, stored = arithmetic.group, arithmetic.left.itemsize
        converts, sums_rows = arithmetic.converts, arithmetic.sums_rows
    if not is_number(product.rows):
        return tiling_for_any_rows(product, lanes, itemsize, arithmetic, packed, computed)
    if packed is None and not any(computed) and is_streamed(product, itemsize, arithmetic):
        return streamed(product, lanes, itemsize)
    fills = _fills_narrow(product, itemsize, group, bits)
    is_for_narrow = is_narrow(product, itemsize, group, bits) and (itemsize <= NARROW_ITEMS or packed is not None)
    vectors = NARROW if fills or is_for_narrow else WIDE
    if packed is None:
        shape, packs, along_depth = _shape(product, itemsize, arithmetic, computed[1], vectors, fills)
    else:
        vectors = vectors if packed <= max(vectors.rate) * vectors.lanes(itemsize) else WIDE
        lanes = vectors.lanes(itemsize)
        shape, packs, along_depth = panel_shape(product.rows, packed, lanes, group, vectors), False, False
    height, taller = divmod(product.rows, shape.tiles)
    width = shape.width
    panels = max(1, -(-product.columns // width) - shape.merges)
    side_by_side = product.rhs[-1] == 1 and packed is None
    copied = _copied_depth(product, height, taller, stored, along_depth)
    if along_depth and not (packs or copied) and is_aligned_by_copying(product, itemsize):
        copied = product.depth
    if converts or computed[0] or (group > 1 and (product.lhs[-1] != 1 or product.depth % group)):
        copied = product.depth
    if by_tiles := not computed[0] and copies_tiles(product, group, stored):
        copied = product.depth
    is_narrow_tile = vectors is NARROW and group == 1 and not along_depth
    near = is_narrow_tile and packed is None and not copied and copies_near(product, stored)
    block_rows = _block_rows(product, stored)
    if is_narrow_tile and packed is not None and not copied:
        block_rows = min(block_rows, rows_beside_panels(product, itemsize))
    block = max(1, min(block_rows // max(height, 1), shape.tiles))
    is_plain = not (computed[1] or along_depth or shape.pads or (arithmetic is not None and arithmetic.is_narrow))
    turns = converts or computed[0] or product.lhs[-1] != 1
    transposed = product.lhs[-1] != 1 and product.depth > 1
    # columns that are copied become rows then: blocks of depth are longer (0.95 to 0.98 of the time, measured)
    by_columns = transposed and group == 1 and not along_depth and (vectors is not NARROW or not copied)
    longest = (
        longest_dots(product, packs)
        if along_depth
        else _longest_block(product, itemsize, turns, vectors, bits, by_columns)
    )
    if group > 1:
        longest = product.depth if by_tiles else (SUMMED_DEPTH if sums_rows else GROUP_DEPTH) * group
    depth = depth_blocks(product.depth, longest, LANE_BYTES // stored if group > 1 else 16)
    if computed[1] and group == 1 and product.rows <= FEW_ROWS:
        depth = min(depth, depth_blocks(product.depth, max(COMPUTED_BYTES // (width * itemsize), 16)))
    if copied and (transposed or product.depth * stored > LONGEST_COPY):
        copied = depth
    if near:
        copied = near_depth(product.depth, depth, stored)
    if by_tiles:
        block = tiles_of_block(shape.tiles, height, panels)
    elif copied:
        most = NEAR_COPY_BYTES if near else WIDENED_BYTES if converts else COPY_BYTES
        block = max(1, min(block, most // max((height + (taller > 0)) * copied * stored, 1)))
    found = Tiling(
        along_depth,
        shape.columns,
        width,
        product.columns - (panels - 1) * width,
        panels,
        shape.tiles,
        height,
        taller,
        -(-shape.tiles // -(-shape.tiles // block)),
        depth,
        panels,
        copied,
        by_columns,
        packs,
        shape.pads,
        packs and is_plain and side_by_side,
        0 < copied < product.depth
        or (product.rows == 1 and side_by_side and is_plain and not (packs or copied) and depth < product.depth),
        copies_tiles=by_tiles,
        is_far=along_depth and not packs and is_far(product, itemsize),
    )
    goes_along = product.rows > NEAR_ROWS and not (along_depth or packs or copied or found.depth_first)
    is_near = group == 1 and depth == product.depth and product.depth * product.columns * itemsize <= NEAR_RIGHT
    if goes_along:
        found = _in_shorter_blocks(product, found, 1 if is_near else panels)
    if ((found.tiles_copy and not copied) or (packed is not None and group == 1)) and _is_deep(
        product, found, itemsize
    ):
        sums = product.rows * found.most_columns * itemsize
        return replace(found, depth_first=True, panels_at_a_time=min(panels, max(DEEP_SUMS_BYTES // sums, 1)))
    if arithmetic is not None and group > 1 and depth == product.depth:
        return _in_groups_of_panels(product, found, arithmetic)
    is_narrow_copy = is_narrow_tile and copied > 0
    some = panels_at_a_time(product, found, itemsize, PANELS_OF_NEAR_COPY if is_narrow_copy else PANELS_OF_COPY)
    return replace(
        found,
        panels_at_a_time=panels if goes_along and is_near else some,
        rows_first=goes_along and is_near and panels > 1,
        shares_rows=is_narrow_copy and some < panels,
    )


def _in_groups_of_panels(product: Contraction, tiling: Tiling, arithmetic: Arithmetic) -> Tiling:
    """
    Of a product of narrow elements: a task's panels are copied first, and each tile's rows meet all of them, as parts of lines
    of the result that are stored at a time are then joined in a first cache (measured: 0.87 to 1.06 of the time, 0.94 mostly).
    """
    panel = tiling.most_columns * (product.depth + arithmetic.group) * arithmetic.right.itemsize * arithmetic.room
    is_block = tiling.row_blocks == 1 and prod(product.batch) == 1
    if tiling.copies_tiles or (is_block and not tiling.copied_depth and tiling.tiles >= FEWEST_TILES):
        some = panels_of_copies(tiling.panels, panel)
        return replace(tiling, panels_at_a_time=some, rows_first=True, panels_are_tasks=is_block)
    some = panels_at_a_time(product, tiling, arithmetic.sums.itemsize)
    if not tiling.copied_depth:
        some = max(min(some, COPY_BYTES // panel), 1)
    return replace(tiling, panels_at_a_time=some, rows_first=1 < some <= COPY_BYTES // panel)


def _is_deep(product: Contraction, tiling: Tiling, itemsize: int) -> bool:
    """Whether panels lose the rows that they meet, all of which are a block, where each goes over the whole depth."""
    is_long = product.rows * product.depth * itemsize > DEEP_BYTES and tiling.depth < product.depth
    return is_long and not tiling.copied_depth and tiling.row_blocks == 1 and prod(product.batch) == 1 < tiling.panels


def _block_rows(product: Contraction, itemsize: int) -> int:
    """How many rows go over a panel before others do."""
    return TALL_BLOCK_ROWS if product.columns < FEW_COLUMNS else most_block_rows(product, itemsize)


def _in_shorter_blocks(product: Contraction, tiling: Tiling, panels: int) -> Tiling:
    """Where nothing is copied for a block of rows: with more of them, as there are few tasks with so many groups of panels."""
    wanted = min(FEWEST_COPYING, product.operations // TASK_OPERATIONS)
    blocks = -(-wanted // (prod(product.batch) * panels))
    most = max(1, product.rows // SHORTEST_BLOCK)
    return replace(tiling, block=min(tiling.block, -(-tiling.tiles // max(1, min(blocks, most)))))


def _longest_block(
    product: Contraction, itemsize: int, copies_left: bool, vectors: Vectors, bits: int, by_columns: bool
) -> int:
    """
    Of the contracted dimension, where vectors lie along columns: whether the right operand is packed before does not matter,
    so that it changes no bit of many rows. `by_columns`: tiles read the left operand with rows side by side.
    """
    if product.rows == 1:
        return ROW_DEPTH
    if product.rows <= max(MOST_VECTORS) and bits < 8 * WIDE.size:
        return FEW_DEPTH
    if vectors is NARROW:
        if by_columns:
            return NEAR_DEPTH
        return NARROW_WHOLE if product.depth <= NARROW_WHOLE else NARROW_DEPTH
    is_small = product.depth * product.columns * itemsize <= SMALL_BYTES
    is_long = copies_left or is_small or product.rows <= max(MOST_VECTORS)
    return DEPTH if is_long else NEAR_DEPTH


def _shape(
    product: Contraction,
    itemsize: int,
    arithmetic: Arithmetic | None,
    computed: bool,
    vectors: Vectors,
    fills: bool,
) -> tuple[TileShape, bool, bool]:
    """
    The shape of tiles, whether the right operand is copied, and whether vectors lie along the contracted dimension; not where
    few columns are known to fill narrow ones.
    """
    lanes, own = WIDE.lanes(itemsize), vectors.lanes(itemsize)
    deep = product.rhs[-2] == 1 and product.rhs[-1] != 1
    side_by_side = product.rhs[-1] == 1 or (product.columns == 1 and not deep)
    narrow = computed or (arithmetic is not None and arithmetic.is_narrow)
    if arithmetic is not None and arithmetic.group > 1:
        return grouped_shape(product.rows, product.columns, lanes), True, False
    if own // 2 < product.columns < own and product.rows >= FEW_COLUMNS and product.depth <= PADDED_DEPTH:
        return padded_shape(product.rows, own, vectors), True, False
    few = FEW_TRANSPOSED if narrow and not computed else DOT_ROWS
    if (product.rows <= few and deep and product.depth >= 2 * lanes) or (
        product.columns < FEW_COLUMNS
        and product.depth >= SHORT_DEPTH
        and (deep or product.rows >= FEW_COLUMNS)
        and not fills
    ):
        groups = COMPUTED_DOT_GROUPS if computed else DOT_GROUPS
        packs = computed or not deep or (narrow and product.rows > product.columns)  # few columns are widened once
        return dot_shape(product.rows, product.columns, groups), packs, True
    small = product.depth * product.columns * itemsize <= SMALL_BYTES and not is_crowd(
        product.rhs[-2] * itemsize, product.depth
    )
    packs = narrow or not side_by_side or (product.rows > max(MOST_VECTORS) and not small)
    if not packs and product.rows in MOST_VECTORS:
        width = max(1, min(MOST_VECTORS[product.rows], product.columns // lanes)) * lanes
        return TileShape(1, width, width), packs, False
    shape = best_shape(product.rows, product.columns, own, vectors)
    is_panel = product.rhs[-2:] == (product.columns, 1) and product.columns == shape.width
    return shape, packs and (narrow or not is_panel), False


def _fills_narrow(product: Contraction, itemsize: int, group: int, bits: int) -> bool:
    """Whether few columns, side by side, of many rows fill most of narrow vectors."""
    if bits != NARROW_BITS or group > 1 or itemsize != 4 or product.rhs[-1] != 1 or product.rows < FEW_COLUMNS:
        return False
    lanes = NARROW.lanes(itemsize)
    room = -(-product.columns // lanes) * lanes
    return FEWEST_NARROW <= product.columns < FEW_COLUMNS and product.columns >= FILLED * room


def _copied_depth(product: Contraction, height: int, taller: int, itemsize: int, along_depth: bool) -> int:
    """Elements of rows of the left operand to copy: all that are not side by side, and rows that would evict each other."""
    if product.lhs[-1] != 1 and product.depth > 1:
        near = product.rows * product.depth * itemsize <= NEAR_BYTES and not is_crowd(
            product.lhs[-1] * itemsize, product.depth
        )
        beside = product.lhs[-2] == 1 or product.rows == 1
        return 0 if near and beside and not along_depth else product.depth
    row_bytes = (height + (taller > 0)) * product.depth * itemsize
    crowded = is_crowd(product.lhs[-2] * itemsize, height) and product.columns >= 256 and 4 * row_bytes <= COPY_BYTES
    return product.depth if crowded and not along_depth else 0
