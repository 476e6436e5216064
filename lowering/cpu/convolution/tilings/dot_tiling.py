"""How a convolution's gradient by its weight is cut whose vectors are of positions: blocks, filters of a task, parts of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import prod

from fuse_opt.dialects.analysis.contractions.convolutions import COPIED_POSITIONS, LARGEST_COPY
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.blocks import Block, block_counts, candidate_blocks
from fuse_opt.lowering.cpu.convolution.tilings.weight_tiling import SUM_BYTES, block_parts

COPY_BYTES = 32 << 10
"""Of a block's copy of the input, about: what a first cache holds."""
MOST_TAPS = 9
"""Of a call: a vector of sums for each, and one load in front of all."""


@dataclass(frozen=True, slots=True)
class DotTiling:
    """The cut; all of it follows from extents, so results do not depend on the threads."""

    block: Block
    filters: int
    """Of a task, which divide those of a group."""
    blocks: tuple[int, int, int, int]
    """Blocks of all samples, planes, rows and columns of positions, in the order in which they are summed up."""
    parts: int
    """Of all blocks: sums of each are made apart and then joined in order."""
    panels: int = 1
    """Of channels: all are of one."""

    @property
    def part(self) -> int:
        """Blocks of a part; the last ones may have fewer."""
        return -(-prod(self.blocks) // self.parts)

    def for_batch(self, batch: int) -> DotTiling:
        """The same for another batch, which may leave parts without a block."""
        return replace(self, blocks=(batch, *self.blocks[1:]))


@cache
def dot_tiling(of: WindowContraction, itemsize: int) -> DotTiling:
    """The cut of a merged contraction of elements of so many bytes: the largest blocks that a first cache holds."""
    found: Block | None = None
    for most in (COPY_BYTES, LARGEST_COPY):
        found = found or next(candidate_blocks(of, COPIED_POSITIONS, most // itemsize, always_copies=True), None)
    assert found is not None, "`weight_gradient_problem` has looked"
    size = of.channels * of.taps * 64
    parts = next((n for n in range(1, of.filters) if of.filters % n == 0 and of.filters // n * size <= SUM_BYTES), None)
    filters = of.filters // (parts or of.filters)
    blocks = (of.batch, *block_counts(of, found))
    return DotTiling(found, filters, blocks, block_parts(of, of.groups * (of.filters // filters), prod(blocks)))


def tap_groups(taps: int) -> list[tuple[int, int]]:
    """The taps of each call: the first, and how many, as equal as can be."""
    calls = -(-taps // MOST_TAPS)
    firsts = [number * taps // calls for number in range(calls + 1)]
    return [(first, last - first) for first, last in pairwise(firsts)]
