"""Rows of arithmetic, selection and conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import (
    FLOATS,
    INTEGERS,
    TYPES,
    Array,
    Case,
    Row,
    binary,
    each,
    pairs,
    ramp,
    rounded,
    samples,
    unary,
    wrapped,
)


def _truncated(v: float) -> int:
    return 0 if math.isnan(v) else (2**70 if v > 0 else -(2**70)) if math.isinf(v) else int(v)


def _cast(source: str, target: str, x: Array) -> Array:
    """Floats to integers truncate, saturate and take NaN to 0; integers wrap; to i1 is `!= 0`; to f16 by way of f32."""
    if target == "i1":
        return x != 0
    if target in FLOATS:
        return rounded(x, target)
    if source in FLOATS:
        info = np.iinfo(TYPES[target])

        def saturated(v: float) -> int:
            return min(max(_truncated(v), int(info.min)), int(info.max))

        return wrapped(each(saturated, x), target)
    return wrapped(each(int, x), target)


def _astype_cases() -> Iterator[Case]:
    for source, target in product(TYPES, TYPES):
        x = samples(source)
        if source in FLOATS:
            limits = [126.9, 127.0, 128.0, -128.9, -129.0, 255.5, 256.0, 2147483647.0, 2147483648.0, -2147483904.0]
            limits += [9.2e18, 9.3e18, -9.3e18, -0.9]
            with np.errstate(over="ignore"):
                x = np.concatenate([x, np.array(limits, TYPES[source])])
        yield Case("graph.astype", f"dtype = {target}", (x,), _cast(source, target, x))
        yield Case("graph.astype", f"dtype = {target}", (ramp(source),), _cast(source, target, ramp(source)))


def _where_cases() -> Iterator[Case]:
    for name in TYPES:
        x, y = pairs(name)
        condition = np.arange(len(x)) % 3 == 0
        yield Case("graph.where", "", (condition, x, y), np.where(condition, x, y), signed_zeros=True)
        row, column, scalar = np.array([[True, False, True]]), ramp(name, 4, 1), ramp(name)
        expected = np.stack([column[:, 0], np.full(4, scalar), column[:, 0]], axis=1)
        yield Case("graph.where", "", (row, column, scalar), expected)


def _fmod(x: Array, y: Array) -> Array:
    rest: Array = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _floor_divided(x: Array, y: Array) -> Array:
    """Python's `//`: exact where x / y would round up to a whole number; by zero it is x / y."""
    rest: Array = np.fmod(x, y)
    quotient: Array = (x - rest) / y - ((rest != 0) & ((rest < 0) != (y < 0)))
    whole: Any = np.floor(quotient)
    return np.select([y == 0, quotient - whole > 0.5], [x / y, whole + 1], whole)


def _nan_wins(choose: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, choose(x, y))


_ANY = [*FLOATS, *INTEGERS, "i1"]


ROWS: list[Row] = [
    binary("add", floats=lambda x, y: x + y, ints=lambda x, y: x + y, signed_zeros=True),
    binary("subtract", floats=lambda x, y: x - y, ints=lambda x, y: x - y, signed_zeros=True),
    binary("multiply", floats=lambda x, y: x * y, ints=lambda x, y: x * y, signed_zeros=True),
    binary("divide", floats=lambda x, y: x / y, signed_zeros=True),
    binary("floor_divide", floats=_floor_divided, ints=lambda x, y: x // y if y else 0, in_type=True),
    binary("remainder", floats=_fmod, ints=lambda x, y: x % y if y else 0),
    binary("pow", floats=lambda x, y: np.power(x, y)),
    binary("maximum", floats=_nan_wins(lambda x, y: np.where(x > y, x, y)), ints=max),
    binary("minimum", floats=_nan_wins(lambda x, y: np.where(x < y, x, y)), ints=min),
    unary("negative", floats=lambda x: -x, ints=lambda x: -x, signed_zeros=True),
    unary("abs", floats=np.abs, ints=abs, signed_zeros=True),
    unary("square", floats=lambda x: x * x, ints=lambda x: x * x),
    unary("reciprocal", floats=lambda x: 1 / x, signed_zeros=True),
    unary("sign", floats=np.sign, ints=lambda x: (x > 0) - (x < 0)),
    Row("astype", _ANY, _astype_cases),
    Row("where", ["i1"], _where_cases),
]
