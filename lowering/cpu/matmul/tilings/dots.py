"""How long blocks of the contracted dimension are where vectors lie along it, and what a single row is copied for."""

from __future__ import annotations

from fuse_opt.dialects.analysis.contractions.product_copies import FEW_TRANSPOSED
from fuse_opt.dialects.interfaces.contraction import Contraction

DOT_DEPTH = 1024
"""Of such a block where sums are vectors along that dimension: rows of a tile, and of the next, stay in a first cache."""
DOT_ROWS = 16
"""Rows for which a transposed right operand is read, or computed in a copy, in the order in which it lies; narrow elements in
memory are so for fewer, as each tile of their rows widens them again."""
MANY_DOT_DEPTH = 512
"""Of a block of the contracted dimension for the most such rows, of which a first cache holds no more (measured)."""
LONG_ROW = 12 << 10
"""Bytes of a single row of the left operand that a first cache keeps while columns pass by, at most."""
FEWEST_OF_COPIED = 64
"""Columns that such a row meets, at least, if it is copied to begin where a line does."""


def longest_dots(product: Contraction, packs: bool) -> int:
    """
    Of a block: a single row meets whole ones that are read where they lie, as processors ask ahead for what lies behind what is
    read, not for the next row (.4 to .9 of the time of blocks, Zen 4).
    """
    if product.rows == 1 and not packs:
        return product.depth
    return MANY_DOT_DEPTH if FEW_TRANSPOSED < product.rows <= DOT_ROWS else DOT_DEPTH


def is_aligned_by_copying(product: Contraction, itemsize: int) -> bool:
    """
    Whether the only row is short next to what it meets: where vectors of it cross lines that is .8 to .95 of the speed, and who
    calls a program may give one that lies so.
    """
    return product.rows == 1 and product.columns >= FEWEST_OF_COPIED and product.depth * itemsize <= LONG_ROW
