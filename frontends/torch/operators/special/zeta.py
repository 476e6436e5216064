"""Records of the Hurwitz zeta function and of the derivatives of digamma, of the quantiles of the normal distribution, and erfcx.

All is computed in f64. What is no number, infinite, a pole or beyond the domain gives what PyTorch gives.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb, factorial, inf, nan, pi

from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers
from fuse_opt.frontends.torch.operators.special.expressions import Expression, given_in_f64, polynomial, rounded, series

ZETA, handler = handlers()
_TERMS = {"f32": (5, 6), "f64": (9, 12)}
"""By the type of the result: how many terms are summed, and how many of the correction."""
_MOST = 100
"""The highest order of polygamma: beyond it the factors of the formulas leave f64."""


@cache
def _bernoulli(count: int) -> list[Fraction]:
    """B0 to B(count - 1)."""
    found: list[Fraction] = []
    for m in range(count):
        found.append(Fraction(m == 0) - sum((comb(m, k) * b / (m - k + 1) for k, b in enumerate(found)), Fraction(0)))
    return found


def _powers_of(x: Expression, exponent: int) -> Expression:
    """x to a positive whole power."""
    found, square = None, x
    while exponent:
        if exponent & 1:
            found = square if found is None else found * square
        exponent >>= 1
        square = square * square if exponent else square
    assert found is not None
    return found


def _whole_zeta(call: Call, s: int, q: Expression) -> Expression:
    """The sum of (q + k)**-s over k >= 0 for q >= 0, by Euler and Maclaurin's formula (Abramowitz and Stegun 23.1.30)."""
    count, corrections = _TERMS[call.compute().name]
    found = _powers_of(1.0 / q, s)
    for k in range(1, count):
        found = found + _powers_of(1.0 / (q + float(k)), s)
    r = 1.0 / (q + float(count))
    factors = [1 / (s - 1), *_corrections(s, corrections)]
    rest = r * polynomial(r * r, factors[1:]) * r + (r * 0.5 + factors[0])
    return found + _powers_of(r, s - 1) * rest


def _corrections(s: int, count: int) -> list[float]:
    """B(2j) / (2j)! times s (s + 1) ... (s + 2j - 2), from j = 1."""
    bernoulli = _bernoulli(2 * count + 1)
    found: list[float] = []
    for j in range(1, count + 1):
        rising = factorial(s + 2 * j - 2) // factorial(s - 1)
        found.append(float(bernoulli[2 * j] * rising / factorial(2 * j)))
    return found


def _cotangent_derivative(order: int) -> list[int]:
    """Coefficients, lowest power first, of the derivative of cot as a polynomial in cot: P' is -(1 + c**2) dP/dc."""
    found = [0, 1]
    for _ in range(order):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return found


@handler("aten.polygamma.default")
def _polygamma(call: Call) -> SSAValue:
    """(-1)**(n + 1) n! zeta(n + 1, x), and by reflection (6.4.7) below zero."""
    n, x = call["n"], given_in_f64(call, "self")
    if not 1 <= n <= _MOST:
        raise NotCoveredError("is digamma, or of a high order")
    sign, below, whole = (-1.0) ** (n + 1), x < 0.0, x.equals(x.apply("floor"))
    size = float(factorial(n))
    sums = _whole_zeta(call, n + 1, below.where(1.0 - x, abs(x))) * size
    part = x - x.apply("round")
    if n == 1:
        reflected = _reflected_trigamma(call, x, part * pi, whole) - sums
        found = below.where(reflected, sums)
        return rounded(call, x.equals(-inf).where(nan, found))
    cotangent = ((0.5 - abs(part)) * pi).apply("sin") / (part * pi).apply("sin")  # exact where it is zero
    odd = n % 2 == 0
    factors = [float(pi ** (n + 1) * c) for c in _cotangent_derivative(n)[1 if odd else 0 :: 2]]
    derivative = polynomial(cotangent * cotangent, factors)
    if odd:
        derivative = derivative * cotangent
    found = below.where(-derivative - sums, sums * sign)
    found = ((x <= 0.0) & whole).where(sign * inf, found)
    return rounded(call, x.equals(inf).where(nan, found))


def _reflected_trigamma(call: Call, x: Expression, part: Expression, whole: Expression) -> Expression:
    """pi**2 / sin(pi x)**2; at its poles what PyTorch makes of it, the sine of a rounded multiple of pi."""
    element = call.compute()
    scaled = x.cast(F32) * pi if element is F32 else x * pi
    sine = whole.where(scaled.cast(F64), part).apply("sin")
    return (pi * pi) / (sine * sine)


@handler("aten.special_zeta.default", "aten.special_zeta.other_scalar", "aten.special_zeta.self_scalar")
def _special_zeta(call: Call) -> SSAValue:
    """
    The Hurwitz zeta function; below zero, where only whole s have a value, the sum over all k is that from both sides of
    zero: with q = f - m and whole m, zeta(s, q) = zeta(s, f) + (-1)**s (zeta(s, 1 - f) - zeta(s, 1 - q)).
    """
    s, q = given_in_f64(call, "self"), given_in_f64(call, "other")
    below, down, up = q < 0.0, q.apply("floor"), q.apply("ceil")
    above = _zeta(call, s, below.where(q - down, q))
    between = _zeta(call, s, up - q) - _zeta(call, s, 1.0 - q)
    half = s * 0.5
    even = half.equals(half.apply("floor"))
    found = below.where(even.where(above + between, above - between), above)
    found = (below & (s < s.apply("floor") + 1.0) & (s > s.apply("floor"))).where(nan, found)
    found = q.equals(inf).where(nan, found)
    found = ((q <= 0.0) & q.equals(down)).where(inf, found)
    found = (s < 1.0).where(nan, found)
    return rounded(call, s.equals(1.0).where(inf, found))


def _zeta(call: Call, s: Expression, q: Expression) -> Expression:
    """The sum of (q + k)**-s over k >= 0 for q >= 0 and any s > 1."""
    count, corrections = _TERMS[call.compute().name]
    found = q.to_power(-s)
    for k in range(1, count):
        found = found + (q + float(k)).to_power(-s)
    a = q + float(count)
    last, r = a.to_power(-s), 1.0 / a
    bernoulli = _bernoulli(2 * corrections + 1)
    rest: Expression = s * 0.0
    for j in range(corrections, 0, -1):
        # B(2j) / (2j)! times s ... (s + 2j - 2) from those before: each factor is that of the next power of 1 / a
        ratio = float(bernoulli[2 * j] / factorial(2 * j) / (bernoulli[2 * j - 2] / factorial(2 * j - 2)))
        steps = s * r if j == 1 else (s + float(2 * j - 3)) * (s + float(2 * j - 2)) * (r * r)
        rest = (rest + 1.0) * steps * ratio
    tail = last * (a / (s - 1.0) + 0.5 + rest)
    return found + last.equals(0.0).where(0.0, tail)


@handler("aten.special_erfcx.default")
def _erfcx(call: Call) -> SSAValue:
    """exp(x**2) erfc(x); below zero from above it, with x**2 in two parts of which the first is exact."""
    x = given_in_f64(call, "self")
    a = abs(x)
    above = series(call, "erfcx", 1.0 - 7.5 / (a + 3.75)) / (a * 2.0 + 1.0)
    b = a.least(30.0)
    high = b.cast(F32).cast(F64)
    square = (high * high).apply("exp") * ((b - high) * (b + high)).apply("exp")
    return rounded(call, (x < 0.0).where(square * 2.0 - above, above))


@handler("aten.special_ndtri.default")
def _ndtri(call: Call) -> SSAValue:
    """The quantile of a probability: a series about the median, and two of log(sqrt(-2 log(p))) beyond."""
    p = given_in_f64(call, "self")
    d = p - 0.5
    z, q = d * d, p.least(1.0 - p)
    r = (q.apply("log") * -2.0).apply("sqrt")
    u = r.apply("log")
    tail = r * (u <= 1.7).where(series(call, "quantile_near", u), series(call, "quantile_far", u))
    tail = q.equals(0.0).where(inf, tail)
    return rounded(call, (z <= 0.1339).where(d * series(call, "quantile_center", z), (d < 0.0).where(-tail, tail)))
