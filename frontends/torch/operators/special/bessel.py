"""Records of Bessel functions: series near zero, and beyond them amplitude and phase, or growth and decay, times series.

All is computed in f64: of f32, the series are shorter. Numbers of equations are those of Abramowitz and Stegun, Handbook of
Mathematical Functions (1964). What is no number, infinite or beyond the domain gives what PyTorch gives.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf, nan, pi, sqrt

from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import F64
from fuse_opt.frontends.torch.fx.handler import Call, handlers
from fuse_opt.frontends.torch.operators.special.expressions import (
    REST,
    Expression,
    given_in_f64,
    polynomial,
    rounded,
    series,
)

BESSEL, handler = handlers()
_EULER = 0.57721566490153286061
_NEAR = 8.0
"""Where the expansions for large arguments begin, but those of K, which begin at 2."""


def _enter(name: str, function: Callable[[Call, Expression], Expression]) -> None:
    def build(call: Call) -> SSAValue:
        return rounded(call, function(call, given_in_f64(call, "self" if "self" in call.arguments else "x")))

    handler(name)(build)


def _amplitude_and_phase(call: Call, order: int, a: Expression, second_kind: bool) -> Expression:
    """J or Y of large arguments (9.2.5, 9.2.6): the phase is taken off the sine and the cosine, not off the argument."""
    v = _NEAR / a
    p, q = series(call, f"p{order}", v * v), v * series(call, f"q{order}", v * v)
    # of f32, sine and cosine are those of f32: exact to an ULP of the amplitude, and vectors
    angle = a.cast(call.compute())
    sine, cosine = angle.apply("sin").cast(F64), angle.apply("cos").cast(F64)
    plus, minus = sine + cosine, sine - cosine
    first, second = (plus, minus) if order == 0 else (minus, -plus)
    found = p * second + q * first if second_kind else p * first - q * second
    return found / (a.apply("sqrt") * sqrt(pi))


def _j(order: int) -> Callable[[Call, Expression], Expression]:
    def build(call: Call, x: Expression) -> Expression:
        a = abs(x)
        near, far = series(call, f"j{order}", x * x), _amplitude_and_phase(call, order, a, second_kind=False)
        if order == 1:
            near, far = near * x, (x < 0.0).where(-far, far)
        return (a <= _NEAR).where(near, far)

    return build


def _y(order: int) -> Callable[[Call, Expression], Expression]:
    def build(call: Call, x: Expression) -> Expression:
        z, logarithm = x * x, x.apply("log")
        j, rest = series(call, f"j{order}", z), series(call, f"y{order}", z)
        if order == 0:
            near = logarithm * j * (2 / pi) + rest
        else:
            near = x.equals(0.0).where(-inf, (logarithm * (x * j) - 1.0 / x) * (2 / pi) + x * rest)
        return (x <= _NEAR).where(near, _amplitude_and_phase(call, order, x, second_kind=True))

    return build


def _powers(call: Call, order: int, reach: float, factor: Callable[[int], float] = lambda k: 1.0) -> list[float]:
    """Coefficients of (x**2)**k in I(x) / x**order (9.6.10), each times a factor, as many as arguments to `reach` need."""
    found: list[float] = []
    for k in range(64):
        c = 0.25**k / (2**order * factorial(k) * factorial(k + order))
        found.append(c * factor(k))
        if k and found[-1] * reach ** (2 * k) < REST[call.compute().name] * abs(found[0]):
            break
    return found


def modified_i(order: int) -> Callable[[Call, Expression], Expression]:
    """I0 and I1; the exponential is that of a half, twice, which does not overflow before the result does."""

    def build(call: Call, x: Expression) -> Expression:
        a = abs(x)
        near, root = polynomial(x * x, _powers(call, order, _NEAR)), (a * 0.5).apply("exp")
        far = root * (series(call, f"i{order}", _NEAR / a) / a.apply("sqrt")) * root
        if order == 1:
            near, far = near * x, (x < 0.0).where(-far, far)
        return (a <= _NEAR).where(near, far)

    return build


def modified_k(order: int, scaled: bool) -> Callable[[Call, Expression], Expression]:
    """K0 and K1 (9.6.13, 9.6.11), and these times exp(x)."""

    def build(call: Call, x: Expression) -> Expression:
        z, logarithm = x * x, (x * 0.5).apply("log")
        growing = polynomial(z, _powers(call, order, 2.0))
        if order == 0:
            near = polynomial(z, _powers(call, 0, 2.0, _digamma)) - logarithm * growing
        else:
            rest = polynomial(z, _powers(call, 1, 2.0, lambda k: (_digamma(k) + _digamma(k + 1)) / 2))
            near = x.equals(0.0).where(inf, 1.0 / x + x * (logarithm * growing - rest))
        far = series(call, f"k{order}", 2.0 / x) / x.apply("sqrt")
        if scaled:
            near = near * x.apply("exp")
        else:
            far = far * (-x).apply("exp")
        return (x <= 2.0).where(near, far)

    return build


def _digamma(k: int) -> float:
    """Of k + 1 (6.3.2)."""
    return sum(1.0 / i for i in range(k, 0, -1)) - _EULER


def _spherical_j0(call: Call, x: Expression) -> Expression:
    found = x.equals(0.0).where(1.0, x.apply("sin") / x)
    return x.apply("isinf").where(0.0, found)


def _airy(call: Call, x: Expression) -> Expression:
    """Ai: two series about zero, and beyond them decay (10.4.59), or amplitude and phase (10.4.60)."""
    a = abs(x)
    zeta = a * a.apply("sqrt") * (2 / 3)
    size = 1.0 / (a.apply("sqrt").apply("sqrt") * sqrt(pi))
    decay = (-zeta).apply("exp") * size * series(call, "airy_decay", 2.0 / zeta)
    v = 8.0 / zeta
    p, q = series(call, "airy_p", v * v), v * series(call, "airy_q", v * v)
    sine, cosine = zeta.apply("sin"), zeta.apply("cos")
    waves = ((sine + cosine) * p - (cosine - sine) * q) * size * sqrt(0.5)
    found = (x <= 2.125).where(series(call, "airy_near", x), x.apply("isinf").where(nan, decay))
    found = (x <= -2.125).where(series(call, "airy_below", x), found)
    return (x <= -5.25).where(waves, found)


for _order in (0, 1):
    _enter(f"aten.special_bessel_j{_order}.default", _j(_order))
    _enter(f"aten.special_bessel_y{_order}.default", _y(_order))
    _enter(f"aten.special_modified_bessel_i{_order}.default", modified_i(_order))
    _enter(f"aten.special_modified_bessel_k{_order}.default", modified_k(_order, scaled=False))
    _enter(f"aten.special_scaled_modified_bessel_k{_order}.default", modified_k(_order, scaled=True))
_enter("aten.special_spherical_bessel_j0.default", _spherical_j0)
_enter("aten.special_airy_ai.default", _airy)
_enter("aten.i0.default", modified_i(0))
_enter("aten.special_i1.default", modified_i(1))
