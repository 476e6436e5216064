"""Packed right operands: columns in panels, each as wide as a tile of sums, so that a tile reads one stretch.

A matrix of k rows is `[panels][k][width]` in memory, with zeros behind its last column (Goto and van de Geijn 2008); one of bytes
`[panels][k/4][width][4]`, as instructions multiply and add four of a column at a time. The weight of a convolution is
`[panels][channels][taps][width]`, with zeros behind the last filter: that of the product of what windows see by filters, so that
filters lie along vectors, whatever the number of positions (as nChw16c of oneDNN, for the weight alone).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import estimate

LANE_BYTES = 64
"""Of a vector; widths are whole vectors."""
MOST_VECTORS = 15
"""Of a panel that a tile reads: registers hold a row of its sums and as many elements, and one of the left operand."""
_RATE = {2: 0.8, 3: 0.98, 4: 1.0, 5: 0.97, 6: 0.84}
"""By vectors of a panel: how fast tiles of many rows are, next to the fastest (measured, AVX-512)."""
_OF_FEW_ROWS = {1: 6, 2: 6, 3: 6, 4: 6, 5: 5, 6: 4, 7: 3, 8: 3, 9: 3}
"""Vectors of a panel by rows, where one tile has all of them: about as many sums as registers hold (measured alike)."""
_OF_FEW_NARROW = {2: 2}
"""
The same by rows for narrow vectors, one elsewhere, where second caches do not hold the operand: of a wider panel each part of a
tile reads a stretch of each row, which processors do not ask for ahead. Of 2304 x 768 elements 3 to 6 rows are 1.2 to 1.4 times
as fast as with panels of six vectors, one and two 1.3 and 1.5 times; of 384 x 512 one to four .75 to .9 times (measured).
"""
_FAR_BYTES = 1 << 20
"""Of an operand that second caches do not hold."""
NARROW_BITS = 256
"""Of vectors where there are sixteen registers."""
LEAST_NARROW = 96
"""Of the contracted dimension: to call a tile that is cut for narrow vectors takes too much time for fewer steps."""
GROUP_VECTORS = 2
"""Of a panel of groups: as wide as two matrix registers of x86 processors."""
_NARROW_FILTERS = 4
"""Bytes of elements whose filters lie in panels for narrow vectors."""
MOST_POSITIONS = 256
"""Of an image whose filters are packed: more fill vectors of positions, whose sums are stored as they are (measured)."""
FEWEST_TERMS = 64
"""Of a sum: those of fewer take less time than turning them."""
LARGEST_COPY = 768 << 10
"""Bytes of the input that are copied to the stack for all positions, with zeros around them."""


SIZED_POSITIONS = (512, 384, 256, 192, 128, 64)
"""About, of a block of an image of any extents: the most of which what windows see is not too much to copy."""
MOST_EMPTY = 0.2
"""Of filters, columns of the last panel that would be empty where images have any extents, at most."""
NEAR_COPY = 512 << 10
"""Bytes of such a copy, at most, if it has more than the fewest positions: a second cache holds it."""
LONGEST_PART, SHORTEST_PART = 64, 16
"""Positions of a part of a row, at most, where a block may have several rows, and of one of few positions."""
PLANE_STEP = 16
"""Elements: planes of a copy begin at multiples, and so many behind what is copied may become zeros."""
COLLISION = 1024
"""Bytes: what lies a multiple apart evicts each other from a first cache."""


def is_narrow(product: Contraction, itemsize: int, group: int, bits: int) -> bool:
    """
    Whether tiles of a product of elements of so many bytes are cut for narrow vectors, of so many bits: then panels are of two of
    them. A first cache holds the part of such a panel that all rows meet; tiles of few rows are as wide as can be, as they read
    each part once.
    """
    if bits != NARROW_BITS or group > 1 or product.depth < LEAST_NARROW:
        return False
    return estimate(product.rows) > max(_OF_FEW_ROWS)


def panel_width(product: Contraction, itemsize: int, group: int = 1, bits: int = 8 * LANE_BYTES) -> int:
    """
    Columns of a panel of the right operand of a product of elements of so many bytes, with groups of them along the depth, for
    vectors of so many bits.
    """
    lanes = LANE_BYTES // itemsize
    if is_narrow(product, itemsize, group, bits):
        return lanes
    if group > 1 and product.rows not in _OF_FEW_ROWS:
        return GROUP_VECTORS * lanes
    whole = -(-product.columns // lanes)
    if product.rows in _OF_FEW_ROWS:
        is_far = product.depth * product.columns * itemsize > _FAR_BYTES
        narrow = bits == NARROW_BITS and group == 1 and is_far
        panels = -(-whole // (_OF_FEW_NARROW.get(product.rows, 1) if narrow else _OF_FEW_ROWS[product.rows]))
        return -(-whole // panels) * lanes
    return min(_RATE, key=lambda v: -(-whole // v) * v / _RATE[v]) * lanes


def packed_bytes(product: Contraction, width: int, group: int, itemsize: int) -> int:
    """Of the operand of elements of so many bytes, in panels of a width and groups of rows."""
    return -(-product.columns // width) * width * -(-product.depth // group) * group * itemsize


def reads_rows(contraction: WindowContraction) -> bool:
    """Whether tiles of packed filters read channels side by side, of some rows of positions; others: those of a channel."""
    return contraction.result_last or contraction.x_last


def copies_windows(contraction: WindowContraction) -> bool:
    """
    Whether tiles of packed filters find what windows see in a copy, whatever caches hold of filters that are read as they are:
    of some rows of positions, or of a block of any extents.
    """
    return reads_rows(contraction) or (contraction.has_any_extents and not contraction.reads_in_place)


def seen_product(contraction: WindowContraction) -> Contraction:
    """The product of what windows see by filters; the strides of its right operand are those of the weight as it is."""
    rows, depth = prod(contraction.positions), contraction.channels * contraction.taps
    return Contraction((), rows, contraction.filters, depth, (1, rows), (1, depth))


@dataclass(frozen=True, slots=True)
class SizedBlock:
    """A block of an image of any extents, of which what windows see is copied for packed filters."""

    positions: int
    """About, of a block of several rows; of a single one at most."""
    part: int
    """Positions of a part of a row, at most."""
    plane: int
    """Elements of a phase of a channel's copy, at most; such that channels of few phases lie no multiple of `COLLISION` apart."""


def sized_block(contraction: WindowContraction, itemsize: int) -> SizedBlock | None:
    """The largest block of a merged contraction of which the copy is not too large; None where that of the smallest one is."""
    down, right, planes = contraction.behind(1), contraction.behind(2), contraction.planes
    is_line = contraction.positions[1] == 1
    for positions, most in zip(
        SIZED_POSITIONS, (NEAR_COPY,) * (len(SIZED_POSITIONS) - 1) + (LARGEST_COPY,), strict=True
    ):
        part = positions if is_line else max(min(positions // 4, LONGEST_PART), SHORTEST_PART)
        whole = positions + (0 if is_line else part) + right
        lines = -(-(whole + down * (part + right)) // PLANE_STEP) + 1
        lines += lines * PLANE_STEP * planes * itemsize % COLLISION == 0
        if contraction.channels * planes * lines * PLANE_STEP * itemsize <= most:
            return SizedBlock(positions, part, lines * PLANE_STEP)
    return None


def filter_panels_problem(contraction: WindowContraction, itemsize: int, bits: int = 8 * LANE_BYTES) -> str | None:
    """
    Why filters of a merged contraction are read as they are, for vectors of so many bits, as the end of a sentence; None where
    they are to be packed.
    """
    if contraction.groups > 1 or contraction.flipped:
        return "it has groups, or reads its windows backwards"
    if reads_rows(contraction):
        row = contraction.channels * contraction.reached(1, contraction.positions[2]) * itemsize
        return f"it would copy {row} bytes of the input" if row > LARGEST_COPY else None
    is_sized = contraction.has_any_extents
    most = 0 if is_sized and bits == NARROW_BITS else MOST_POSITIONS
    if contraction.positions[0] != 1 or (most and estimate(prod(contraction.positions)) > most):
        return f"its {prod(contraction.positions)} positions fill vectors"
    if contraction.channels * contraction.taps < FEWEST_TERMS:
        return f"its sums are of {contraction.channels * contraction.taps} products"
    if contraction.filters * itemsize < LANE_BYTES:
        return f"its {contraction.filters} filters fill no vector"
    if is_sized and (rest := -contraction.filters % (LANE_BYTES // itemsize)) > MOST_EMPTY * contraction.filters:
        return f"panels of its {contraction.filters} filters would have {rest} empty columns"
    if is_sized:
        return "it would copy too much of the input" if sized_block(contraction, itemsize) is None else None
    size = contraction.channels * contraction.reached(*contraction.positions[1:]) * itemsize
    if not contraction.reads_in_place and size > LARGEST_COPY:
        return f"it would copy {size} bytes of the input"
    return None


def filter_panel_width(contraction: WindowContraction, itemsize: int, bits: int = 8 * LANE_BYTES) -> int:
    """Filters of a panel, for vectors of so many bits."""
    narrow = bits if itemsize == _NARROW_FILTERS else 8 * LANE_BYTES
    return panel_width(seen_product(contraction), itemsize, bits=narrow)


def has_narrow_panels(contraction: WindowContraction, width: int, itemsize: int) -> bool:
    """Whether panels of so many filters are those of narrow vectors: others have one wide vector for few positions alone."""
    return width == LANE_BYTES // itemsize and prod(contraction.positions) > max(_OF_FEW_ROWS)
