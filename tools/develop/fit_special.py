"""Derives the Chebyshev series of frontends/torch/operators/special/coefficients.py.

Each row of `FITS` is a smooth function on an interval: its Chebyshev coefficients follow from its values at Chebyshev points
(Clenshaw and Curtis 1960), and are cut where the rest is below the rounding of f64. Which function that is follows from the
expansions of Abramowitz and Stegun, Handbook of Mathematical Functions (1964), whose numbers are cited: what is left after
the known factors (logarithms, exponentials, powers, the phase) have been taken out.

    python -m fuse_opt.tools.develop.fit_special [NAME ...]

prints the rows of the table, and how many terms each has on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath

mp: Any = mpmath.mp
mp.dps = 60
Real = Any
"""An mpmath number: the package carries no types."""

_POINTS = 96
_REST = 2.0**-57
"""What may be left out, of the largest coefficient."""


@dataclass(frozen=True)
class Fit:
    f: Callable[[Real], Real]
    lo: str
    hi: str


def coefficients(fit: Fit) -> list[float]:
    """Of the Chebyshev polynomials in the variable that runs from -1 at `lo` to 1 at `hi`."""
    lo, hi = mp.mpf(fit.lo), mp.mpf(fit.hi)
    angles = [mp.pi * (2 * k + 1) / (2 * _POINTS) for k in range(_POINTS)]
    values = [fit.f((lo + hi) / 2 + (hi - lo) / 2 * mp.cos(a)) for a in angles]
    found = [
        mp.fdot(values, [mp.cos(n * a) for a in angles]) * (1 if n == 0 else 2) / _POINTS for n in range(_POINTS // 2)
    ]
    least = _REST * max(abs(c) for c in found)
    while mp.fabs(found[-1]) < least / 2:
        found.pop()
    return [float(c) for c in found]


def row(name: str, fit: Fit, numbers: list[float]) -> str:
    """The row of the table, in lines of 120 characters."""
    lines = [f'    "{name}": Series(', f"        {fit.lo},", f"        {fit.hi},", '        """']
    line = "       "
    for number in map(repr, numbers):
        if len(line) + 1 + len(number) > 118:
            lines.append(line)
            line = "       "
        line = f"{line} {number}"
    return "\n".join([*lines, line, '        """,', "    ),"])


def phase(order: int, x: Real) -> tuple[Real, Real]:
    """P and Q with J + iY = sqrt(2 / (pi x)) (P + iQ) exp(i (x - (order / 2 + 1/4) pi)) (9.2.5, 9.2.6)"""
    turned = mp.hankel1(order, x) * mp.exp(-1j * (x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi))
    found = turned * mp.sqrt(mp.pi * x / 2)
    return found.real, found.imag


def bessel_p(order: int) -> Fit:
    """P with z = (8 / x)**2"""
    return Fit(lambda z: phase(order, 8 / mp.sqrt(z))[0], "0", "1")


def bessel_q(order: int) -> Fit:
    """Q x / 8 with z = (8 / x)**2"""
    return Fit(lambda z: phase(order, 8 / mp.sqrt(z))[1] / mp.sqrt(z), "0", "1")


def bessel_j(order: int) -> Fit:
    """J(x) / x**order with z = x**2 (9.1.10)"""
    return Fit(lambda z: mp.besselj(order, mp.sqrt(z)) / mp.sqrt(z) ** order, "0", "64")


def y0_rest(z: Real) -> Real:
    """Y0(x) - 2/pi log(x) J0(x) with z = x**2 (9.1.13)"""
    x = mp.sqrt(z)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1_rest(z: Real) -> Real:
    """(Y1(x) - 2/pi (log(x) J1(x) - 1 / x)) / x with z = x**2 (9.1.11)"""
    x = mp.sqrt(z)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def bessel_i(order: int) -> Fit:
    """sqrt(x) exp(-x) I(x) with v = 8 / x (9.7.1)"""
    return Fit(lambda v: mp.sqrt(8 / v) * mp.exp(-8 / v) * mp.besseli(order, 8 / v), "0", "1")


def bessel_k(order: int) -> Fit:
    """sqrt(x) exp(x) K(x) with v = 2 / x (9.7.2)"""
    return Fit(lambda v: mp.sqrt(2 / v) * mp.exp(2 / v) * mp.besselk(order, 2 / v), "0", "1")


def airy_argument(zeta: Real) -> Real:
    """x with zeta = 2/3 x**(3/2)"""
    return (zeta * 3 / 2) ** (mp.mpf(2) / 3)


def airy_decay(v: Real) -> Real:
    """sqrt(pi) x**(1/4) exp(zeta) Ai(x) with v = 2 / zeta (10.4.59)"""
    zeta = 2 / v
    x = airy_argument(zeta)
    return mp.sqrt(mp.pi) * x ** mp.mpf("0.25") * mp.exp(zeta) * mp.airyai(x)


def airy_phase(v: Real) -> tuple[Real, Real]:
    """P and Q with Ai(-x) sqrt(pi) x**(1/4) = sin(a) P - cos(a) Q with a = zeta + pi / 4, v = 8 / zeta (10.4.60, 10.4.64)"""
    zeta = 8 / v
    x = airy_argument(zeta)
    factor, angle = mp.sqrt(mp.pi) * x ** mp.mpf("0.25"), zeta + mp.pi / 4
    a, b = factor * mp.airyai(-x), factor * mp.airybi(-x)
    return mp.sin(angle) * a + mp.cos(angle) * b, mp.sin(angle) * b - mp.cos(angle) * a


def erfcx_rate(t: Real) -> Real:
    """(1 + 2 x) exp(x**2) erfc(x) with t = (x - 3.75) / (x + 3.75): nearly a constant (Shepherd and Laframboise 1981)"""
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    if x > 1e4:  # the asymptotic series (7.1.23), at its best
        return (
            (1 + 2 * x)
            / (x * mp.sqrt(mp.pi))
            * mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(16))
        )
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def quantile_center(z: Real) -> Real:
    """y / (p - 1/2) for the quantile y of p with z = (p - 1/2)**2 (the variable of Wichura 1988, AS 241)"""
    d = mp.sqrt(z)
    return mp.sqrt(2) * mp.erfinv(2 * d) / d


def quantile_tail(r: Real) -> Real:
    """-y / r for the quantile y of p with r = sqrt(-2 log(p)), by Newton's method on the logarithm"""
    y = r
    for _ in range(60):
        below = mp.erfc(y / mp.sqrt(2)) / 2
        step = (mp.log(below) + r * r / 2) * below * mp.sqrt(2 * mp.pi) * mp.exp(y * y / 2)
        y += step
        if abs(step) < mp.mpf(10) ** (-mp.dps + 8):
            break
    return y / r


FITS: dict[str, Fit] = {
    "j0": bessel_j(0),
    "j1": bessel_j(1),
    "y0": Fit(y0_rest, "0", "64"),
    "y1": Fit(y1_rest, "0", "64"),
    "p0": bessel_p(0),
    "q0": bessel_q(0),
    "p1": bessel_p(1),
    "q1": bessel_q(1),
    "i0": bessel_i(0),
    "i1": bessel_i(1),
    "k0": bessel_k(0),
    "k1": bessel_k(1),
    "airy_near": Fit(mp.airyai, "-2.125", "2.125"),
    "airy_below": Fit(mp.airyai, "-5.25", "-2.125"),
    "airy_decay": Fit(airy_decay, "0", "1"),
    "airy_p": Fit(lambda z: airy_phase(mp.sqrt(z))[0], "0", "1"),
    "airy_q": Fit(lambda z: airy_phase(mp.sqrt(z))[1] / mp.sqrt(z), "0", "1"),
    "erfcx": Fit(erfcx_rate, "-1", "1"),
    "quantile_center": Fit(quantile_center, "0", "0.134"),
    "quantile_near": Fit(lambda u: quantile_tail(mp.exp(u)), "0.69", "1.7"),
    "quantile_far": Fit(lambda u: quantile_tail(mp.exp(u)), "1.7", "3.66"),
}


def main(names: list[str]) -> None:
    for name in names or FITS:
        numbers = coefficients(FITS[name])
        print(f"{name}: {len(numbers)} terms", file=sys.stderr)
        print(row(name, FITS[name], numbers))


if __name__ == "__main__":
    main(sys.argv[1:])
