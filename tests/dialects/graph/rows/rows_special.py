"""Rows of special functions and of the parts of floats; expected values in long double, or by Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from graph_op_table import (
    BROADCASTS,
    FLOATS,
    INTEGERS,
    TYPES,
    Array,
    Case,
    Row,
    converted,
    pairs,
    ramp,
    rounded,
    samples,
    unary,
)
from narrow_floats import decode
from rows_math import by_element, curve

Wide = np.longdouble


def _digamma(x: float) -> float:
    """Far up by the recurrence, where few terms of the asymptotic series do; by reflection below 0."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if math.isinf(x) or x != x or (x < 0 and x == math.floor(x)):
        return x if x > 0 else math.nan
    y, value = Wide(x), Wide(0)
    if x < 0:
        rest = Wide(x) - np.rint(Wide(x))
        value, y = -_PI / np.tan(_PI * rest), 1 - y
    while y < 40:
        value, y = value - 1 / y, y + 1
    square = 1 / (y * y)
    series = square * (Wide(1) / 12 - square * (Wide(1) / 120 - square * (Wide(1) / 252 - square * (Wide(1) / 240))))
    return float(value + np.log(y) - 1 / (2 * y) - series)


_PI = Wide(2) * np.arccos(Wide(0))


def _erfinv(x: float) -> float:
    """By halving an interval, of what is left to 1 in the tails."""
    size = abs(x)
    if not size <= 1 or size in (0, 1):
        return math.copysign(math.inf, x) if size == 1 else x if size == 0 else math.nan
    if size < 1e-8:
        return float(Wide(x) * np.sqrt(_PI) / 2)
    low, high = 0.0, 6.0
    for _ in range(120):
        middle = (low + high) / 2
        below = math.erf(middle) < size if size < 0.5 else math.erfc(middle) > 1 - size
        low, high = (middle, high) if below else (low, middle)
    return math.copysign((low + high) / 2, x)


def _bessel(order: int) -> Any:
    """The power series, all of one sign; above 30 the asymptotic one."""

    def value(given: float) -> float:
        x = Wide(abs(given))
        if math.isinf(given) or given != given:
            return math.copysign(0.0, given) if given == given else given
        total = term = (x / 2) ** order * np.exp(-x) if x <= 30 else 1 / np.sqrt(2 * _PI * x)
        for k in range(1, 200 if x <= 30 else 30):
            ratio = x * x / 4 / (k * (k + order)) if x <= 30 else -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
            if x > 30 and abs(ratio) > 1:
                break
            term = term * ratio
            total = total + term
        return float(total) if order == 0 else math.copysign(float(total), given)

    return by_element(value)


def _half_away(x: Array) -> Array:
    whole: Array = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


def _next(x: float, y: float, name: str) -> float:
    """By the patterns of the type: those of one sign follow one another."""
    if x != x or y != y:
        return math.nan
    if x == y:
        return y
    kind = np.dtype(f"u{TYPES[name].itemsize}")
    if x == 0:
        return math.copysign(float(decode(np.array([1], kind).view(TYPES[name]))[0]), y)
    pattern = int(np.asarray(converted([x], name)).view(kind)[0])
    moved = pattern + (1 if (y > x) == (x > 0) else -1)
    return float(decode(np.array([moved], kind).view(TYPES[name]))[0])


def _next_cases() -> Iterator[Case]:
    for name in FLOATS:
        operands = [pairs(name), *((ramp(name, *left), ramp(name, *right)) for left, right in BROADCASTS)]
        for x, y in operands:
            a, b = np.broadcast_arrays(decode(x), decode(y))
            found = [_next(float(v), float(w), name) for v, w in zip(a.reshape(-1), b.reshape(-1), strict=True)]
            value = converted(np.array(found).reshape(a.shape), name)
            yield Case("graph.nextafter", "", (x, y), value, signed_zeros=True)


def _frexp_cases() -> Iterator[Case]:
    for name in FLOATS:
        for x in (samples(name), ramp(name, 3, 4), ramp(name)):
            fraction, exponent = np.frexp(np.asarray(decode(x), np.float64))
            plain = np.isfinite(decode(x))
            exponent = np.where(plain, exponent, 0).astype(np.int32)
            yield Case("graph.frexp", "", (x,), (converted(fraction, name), exponent), signed_zeros=True)
            yield Case("graph.frexp_mantissa", "", (x,), converted(fraction, name), signed_zeros=True)
            yield Case("graph.frexp_exponent", "", (x,), exponent)


def _part_cases(op: str) -> Any:
    return lambda: (case for case in _frexp_cases() if case.op == f"graph.{op}")


def _ldexp_cases() -> Iterator[Case]:
    """Rounded once to f32 or f64, and from f32 to narrow types."""
    for name in FLOATS:
        for kind in INTEGERS:
            counts = [0, 1, 5, 100, 127]
            counts += [-1, -100, -128] if kind in ("i8", "i16", "i32", "i64") else [200]
            counts += [149, 277, 1074, 2098, 30000] if TYPES[kind].itemsize > 1 else []
            counts += [-25, -149, -150, -277, -1074, -1075, -2098] if kind in ("i16", "i32", "i64") else []
            n = np.array([*counts, np.iinfo(TYPES[kind]).max, np.iinfo(TYPES[kind]).min], TYPES[kind])
            x = samples(name)
            a, b = np.meshgrid(np.asarray(decode(x), np.float64), np.clip(n.astype(object), -9999, 9999).astype(int))
            value = np.ldexp(a.astype(Wide), b)
            wide = rounded(value, "f64" if name == "f64" else "f32")
            yield Case("graph.ldexp", "", (x, n[:, None]), converted(wide, name), signed_zeros=True)


ROWS: list[Row] = [
    curve("digamma", by_element(_digamma)),
    curve("erfinv", by_element(_erfinv), signed_zeros=True),
    curve("i0e", _bessel(0)),
    curve("i1e", _bessel(1)),
    unary("signbit", floats=np.signbit, gives_bool=True),
    unary("round_half_away", floats=_half_away, ints=lambda x: x, signed_zeros=True),
    Row("nextafter", FLOATS, _next_cases),
    Row("frexp", FLOATS, _part_cases("frexp")),
    Row("frexp_mantissa", FLOATS, _part_cases("frexp_mantissa")),
    Row("frexp_exponent", FLOATS, _part_cases("frexp_exponent")),
    Row("ldexp", FLOATS, _ldexp_cases),
]
