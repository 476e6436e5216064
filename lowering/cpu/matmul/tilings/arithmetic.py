"""In which types a product is computed: elements of copies, of sums, and what a tile multiplies at a time."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.dialects.types.dtypes import BF16, F16, F32, I8, I32, U8, DType


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How tiles compute a product of operands of two element types."""

    tile: str
    """The element type by which tiles are called."""
    left: DType
    """Of the left operand where a tile reads it, which may be a copy of it."""
    right: DType
    sums: DType
    group: int = 1
    """Neighbours along the contracted dimension that are multiplied and added at a time; panels have them side by side."""
    is_narrow: bool = False
    """Whether operands have other elements than sums, so that the right one is copied."""
    converts: bool = False
    """Whether the left one is, too, into wider elements."""
    room: int = 1
    """How many times as large as its elements a panel is: machines without an instruction for groups widen them there."""
    sums_rows: bool = False
    """Whether tiles of some machines need sums of their rows, which others of the same rows may read."""


def arithmetic_of(left: DType, right: DType, in_pairs: bool) -> Arithmetic:
    """Of a product that `product_problem` takes. Narrow floats are widened as they are copied; `in_pairs` takes pairs of bf16,
    whose sums are rounded in another order, and flush what is too small for normal numbers."""
    if (left, right) == (BF16, BF16) and in_pairs:
        return Arithmetic("bf16", BF16, BF16, F32, 2, True, room=2)
    if not {F16, BF16}.isdisjoint((left, right)):
        return Arithmetic("f32", F32, F32, F32, 1, True, True)
    if left is I8:
        return Arithmetic("i8", I8, right, I32, 4, True, sums_rows=True)
    if left is U8:
        return Arithmetic("ui8", U8, right, I32, 4, True)
    return Arithmetic(left.name, left, right, left)
