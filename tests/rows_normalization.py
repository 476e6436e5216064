"""Rows of normalisation layers and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import (
    FLOATS,
    TYPES,
    Case,
    Row,
    noise,
    ramp,
    rounded,
)


def _softmax_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, [((2, 5), -1), ((3, 4, 2), 1), ((1, 1), 0), ((7,), 0)]):
        x = noise(name, *shape)
        wide = np.exp(x.astype(np.float64))
        yield Case(
            "graph.softmax", f"axis = {axis} : i64", (x,), rounded(wide / wide.sum(axis=axis, keepdims=True), name)
        )
    large = np.array([[1000.0, 1000.0, -np.inf], [88.0, 89.0, np.nan]], np.float32)
    expected = np.array([[0.5, 0.5, 0.0], [np.nan] * 3], np.float32)
    yield Case("graph.softmax", "", (large,), expected)
    yield Case("graph.softmax", "", (ramp("f32", 3, 0),), ramp("f32", 3, 0))


def _layer_norm_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, [((4, 8), -1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((5,), 0)]):
        x = noise(name, *shape)
        axes = tuple(range(axis % len(shape), len(shape)))
        scale, bias = noise(name, *shape[axes[0] :]), ramp(name, *shape[axes[0] :])
        wide = x.astype(np.float64)
        centred = wide - wide.mean(axis=axes, keepdims=True)
        value = centred / np.sqrt(wide.var(axis=axes, keepdims=True) + 1e-3) * scale + bias
        yield Case(
            "graph.layer_norm", f"axis = {axis} : i64, epsilon = 1.0e-03 : f64", (x, scale, bias), rounded(value, name)
        )


def _batch_norm_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, [((2, 3, 4), 1), ((4, 3), -1), ((3,), 0)]):
        x, channels = noise(name, *shape), shape[axis]
        scale, bias, mean = (noise(name, 3 * channels)[k::3].copy() for k in range(3))
        variance = np.abs(noise(name, channels)) + np.asarray(0.5, TYPES[name])
        wide = [1] * len(shape)
        wide[axis] = channels
        s, b, m, v = (a.astype(np.float64).reshape(wide) for a in (scale, bias, mean, variance))
        value = (x.astype(np.float64) - m) / np.sqrt(v + 1e-5) * s + b
        yield Case("graph.batch_norm", f"axis = {axis} : i64", (x, scale, bias, mean, variance), rounded(value, name))


ROWS: list[Row] = [
    Row("softmax", FLOATS, _softmax_cases),
    Row("layer_norm", FLOATS, _layer_norm_cases),
    Row("batch_norm", FLOATS, _batch_norm_cases),
]
