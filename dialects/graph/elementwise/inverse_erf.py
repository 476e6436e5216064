"""The inverse of the error function."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from xdsl.irdl import irdl_op_definition

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.elementwise.special_functions import Special, polynomial
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import F32

_CENTRE = (
    (
        3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
        4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
    ),
    (
        1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
        3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
    ),
)  # fmt: skip
_TAIL = (
    (
        1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
        1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
    ),
    (
        1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
        1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
    ),
)  # fmt: skip
_FAR_TAIL = (
    (
        6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
        2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
    ),
    (
        1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
        1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
    ),
)  # fmt: skip
"""Quotients of polynomials for the quantiles of the normal distribution (Wichura, "Algorithm AS 241", 1988)."""


_BY_LOGARITHM = (
    1.5932502746582031, 0.24302421510219574, -0.005406089127063751, -0.0009356561349704862, 0.00020262878388166428,
    -1.1234609701205045e-05, -2.1780163024232024e-06, 4.647390312584321e-07, -1.1245365527656759e-08, -6.3265899186149e-09,
    5.967215055413533e-10,
)  # fmt: skip
_BY_ROOT = (
    3.0336365699768066, 1.0046918392181396, 0.005974983796477318, -0.004282244015485048, 0.0029332414269447327,
    -0.0020609949715435505, 0.0011399448849260807, -0.00021614514116663486, -0.00010381247557234019,
)  # fmt: skip
"""erfinv(x) / x by w = -log(1 - x**2), less 2.875, up to 5.76, by its root less 3.2 beyond: of least relative error, 5e-9 and
2e-8, in the variables of Giles ("Approximating the erfinv function", 2010)."""


@irdl_op_definition
class ErfinvOp(Special):
    """The y with erf(y) = x: infinite with its sign for 1 and -1, NaN beyond; -0 stays -0. f32 is computed in f32."""

    name = "graph.erfinv"
    ULPS: ClassVar[float | None] = 7.0

    def scalar(self, x: Scalar) -> Scalar:
        return self._in_f32(x) if x.dtype is F32 else super().scalar(x)

    def _in_f32(self, x: Scalar) -> Scalar:
        w = -sc.log((1.0 - x) * (1.0 + x))
        near, far = _by_halves(_BY_LOGARITHM, w - 2.875), _by_halves(_BY_ROOT, sc.sqrt(w) - 3.2)
        return x * sc.where(sc.equal(abs(x), 1.0), inf, sc.where(w < 5.76, near, far))

    def in_f64(self, x: Scalar) -> Scalar:
        half = x * 0.5
        centre = x * (_quotient(_CENTRE, 0.180625 - half * half) * 0.35355339059327376)
        r = sc.sqrt(-sc.log((1.0 - abs(x)) * 0.5))
        tail = sc.where(r <= 5.0, _quotient(_TAIL, r - 1.6), _quotient(_FAR_TAIL, r - 5.0))
        tail = sc.where(sc.equal(abs(x), 1.0), inf, tail)
        return sc.where(abs(half) <= 0.425, centre, sc.copysign(tail * 0.7071067811865476, x))


def _quotient(parts: tuple[Sequence[float], Sequence[float]], x: Scalar) -> Scalar:
    above, below = parts
    return polynomial(above, x) / polynomial(below, x)


def _by_halves(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """The polynomial of 1, x, x**2 ...: of even powers beside that of odd ones, as operations wait for each other; the first two
    terms, which are large, by Horner's rule."""
    first, second, *others = coefficients
    square = x * x
    rest = polynomial(others[1::2], square) * x + polynomial(others[::2], square)
    return (rest * x + second) * x + first
