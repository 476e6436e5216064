"""Rows of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import (
    FLOATS,
    INTEGERS,
    Case,
    Row,
    noise,
    ramp,
    rounded,
    wrapped,
)

MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (6, 4, 2)),
    ((1, 1), (1, 1)),
    ((3, 0), (0, 2)),
    ((0, 4), (4, 2)),
    ((2, 0, 4), (4, 3)),
]


def _matmul_cases() -> Iterator[Case]:
    for name, (a, b) in product([*FLOATS, *INTEGERS], MATMULS):
        x, y = (noise(name, *a), noise(name, *b)) if name in FLOATS else (ramp(name, *a), ramp(name, *b))
        wide = np.float64 if name in FLOATS else np.dtype(object)
        letters = ("" if len(a) == 1 else "i") + "k", "k" + ("" if len(b) == 1 else "j")
        result = ("" if len(a) == 1 else "i") + ("" if len(b) == 1 else "j")
        if name in FLOATS:
            value = np.einsum(f"...{letters[0]},...{letters[1]}->...{result}", x.astype(wide), y.astype(wide))
            yield Case("graph.matmul", "", (x, y), rounded(value, name))
        else:
            whole = np.einsum(f"...{letters[0]},...{letters[1]}->...{result}", x.astype(np.int64), y.astype(np.int64))
            yield Case("graph.matmul", "", (x, y), wrapped(whole, name))


ROWS: list[Row] = [
    Row("matmul", [*FLOATS, *INTEGERS], _matmul_cases),
]
