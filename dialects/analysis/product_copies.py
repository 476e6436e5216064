"""How often a product copies its operands, part by part: what computing them in the copies costs.

A task is some rows and some panels of columns; it copies its rows once, and its panels. What code is generated for cuts a
product by the same numbers, with tiles that depend on more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.computed_operands import ComputedOperand
from fuse_opt.dialects.analysis.products import Product
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype

BLOCK_ROWS = 336
"""Of a block of rows: so many go over a panel, once it is copied, and have their sums in a second cache."""
COPY_BYTES = 256 << 10
"""Of a copy of the left operand's rows, which lies on the stack."""
LONGEST_COPY = 4096
"""Bytes of a row that is copied whole; of a longer one only what a block needs."""
PANELS_OF_COPY = 8
"""For which a block of rows is copied at once, where it is copied by blocks of the contracted dimension."""
DEPTH = 256
"""Of a block of the contracted dimension: what a panel has of it stays in the second cache, and sums are short, so that rounding
errors are no larger than those of the libraries that were measured beside it."""
FEWEST_TASKS = 16
TASK_OPERATIONS = 1 << 19
FEW_ROWS = 100
"""Rows for which the right operand is read where it lies, as a copy of it would take too long."""
FEW_TRANSPOSED = 32
"""The same where that is transposed."""
_PANEL = 64
"""About the columns of a panel."""


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
    is_copied: bool
    """Whether an operand in memory would be copied, too."""


def computed_operands(traced: object) -> list[Computed]:
    """The operands that the kernel of a product computes."""
    assert isinstance(traced, Product)
    of, found = traced.contraction, list[Computed]()
    times = times_copied(of, dtype(traced.raw).itemsize, isinstance(traced.lhs, ComputedOperand))
    for number, operand in enumerate((traced.lhs, traced.rhs)):
        if isinstance(operand, ComputedOperand) and operand.elements is not None:
            reads = tuple(dict.fromkeys(load.value for load in operand.elements.loop_body.loads()))
            is_copied = of.rows > (FEW_ROWS if operand.column == 1 else FEW_TRANSPOSED) if number else operand.column != 1
            found.append(Computed(operand.value, reads, operand.elements.work, times[number], is_copied))
    return found


def times_copied(product: Contraction, itemsize: int, copies_left: bool) -> tuple[int, int]:
    """About how often an element of the left operand, and of the right one, is copied, where both are."""
    copied = product.depth
    if copied * itemsize > LONGEST_COPY or (product.lhs[-1] != 1 and product.depth > 1):
        copied = min(copied, DEPTH)
    most = min(BLOCK_ROWS, COPY_BYTES // (copied * itemsize)) if copies_left else BLOCK_ROWS
    row_blocks = -(-product.rows // max(most, 1))
    panels, blocks = -(-product.columns // _PANEL), prod(product.batch) * row_blocks
    parts = min(panels, -(-FEWEST_TASKS // blocks), max(product.operations // (blocks * TASK_OPERATIONS), 1))
    if copies_left and copied < product.depth:
        parts = max(parts, -(-panels // PANELS_OF_COPY))
    return (parts * _shared(product, product.lhs), row_blocks * _shared(product, product.rhs))


def _shared(product: Contraction, strides: tuple[int, ...]) -> int:
    """How many matrices of the batch an operand's matrix takes part in."""
    return prod(extent for extent, stride in zip(product.batch, strides, strict=False) if stride == 0)
