"""How gradients of attention are cut: blocks of keys, whose scores with a block of rows are made again, and tiles in these."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.dialects.analysis.contractions.attention_gradients import AttentionGradient
from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.lowering.cpu.attention.tiling import PADDING
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import CROWDED_BYTES
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import MOST_ROWS, RATE, REGISTERS

BLOCK_KEYS = 128
"""At most, about: with as many rows their scores, and panels of all operands, stay in a second cache."""
BLOCK_ROWS = 160
"""At most."""
MOST_SUMS = 512 << 10
"""Bytes of the sums of all rows of a matrix that lie on the stack of its task."""


@dataclass(frozen=True, slots=True)
class GradientTiling:
    """The cut; it follows from extents alone, so results do not depend on the threads."""

    vectors: int
    width: int
    """Columns of a tile and of a panel."""
    tiles: int
    """Of the rows of a part: `height` rows each, and the first `taller` of one more."""
    height: int
    taller: int
    group: int
    """Tiles of a block of rows."""
    keys: int
    """Of a block; the last one may have fewer."""
    key_blocks: int
    last_keys: int
    step: int
    """Elements from one row of scores to the next."""

    @property
    def most_rows(self) -> int:
        """Of a tile."""
        return self.height + (self.taller > 0)

    @property
    def group_rows(self) -> int:
        return min(self.most_rows * self.group, self.height * self.tiles + self.taller)

    def padded(self, columns: int) -> int:
        """Columns of so many, in whole panels."""
        return -(-columns // self.width) * self.width

    @property
    def last_vectors(self) -> int:
        """Side by side, of tiles of scores with the last panel of keys: those that it fills."""
        return -(
            -(self.last_keys - (-(-self.last_keys // self.width) - 1) * self.width) // (self.width // self.vectors)
        )

    def key_tiles(self, keys: int) -> tuple[int, int, int]:
        """Tiles of so many keys, the rows of each, and how many have one more."""
        tiles = -(-keys // _most_rows(self.vectors))
        return (tiles, *divmod(keys, tiles))


def choose_gradient_tiling(of: AttentionGradient, itemsize: int) -> GradientTiling:
    """The cut of a kernel over elements of so many bytes."""
    lanes = LANE_BYTES // itemsize

    def cost(vectors: int) -> float:
        width = vectors * lanes
        steps = sum(-(-of.keys // width) * each.product.depth for each in of.scores)
        steps += sum(-(-each.product.columns // width) * of.keys for each in of.weighted)
        return steps * vectors / RATE[vectors]

    vectors = min((v for v in RATE if v <= 4), key=lambda v: (cost(v), -v))
    width = vectors * lanes
    blocks = -(-of.keys // BLOCK_KEYS)
    keys = -(-of.keys // (blocks * width)) * width
    blocks = -(-of.keys // keys)
    step = keys + PADDING if keys * itemsize % CROWDED_BYTES == 0 else keys
    tiles = -(-of.rows // _most_rows(vectors))
    height, taller = divmod(of.rows, tiles)
    most = max(BLOCK_ROWS // (height + (taller > 0)), 1)
    group = -(-tiles // -(-tiles // most))
    return GradientTiling(
        vectors, width, tiles, height, taller, group, keys, blocks, of.keys - (blocks - 1) * keys, step
    )


def _most_rows(vectors: int) -> int:
    return min(MOST_ROWS, REGISTERS // vectors - 1)
