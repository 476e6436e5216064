"""Between which numbers the values of scalars lie: intervals, and what primitives of floats make of them.

NaN is always allowed, and `-0` counts as zero. Ends other than zero have room for rounding to narrow floats and for the error of
functions (interval arithmetic: Moore, Kearfott and Cloud 2009; room in place of directed rounding, as nothing here needs the
tightest).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import inf

ROOM = 1 + 2**-6
"""What an end is moved by for each operation: rounding to 8 bits, the error of a function."""
NARROWEST = 448.0
"""The largest number of the narrowest float: what may be more may be infinite after a cast, what is so much less than 1 zero."""
MOST_EXPONENT = 80.0
"""Of e, in f32, with room."""
LARGEST = 2.0**120
"""Of f32, with room: what may be more may be infinite."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The least and the greatest number that a scalar may be."""

    low: float = -inf
    high: float = inf

    def __post_init__(self) -> None:
        assert self.low <= self.high

    def widened(self) -> Interval:
        """With room for the error of an operation; zero stays, as rounding keeps signs."""
        return Interval(_away(self.low, -1), _away(self.high, 1))

    def narrowed(self) -> Interval:
        """After rounding to a narrower float: what is large may be infinite, what is small may be zero."""
        low = -inf if self.low < -NARROWEST else 0.0 if 0 < self.low < 1 / NARROWEST else self.low
        high = inf if self.high > NARROWEST else 0.0 if -1 / NARROWEST < self.high < 0 else self.high
        return Interval(low, high).widened()


UNKNOWN, NONNEGATIVE, UP_TO_ONE = Interval(), Interval(0.0), Interval(-1.0, 1.0)


def nonnegative(_: Interval) -> Interval:
    return NONNEGATIVE


def up_to_one(_: Interval) -> Interval:
    return UP_TO_ONE


def of_negation(a: Interval) -> Interval:
    return Interval(-a.high, -a.low)


def of_sum(a: Interval, b: Interval) -> Interval:
    low, high = a.low + b.low, a.high + b.high
    return Interval(-inf if low != low else low, inf if high != high else high)


def of_difference(a: Interval, b: Interval) -> Interval:
    return of_sum(a, of_negation(b))


def of_larger(a: Interval, b: Interval) -> Interval:
    return Interval(max(a.low, b.low), max(a.high, b.high))


def of_smaller(a: Interval, b: Interval) -> Interval:
    return Interval(min(a.low, b.low), min(a.high, b.high))


def of_product(a: Interval, b: Interval) -> Interval:
    ends = [times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(ends), max(ends))


def of_quotient(a: Interval, b: Interval) -> Interval:
    if b.low <= 0:
        return NONNEGATIVE if b.low == 0 <= a.low else UNKNOWN
    return of_product(a, Interval(0.0 if b.high == inf else 1 / b.high, 1 / b.low))


def of_absolute(a: Interval) -> Interval:
    return a if a.low >= 0 else of_negation(a) if a.high <= 0 else Interval(0.0, max(-a.low, a.high))


def of_exponential(a: Interval) -> Interval:
    """What is below the smallest normal number may be zero, and may not be."""
    low = 0.0 if a.low < -MOST_EXPONENT else math.exp(min(a.low, MOST_EXPONENT))
    return Interval(low, inf if a.high > MOST_EXPONENT else math.exp(max(a.high, -MOST_EXPONENT)))


def of_root(a: Interval) -> Interval:
    return Interval(math.sqrt(max(a.low, 0.0)), math.sqrt(max(a.high, 0.0)))


def of_inverse_root(a: Interval) -> Interval:
    return Interval(0.0 if a.high == inf else a.high**-0.5, a.low**-0.5) if a.low > 0 else NONNEGATIVE


def of_either(_: Interval, a: Interval, b: Interval) -> Interval:
    return Interval(min(a.low, b.low), max(a.high, b.high))


def _away(number: float, sign: int) -> float:
    """The number moved up, or down; near the ends of the range of f32 to the end."""
    if number * sign > 0:
        return number * ROOM if abs(number) < LARGEST else sign * inf
    return number / ROOM if abs(number) > 1 / LARGEST else 0.0


def times(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y
