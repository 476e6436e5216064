"""Records of Chebyshev polynomials whose order is data: sines and cosines of multiples of an angle, or hyperbolic ones.

Orders are cut to whole numbers, and those below zero give zero. Between -1 and 1 the angle is acos(x), beyond it acosh(x);
negative arguments are taken to positive ones, where quotients of sines keep their digits (Abramowitz and Stegun 22.4, 22.5).
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from fuse_opt.frontends.torch.fx.handler import Call, handlers
from fuse_opt.frontends.torch.operators.special.expressions import Expression, given_in_f64, rounded

CHEBYSHEV, handler = handlers()
_MIRRORED = {"t": "t", "u": "u", "v": "w", "w": "v"}
"""By kind: that of which the value at -x is, times (-1)**n."""
_WHOLE = 2.0**63


def _on_the_circle(kind: str, angle: Expression, n: Expression) -> Expression:
    """The polynomial at the cosine of an angle above 0."""
    half = angle * 0.5
    match kind:
        case "t":
            return (angle * n).apply("cos")
        case "u":
            return (angle * (n + 1.0)).apply("sin") / angle.apply("sin")
        case "v":
            return (angle * (n + 0.5)).apply("cos") / half.apply("cos")
        case _:
            return (angle * (n + 0.5)).apply("sin") / half.apply("sin")


def _beyond(kind: str, angle: Expression, n: Expression) -> Expression:
    """The polynomial at the hyperbolic cosine of an angle above 0: the growing exponential, which goes as the result does."""
    grown, twice = (angle * n).apply("exp"), angle * -2.0
    match kind:
        case "t":
            return grown * ((twice * n).apply("exp") + 1.0) * 0.5
        case "u":
            return grown * ((twice * (n + 1.0)).apply("expm1") / twice.apply("expm1"))
        case "v":
            return grown * (((twice * (n + 0.5)).apply("exp") + 1.0) / ((-angle).apply("exp") + 1.0))
        case _:
            return grown * ((twice * (n + 0.5)).apply("expm1") / (-angle).apply("expm1"))


def _at_least_zero(kind: str, a: Expression, n: Expression) -> Expression:
    inside, outside = _on_the_circle(kind, a.apply("acos"), n), _beyond(kind, a.apply("acosh"), n)
    found = (a < 1.0).where(inside, outside)
    if kind in ("u", "w"):
        found = a.equals(1.0).where(n + 1.0 if kind == "u" else n * 2.0 + 1.0, found)
    return found


def _polynomial(kind: str, x: Expression, n: Expression) -> Expression:
    a, half = abs(x), n * 0.5
    found, mirrored = _at_least_zero(kind, a, n), _at_least_zero(_MIRRORED[kind], a, n)
    mirrored = half.equals(half.apply("floor")).where(mirrored, -mirrored)
    found = n.equals(0.0).where(1.0, (x < 0.0).where(mirrored, found))
    return ((n >= 0.0) & (n < _WHOLE)).where(found, 0.0)


def _enter(kind: str, shifted: bool) -> None:
    def build(call: Call) -> SSAValue:
        x, n = given_in_f64(call, "x"), given_in_f64(call, "n").apply("trunc")
        return rounded(call, _polynomial(kind, x + x - 1.0 if shifted else x, n))

    name = f"aten.special_{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}"
    handler(*(f"{name}.{overload}" for overload in ("default", "x_scalar", "n_scalar")))(build)


for _kind in _MIRRORED:
    _enter(_kind, shifted=False)
    _enter(_kind, shifted=True)
