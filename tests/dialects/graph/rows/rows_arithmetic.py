"""Rows of arithmetic, selection and conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import (
    ANY,
    BROADCASTS,
    EXTREMES,
    FLOATS,
    INTEGERS,
    TYPES,
    Array,
    Case,
    Row,
    binary,
    converted,
    each,
    pairs,
    ramp,
    rounded,
    samples,
    unary,
    wrapped,
)
from narrow_floats import decode


def _truncated(v: float) -> int:
    return 0 if math.isnan(v) else (2**70 if v > 0 else -(2**70)) if math.isinf(v) else int(v)


def _cast(source: str, target: str, x: Array) -> Array:
    """Floats to integers truncate, saturate and take NaN to 0; integers wrap; to i1 is `!= 0`; to narrow floats by f32."""
    if target == "i1":
        return np.asarray(decode(x) != 0)
    if target in EXTREMES:
        return rounded(x, target)
    if source in EXTREMES:
        info = np.iinfo(TYPES[target])

        def saturated(v: float) -> int:
            return min(max(_truncated(v), int(info.min)), int(info.max))

        return wrapped(each(saturated, x), target)
    return wrapped(each(int, x), target)


def _astype_cases() -> Iterator[Case]:
    for source, target in product(TYPES, TYPES):
        x = samples(source)
        if source in EXTREMES:
            limits = [126.9, 127.0, 128.0, -128.9, -129.0, 255.5, 256.0, 2147483647.0, 2147483648.0, -2147483904.0]
            limits += [9.2e18, 9.3e18, -9.3e18, -0.9]
            with np.errstate(over="ignore"):
                x = np.concatenate([x, converted(limits, source)])
        yield Case("graph.astype", f"dtype = {target}", (x,), _cast(source, target, x))
        yield Case("graph.astype", f"dtype = {target}", (ramp(source),), _cast(source, target, ramp(source)))


def _where_cases() -> Iterator[Case]:
    for name in TYPES:
        x, y = pairs(name)
        condition = np.arange(len(x)) % 3 == 0
        yield Case("graph.where", "", (condition, x, y), np.where(condition, x, y), signed_zeros=True)
        row, column, scalar = np.array([[True, False, True]]), ramp(name, 4, 1), ramp(name)
        expected = np.stack([column[:, 0], np.repeat(scalar, 4), column[:, 0]], axis=1)
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


def _power(x: int, y: int) -> int:
    """Modulo 2**64, which the type's width divides; 1 / x**-y truncated for negative exponents."""
    if y >= 0:
        return pow(x, y, 2**64)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


def _truncated_rest(x: int, y: int) -> int:
    rest = abs(x) % abs(y) if y else 0
    return -rest if x < 0 else rest


FEW_FLOATS = [math.nan, math.inf, -math.inf, 0.0, 1.0, -2.5, 0.1, -7.25, 100.0]
FEW_INTEGERS = [0, 1, 3, 7, 100, 127]
WEIGHTS = [math.nan, math.inf, 0.0, 0.25, 0.5, 0.75, 1.0, -1.0, 2.5, 0.1]


def _triples(name: str, thirds: Sequence[float] = ()) -> list[Array]:
    """Three operands with every choice of a few values."""
    few: Sequence[float] = [*FEW_FLOATS, *EXTREMES[name]] if name in FLOATS else FEW_INTEGERS
    columns = zip(*product(few, few, thirds or few), strict=True)
    return [converted(column, name) if name in FLOATS else np.array(column, TYPES[name]) for column in columns]


def _ternary(op: str, types: Sequence[str], value: Callable[[str, list[Array]], Array]) -> Row:
    """A row of three operands of one type; `value` is given what they hold, and the name of the type."""

    def cases() -> Iterator[Case]:
        for name in types:
            third = ramp(name, 1) if op != "lerp" else converted([0.75], name)
            given = [_triples(name, WEIGHTS if op == "lerp" else ())]
            given += [[ramp(name, *left), ramp(name, *right), third] for left, right in BROADCASTS]
            for operands in given:
                yield Case(f"graph.{op}", "", tuple(operands), value(name, [decode(array) for array in operands]))

    return Row(op, types, cases)


def _clipped(name: str, operands: list[Array]) -> Array:
    def clip(x: float, low: float, high: float) -> float:
        return math.nan if any(map(math.isnan, (x, low, high))) else min(max(x, low), high)

    if name in INTEGERS:
        return wrapped(each(clip, *operands), name)
    return rounded(each(clip, *operands).astype(np.float64), name)


def _lerped(name: str, operands: list[Array]) -> Array:
    """With the overflow of the type that it is computed in, of the length and of its products."""
    limit = float(np.finfo(np.float64 if name == "f64" else np.float32).max)

    def held(value: Array) -> Array:
        return np.where(np.abs(value) > limit, np.copysign(np.inf, value), value)

    start, end, weight = (array.astype(np.longdouble) for array in operands)
    length = held(end - start)
    ends = start + held(weight * length), end - held(length * (1 - weight))
    return rounded(np.where(np.abs(weight) < 0.5, *ends), name)


def _fused(name: str, operands: list[Array]) -> Array:
    """x * y + z of fractions, rounded once to f64, or to f32 and then to a narrow type."""

    def fma(x: float, y: float, z: float) -> float:
        if not all(map(math.isfinite, (x, y, z))):
            return z if math.isfinite(x) and math.isfinite(y) else x * y + z
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        return _nearest_double(exact) if name == "f64" else _nearest_single(exact)

    return rounded(each(fma, *operands).astype(np.float64), name)


def _nearest_double(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _nearest_single(exact: Fraction) -> float:
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    finite = [value for value in around if np.isfinite(value)]
    if np.isinf(near):
        return float(near)
    return float(min(finite, key=lambda value: (abs(Fraction(float(value)) - exact), int(value.view(np.int32)) % 2)))


def _nan_wins(choose: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, choose(x, y))


ROWS: list[Row] = [
    binary("add", floats=lambda x, y: x + y, ints=lambda x, y: x + y, signed_zeros=True),
    binary("subtract", floats=lambda x, y: x - y, ints=lambda x, y: x - y, signed_zeros=True),
    binary("multiply", floats=lambda x, y: x * y, ints=lambda x, y: x * y, signed_zeros=True),
    binary("divide", floats=lambda x, y: x / y, signed_zeros=True),
    binary("floor_divide", floats=_floor_divided, ints=lambda x, y: x // y if y else 0, in_type=True),
    binary("truncate_divide", ints=lambda x, y: (x - _truncated_rest(x, y)) // y if y else 0),
    binary("remainder", floats=_fmod, ints=lambda x, y: x % y if y else 0),
    binary("fmod", floats=np.fmod, ints=_truncated_rest, signed_zeros=True),
    binary("pow", floats=lambda x, y: np.power(x, y), ints=_power),
    binary("maximum", floats=_nan_wins(lambda x, y: np.where(x > y, x, y)), ints=max),
    binary("minimum", floats=_nan_wins(lambda x, y: np.where(x < y, x, y)), ints=min),
    binary("fmax", floats=np.fmax, ints=max),
    binary("fmin", floats=np.fmin, ints=min),
    binary("copysign", floats=np.copysign, signed_zeros=True),
    unary("negative", floats=lambda x: -x, ints=lambda x: -x, signed_zeros=True),
    unary("abs", floats=np.abs, ints=abs, signed_zeros=True),
    unary("square", floats=lambda x: x * x, ints=lambda x: x * x),
    unary("reciprocal", floats=lambda x: 1 / x, signed_zeros=True),
    unary(
        "sign", floats=lambda x: np.where(x == 0, 0, np.sign(x)), ints=lambda x: (x > 0) - (x < 0), signed_zeros=True
    ),
    Row("astype", ANY, _astype_cases),
    Row("where", ["i1"], _where_cases),
    _ternary("clip", [*FLOATS, *INTEGERS], _clipped),
    _ternary("lerp", FLOATS, _lerped),
    _ternary("fma", FLOATS, _fused),
]
