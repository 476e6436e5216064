"""How a convolution is cut: blocks of rows of positions, panels of them, tiles of filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TypeVar

from fuse_opt.dialects.analysis.contractions.convolutions import LARGEST_COPY
from fuse_opt.dialects.analysis.contractions.product_copies import TASK_OPERATIONS
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.blocks import (
    Block,
    block_counts,
    block_lengths,
    candidate_blocks,
    copied_elements,
)
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import MOST_ROWS, REGISTERS

MOST_VECTORS = 8
"""Of a tile side by side."""
DEPTH = 256
"""Channels and taps that are summed up at a time, about: what a tile reads of them stays in a first cache, and sums are short."""
FIRST_CACHE = 40 << 10
"""Bytes of a first cache that a panel of them may take."""
SUM_BYTES = 224 << 10
"""Of the sums of some panels, which stay in a second cache: what follows then goes along stretches of some rows of memory."""
MOST_SUM_BYTES = 512 << 10
"""Of all sums at a time, which lie on the stack."""
LAST_VECTORS = (2, 3, 4, 5, 6)
"""Of the last panel of a block."""
TRIED = 12
"""Cuts that are tried with another last panel, too."""
FEWEST_TASKS = 8
"""Below which filters are shared out, too: each of these tasks copies what windows see."""
COPY_WORK, STRIDED_COPY_WORK = 0.4, 2.0
"""Of an element that is copied, of neighbours or of every stride-th element; like all work in halves of a step of a vector."""
NEAR_COPY = 5 << 10
"""Elements of a copy that a first cache holds, with the sums; others take as long again."""
COPIED_WORK, FAR_WORK = 1.0, 4.0
"""Of a vector that a panel's first tile reads from a copy, or of the input where it lies."""
RATE = {1: 0.5, 2: 0.99, 3: 0.98, 4: 1.0, 5: 1.0, 6: 0.92, 7: 0.84, 8: 0.76}
"""By vectors of a tile side by side: how fast it is, next to the fastest, where it has as many filters as registers hold
(measured, AVX-512)."""
CALL_WORK = 64.0
"""Of a tile's call, and for storing a vector of its sums."""


def shared_panels(filters: int, panel: int, tasks: int) -> int:
    """Filters of a task, whole panels, where each of so many tasks could have all of them."""
    panels = -(-filters // panel)
    return -(-panels // min(panels, max(FEWEST_TASKS // max(tasks, 1), 1))) * panel


_Cut = TypeVar("_Cut")


def least_work(
    of: WindowContraction, cuts: Iterable[tuple[float, _Cut]], blocks: Callable[[_Cut], Sequence[int]]
) -> _Cut:
    """The cut of least work, of some with their work, among those with enough tasks: one for each block of an image."""
    found = [(of.batch * of.positions[0] * prod(blocks(cut)), work, cut) for work, cut in cuts]
    wanted = min(FEWEST_TASKS, of.operations // TASK_OPERATIONS, max(tasks for tasks, _, _ in found))
    return min((each for each in found if each[0] >= wanted), key=lambda each: each[1])[2]


@dataclass(frozen=True, slots=True)
class Tile:
    """How the filters of a task are cut for panels of so many vectors."""

    vectors: int
    width: int
    """Positions of a tile, and of a panel."""
    tiles: int
    """Of `height` filters each, and the first `taller` of one more."""
    height: int
    taller: int

    @staticmethod
    def of(filters: int, vectors: int, lanes: int) -> Tile:
        tiles = -(-filters // min(MOST_ROWS, REGISTERS // vectors - 1))
        height, taller = divmod(filters, tiles)
        return Tile(vectors, vectors * lanes, tiles, height, taller)

    def work(self, filters: int, steps: int, blocks: int) -> float:
        """Half steps of vectors of a panel, of so many channels and taps in so many blocks."""
        tile = max(filters * self.vectors / RATE[self.vectors], 2.2 * self.tiles * self.vectors + filters)
        return steps * tile + blocks * (CALL_WORK * self.tiles + 4 * filters * self.vectors)


@dataclass(frozen=True, slots=True)
class ConvolutionTiling:
    """The cut of a convolution; all of it follows from extents, so results do not depend on the threads."""

    block: Block
    tile: Tile
    last: Tile | None
    """Of the last panel of a block, where another width leaves fewer positions over."""
    filters: int
    """Of a task, which divide those of a group."""
    channels: int
    """That are summed up at a time."""
    panels_at_a_time: int
    """Panels whose sums are kept until what follows is computed."""

    @property
    def rows(self) -> int:
        """Filters whose sums are kept."""
        return self.filters

    @property
    def widest(self) -> int:
        """Positions of a panel."""
        return max(tile.width for tile in (self.tile, self.last) if tile is not None)

    @property
    def columns(self) -> int:
        """Positions whose sums are kept; those of a panel that begins early among them."""
        whole = self.panels_at_a_time * self.tile.width + (self.last.width if self.last else 0)
        return max(whole, self.tile.width)

    def panels(self, length: int) -> int:
        """Panels of so many positions, without one of another width."""
        rest = length - self.last.width if self.last else length
        return -(-max(rest, 0) // self.tile.width)


@cache
def choose_tiling(contraction: WindowContraction, itemsize: int, widens: bool = False) -> ConvolutionTiling:
    """
    The cut of a merged contraction of elements of so many bytes: of those that fit the one of the least work. `widens`: the
    input has narrower elements, so that it is always copied.
    """
    lanes = 64 // itemsize
    found = [
        _cut(contraction, block, vectors, lanes)
        for vectors in range(1, MOST_VECTORS + 1)
        for block in candidate_blocks(contraction, vectors * lanes, LARGEST_COPY // itemsize, widens)
    ]
    found.sort(key=lambda tiling: _work(contraction, tiling))
    others = [_with_last(contraction, tiling, vectors, lanes) for tiling in found[:TRIED] for vectors in LAST_VECTORS]
    return min((found[0], *filter(None, others)), key=lambda tiling: _work(contraction, tiling))


def _cut(contraction: WindowContraction, block: Block, vectors: int, lanes: int) -> ConvolutionTiling:
    tasks = contraction.batch * contraction.groups * prod(block_counts(contraction, block))
    most = min(FEWEST_TASKS // tasks, contraction.operations // (tasks * TASK_OPERATIONS))
    whole = Tile.of(contraction.filters, vectors, lanes)
    parts = next((n for n in range(min(most, whole.tiles), 1, -1) if contraction.filters % n == 0), 1)
    least = -(-contraction.filters * whole.width * (64 // lanes) // MOST_SUM_BYTES)
    parts = next(n for n in range(max(parts, least), contraction.filters + 1) if contraction.filters % n == 0)
    filters = contraction.filters // parts
    tile = Tile.of(filters, vectors, lanes)
    rows = prod(contraction.window[:2]) * tile.width * (64 // lanes)
    some = max(min(DEPTH // contraction.taps, FIRST_CACHE // rows), 1)
    channels = -(-contraction.channels // -(-contraction.channels // some))
    panels = -(-block.positions(block.rows) // tile.width)
    groups = max(1, min(panels, SUM_BYTES // (64 // lanes * filters * tile.width)))
    return ConvolutionTiling(block, tile, None, filters, channels, -(-panels // -(-panels // groups)))


def _with_last(
    contraction: WindowContraction, tiling: ConvolutionTiling, vectors: int, lanes: int
) -> ConvolutionTiling | None:
    """The same with a last panel of another width; None where it would be none, or where sums take too much of a cache."""
    block, last = tiling.block, Tile.of(tiling.filters, vectors, lanes)
    found = replace(tiling, last=last)
    found = replace(found, panels_at_a_time=found.panels(block.positions(block.rows)))
    all_positions = (contraction.positions[1] - 1) * block.pitch + contraction.positions[2]
    if vectors == tiling.tile.vectors or not (block.copies or all_positions >= last.width):
        return None
    return found if found.columns * tiling.filters * (64 // lanes) <= MOST_SUM_BYTES else None


def _work(contraction: WindowContraction, tiling: ConvolutionTiling) -> float:
    """Half steps of vectors for a matrix of positions, with what is copied for them."""
    block, filters = tiling.block, tiling.filters
    steps, channel_blocks = contraction.channels * contraction.taps, -(-contraction.channels // tiling.channels)
    read = contraction.channels * (COPIED_WORK if block.copies else FAR_WORK)
    panel, last = (
        t.work(filters, steps, channel_blocks) + read * t.vectors if t else 0.0 for t in (tiling.tile, tiling.last)
    )
    copied = copied_elements(contraction, block) if block.copies else 0
    copied *= COPY_WORK if contraction.strides[2] == 1 and not contraction.x_last else STRIDED_COPY_WORK
    copied *= 1 if copied_elements(contraction, block) <= NEAR_COPY else 2
    lengths = block_lengths(contraction, block).items()
    work = sum(many * (tiling.panels(length) * panel + last + copied) for length, many in lengths)
    return work * (contraction.filters // filters)
