"""Rows of the functions of floats; expected values by NumPy in long double where it has the function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from graph_op_table import FLOATS, Array, Case, Row, binary, converted, rounded, unary

Wide = np.longdouble


def wide_math(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on long doubles."""
    return lambda *arrays: function(*(np.asarray(array).astype(Wide) for array in arrays))


def curve(op: str, floats: Callable[[Any], Any], attributes: str = "", **rest: Any) -> Row:
    """A row of a function of one float: the samples of `unary`, and many values of all sizes that are often met."""
    row = unary(op, floats, attributes=attributes, **rest)
    magnitudes = np.exp2(np.arange(-12, 7.1, 0.25))
    near = np.concatenate([magnitudes, -magnitudes, np.arange(-12, 12, 0.17)])

    def cases() -> Iterator[Case]:
        yield from row.cases()
        for name in FLOATS:
            x = converted(near, name)
            value = floats(converted(x, "f64"))
            yield Case(row.op, attributes, (x,), rounded(value, name))

    return Row(op, row.accepts, cases)


def by_element(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of `math` on float64 arrays; where it raises the value is infinite: poles and overflow."""

    def total(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.inf

    return np.vectorize(total, otypes=[np.float64])


erf, erfc = by_element(math.erf), by_element(math.erfc)


def _rounded_to_even(x: Array) -> Array:
    even: Array = 2 * np.floor(x / 2 + 0.5)
    near: Array = np.floor(x + 0.5)
    return np.where(np.abs(x % 1) == 0.5, even, np.where(np.abs(x) < 2**52, near, x))


def _xlogy(x: Array, y: Array) -> Array:
    return np.where(np.isnan(y), y, np.where(x == 0, 0, x * np.log(y)))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _same(x: int) -> int:
    return x


ROWS: list[Row] = [
    curve("sqrt", wide_math(np.sqrt), signed_zeros=True),
    curve("rsqrt", wide_math(_rsqrt)),
    curve("cbrt", wide_math(np.cbrt), signed_zeros=True),
    curve("exp", wide_math(np.exp)),
    curve("exp2", wide_math(np.exp2)),
    curve("expm1", wide_math(np.expm1), signed_zeros=True),
    curve("log", wide_math(np.log)),
    curve("log2", wide_math(np.log2)),
    curve("log10", wide_math(np.log10)),
    curve("log1p", wide_math(np.log1p), signed_zeros=True),
    curve("sin", wide_math(np.sin), signed_zeros=True),
    curve("cos", wide_math(np.cos)),
    curve("tan", wide_math(np.tan), signed_zeros=True),
    curve("asin", wide_math(np.arcsin), signed_zeros=True),
    curve("acos", wide_math(np.arccos)),
    curve("atan", wide_math(np.arctan), signed_zeros=True),
    curve("sinh", wide_math(np.sinh), signed_zeros=True),
    curve("cosh", wide_math(np.cosh)),
    curve("tanh", wide_math(np.tanh), signed_zeros=True),
    curve("asinh", wide_math(np.arcsinh), signed_zeros=True),
    curve("acosh", wide_math(np.arccosh)),
    curve("atanh", wide_math(np.arctanh), signed_zeros=True),
    curve("erf", erf, signed_zeros=True),
    curve("erfc", erfc),
    curve("lgamma", by_element(math.lgamma)),
    unary("floor", floats=np.floor, ints=_same, signed_zeros=True),
    unary("ceil", floats=np.ceil, ints=_same, signed_zeros=True),
    unary("trunc", floats=np.trunc, ints=_same, signed_zeros=True),
    unary("round", floats=_rounded_to_even, ints=_same),
    binary("hypot", floats=wide_math(np.hypot)),
    binary("atan2", floats=wide_math(np.arctan2), signed_zeros=True),
    binary("logaddexp", floats=wide_math(np.logaddexp)),
    binary("xlogy", floats=wide_math(_xlogy)),
    curve("degrees", np.degrees, signed_zeros=True),
    curve("radians", np.radians, signed_zeros=True),
    curve("sinc", lambda x: np.where(np.isfinite(x) & (np.abs(x) > 2.0**53), 0, np.sinc(x))),
]
