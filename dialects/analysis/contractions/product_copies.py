"""How often a product copies its operands, part by part: what computing them in the copies costs.

A task is some rows and some panels of columns; it copies its rows once, and its panels. What code is generated for cuts a
product by the same numbers, with tiles that depend on more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.computed_operands import ComputedOperand
from fuse_opt.dialects.analysis.contractions.products import Product
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.extents import estimate

BLOCK_ROWS = 672
"""Of a block of rows: so many go over a panel, once it is copied."""
LEAST_BLOCK_ROWS = 256
"""The same of long rows: fewer would be too few for what the first tile of a panel costs."""
BLOCK_BYTES = 1 << 20
"""Of such a block, all of which second caches have for the next panel."""
COPY_BYTES = 256 << 10
"""Of a copy of the left operand's rows, which lies on the stack."""
LONGEST_COPY = 4096
"""Bytes of a row that is copied whole; of a longer one only what a block needs."""
PANELS_OF_COPY = 8
"""For which a block of rows is copied at once, where it is copied by blocks of the contracted dimension."""
DEPTH = 400
"""Of a block of the contracted dimension: what a panel has of it stays in the second cache, and sums are about as short as those
of OpenBLAS and MKL, which have blocks of 384, so that rounding errors are no larger."""
FEWEST_TASKS = 16
FEWEST_COPYING = 8
"""Of tasks that copy rows of the left operand, as each for some of the panels copies them again."""
TASK_OPERATIONS = 1 << 19
FEW_ROWS = 24
"""Rows for which the right operand is read where it lies, as a copy of it would take too long."""
FEW_TRANSPOSED = 12
"""The same where that is transposed."""
NEAR_BYTES = 1 << 20
"""Of an operand that second caches hold."""
FEWEST_STREAMED = 256
"""Columns from which on rows of the right operand are streams, all of a task's at a time (128 take 1.1 times as long so)."""
MOST_STREAMED = 8
"""Rows of a product that stream a right operand that second caches do not hold (1.1 to 2.0 times as fast)."""
NEAR = 4
"""How many elements are copied in first caches, for few rows, while one is in second ones (measured)."""
_PANEL = 64
"""About the columns of a panel."""
NEAR_COPY_BYTES = 384 << 10
"""Of such a copy: a second cache holds it, and what tiles read and store beside."""
PANELS_OF_NEAR_COPY = 32
"""That each copy of a block of depth meets in a task: more of them, as panels are a quarter as wide as those for wide vectors."""
_CROWDED_BYTES = 2048
"""Rows at a multiple of this distance compete for two sets of a first cache, or for one."""
_LEAST_ROWS = 64
_LEAST_COLUMNS = 256
"""Below which a copy takes too long beside what it is for."""
_FAR_COLUMNS = 512
"""The same where rows are merely far away."""
_FAR_BYTES = 1 << 20
"""Of all rows: second caches hold no block of more, as each goes over the whole depth."""
_LONGEST_WHOLE = 2560
"""Bytes of a row that is copied whole, so that what follows sums has those of a tile at a time."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An operand that is computed in copies of its parts."""

    value: SSAValue
    reads: tuple[SSAValue, ...]
    """What it is computed from."""
    work: int
    """Simple operations for an element."""
    times: int
    """How often an element is computed."""
    copied: int
    """Elements that are copied, of this operand and others, and would not be if it were in memory."""


def computed_operands(traced: object) -> list[Computed]:
    """The operands that the kernel of a product computes."""
    assert isinstance(traced, Product)
    found: list[Computed] = []
    for number, operand in enumerate((traced.lhs, traced.rhs)):
        if isinstance(operand, ComputedOperand) and operand.elements is not None:
            reads = tuple(dict.fromkeys(load.value for load in operand.elements.loop_body.loads()))
            times, copied = (_of_right if number else _of_left)(traced, operand)
            found.append(Computed(operand.value, reads, operand.elements.work, times, copied))
    return found


def _of_left(traced: Product, operand: ComputedOperand) -> tuple[int, int]:
    """
    Times, and copies: those of the operand; those of the right one, for fewer rows at a time; and sums, which leave first
    caches where each block of depth goes over all panels.
    """
    of, itemsize = traced.contraction.typical(), dtype(traced.raw).itemsize
    times, matrices = times_copied(of, itemsize, True)[0], prod(of.batch)
    if operand.column != 1 and of.depth > 1:
        return times, 0
    copied = times * estimate(prod(shape(operand.value)))
    if of.rows > FEW_ROWS:
        blocks = [row_blocks(of, itemsize, copies_left) for copies_left in (True, False)]
        copied += (blocks[0] - blocks[1]) * of.depth * of.columns * matrices
    if _copied_depth(of, itemsize) < of.depth:
        copied += of.rows * of.columns * matrices * -(-of.depth // DEPTH)
    return times, copied


def _of_right(traced: Product, operand: ComputedOperand) -> tuple[int, int]:
    of = traced.contraction.typical()
    times = times_copied(of, dtype(traced.raw).itemsize, isinstance(traced.lhs, ComputedOperand))[1]
    is_copied = of.rows > (FEW_ROWS if operand.column == 1 else FEW_TRANSPOSED)
    return times, 0 if is_copied else times * estimate(prod(shape(operand.value))) // NEAR


def times_copied(product: Contraction, itemsize: int, copies_left: bool) -> tuple[int, int]:
    """About how often an element of the left operand, and of the right one, is copied, where they are."""
    rows = row_blocks(product, itemsize, copies_left)
    panels, blocks = -(-product.columns // _PANEL), prod(product.batch) * rows
    fewest = FEWEST_COPYING if copies_left else FEWEST_TASKS
    parts = min(panels, -(-fewest // blocks), max(product.operations // (blocks * TASK_OPERATIONS), 1))
    if copies_left and _copied_depth(product, itemsize) < product.depth:
        parts = max(parts, -(-panels // PANELS_OF_COPY))
    return parts * _shared(product, product.lhs), rows * _shared(product, product.rhs)


def row_blocks(product: Contraction, itemsize: int, copies_left: bool) -> int:
    """About how many blocks of rows a product has, each of which copies the right operand."""
    most = most_block_rows(product, itemsize)
    if copies_left:
        most = min(most, COPY_BYTES // (_copied_depth(product, itemsize) * itemsize))
    return -(-product.rows // max(most, 1))


def most_block_rows(product: Contraction, itemsize: int) -> int:
    """Of rows that go over a panel before others do, as many as are near, but enough."""
    return max(min(BLOCK_BYTES // max(product.depth * itemsize, 1), BLOCK_ROWS), LEAST_BLOCK_ROWS)


def _copied_depth(product: Contraction, itemsize: int) -> int:
    """Elements of a row of the left operand that are copied at a time, where it is copied."""
    whole = product.depth * itemsize <= LONGEST_COPY and (product.lhs[-1] == 1 or product.depth == 1)
    return product.depth if whole else min(product.depth, DEPTH)


def _shared(product: Contraction, strides: tuple[int, ...]) -> int:
    """How many matrices of the batch an operand's matrix takes part in."""
    return prod(extent for extent, stride in zip(product.batch, strides, strict=False) if stride == 0)


def copies_near(product: Contraction, itemsize: int) -> bool:
    """
    Whether tiles for narrow vectors read rows from a copy, though their elements lie side by side.

    A first cache of 32 KiB has eight lines for each of its sets: six rows at a multiple of 2 KiB, which share one or two sets,
    evict what they meet of a panel, and each other. Rows that no second cache holds come from a third one for each panel again.
    Measured on Zen 3: with copies products of 1024 cubed are 1.06 to 1.09 times as fast, those of 512 elements to add 1.03.
    """
    if product.lhs[-1] != 1 or product.rows <= _LEAST_ROWS:
        return False
    crowded = product.lhs[-2] * itemsize % _CROWDED_BYTES == 0 and product.depth * itemsize >= _CROWDED_BYTES // 2
    if crowded:
        return product.columns >= _LEAST_COLUMNS
    return product.columns >= _FAR_COLUMNS and product.rows * product.depth * itemsize > _FAR_BYTES


def near_depth(depth: int, block: int, itemsize: int) -> int:
    """Elements of a row that are copied at a time: all, or those of a block of depth."""
    return depth if depth * itemsize <= _LONGEST_WHOLE else block
