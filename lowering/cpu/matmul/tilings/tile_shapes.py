"""How many rows and columns a tile of sums has: what registers hold, and what a step of it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fuse_opt.dialects.analysis.contractions.packed_panels import NARROW_BITS
from fuse_opt.lowering.c.headers.matrix_tiles import FEWEST_ROWS, SIDE, has_matrix_tile
from fuse_opt.lowering.c.headers.matrix_tiles import MOST_ROWS as MATRIX_ROWS

REGISTERS = 31
"""Vectors that hold sums and elements of the right operand; one more is left for those of the left one."""
PAIRED_SUMS = 27
"""Vectors that hold the sums of a tile of which two rows share their last ones, at most; gcc spills some of more."""
PAIRED_RATE = {1: 0.94, 2: 0.91, 3: 1.04, 4: 1.06, 5: 1.05, 6: 1.04}
"""By whole vectors of such a tile: how fast it is, if its last ones take half of the time of others (measured, Zen 4)."""
MOST_ROWS = 14
"""Of a tile: more wait for nothing, and their lines evict each other from a first cache."""
RATE = {1: 0.85, 2: 0.97, 3: 0.98, 4: 1.0, 5: 0.99, 6: 0.97, 7: 0.93, 8: 0.8}
"""By vectors of a tile side by side: how fast it is, next to the fastest (measured, AVX-512)."""
LATENCY = 4.0
"""Cycles of a multiplication and addition; two begin in each, and two vectors are loaded."""
FAR_LOAD = 1.43
"""Cycles for a vector of a panel, which lies in a second cache."""
ANY_ROWS_VECTORS, ANY_ROWS_HEIGHT = 4, 8
"""Of tiles for any number of rows: vectors side by side, at least, and rows, at most."""
MANY_ROWS = 5040
DOT_ROWS = {1: 4, 2: 8, 3: 5, 4: 4}
"""By columns of a tile of vectors along the contracted dimension: its rows, where these are many (measured, AVX-512)."""
DOT_COLUMNS = {1: 4, 2: 6, 3: 4, 4: 4, 5: 3}
"""By rows: its columns, where these are many."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Those that tiles are cut for."""

    size: int
    """Bytes."""
    registers: int
    """For sums and elements of the right operand."""
    most_rows: int
    rate: Mapping[int, float]
    """By vectors side by side: how fast tiles are, next to the fastest."""
    load: float
    """Cycles for one of a panel."""
    latency: float
    """Cycles of a step at least."""

    def lanes(self, itemsize: int) -> int:
        return self.size // itemsize


WIDE = Vectors(64, REGISTERS, MOST_ROWS, RATE, FAR_LOAD, LATENCY)
NARROW = Vectors(NARROW_BITS // 8, 15, 6, {1: 0.8, 2: 1.0}, 0.5, 4.8)
"""Of 32 bytes, with sixteen registers, for which a tile has 4 rows at least; more than two vectors side by side are slower."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """Tiles of all rows, columns of a tile and of a panel, and whether the last panel takes what is left over, too."""

    tiles: int
    columns: int
    width: int
    merges: bool = False
    pads: bool = False
    """Whether the only panel has zeros behind its columns, and tiles have sums of these."""


def dot_shape(rows: int, columns: int, groups: int) -> TileShape:
    """Of tiles whose vectors lie along the contracted dimension: of all columns where they are fewer than rows."""
    if rows > columns:
        some = -(-columns // -(-columns // max(DOT_ROWS)))
        return TileShape(-(-rows // DOT_ROWS[some]), some, columns)
    tiles = -(-rows // (5 if rows == 5 else 4))
    some = DOT_COLUMNS[-(-rows // tiles)]
    return TileShape(tiles, some, some * groups)


def panel_shape(rows: int, width: int, lanes: int, group: int = 1, of: Vectors = WIDE) -> TileShape:
    """Of tiles over panels of a width that is given, of groups of so many elements."""
    in_matrices = group > 1 and has_matrix_tile(min(max(rows, FEWEST_ROWS), MATRIX_ROWS), width)
    return TileShape(-(-rows // (MATRIX_ROWS if in_matrices else _most_rows(width // lanes, of))), width, width)


def grouped_shape(rows: int, columns: int, lanes: int) -> TileShape:
    """Of tiles of groups of elements: such that matrix registers hold the sums, where rows are enough for these."""
    if rows < FEWEST_ROWS:
        return best_shape(rows, columns, lanes)
    width = min(2 * SIDE, columns)
    return TileShape(-(-rows // MATRIX_ROWS), width, width)


def best_shape(rows: int, columns: int, lanes: int, of: Vectors = WIDE) -> TileShape:
    """Of tiles whose vectors lie along the columns."""
    return min(_shapes(rows, columns, lanes, of), key=lambda found: _cycles(found, rows, columns, lanes, of))


def padded_shape(rows: int, lanes: int, of: Vectors = WIDE) -> TileShape:
    """Of tiles of one vector, where columns fill most of it."""
    return replace(best_shape(rows, lanes, lanes, of), pads=True)


def shape_for_any_rows(columns: int, lanes: int) -> tuple[int, TileShape]:
    """
    Rows of a tile at most, and the shape of tiles, for products that have any number of rows: of few heights, as there is a
    function for each.
    """
    fewest = max(1, min(ANY_ROWS_VECTORS, columns // lanes))
    found = [shape for shape in _shapes(MANY_ROWS, columns, lanes, WIDE) if shape.width >= fewest * lanes]
    shape = min(found, key=lambda one: _cycles(one, MANY_ROWS, columns, lanes, WIDE))
    return min(MANY_ROWS // shape.tiles, ANY_ROWS_HEIGHT), shape


def _shapes(rows: int, columns: int, lanes: int, of: Vectors) -> Iterator[TileShape]:
    """Those of tiles whose vectors lie along the columns: by vectors, and by where the last columns go."""
    for vectors in of.rate:
        width = vectors * lanes
        if width > max(columns, lanes):
            return
        most = _most_rows(vectors, of)
        yield TileShape(-(-rows // most), width, width)
        rest = columns % width
        merged = _vectors(width + rest, lanes)
        if rest and columns > width and merged in of.rate:
            is_paired = _is_paired(width + rest, lanes, of)
            most = _most_paired_rows((width + rest) // lanes) if is_paired else _most_rows(merged, of)
            yield TileShape(-(-rows // most), width, width, True)


def _cycles(shape: TileShape, rows: int, columns: int, lanes: int, of: Vectors) -> tuple[float, int]:
    """About what a step along the contracted dimension costs for all rows and columns; of equal ones the wider tiles."""
    whole, rest = divmod(columns, shape.width)
    height = rows / shape.tiles
    last = rest + shape.width * shape.merges
    cycles = (whole - shape.merges) * _step(height, shape.width // lanes, of)
    if last:
        cycles += (
            _paired_step(height, last // lanes, of)
            if _is_paired(last, lanes, of)
            else _step(height, _vectors(last, lanes), of)
        )
    return shape.tiles * cycles, -shape.width


def _is_paired(columns: int, lanes: int, of: Vectors) -> bool:
    """Whether the last columns are a quarter of a vector, which that of the next row fills up to a half."""
    return of is WIDE and columns // lanes in PAIRED_RATE and 0 < columns % lanes <= lanes // 4


def _most_paired_rows(whole: int) -> int:
    return min(2 * PAIRED_SUMS // (2 * whole + 1), MOST_ROWS)


def _paired_step(rows: float, whole: int, of: Vectors) -> float:
    vectors = whole + 0.5
    return max(rows * vectors / 2 / PAIRED_RATE[whole], (rows + vectors) / 2, of.latency, of.load * vectors)


def _most_rows(vectors: int, of: Vectors) -> int:
    return min(of.most_rows, of.registers // vectors - 1)


def _vectors(columns: int, lanes: int) -> int:
    """Of a row of a tile; narrower ones take as long."""
    while lanes > max(columns, 1):
        lanes //= 2
    return -(-columns // lanes)


def _step(rows: float, vectors: int, of: Vectors) -> float:
    if not vectors:
        return 0.0
    return max(rows * vectors / 2 / of.rate.get(vectors, 1.0), (rows + vectors) / 2, of.latency, of.load * vectors)
