"""Primitives that NumPy lacks, on arrays of float32 or float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once."""
    x, y, z = np.broadcast_arrays(x, y, z)
    if x.dtype != np.float64:
        return _fma_narrow(x, y, z)
    return _fma_wide(x, y, z)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its error: together exact."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product and its error (Dekker): together exact where nothing overflows or underflows."""
    splitter = float(2**27 + 1)
    p, ca, cb = a * b, a * splitter, b * splitter
    a1, b1 = ca - (ca - a), cb - (cb - b)
    a2, b2 = a - a1, b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def _odd_sum(a: Array, b: Array) -> Array:
    """The sum rounded to odd: a second rounding to fewer bits then gives what one rounding would."""
    s, e = _two_sum(a, b)
    bits = np.asarray(s).view(np.int64)
    outwards = (e > 0) == (s > 0)
    inexact = np.isfinite(s) & (e != 0) & (bits & 1 == 0)
    return np.where(inexact, bits + np.where(outwards, 1, -1), bits).view(np.float64)


def _fma_narrow(x: Array, y: Array, z: Array) -> Array:
    """Through float64, in which the product of narrower floats is exact."""
    product = x.astype(np.float64) * y.astype(np.float64)
    return _odd_sum(product, z.astype(np.float64)).astype(x.dtype)


def _fma_wide(x: Array, y: Array, z: Array) -> Array:
    """Of float64, by the algorithm of Boldo and Melquiond ("Emulation of FMA and correctly rounded sums", 2008).

    What could overflow or underflow on the way is computed with fractions, element by element.
    """
    high, low = _two_product(x, y)
    t_high, t_low = _two_sum(z, low)
    v_high, v_low = _two_sum(high, t_high)
    result = v_high + _odd_sum(t_low, v_low)
    plain = np.where(np.isfinite(x) & np.isfinite(y) & np.isinf(z), z, x * y + z)
    simple = ~(np.isfinite(x) & np.isfinite(y) & np.isfinite(z)) | (x == 0) | (y == 0)
    result = np.where(simple, plain, result)
    inside = _within(x, -400, 400) & _within(y, -400, 400) & (_within(z, -900, 1000) | (z == 0))
    for at in map(tuple, np.argwhere(~simple & ~inside)):
        result[at] = _exact_fma(float(x[at]), float(y[at]), float(z[at]))
    return result


def _within(x: Array, low: int, high: int) -> Array:
    return (np.abs(x) >= math.ldexp(1.0, low)) & (np.abs(x) <= math.ldexp(1.0, high))


def _exact_fma(x: float, y: float, z: float) -> float:
    value = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@cache
def _lgamma_series() -> tuple[float, ...]:
    """Coefficients of t, t**2 ... of lgamma(2 + t): 1 - gamma, then (zeta(k) - 1) / k with alternating signs."""
    tail = 200
    coefficients = [1.0 - float(np.euler_gamma)]
    for k in range(2, 32):
        # The sum of n**-k from `tail` on by the Euler-Maclaurin formula.
        rest = tail ** (1 - k) / (k - 1) + tail**-k / 2 + k * tail ** (-k - 1) / 12
        rest -= k * (k + 1) * (k + 2) * tail ** (-k - 3) / 720
        coefficients.append((-1) ** k * math.fsum([*(float(n) ** -k for n in range(2, tail)), rest]) / k)
    return tuple(coefficients)


_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """The coefficients are those of 1, x, x**2 ..."""
    value = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def _lgamma_large(x: Array) -> Array:
    """Stirling's series, for x > 8.5."""
    inverse = 1.0 / x
    series = _polynomial(_STIRLING, inverse * inverse) * inverse
    return (x - 0.5) * (np.log(x) - 1.0) + (series + (math.log(2.0 * math.pi) - 1.0) / 2.0)


def _lgamma_small(x: Array) -> Array:
    """By the recurrence from the interval about 2, for -18.5 <= x <= 8.5."""
    nearest = np.rint(x)
    product = np.ones_like(x)
    for n in range(1, 8):
        product = np.where(nearest - 2.0 >= n, product * (x - n), product)
    for n in range(21):
        product = np.where(2.0 - nearest > n, product * (x + n), product)
    distance = x - nearest
    value = distance * _polynomial(_lgamma_series(), distance)
    logarithm = np.log(np.abs(product))
    return np.where(nearest > 2.0, value + logarithm, value - logarithm)


def _lgamma_negative(x: Array) -> Array:
    """By reflection, for x < -18.5."""
    sine = np.sin((x - np.rint(x)) * math.pi)
    return np.log(math.pi / np.abs(x * sine)) - _lgamma_large(-x)


def lgamma(x: Array) -> Array:
    """log(|gamma(x)|); infinite at the poles 0, -1, -2 ... and at both infinities."""
    wide = x.astype(np.float64)
    large, negative = wide > 8.5, wide < -18.5
    pole = np.isinf(wide) | ((wide <= 0) & (wide == np.rint(wide)))
    small = _lgamma_small(np.where(large | negative | pole, 2.0, wide))
    value = np.where(large, _lgamma_large(np.where(large, wide, 9.0)), small)
    value = np.where(negative, _lgamma_negative(np.where(negative & ~pole, wide, -18.75)), value)
    return np.where(pole, np.inf, value).astype(x.dtype)


def erfc(x: Array) -> Array:
    """1 - erf(x), element by element."""
    return np.asarray(_ERFC(x.astype(np.float64))).astype(x.dtype)


_ERFC = np.frompyfunc(math.erfc, 1, 1)
