"""Rows of statistics over axes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import (
    AXES,
    FLOATS,
    Case,
    Row,
    axes_text,
    noise,
    ramp,
    rounded,
)


def _mean_cases() -> Iterator[Case]:
    for name, (axes, keepdims) in product(FLOATS, AXES):
        x = noise(name, 2, 3, 4)
        value = x.astype(np.float64).mean(axis=axes, keepdims=keepdims)
        yield Case("graph.mean", axes_text(axes, keepdims), (x,), rounded(value, name))
    empty = ramp("f32", 2, 0)
    yield Case("graph.mean", "axes = array<i64: 1>", (empty,), np.full(2, np.nan, np.float32))


def _var_cases() -> Iterator[Case]:
    for name, (axes, keepdims) in product(FLOATS, AXES):
        x = noise(name, 2, 3, 4)
        value = x.astype(np.float64).var(axis=axes, keepdims=keepdims)
        yield Case("graph.var", axes_text(axes, keepdims), (x,), rounded(value, name))
    far = (noise("f32", 4, 64) + 1000).astype(np.float32)  # one pass over the squares would lose all digits
    value = far.astype(np.float64).var(axis=1)
    yield Case("graph.var", "axes = array<i64: 1>", (far,), rounded(value, "f32"))


ROWS: list[Row] = [
    Row("mean", FLOATS, _mean_cases),
    Row("var", FLOATS, _var_cases),
]
