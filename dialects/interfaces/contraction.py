"""What a product of two tensors is to those who generate code for it: extents, and where its operands have elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fuse_opt.dialects.types.extents import estimate


@dataclass(frozen=True, slots=True)
class Contraction:
    """
    result[batch, i, j] = sum over p of lhs[batch, i, p] * rhs[batch, p, j]; the result is in row-major order.

    Strides are in elements, by the axes as they are written here; an operand that is the same along an axis of the batch
    has a stride of 0 there.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    lhs: tuple[int, ...]
    """Strides of the left operand, of `(*batch, rows, depth)`."""
    rhs: tuple[int, ...]
    """Strides of the right operand, of `(*batch, depth, columns)`."""
    in_memory: bool = False
    """Whether the result is in row-major order as it lies in memory, by its encoding, and not by its axes."""

    def merged(self) -> Contraction:
        """The same with axes of the batch that the right operand does not have counted as rows, where they lie like rows."""
        batch, rows, lhs, rhs = list(self.batch), self.rows, list(self.lhs), list(self.rhs)
        while batch and rhs[-3] == 0 and (1 in (rows, batch[-1]) or lhs[-3] == rows * lhs[-2]):
            if rows == 1:
                lhs[-2] = lhs[-3]
            rows *= batch.pop()
            del lhs[-3], rhs[-3]
        return replace(self, batch=tuple(batch), rows=rows, lhs=tuple(lhs), rhs=tuple(rhs))

    def with_rows(self, rows: int) -> Contraction:
        """The same in matrices of so many rows, of which there are several to each of the right operand."""
        batch = (*self.batch, self.rows // rows)
        lhs = (*self.lhs[:-2], rows * self.lhs[-2], *self.lhs[-2:])
        return replace(self, batch=batch, rows=rows, lhs=lhs, rhs=(*self.rhs[:-2], 0, *self.rhs[-2:]))

    def swapped(self) -> Contraction:
        """The same of the operands in the other order: a column, which lies in memory as a row does, becomes one."""
        lhs, rhs = (*self.rhs[:-2], self.rhs[-1], self.rhs[-2]), (*self.lhs[:-2], self.lhs[-1], self.lhs[-2])
        return replace(self, rows=self.columns, columns=self.rows, lhs=lhs, rhs=rhs)

    def typical(self) -> Contraction:
        """The same with numbers for sizes: for profit alone."""
        batch, lhs, rhs = (tuple(map(estimate, extents)) for extents in (self.batch, self.lhs, self.rhs))
        return Contraction(
            batch, estimate(self.rows), estimate(self.columns), estimate(self.depth), lhs, rhs, self.in_memory
        )

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * prod(self.batch) * self.rows * self.columns * self.depth


def row_major(extents: Sequence[int]) -> list[int]:
    """The strides of a dense tensor, 0 along axes of one element."""
    found, behind = list[int](), 1
    for extent in reversed(extents):
        found.append(behind if extent != 1 else 0)
        behind *= extent
    return found[::-1]
