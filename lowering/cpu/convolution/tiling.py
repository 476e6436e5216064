"""How a convolution is cut: blocks of rows of positions, panels of them, tiles of filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod

from fuse_opt.dialects.analysis.convolutions import LARGEST_COPY
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.window_rows import Reach
from fuse_opt.lowering.cpu.matmul.tiling import MOST_ROWS, MOST_VECTORS, REGISTERS, TASK_OPERATIONS

DEPTH = 256
"""Channels and taps that are summed up at a time, about: what a tile reads of them stays in a first cache, and sums are short."""
FIRST_CACHE = 40 << 10
"""Bytes of a first cache that a panel of them may take."""
SUM_BYTES = 96 << 10
"""Of the sums of some panels, which stay in a second cache."""
FEWEST_TASKS = 8
"""Below which filters are shared out, too: each of these tasks copies what windows see."""
MOST_BLOCK_ROWS = 64
COPY_WORK = 0.4
"""Of an element that is copied, in halves of a step of a vector; of one of every stride-th element, as much more."""
NEAR_COPY = 5 << 10
"""Elements of a copy that a first cache holds, with the sums; others take as long again."""
STRIDED_COPY_WORK = 2.0
RATE = {1: 0.5, 2: 0.99, 3: 0.98, 4: 1.0, 5: 1.0, 6: 0.92, 7: 0.84, 8: 0.76}
"""By vectors of a tile side by side: how fast it is, next to the fastest, where it has as many filters as registers hold
(measured, AVX-512)."""
CALL_WORK = 64.0
"""Of a tile's call, and for storing a vector of its sums."""


@dataclass(frozen=True, slots=True)
class Block:
    """Positions of a task: some whole rows, or a part of one row."""

    rows: int
    columns: int
    pitch: int
    """From a row to the next one, where the input has them."""
    copies: bool
    """Whether the input's rows are copied, with zeros around them; elsewhere they are read where they lie."""

    def positions(self, rows: int) -> int:
        """From the first one of the first row to the last one of the last row, with what lies between rows."""
        return (rows - 1) * self.pitch + self.columns


@dataclass(frozen=True, slots=True)
class ConvolutionTiling:
    """The cut of a convolution; all of it follows from extents, so results do not depend on the threads."""

    block: Block
    vectors: int
    width: int
    """Positions of a tile, and of a panel."""
    tiles: int
    """Tiles of a group's filters, of `height` filters each, and the first `taller` of one more."""
    height: int
    taller: int
    tiles_at_a_time: int
    """Tiles of a task."""
    channels: int
    """That are summed up at a time."""
    panels_at_a_time: int
    """Panels whose sums are kept until what follows is computed: so that it goes along rows, not along parts of them."""

    @property
    def most_filters(self) -> int:
        """Of a tile."""
        return self.height + (self.taller > 0)

    @property
    def filter_blocks(self) -> int:
        return -(-self.tiles // self.tiles_at_a_time)


@cache
def choose_tiling(contraction: WindowContraction, itemsize: int) -> ConvolutionTiling:
    """The cut of a merged contraction of elements of so many bytes: of those that fit the one of the least work."""
    lanes = 64 // itemsize
    found = [
        _cut(contraction, block, vectors, lanes)
        for vectors in range(1, MOST_VECTORS + 1)
        for block in _blocks(contraction, vectors * lanes, LARGEST_COPY * 4 // itemsize)
    ]
    return min(found, key=lambda tiling: _work(contraction, tiling))


def _blocks(contraction: WindowContraction, width: int, most: int) -> Iterator[Block]:
    """The blocks that tasks could have, of panels so wide."""
    _, height, row = contraction.positions
    reach = Reach.along(contraction, 2)
    if contraction.reads_all_inside:
        pitch = contraction.extents[2]
        if height == 1:
            yield from (Block(1, columns, pitch, False) for columns in _parts(row, width) if row >= width)
        elif (height - 1) * pitch + row >= width:
            yield from (Block(rows, row, pitch, False) for rows in range(1, min(height, MOST_BLOCK_ROWS) + 1))
    pitch = reach.pitch(row)
    whole = [Block(rows, row, pitch if rows > 1 else row + reach.behind, True) for rows in range(1, height + 1)]
    fitting = [block for block in whole[:MOST_BLOCK_ROWS] if copied_elements(contraction, block) <= most]
    yield from fitting
    if height == 1 or not fitting:
        parts = (Block(1, columns, columns + reach.behind, True) for columns in _parts(row, width))
        yield from (block for block in parts if copied_elements(contraction, block) <= most)


def _parts(row: int, width: int) -> Iterator[int]:
    """Lengths of parts of a row, that are whole panels."""
    panels = -(-row // width)
    yield from sorted({min(-(-panels // count) * width, row) for count in range(1, panels + 1)})


def copied_elements(contraction: WindowContraction, block: Block) -> int:
    """Elements of a task's copy, without those behind its end."""
    return contraction.channels * planes_of(contraction) * copied_rows(contraction, block) * block.pitch


def planes_of(contraction: WindowContraction) -> int:
    """Planes of a channel's copy: one for each tap of the first axis and each phase of the others."""
    return contraction.window[0] * prod(len(Reach.along(contraction, axis).phases) for axis in (1, 2))


def copied_rows(contraction: WindowContraction, block: Block) -> int:
    """Rows of a plane."""
    return block.rows + Reach.along(contraction, 1).behind


def _cut(contraction: WindowContraction, block: Block, vectors: int, lanes: int) -> ConvolutionTiling:
    most = min(MOST_ROWS, REGISTERS // vectors - 1)
    tiles = -(-contraction.filters // most)
    height, taller = divmod(contraction.filters, tiles)
    tasks = contraction.batch * contraction.groups * prod(block_counts(contraction, block))
    parts = min(tiles, FEWEST_TASKS // tasks, contraction.operations // (tasks * TASK_OPERATIONS))
    rows = prod(contraction.window[:2]) * vectors * lanes * (64 // lanes)
    some = max(min(DEPTH // contraction.taps, FIRST_CACHE // rows), 1)
    channels = -(-contraction.channels // -(-contraction.channels // some))
    width, at_a_time = vectors * lanes, -(-tiles // max(parts, 1))
    most_filters = min(at_a_time * (height + (taller > 0)), contraction.filters)
    panels = -(-block.positions(block.rows) // width)
    groups = max(1, min(panels, SUM_BYTES // (64 // lanes * most_filters * width)))
    groups = -(-panels // -(-panels // groups))
    return ConvolutionTiling(block, vectors, width, tiles, height, taller, at_a_time, channels, groups)


def block_counts(contraction: WindowContraction, block: Block) -> tuple[int, int, int]:
    """Blocks along the axes of positions."""
    first, height, row = contraction.positions
    return first, -(-height // block.rows), -(-row // block.columns)


def _work(contraction: WindowContraction, tiling: ConvolutionTiling) -> float:
    """Half steps of vectors for a matrix of positions, with what is copied for them."""
    block, filters = tiling.block, contraction.filters
    _, height, row = contraction.positions
    blocks, parts = block_counts(contraction, block)[1:]
    panels = (height // block.rows) * -(-block.positions(block.rows) // tiling.width)
    if height % block.rows:
        panels += -(-block.positions(height % block.rows) // tiling.width)
    if parts > 1:
        panels = (parts - 1) * -(-block.columns // tiling.width)
        panels += -(-(row - (parts - 1) * block.columns) // tiling.width)
        panels *= height
    steps = contraction.channels * contraction.taps
    tile = max(filters * tiling.vectors / RATE[tiling.vectors], 2.2 * tiling.tiles * tiling.vectors + filters)
    stored = -(-contraction.channels // tiling.channels) * (CALL_WORK * tiling.tiles + 4 * filters * tiling.vectors)
    copied = copied_elements(contraction, block) * tiling.filter_blocks if block.copies else 0
    each = COPY_WORK if contraction.strides[2] == 1 else STRIDED_COPY_WORK
    each *= 1 if copied <= NEAR_COPY else 2
    return panels * (steps * tile + stored) + blocks * parts * copied * each
