"""Rows of reductions."""

from __future__ import annotations

import numpy as np
from graph_op_table import (
    Row,
    reduction,
)

ROWS: list[Row] = [
    reduction("sum", floats=np.sum, ints=lambda x, y: x + y, neutral=0),
    reduction("prod", floats=np.prod, ints=lambda x, y: x * y, neutral=1),
    reduction("max", floats=np.max, ints=max),
    reduction("min", floats=np.min, ints=min),
    reduction("any", ints=lambda x, y: x | y, bools=lambda x, y: x or y, neutral=0),
    reduction("all", ints=lambda x, y: x & y, bools=lambda x, y: x and y, neutral=-1),
]
