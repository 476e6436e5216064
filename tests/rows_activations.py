"""Rows of activation functions."""

from __future__ import annotations

import math

import numpy as np
from graph_op_table import (
    Row,
    unary,
)

_erf = np.vectorize(math.erf, otypes=[np.float64])


ROWS: list[Row] = [
    unary("sigmoid", floats=lambda x: 1 / (1 + np.exp(-x))),
    unary("relu", floats=lambda x: np.where(x < 0, 0, x), ints=lambda x: max(x, 0)),
    unary("silu", floats=lambda x: x / (1 + np.exp(-x))),
    unary("gelu", floats=lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    unary(
        "gelu",
        floats=lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        attributes='approximate = "tanh"',
    ),
]
