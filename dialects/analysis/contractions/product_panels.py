"""Packed right operands of products: columns in panels, each as wide as a tile of sums, so that a tile reads one stretch.

A matrix of k rows is `[panels][k][width]` in memory, with zeros behind its last column (Goto and van de Geijn 2008); one of bytes
`[panels][k/4][width][4]`, as instructions multiply and add four of a column at a time.
"""

from __future__ import annotations

from fuse_opt.dialects.interfaces.contraction import Contraction

LANE_BYTES = 64
"""Of a vector; widths are whole vectors."""
_RATE = {2: 0.8, 3: 0.98, 4: 1.0, 5: 0.97, 6: 0.84}
"""By vectors of a panel: how fast tiles of many rows are, next to the fastest (measured, AVX-512)."""
_OF_FEW_ROWS = {1: 6, 2: 6, 3: 6, 4: 6, 5: 5, 6: 4, 7: 3, 8: 3, 9: 3}
"""Vectors of a panel by rows, where one tile has all of them: about as many sums as registers hold (measured alike)."""


def panel_width(product: Contraction, itemsize: int) -> int:
    """Columns of a panel of the right operand of a product of elements of so many bytes."""
    lanes = LANE_BYTES // itemsize
    whole = -(-product.columns // lanes)
    if product.rows in _OF_FEW_ROWS:
        panels = -(-whole // _OF_FEW_ROWS[product.rows])
        return -(-whole // panels) * lanes
    return min(_RATE, key=lambda v: -(-whole // v) * v / _RATE[v]) * lanes


def packed_bytes(product: Contraction, width: int, group: int, itemsize: int) -> int:
    """Of the operand of elements of so many bytes, in panels of a width and groups of rows."""
    return -(-product.columns // width) * width * -(-product.depth // group) * group * itemsize
