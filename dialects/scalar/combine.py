"""Reductions of Python numbers, where the order in which they are joined changes no bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from fuse_opt.dialects.scalar.evaluate import NotKnown, Number, converted, primitive, rounded
from fuse_opt.dialects.types.dtypes import DType


def joined(combine: str, values: Sequence[Number], initial: Number, dtype: DType) -> Number:
    """The values joined by a primitive, in their type; raises NotKnown where another order might give something else."""
    start = converted(initial, dtype)
    if dtype.is_float and combine in ("add", "mul"):
        numbers = [float(value) for value in values]
        return rounded(_sum(numbers) if combine == "add" else _product(numbers), dtype)
    result = start
    for value in values:
        result = primitive(combine, (result, value), dtype, dtype)
    return result


def _sum(values: Sequence[float]) -> float:
    """In f64, exact on the way whatever the order: all are multiples of one unit, and their magnitudes fit above it."""
    if not all(map(math.isfinite, values)):
        raise NotKnown("infinities and NaN")
    parts = [Fraction(value) for value in values if value]
    unit = Fraction(1, max((part.denominator for part in parts), default=1))
    if sum(map(abs, parts)) > unit * 2**53:
        raise NotKnown("a sum that is rounded on the way")
    return float(sum(parts))


def _product(values: Sequence[float]) -> float:
    """In f64, exact on the way whatever the order: the significands fit together, the exponents stay in range."""
    if not all(map(math.isfinite, values)):
        raise NotKnown("infinities and NaN")
    exponents = sum(abs(math.frexp(value)[1]) for value in values)
    significand = math.prod(_odd_part(value) for value in values if value)
    if exponents > 1000 or significand >= 2**53:
        raise NotKnown("a product that is rounded on the way")
    return math.prod(values, start=1.0)


def _odd_part(value: float) -> int:
    numerator = abs(Fraction(value).numerator)
    return numerator // (numerator & -numerator)
