"""Rows of statistics over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import (
    AXES,
    FLOATS,
    INTEGERS,
    Array,
    Case,
    Row,
    axes_text,
    converted,
    decode,
    noise,
    ramp,
    rounded,
    samples,
    wide,
)

Axes = tuple[int, ...] | None
Statistic = Callable[[Array, Axes, bool], Any]
"""Of float64 over axes, with or without the axes kept."""

SPECIAL = [
    [math.inf, 1.0, 2.0, -1.0],
    [-math.inf, 3.0, 0.5, -0.5],
    [math.inf, -math.inf, 0.0, 1.0],
    [math.nan, 1.0, 2.0, 3.0],
    [-math.inf, -math.inf, -math.inf, -math.inf],
    [0.0, -0.0, 0.0, -0.0],
    [1.5, 1.5, 1.5, 1.5],
]


def _text(axes: Axes, keepdims: bool, more: str = "") -> str:
    return ", ".join(part for part in (axes_text(axes, keepdims), more) if part)


def _statistic(op: str, *functions: Statistic, more: str = "", empty: float = math.nan) -> Iterator[Case]:
    """One result for each function; `empty` is what they give over no elements."""

    def case(name: str, x: Array, axes: Axes, keepdims: bool) -> Case:
        values = tuple(rounded(function(wide(x), axes, keepdims), name) for function in functions)
        return Case(f"graph.{op}", _text(axes, keepdims, more), (x,), values)

    for name in FLOATS:
        for axes, keepdims in AXES:
            yield case(name, noise(name, 2, 3, 4), axes, keepdims)
        yield case(name, noise(name, 3, 50), (-1,), False)
        yield case(name, converted(np.array(SPECIAL), name), (1,), True)
        yield case(name, noise(name), None, False)
        nothing = tuple(rounded(np.full((2, 1), empty), name) for _ in functions)
        yield Case(f"graph.{op}", _text((1,), True, more), (ramp(name, 2, 0),), nothing)
        no_rows = tuple(rounded(np.zeros(0), name) for _ in functions)
        yield Case(f"graph.{op}", _text((1,), False, more), (ramp(name, 0, 2),), no_rows)


def _mean(x: Array, axes: Axes, keepdims: bool) -> Any:
    return x.mean(axis=axes, keepdims=keepdims)


def _variance(correction: float) -> Statistic:
    def variance(x: Array, axes: Axes, keepdims: bool) -> Any:
        distances = x - x.mean(axis=axes, keepdims=True)
        total = np.sum(distances * distances, axis=axes, keepdims=keepdims)
        count = math.prod(x.shape[axis] for axis in (range(x.ndim) if axes is None else axes))
        return total / np.float64(max(count - correction, 0))

    return variance


def _deviation(correction: float) -> Statistic:
    def deviation(x: Array, axes: Axes, keepdims: bool) -> Any:
        return np.sqrt(_variance(correction)(x, axes, keepdims))

    return deviation


def _large(name: str) -> Array:
    """Halves of which the sum, or the sum of squares, is no half any more."""
    return converted(np.array([[60000.0, 50000.0, 40000.0, 60000.0], [300.0, -300.0, 300.0, 300.0]]), name)


def _mean_cases() -> Iterator[Case]:
    yield from _statistic("mean", _mean)
    for name in FLOATS:
        yield Case("graph.mean", "axes = array<i64: 1>", (_large(name),), rounded(wide(_large(name)).mean(1), name))


def _var_cases() -> Iterator[Case]:
    yield from _statistic("var", _variance(0))
    yield from _statistic("var", _variance(1), more="correction = 1")
    yield from _statistic("var", _variance(0.5), more="correction = 0.5")
    yield from _statistic("var", _variance(7), more="correction = 7.0 : f64")
    far = (noise("f32", 4, 64) + 1000).astype(np.float32)  # one pass over the squares would lose all digits
    yield Case("graph.var", "axes = array<i64: 1>", (far,), rounded(wide(far).var(axis=1), "f32"))


def _std_cases() -> Iterator[Case]:
    yield from _statistic("std", _deviation(0))
    yield from _statistic("std", _deviation(1), more="correction = 1")
    for name in FLOATS:
        x = _large(name)
        yield Case("graph.std", "axes = array<i64: 1>", (x,), rounded(wide(x).std(axis=1), name))
    equal = np.full((2, 49), 0.1, np.float32)
    yield Case("graph.std", "axes = array<i64: 1>", (equal,), np.zeros(2, np.float32))


def _var_mean_cases() -> Iterator[Case]:
    yield from _statistic("var_mean", _variance(0), _mean)
    yield from _statistic("var_mean", _variance(1), _mean, more="correction = 1")


def _logsumexp(x: Array, axes: Axes, keepdims: bool) -> Any:
    largest = np.max(x, axis=axes, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return total if keepdims else total.reshape(np.sum(x, axis=axes).shape)


def _logsumexp_cases() -> Iterator[Case]:
    yield from _statistic("logsumexp", _logsumexp, empty=-math.inf)
    for name in FLOATS:
        x = converted(np.array([[1000.0, 1000.0, 999.0], [-1000.0, -1001.0, -5000.0], [-2.0, 30000.0, 1.0]]), name)
        yield Case("graph.logsumexp", "axes = array<i64: 1>", (x,), rounded(_logsumexp(wide(x), (1,), False), name))


def _norm2(x: Array, axes: Axes, keepdims: bool) -> Any:
    return np.sqrt(np.sum(x * x, axis=axes, keepdims=keepdims))


def _norm2_cases() -> Iterator[Case]:
    yield from _statistic("norm2", _norm2, empty=0.0)
    for name in FLOATS:
        x = _large(name)
        yield Case("graph.norm2", "axes = array<i64: 1>", (x,), rounded(_norm2(wide(x), (1,), False), name))
    tiny = np.array([[1e-30, -1e-30], [1e-20, 3e-20]], np.float32)
    yield Case("graph.norm2", "axes = array<i64: 1>", (tiny,), rounded(_norm2(wide(tiny), (1,), False), "f32"))


def _first_extreme(row: list[float], largest: bool) -> int:
    """NumPy's rule by a loop: a NaN ends the search, an equal element changes nothing."""
    best = 0
    for place, value in enumerate(row):
        if value != value:
            return place
        if (value > row[best]) if largest else (value < row[best]):
            best = place
    return best


def _position_cases(op: str, largest: bool) -> Iterator[Case]:
    def case(x: Array, axis: int | None, keepdims: bool) -> Case:
        values = np.asarray(decode(x))
        along = values if axis is not None else values.reshape(-1)
        rows = np.moveaxis(along, -1 if axis is None else axis, -1)
        found = np.array([_first_extreme(row, largest) for row in rows.reshape(-1, rows.shape[-1]).tolist()], np.int64)
        chosen = range(x.ndim) if axis is None else (axis % x.ndim,)
        extents = [1 if k in chosen else n for k, n in enumerate(x.shape) if keepdims or k not in chosen]
        parts = ([] if axis is None else [f"axis = {axis}"]) + (["keepdims = true"] if keepdims else [])
        return Case(f"graph.{op}", ", ".join(parts), (x,), found.reshape(extents))

    for name in (*FLOATS, *INTEGERS):
        for axis, keepdims in product((None, 0, 1, -1), (False, True)):
            yield case(ramp(name, 2, 3, 4), axis, keepdims)
        values = samples(name)
        yield case(values, None, False)
        yield case(values[::-1].copy(), 0, False)
        yield case(np.repeat(values[None, -3:], 2, axis=1), 1, True)
        yield case(ramp(name), None, False)
        yield case(ramp(name), None, True)
        yield case(ramp(name, 3, 1), 0, False)
        yield case(ramp(name, 0, 3), 1, False)
    for name in FLOATS:
        yield case(converted(np.array(SPECIAL), name), 1, False)
        yield case(converted(np.array([[1.0, math.nan, 5.0, math.nan], [-0.0, 0.0, -0.0, 0.0]]), name), -1, True)


ROWS: list[Row] = [
    Row("mean", FLOATS, _mean_cases),
    Row("var", FLOATS, _var_cases),
    Row("std", FLOATS, _std_cases),
    Row("var_mean", FLOATS, _var_mean_cases),
    Row("logsumexp", FLOATS, _logsumexp_cases),
    Row("norm2", FLOATS, _norm2_cases),
    Row("argmax", (*FLOATS, *INTEGERS), lambda: _position_cases("argmax", True)),
    Row("argmin", (*FLOATS, *INTEGERS), lambda: _position_cases("argmin", False)),
]
