"""How attention is cut: vectors and rows of a tile that both products share, panels of keys and of values, tasks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.analysis.contractions.attention import MOST_ON_STACK
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.cpu.matmul.tile_shapes import MOST_ROWS, RATE, REGISTERS
from fuse_opt.lowering.cpu.matmul.tiling import CROWDED_BYTES, FEWEST_TASKS, depth_blocks

PADDING = 16
"""Elements between rows of scores, so that they lie in different sets of a cache."""
FEWEST_TILES = 4
"""Of a task: fewer pay for a copy of all keys and values."""
MOST_SCORES = 96 << 10
"""Bytes of the scores of a tile, which should stay in the first caches together with a panel."""
GROUP_SCORES = 384 << 10
"""Bytes of the scores of tiles that share what they read of larger panels; they should stay in a second cache."""


@dataclass(frozen=True, slots=True)
class AttentionTiling:
    """The cut; it follows from extents alone, so results do not depend on the threads."""

    vectors: int
    width: int
    """Columns of a tile, and of a panel of keys or of values."""
    tiles: int
    """Of the queries of a matrix: of `height` rows each, and the first `taller` of one more."""
    height: int
    taller: int
    group: int
    """Tiles that read a panel one after another."""
    block: int
    """Tiles of a task."""
    shares_panels: bool
    """Whether a launch of its own copies the panels of all matrices, which no stack has room for."""
    key_panels: int
    value_panels: int
    score_step: int
    """Elements from one row of scores to the next."""
    first_depth: int
    second_depth: int
    """Of the blocks of what the products contract."""

    @property
    def most_rows(self) -> int:
        return self.height + (self.taller > 0)

    @property
    def group_rows(self) -> int:
        """Of the tiles that are computed at a time, at most."""
        return min(self.most_rows * self.group, self.height * self.tiles + self.taller)

    @property
    def row_blocks(self) -> int:
        return -(-self.tiles // self.block)


def choose_attention_tiling(first: Contraction, second: Contraction, itemsize: int) -> AttentionTiling:
    """The cut of attention over elements of so many bytes."""
    lanes = 64 // itemsize
    keys, rows = first.columns, first.rows

    def cost(vectors: int) -> float:
        width = vectors * lanes
        steps = -(-keys // width) * first.depth + -(-second.columns // width) * keys
        return steps * vectors / RATE[vectors]

    vectors = min(RATE, key=lambda v: (cost(v), -v))
    width = vectors * lanes
    key_panels = -(-keys // width)
    step = key_panels * width
    if step * itemsize % CROWDED_BYTES == 0:
        step += PADDING
    shares = keys * (first.depth + second.columns) * itemsize > MOST_ON_STACK
    row = step * itemsize
    most = min(MOST_ROWS, REGISTERS // vectors - 1)
    if not shares:
        most = max(min(most, MOST_SCORES // row), 1)
    tiles = -(-rows // most)
    height, taller = divmod(rows, tiles)
    group = max(min(GROUP_SCORES // (row * (height + (taller > 0))), tiles), 1) if shares else 1
    groups = -(-tiles // group)
    blocks = min(-(-FEWEST_TASKS // prod(first.batch)), groups if shares else max(tiles // FEWEST_TILES, 1))
    return AttentionTiling(
        vectors=vectors,
        width=width,
        tiles=tiles,
        height=height,
        taller=taller,
        group=group,
        block=-(-groups // blocks) * group,
        shares_panels=shares,
        key_panels=key_panels,
        value_panels=-(-second.columns // width),
        score_step=step,
        first_depth=depth_blocks(first.depth),
        second_depth=depth_blocks(keys),
    )
