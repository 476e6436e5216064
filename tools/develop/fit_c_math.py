"""Derives the polynomial coefficients of lowering/c/headers.

Each row of `FITS` is one weighted fit: find c with sum(c[i] * x**(i * step)) close to f on [lo, hi], the error measured
as weight * error. Least squares over Chebyshev points is within a bit of the minimax fit. The coefficients are rounded to
the target type one after the other, lowest power first, and the remaining ones are fitted again after each rounding.
Where `minimax` is set, points are weighted by their errors first, again and again (Lawson 1961); a rational function is
fitted as sum(p[i] x**i) - f sum(q[i] x**i), divided by the last q (Loeb 1957).

    python tools/develop/fit_c_math.py [NAME ...]      prints the coefficients, lowest power first, and log2 of the error
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath

mp: Any = mpmath.mp
mp.dps = 80
Real = Any
"""An mpmath number: the package carries no types."""


def one(_x: Real) -> Real:
    return mp.mpf(1)


@dataclass(frozen=True)
class Fit:
    f: Callable[[Real], Real]
    lo: Real
    hi: Real
    terms: int
    weight: Callable[[Real], Real] = one
    step: int = 1
    bits: int = 24
    minimax: bool = False
    below: int = 0
    """Terms of the denominator but its constant one; those of the numerator are `terms`."""


def least_squares(f: list[Real], w: list[Real], basis: list[list[Real]]) -> list[Real]:
    columns = [[v * b for v, b in zip(w, column, strict=True)] for column in basis]
    target = [v * t for v, t in zip(w, f, strict=True)]
    normal = mp.matrix([[mp.fdot(p, q) for q in columns] for p in columns])
    return list(mp.lu_solve(normal, mp.matrix([mp.fdot(p, target) for p in columns])))


def rounded(c: Real, bits: int) -> Real:
    with mp.workprec(bits):
        return +c


def solve(fit: Fit) -> tuple[list[Real], Real]:
    points = 16 * (fit.terms + fit.below)
    middle, half = (mp.mpf(fit.lo) + fit.hi) / 2, (mp.mpf(fit.hi) - fit.lo) / 2
    xs = [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * points)) for i in range(points)]
    exact, weights = [fit.f(x) for x in xs], [fit.weight(x) for x in xs]
    basis = [[x ** (i * fit.step) for x in xs] for i in range(fit.terms)]
    basis += [[-v * x ** (i + 1) for v, x in zip(exact, xs, strict=True)] for i in range(fit.below)]
    w, divisors = list(weights), [mp.mpf(1)] * points
    for _ in range(25 if fit.minimax else 0):
        c = least_squares(exact, [v / d for v, d in zip(w, divisors, strict=True)], basis)
        divisors = denominators(fit, c, xs)
        errors = [abs(v) for v in differences(exact, basis, c, divisors)]
        errors = [e * v for e, v in zip(errors, weights, strict=True)]
        mean = mp.fsum(errors) / points
        w = [v * mp.sqrt(e / mean) for v, e in zip(w, errors, strict=True)]
    f, scaled, done = exact, [v / d for v, d in zip(w, divisors, strict=True)], list[Real]()
    while len(done) < len(basis):
        done.append(rounded(least_squares(f, scaled, basis[len(done) :])[0], fit.bits))
        f = [v - done[-1] * b for v, b in zip(f, basis[len(done) - 1], strict=True)]
    last = differences(exact, basis, done, denominators(fit, done, xs))
    return done, max(abs(e * v) for e, v in zip(last, weights, strict=True))


def denominators(fit: Fit, c: list[Real], xs: list[Real]) -> list[Real]:
    return [1 + mp.fsum(q * x ** (i + 1) for i, q in enumerate(c[fit.terms :])) for x in xs]


def differences(exact: list[Real], basis: list[list[Real]], c: list[Real], divisors: list[Real]) -> list[Real]:
    fitted = [mp.fdot(c, values) for values in zip(*basis, strict=True)]
    return [(f - v) / d for f, v, d in zip(exact, fitted, divisors, strict=True)]


def exp_tail(x: Real) -> Real:
    """(exp(x) - 1 - x) / x**2"""
    return (mp.expm1(x) - x) / x**2


def exp_rate(x: Real) -> Real:
    """(exp(x) - 1) / x"""
    return mp.expm1(x) / x


def log2_rate(x: Real) -> Real:
    """log2(1 + x) / x"""
    return mp.log1p(x) / (x * mp.ln2)


def log_tail(x: Real) -> Real:
    """(log(1 + x) - x + x**2 / 2) / x**3"""
    return (mp.log1p(x) - x + x * x / 2) / x**3


def atanh_tail(z: Real) -> Real:
    """(2 * atanh(s) - 2 * s) / s with z = s**2"""
    s = mp.sqrt(z)
    return 2 * (mp.atanh(s) - s) / s


def exp2_tail(x: Real) -> Real:
    """(2**x - 1) / x"""
    return mp.expm1(x * mp.ln2) / x


def erf_rate(a: Real) -> Real:
    """-log(erfc(a)) / a - 1, which is smooth down to a = 0 and turns erf into one exponential"""
    return -mp.log(mp.erfc(a)) / a - 1


def erf_weight(a: Real) -> Real:
    """The relative change of erf(a) for a change of erf_rate(a)."""
    return a * mp.erfc(a) / mp.erf(a)


def erf_ratio(z: Real) -> Real:
    """x / erf(x) with z = x**2"""
    x = mp.sqrt(z)
    return x / mp.erf(x)


def sin_tail(z: Real) -> Real:
    """(sin(x) - x) / x**3 with z = x**2"""
    x = mp.sqrt(z)
    return (mp.sin(x) - x) / x**3


def cos_tail(z: Real) -> Real:
    """(cos(x) - 1 + x**2 / 2) / x**4 with z = x**2"""
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def atan_tail(z: Real) -> Real:
    """(atan(x) - x) / x**3 with z = x**2"""
    x = mp.sqrt(z)
    return (mp.atan(x) - x) / x**3


def tan_tail(z: Real) -> Real:
    """(tan(x) - x) / x**3 with z = x**2"""
    x = mp.sqrt(z)
    return (mp.tan(x) - x) / x**3


def asin_tail(z: Real) -> Real:
    """(asin(x) - x) / x**3 with z = x**2"""
    x = mp.sqrt(z)
    return (mp.asin(x) - x) / x**3


def erfc_rate(shift: Real, middle: Real) -> Callable[[Real], Real]:
    """exp(x**2) erfc(x) (x + shift) of v = 1 / (x + shift) - middle: nearly a constant, with one division"""

    def rate(v: Real) -> Real:
        inverse = v + middle
        x = 1 / inverse - shift
        return mp.exp(x * x) * mp.erfc(x) / inverse

    return rate


def lgamma_rate(t: Real) -> Real:
    """lgamma(2 + t) / t, which is smooth at the zero of lgamma at 2 and down to its pole at 0"""
    return mp.loggamma(2 + t) / t


def stirling_tail(z: Real) -> Real:
    """x (lgamma(x) - (x - 1/2) (log(x) - 1) - (log(2 pi) - 1) / 2) with z = 1 / x**2"""
    x = 1 / mp.sqrt(z)
    with mp.workdps(200):
        return x * (mp.loggamma(x) - (x - 0.5) * (mp.log(x) - 1) - (mp.log(2 * mp.pi) - 1) / 2)


def cube_root_inverse(r: Real) -> Real:
    """The factor that turns an approximate cube root c of x with r = c**3 / x into the cube root"""
    return r ** (-mp.mpf(1) / 3)


LN2_2 = mp.ln2 / 2 * mp.mpf("1.0001")
HALF = mp.mpf("0.5001")
LOG_LO, LOG_HI = mp.sqrt(mp.mpf("0.5")) - 1, mp.sqrt(mp.mpf(2)) - 1
ATANH_Z = (LOG_HI / (2 + LOG_HI)) ** 2 * mp.mpf("1.0001")
TRIG_Z = (mp.pi / 4) ** 2 * mp.mpf("1.001")
ATAN_Z = mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.001")
ASIN_Z = mp.mpf("0.2501")
TINY = mp.mpf("1e-20")


def expm1_weight(x: Real) -> Real:
    return abs(x * x / mp.expm1(x))


def log_weight(x: Real) -> Real:
    return abs(x**3 / mp.log1p(x))


def exp2_weight(x: Real) -> Real:
    return abs(x) / 2**x


def exp_weight(x: Real) -> Real:
    return abs(x) / mp.exp(x)


def log2_weight(x: Real) -> Real:
    return 1 / log2_rate(x)


def rate_of(terms: int, top: str, bits: int) -> Fit:
    return Fit(erf_rate, mp.mpf("1e-9"), mp.mpf(top), terms, erf_weight, bits=bits)


def odd_weight(f: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """The relative change of an odd f(x) for a change of its tail at z = x**2."""

    def weight(z: Real) -> Real:
        x = mp.sqrt(z)
        return x**3 / f(x)

    return weight


def erfc_of(terms: int, shift: str, middle: str, top: str, bits: int) -> Fit:
    """Good for arguments up to `top`."""
    least, most = 1 / (mp.mpf(top) + mp.mpf(shift)) - mp.mpf(middle), 1 / mp.mpf(shift) - mp.mpf(middle)
    rate = erfc_rate(mp.mpf(shift), mp.mpf(middle))
    return Fit(rate, least, most, terms, lambda v: 1 / rate(v), bits=bits, minimax=bits == 24)


FITS: dict[str, Fit] = {
    "expm1_f32": Fit(exp_tail, -LN2_2, LN2_2, 5, expm1_weight),
    "exp2_f32": Fit(exp2_tail, -HALF, HALF, 6, exp2_weight),
    "exp_f32": Fit(exp_rate, -LN2_2, LN2_2, 5, exp_weight, minimax=True),
    "log_f32": Fit(log_tail, LOG_LO, LOG_HI, 7, log_weight, minimax=True),
    "log1p_f32": Fit(log_tail, LOG_LO, LOG_HI, 8, log_weight),
    "log2_f32": Fit(log2_rate, LOG_LO, LOG_HI, 9, log2_weight, minimax=True),
    "erf_f32": rate_of(9, "3.95", 24),
    "fast_erf_f32": Fit(erf_ratio, TINY, mp.mpf("3.93") ** 2, 6, lambda z: 1 / erf_ratio(z), minimax=True, below=5),
    "sin_f32": Fit(sin_tail, mp.mpf("1e-12"), TRIG_Z, 3, lambda z: z),
    "cos_f32": Fit(cos_tail, mp.mpf("1e-12"), TRIG_Z, 3, lambda z: z * z),
    "expm1_f64": Fit(exp_tail, -LN2_2, LN2_2, 11, expm1_weight, bits=53),
    "exp2_f64": Fit(exp2_tail, -HALF, HALF, 12, exp2_weight, bits=53),
    "log_f64": Fit(lambda z: atanh_tail(z) / z, mp.mpf("1e-20"), ATANH_Z, 7, lambda z: z, bits=53),
    "pow_log2_f32": Fit(lambda z: (atanh_tail(z) + 2) / mp.ln2, mp.mpf("1e-20"), ATANH_Z, 5, bits=53),
    "pow_exp2_f32": Fit(exp2_tail, -HALF, HALF, 6, exp2_weight, bits=53),
    "erf_f64": rate_of(24, "5.95", 53),
    "atan_f32": Fit(atan_tail, TINY, ATAN_Z, 5, odd_weight(mp.atan)),
    "atan_f64": Fit(atan_tail, TINY, ATAN_Z, 11, odd_weight(mp.atan), bits=53),
    "tan_f32": Fit(tan_tail, TINY, TRIG_Z, 7, odd_weight(mp.tan), bits=53),
    "asin_f32": Fit(asin_tail, TINY, ASIN_Z, 6, odd_weight(mp.asin)),
    "asin_f64": Fit(asin_tail, TINY, ASIN_Z, 13, odd_weight(mp.asin), bits=53),
    "erfc_f32": erfc_of(11, "1.25", "0.4375", "10.1", 24),
    "erfc_f64": erfc_of(24, "2.5", "0.21875", "27.3", 53),
    "lgamma_f64": Fit(lgamma_rate, mp.mpf("-0.50000001"), mp.mpf("0.50000001"), 18, bits=53),
    "stirling_f64": Fit(stirling_tail, mp.mpf("1e-20"), 1 / mp.mpf("8.5") ** 2, 7, bits=53),
    "cbrt_f64": Fit(cube_root_inverse, mp.mpf("0.88"), mp.mpf("1.12"), 5, bits=53),
}


def main(names: list[str]) -> None:
    for name in names or FITS:
        coefficients, worst = solve(FITS[name])
        print(f"{name}: 2^{float(mp.log(worst, 2)):.1f}")
        for c in coefficients:
            print("   ", f"{float(c).hex()}{'f' if FITS[name].bits == 24 else ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
