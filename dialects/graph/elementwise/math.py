"""Functions of floats: powers, exponentials, trigonometry, error function, rounding. NaN gives NaN unless said otherwise."""

from __future__ import annotations

from math import pi
from typing import ClassVar

from xdsl.irdl import irdl_op_definition

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Binary, FloatBinary, FloatUnary, Unary
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import Kind


@irdl_op_definition
class SqrtOp(Unary):
    """The square root of x, rounded correctly; NaN for x < 0, and -0 stays -0."""

    name = "graph.sqrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sqrt(x)


@irdl_op_definition
class RsqrtOp(Unary):
    """1 / sqrt(x); NaN for x < 0, infinite with its sign for zero."""

    name = "graph.rsqrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.rsqrt(x)


@irdl_op_definition
class CbrtOp(Unary):
    """The cube root of x, of negative x too."""

    name = "graph.cbrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cbrt(x)


@irdl_op_definition
class HypotOp(Binary):
    """sqrt(x * x + y * y), without overflow on the way; infinite when either is, even next to NaN."""

    name = "graph.hypot"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.hypot(x, y)


@irdl_op_definition
class ExpOp(Unary):
    """e to the power x; infinite where that is too large, 0 where too small."""

    name = "graph.exp"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.exp(x)


@irdl_op_definition
class Exp2Op(Unary):
    """2 to the power x."""

    name = "graph.exp2"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.exp2(x)


@irdl_op_definition
class Expm1Op(Unary):
    """exp(x) - 1, accurate near zero."""

    name = "graph.expm1"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.expm1(x)


@irdl_op_definition
class LogOp(Unary):
    """The natural logarithm of x; -inf for zero, NaN for x < 0."""

    name = "graph.log"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log(x)


@irdl_op_definition
class Log2Op(Unary):
    """The logarithm of x to base 2; -inf for zero, NaN for x < 0."""

    name = "graph.log2"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log2(x)


@irdl_op_definition
class Log10Op(Unary):
    """The logarithm of x to base 10; -inf for zero, NaN for x < 0."""

    name = "graph.log10"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log10(x)


@irdl_op_definition
class Log1pOp(Unary):
    """log(1 + x), accurate near zero; -inf for -1, NaN for x < -1."""

    name = "graph.log1p"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log1p(x)


@irdl_op_definition
class LogaddexpOp(FloatBinary):
    """log(exp(x) + exp(y)) as max(x, y) + log1p(exp(-|x - y|)), which does not overflow; equal infinities give themselves."""

    name = "graph.logaddexp"
    SLACK: ClassVar[float] = 8

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        distance = sc.where(sc.equal(x, y), 0, abs(x - y))  # inf - inf is NaN
        return sc.maximum(x, y) + sc.log1p(sc.exp(-distance))


@irdl_op_definition
class XlogyOp(FloatBinary):
    """x * log(y); 0 for x = 0 whatever y is, except NaN, which gives NaN."""

    name = "graph.xlogy"
    ULPS: ClassVar[float | None] = 5

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.where(sc.is_nan(y), y, sc.where(sc.equal(x, 0), 0, x * sc.log(y)))


@irdl_op_definition
class SinOp(Unary):
    """The sine of x in radians; NaN for an infinite x."""

    name = "graph.sin"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sin(x)


@irdl_op_definition
class CosOp(Unary):
    """The cosine of x in radians; NaN for an infinite x."""

    name = "graph.cos"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cos(x)


@irdl_op_definition
class TanOp(Unary):
    """The tangent of x in radians; NaN for an infinite x."""

    name = "graph.tan"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.tan(x)


@irdl_op_definition
class AsinOp(Unary):
    """The angle in [-pi/2, pi/2] whose sine is x; NaN for |x| > 1."""

    name = "graph.asin"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.asin(x)


@irdl_op_definition
class AcosOp(Unary):
    """The angle in [0, pi] whose cosine is x; NaN for |x| > 1."""

    name = "graph.acos"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.acos(x)


@irdl_op_definition
class AtanOp(Unary):
    """The angle in [-pi/2, pi/2] whose tangent is x."""

    name = "graph.atan"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.atan(x)


@irdl_op_definition
class Atan2Op(Binary):
    """atan2(lhs, rhs), the angle in [-pi, pi] of the point (rhs, lhs) against the first axis.

    The signs of zeros count as in C: atan2(-0, -1) is -pi; two infinities give odd multiples of pi/4.
    """

    name = "graph.atan2"

    def scalar(self, y: Scalar, x: Scalar) -> Scalar:
        return sc.atan2(y, x)


@irdl_op_definition
class SinhOp(Unary):
    """The hyperbolic sine of x, (exp(x) - exp(-x)) / 2; infinite with the sign of x where that is too large."""

    name = "graph.sinh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sinh(x)


@irdl_op_definition
class CoshOp(Unary):
    """The hyperbolic cosine of x, (exp(x) + exp(-x)) / 2; infinite where that is too large."""

    name = "graph.cosh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cosh(x)


@irdl_op_definition
class TanhOp(Unary):
    """The hyperbolic tangent of x, sinh(x) / cosh(x); 1 or -1 for an infinite x."""

    name = "graph.tanh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.tanh(x)


@irdl_op_definition
class AsinhOp(Unary):
    """The number whose hyperbolic sine is x."""

    name = "graph.asinh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.asinh(x)


@irdl_op_definition
class AcoshOp(Unary):
    """The number that is not negative and whose hyperbolic cosine is x; NaN for x < 1."""

    name = "graph.acosh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.acosh(x)


@irdl_op_definition
class AtanhOp(Unary):
    """The number whose hyperbolic tangent is x; infinite with its sign for 1 and -1, NaN for |x| > 1."""

    name = "graph.atanh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.atanh(x)


@irdl_op_definition
class ErfOp(Unary):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""

    name = "graph.erf"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.erf(x)


@irdl_op_definition
class ErfcOp(Unary):
    """1 - erf(x), accurate where that is near zero."""

    name = "graph.erfc"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.erfc(x)


@irdl_op_definition
class LgammaOp(Unary):
    """log(|gamma(x)|); infinite for 0, -1, -2 ... and for an infinite x."""

    name = "graph.lgamma"
    SLACK: ClassVar[float] = 8  # it has zeros between the poles

    def scalar(self, x: Scalar) -> Scalar:
        return sc.lgamma(x)


class Rounding(Unary):
    """To a whole number; integers are one already, and keep their value."""

    WORD: ClassVar[str]

    def scalar(self, x: Scalar) -> Scalar:
        return x if x.dtype.kind in (Kind.INT, Kind.UINT) else sc.apply(self.WORD, x)


@irdl_op_definition
class FloorOp(Rounding):
    """The largest whole number not above x; integers keep their value."""

    name = "graph.floor"
    WORD: ClassVar[str] = "floor"


@irdl_op_definition
class CeilOp(Rounding):
    """The smallest whole number not below x; integers keep their value."""

    name = "graph.ceil"
    WORD: ClassVar[str] = "ceil"


@irdl_op_definition
class TruncOp(Rounding):
    """The whole number next to x towards zero; integers keep their value."""

    name = "graph.trunc"
    WORD: ClassVar[str] = "trunc"


@irdl_op_definition
class RoundOp(Rounding):
    """The nearest whole number, halves to even; integers keep their value."""

    name = "graph.round"
    WORD: ClassVar[str] = "round"


@irdl_op_definition
class DegreesOp(FloatUnary):
    """x * 180 / pi: an angle in radians, in degrees."""

    name = "graph.degrees"
    ULPS: ClassVar[float | None] = 2.0

    def scalar(self, x: Scalar) -> Scalar:
        return x * (180 / pi)


@irdl_op_definition
class RadiansOp(FloatUnary):
    """x * pi / 180: an angle in degrees, in radians."""

    name = "graph.radians"
    ULPS: ClassVar[float | None] = 2.0

    def scalar(self, x: Scalar) -> Scalar:
        return x * (pi / 180)


@irdl_op_definition
class SincOp(FloatUnary):
    """sin(pi x) / (pi x), and 1 at 0, as `numpy.sinc`; 0 at every other whole number, since whole turns are taken off x."""

    name = "graph.sinc"
    SLACK: ClassVar[float] = 4.0

    def scalar(self, x: Scalar) -> Scalar:
        transposed = x - 2.0 * sc.round_half_even(x * 0.5)
        return sc.where(sc.equal(x, 0), 1.0, sc.sin(transposed * pi) / (x * pi))
