"""Rows of reductions."""

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
    reduction,
    rounded,
    samples,
    wide,
)


def _with_floats(row: Row, function: Callable[..., Any], *arrays: Callable[[str], Array]) -> Row:
    """The row, and along the last axis more floats."""

    def cases() -> Iterator[Case]:
        yield from row.cases()
        for name, make in product(FLOATS, arrays):
            x = make(name)
            yield Case(row.op, "axes = array<i64: -1>", (x,), rounded(function(wide(x), axis=-1), name))

    return Row(row.op.removeprefix("graph."), row.accepts, cases)


def _without_nan(name: str) -> Array:
    """Rows that hold infinities of one sign or none, zeros of both signs, and extremes."""
    inf = math.inf
    rows = [[inf, 1.0, -2.0, 0.0], [-inf, -inf, -inf, -inf], [-0.0, 0.0, -0.0, -0.0], [inf, inf, 0.5, inf]]
    return converted(np.array(rows), name)


def _near_one(name: str) -> Array:
    """Of which no product of some leaves the normal numbers, in whatever order."""
    return converted(1 + wide(noise(name, 3, 40)) / 8, name)


def _mixed(name: str) -> Array:
    return noise(name, 5, 33)


def _powers(name: str) -> Array:
    """Each product is exact, and large ones meet small ones: in f16 the results need the range of f32 on the way."""
    return converted(2.0 ** np.array([[5, 5, 5, -5, -5, -5, 2, -2], [-4, -4, -4, 4, 4, 4, -1, 1]]), name)


def _extremes_together(name: str) -> Array:
    """The largest of a sign only: NaN and infinities left out."""
    values = samples(name)
    finite = np.isfinite(decode(values).astype(np.float64))
    return values[finite][None, :]


def _norm1(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(np.abs(x), axis=axis, keepdims=keepdims)


def _sum_squares(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(x * x, axis=axis, keepdims=keepdims)


def _count_cases() -> Iterator[Case]:
    for name in (*FLOATS, *INTEGERS, "i1"):
        x = ramp(name, 2, 3, 4)
        for axes, keepdims in AXES:
            yield _count(x, axes, keepdims)
        yield _count(samples(name), None, False)
        yield _count(samples(name)[:, None], (1,), False)
        yield _count(ramp(name), None, True)
        yield _count(ramp(name, 3, 0), (1,), False)


def _count(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Case:
    holds = np.asarray(wide(x) != 0)  # NaN is not equal to 0
    value = np.sum(holds, axis=axes, keepdims=keepdims, dtype=np.int64)
    return Case("graph.count_nonzero", axes_text(axes, keepdims), (x,), np.asarray(value))


_LARGEST = (_without_nan, _mixed, _extremes_together)

ROWS: list[Row] = [
    _with_floats(
        reduction("sum", floats=np.sum, ints=lambda x, y: x + y, neutral=0), np.sum, _without_nan, _mixed, _near_one
    ),
    _with_floats(
        reduction("prod", floats=np.prod, ints=lambda x, y: x * y, neutral=1),
        np.prod,
        _without_nan,
        _near_one,
        _powers,
    ),
    _with_floats(reduction("max", floats=np.max, ints=max), np.max, *_LARGEST),
    _with_floats(reduction("min", floats=np.min, ints=min), np.min, *_LARGEST),
    _with_floats(reduction("amax", floats=np.max, ints=max), np.max, *_LARGEST),
    _with_floats(reduction("amin", floats=np.min, ints=min), np.min, *_LARGEST),
    _with_floats(
        reduction("sum_squares", floats=_sum_squares, ints=lambda total, x: total + x * x, neutral=0),
        _sum_squares,
        _without_nan,
        _mixed,
        _near_one,
    ),
    _with_floats(
        reduction("norm1", floats=_norm1, ints=lambda total, x: total + abs(x), neutral=0),
        _norm1,
        _without_nan,
        _mixed,
        _near_one,
    ),
    Row("count_nonzero", (*FLOATS, *INTEGERS, "i1"), _count_cases),
    reduction("any", ints=lambda x, y: x | y, bools=lambda x, y: x or y, neutral=0),
    reduction("all", ints=lambda x, y: x & y, bools=lambda x, y: x and y, neutral=-1),
]
