"""Blocks of positions that tasks could have, and what they copy of the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.window_rows import Reach

LONGEST = 64
"""Rows of a block, or panels of a part of a row."""


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


def candidate_blocks(
    contraction: WindowContraction, width: int, most: int, always_copies: bool = False
) -> Iterator[Block]:
    """The blocks that tasks could have, of panels so wide, and so many elements in a copy at most."""
    _, height, row = contraction.positions
    reach = Reach.along(contraction, 2)
    if contraction.reads_in_place and not always_copies:
        pitch = contraction.extents[2]
        if height == 1:
            yield from (Block(1, columns, pitch, False) for columns in _parts(row, width) if row >= width)
        elif (height - 1) * pitch + row >= width:
            yield from (Block(rows, row, pitch, False) for rows in _even_parts(height))
    pitch = reach.pitch(row)
    whole = [Block(rows, row, pitch if rows > 1 else row + reach.behind, True) for rows in _even_parts(height)]
    fitting = [block for block in whole if copied_elements(contraction, block) <= most]
    yield from fitting
    if height == 1 or not fitting:
        parts = (Block(1, columns, columns + reach.behind, True) for columns in _parts(row, width))
        yield from (block for block in parts if copied_elements(contraction, block) <= most)


def _parts(row: int, width: int) -> Iterator[int]:
    """Lengths of parts of a row, that are whole panels."""
    yield from (min(panels * width, row) for panels in _even_parts(-(-row // width)))


def _even_parts(count: int) -> Iterator[int]:
    """The lengths of parts that are as equal as can be, each once, from the longest one that a task may have on."""
    part = min(count, LONGEST)
    while part > 0:
        part = -(-count // -(-count // part))
        yield part
        part -= 1


def copied_elements(contraction: WindowContraction, block: Block) -> int:
    """Elements of a task's copy, without those behind its end."""
    return contraction.channels * contraction.planes * copied_rows(contraction, block) * block.pitch


def copied_rows(contraction: WindowContraction, block: Block) -> int:
    """Rows of a plane."""
    return block.rows + contraction.behind(1)


def block_counts(contraction: WindowContraction, block: Block) -> tuple[int, int, int]:
    """Blocks along the axes of positions."""
    first, height, row = contraction.positions
    return first, -(-height // block.rows), -(-row // block.columns)


def block_lengths(contraction: WindowContraction, block: Block) -> Mapping[int, int]:
    """The lengths of blocks, in positions, and how many of a matrix of positions have each."""
    _, height, row = contraction.positions
    found: dict[int, int] = {}
    for rows, many in ((block.rows, height // block.rows), (height % block.rows, 1)):
        for columns, more in ((block.columns, row // block.columns), (row % block.columns, 1)):
            if rows and columns and many * more:
                length = (rows - 1) * block.pitch + columns
                found[length] = found.get(length, 0) + many * more
    return found
