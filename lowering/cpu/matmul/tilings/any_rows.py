"""The cut of a product whose rows are a size: tiles of a few heights, and blocks of a number of tiles."""

from __future__ import annotations

from dataclasses import replace

from fuse_opt.dialects.analysis.contractions.product_copies import BLOCK_ROWS, COPY_BYTES, DEPTH, FEW_ROWS, LONGEST_COPY
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import TALL_BLOCK_ROWS
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import panel_shape, shape_for_any_rows
from fuse_opt.lowering.cpu.matmul.tilings.tiling import (
    FEW_COLUMNS,
    SMALL_BYTES,
    Tiling,
    depth_blocks,
    is_crowd,
    panels_at_a_time,
)


def tiling_for_any_rows(
    product: Contraction,
    lanes: int,
    itemsize: int,
    arithmetic: Arithmetic | None,
    packed: int | None,
    computed: tuple[bool, bool],
) -> Tiling:
    """Of rows that are a size: tiles of a few heights, and blocks of a number of tiles."""
    group = 1 if arithmetic is None else arithmetic.group
    stored = itemsize if arithmetic is None else arithmetic.left.itemsize
    height, shape = shape_for_any_rows(product.columns, lanes)
    if packed is not None:
        shape = panel_shape(height, packed, lanes)
        height = -(-height // shape.tiles)
    narrow = computed[1] or group > 1 or (arithmetic is not None and arithmetic.is_narrow)
    row_bytes = product.rhs[-2] * itemsize
    fits = product.depth * product.columns * itemsize <= SMALL_BYTES and not is_crowd(row_bytes, product.depth)
    must_pack = packed is None and (narrow or product.rhs[-1] != 1)
    panels = max(1, -(-product.columns // shape.width) - shape.merges)
    transposed = product.lhs[-1] != 1 and product.depth > 1
    converts = arithmetic is not None and arithmetic.converts
    copied, depth = 0, depth_blocks(product.depth, DEPTH * group)
    if transposed or converts or computed[0] or (group > 1 and product.depth % group):
        copied = depth if transposed or product.depth * stored > LONGEST_COPY else product.depth
    block = max(1, (TALL_BLOCK_ROWS if product.columns < FEW_COLUMNS else BLOCK_ROWS) // height)
    if copied:
        block = max(1, min(block, COPY_BYTES // (height * copied * stored)))
    found = Tiling(
        False,
        shape.columns,
        shape.width,
        product.columns - (panels - 1) * shape.width,
        panels,
        -(-product.rows // height),
        height,
        0,
        block,
        depth,
        panels,
        copied,
        transposed and group == 1,
        must_pack or (packed is None and not fits),
        depth_first=0 < copied < product.depth,
        rows=product.rows,
        few_rows=0 if must_pack or fits or packed is not None else FEW_ROWS,
    )
    return replace(found, panels_at_a_time=panels_at_a_time(product, found, itemsize))
