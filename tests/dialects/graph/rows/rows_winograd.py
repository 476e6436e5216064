"""Row of filters from their transforms for tiles of 2x2 positions: taps as differences, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import FLOATS, Array, Case, Row, noise, rounded, wide

_UNDONE = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]], np.float64)
"""Of a column of transforms, by tap."""


def taps(transforms: Array, filters: int) -> Array:
    _, _, channels, width = transforms.shape
    found = np.zeros((filters, channels, 3, 3))
    for filter, channel in product(range(filters), range(channels)):
        square = transforms[filter // width, :, channel, filter % width].reshape(4, 4)
        found[filter, channel] = _UNDONE @ square @ _UNDONE.T
    return found


def _cases() -> Iterator[Case]:
    for name, (panels, channels, width, filters) in product(FLOATS, [(2, 3, 4, 7), (1, 1, 5, 5), (3, 2, 1, 3)]):
        value = rounded(np.round(4 * wide(noise(name, panels, 16, channels, width))), name)  # differences are exact
        yield Case(
            "graph.winograd_taps", f"filters = {filters} : i64", (value,), rounded(taps(wide(value), filters), name)
        )


ROWS: list[Row] = [Row("winograd_taps", FLOATS, _cases)]
