"""How attention is cut: vectors and rows of a tile that both products share, panels of keys and of values, tasks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

from fuse_opt.dialects.analysis.contractions.attention import MOST_ON_STACK, most_keys
from fuse_opt.dialects.analysis.contractions.packed_panels import NARROW_BITS
from fuse_opt.dialects.analysis.contractions.product_copies import DEPTH, FEWEST_TASKS
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.types.extents import estimate, is_number, largest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.matmul.tilings.choice import NARROW_DEPTH
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import CROWDED_BYTES
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import MOST_ROWS, NARROW, RATE, REGISTERS, WIDE
from fuse_opt.lowering.cpu.matmul.tilings.tiling import depth_blocks

PADDING = 16
"""Elements between rows of scores, so that they lie in different sets of a cache."""
FEWEST_TILES = 4
"""Of a task: fewer pay for a copy of all keys and values."""
MOST_SCORES = 96 << 10
"""Bytes of the scores of a tile, which should stay in the first caches together with a panel."""
ANY_VECTORS = (2, 4)
"""Side by side, of tiles for any number of keys: narrow enough for few of them, wide enough for tiles of few heights."""
GROUP_SCORES = 384 << 10
"""Bytes of the scores of tiles that share what they read of larger panels; they should stay in a second cache."""
NEAR_SCORES = 64 << 10
"""The same of tiles for narrow vectors, whose panels a first cache holds (16 to 128 KiB are alike; measured)."""


@dataclass(frozen=True, slots=True)
class AttentionTiling:
    """The cut; it follows from extents alone, so results do not depend on the threads."""

    vectors: int
    width: int
    """Columns of a tile, and of a panel of keys or of values."""
    tiles: Extent
    """Of the queries of a matrix: of `height` rows each, and the first `taller` of one more; where the queries are a size
    heights follow from it at the call, and are `height` at most."""
    height: int
    taller: int
    group: int
    """Tiles that read a panel one after another."""
    row_blocks: int
    """Tasks of a matrix."""
    block: Extent
    """Tiles of a task."""
    shares_panels: bool
    """Whether a launch of its own copies the panels of all matrices, which no stack has room for."""
    most_keys: int
    """That memory has room for: all, where they are a number."""
    key_panels: Extent
    value_panels: int
    score_step: Extent
    """Elements from one row of scores to the next."""
    first_depth: int
    second_depth: int
    """Of the blocks of what the products contract."""

    @property
    def most_rows(self) -> int:
        return self.height + (self.taller > 0)

    def last_vectors(self, keys: Extent) -> int:
        """Side by side, of tiles of the last panel of so many keys: those that it fills, where they are a number."""
        if not is_number(keys):
            return self.vectors
        lanes = self.width // self.vectors
        return -(-(cast(int, keys) - (cast(int, self.key_panels) - 1) * self.width) // lanes)

    @property
    def group_rows(self) -> int:
        """Of the tiles that are computed at a time, at most."""
        rows = self.most_rows * self.group
        return min(rows, cast(int, self.height * self.tiles + self.taller)) if is_number(self.tiles) else rows

    @property
    def most_step(self) -> int:
        """Elements that a row of scores has room for."""
        if is_number(self.key_panels):
            return cast(int, self.score_step)
        return cast(int, padded_step(-(-self.most_keys // self.width) * self.width))


def choose_attention_tiling(
    first: Contraction, second: Contraction, itemsize: int, bits: int = 8 * WIDE.size
) -> AttentionTiling:
    """The cut of attention over elements of so many bytes, for vectors of so many bits."""
    if not is_number(first.columns) or not is_number(first.rows):
        return _tiling_for_any_sizes(first, second, itemsize, bits)
    lanes = 64 // itemsize
    keys, rows = first.columns, first.rows

    def cost(vectors: int) -> float:
        width = vectors * lanes
        steps = -(-keys // width) * first.depth + -(-second.columns // width) * keys
        return steps * vectors / RATE[vectors]

    is_narrow = bits == NARROW_BITS and itemsize == 4
    vectors = 1 if is_narrow else min(RATE, key=lambda v: (cost(v), -v))
    width = vectors * lanes
    key_panels = -(-keys // width)
    step = key_panels * width
    if step * itemsize % CROWDED_BYTES == 0:
        step += PADDING
    shares = keys * (first.depth + second.columns) * itemsize > MOST_ON_STACK
    row = step * itemsize
    most = NARROW.most_rows if is_narrow else min(MOST_ROWS, REGISTERS // vectors - 1)
    if not shares:
        most = max(min(most, MOST_SCORES // row), 1)
    tiles = -(-rows // most)
    height, taller = divmod(rows, tiles)
    scores = GROUP_SCORES if shares else NEAR_SCORES if is_narrow else 0
    group = max(min(scores // (row * (height + (taller > 0))), tiles), 1)
    wanted = -(-FEWEST_TASKS // estimate(prod(first.batch)))
    if not shares:
        wanted = min(wanted, max(tiles // (FEWEST_TILES * (2 if is_narrow else 1)), 1))
        group = min(group, -(-tiles // wanted))
    groups = -(-tiles // group)
    blocks = min(wanted, groups)
    block = -(-groups // blocks) * group
    return AttentionTiling(
        vectors=vectors,
        width=width,
        tiles=tiles,
        height=height,
        taller=taller,
        group=group,
        row_blocks=-(-tiles // block),
        block=block,
        shares_panels=shares,
        most_keys=keys,
        key_panels=key_panels,
        value_panels=-(-second.columns // width),
        score_step=step,
        first_depth=depth_blocks(first.depth),
        second_depth=depth_blocks(keys, NARROW_DEPTH if is_narrow and keys > DEPTH else DEPTH),
    )


def _tiling_for_any_sizes(first: Contraction, second: Contraction, itemsize: int, bits: int) -> AttentionTiling:
    """
    Where keys or queries are a size: tiles of a few heights, and room for so many keys as stacks hold the copies of. A task more
    for a matrix copies these once more, so there are several only where there are hardly so many matrices.
    """
    lanes, keys = 64 // itemsize, first.columns
    typical = estimate(keys)

    def cost(vectors: int) -> float:
        width = vectors * lanes
        steps = -(-typical // width) * first.depth + -(-second.columns // width) * typical
        return steps * vectors / RATE[vectors]

    is_narrow = bits == NARROW_BITS and itemsize == 4
    vectors = 1 if is_narrow else min(ANY_VECTORS, key=lambda v: (cost(v), -v))
    width = vectors * lanes
    height = NARROW.most_rows if is_narrow else min(MOST_ROWS, REGISTERS // vectors - 1)
    key_panels = -(-keys // width)
    tiles = -(-first.rows // height)
    blocks = min(-(-FEWEST_TASKS // estimate(prod(first.batch))), max(estimate(tiles) // FEWEST_TILES, 1))
    is_any = not is_number(first.rows)
    return AttentionTiling(
        vectors=vectors,
        width=width,
        tiles=tiles,
        height=height if is_any else first.rows // tiles,
        taller=0 if is_any else first.rows % tiles,
        group=1,
        row_blocks=blocks,
        block=largest(-(-tiles // blocks), FEWEST_TILES * (2 if is_narrow else 1)) if blocks > 1 else tiles,
        shares_panels=False,
        most_keys=most_keys(first, second, itemsize),
        key_panels=key_panels,
        value_panels=-(-second.columns // width),
        score_step=padded_step(key_panels * width),
        first_depth=depth_blocks(first.depth),
        second_depth=DEPTH,
    )


def padded_step(columns: Extent) -> Extent:
    """An odd number of vectors, which has room for so many columns: rows so far from each other lie in different sets."""
    return (columns + PADDING - 1) // (2 * PADDING) * (2 * PADDING) + PADDING
