"""Special functions: digamma, Bessel functions; computed in f64 and rounded once, of f64 in f64, digamma of f32 in f32."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, pi
from typing import ClassVar

from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import FloatUnary
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import F32, F64


class Special(FloatUnary):
    """A function that is stated in f64, whatever the type is computed in."""

    def infer_types(self) -> Sequence[AnyTensor]:
        if dtype(self.x).storage_only:
            raise VerifyException(
                f"{dtype(self.x)} is a storage type and '{self.name}' computes with it: insert graph.astype to f32 before, "
                "and back after"
            )
        return super().infer_types()

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cast(self.in_f64(sc.cast(x, F64)), x.dtype)

    def in_f64(self, x: Scalar) -> Scalar:
        raise NotImplementedError(f"'{self.name}' states no function")


def polynomial(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """The coefficients are those of 1, x, x**2 ..."""
    value: Scalar = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        value = value * x + coefficient
    return value


def _chebyshev(coefficients: Sequence[float], t: Scalar) -> Scalar:
    """Half the first coefficient and the others times T1(t), T2(t) ..., by Clenshaw's rule; t is within -1 and 1."""
    twice = t + t
    first, second, third = sc.constant(coefficients[-1], t.dtype), sc.constant(0.0, t.dtype), sc.constant(0.0, t.dtype)
    for coefficient in reversed(coefficients[:-1]):
        first, second, third = (twice * first - second) + coefficient, first, second
    return (first - third) * 0.5


_ROOT = (1569415565 / 2**30, 381566830 / 2**60, 0.9016312093258695918615325266959189453125e-19)
"""The zero of digamma above 0, in three parts; the quotient of polynomials about it is that of the Boost C++ libraries."""
_NEAR_ROOT = 0.99558162689208984
_ABOVE = (
    0.25479851061131551, -0.32555031186804491, -0.65031853770896507, -0.28919126444774784, -0.045251321448739056,
    -0.0020713321167745952,
)  # fmt: skip
_BELOW = (
    1.0, 2.0767117023730469, 1.4606242909763515, 0.43593529692665969, 0.054151797245674225, 0.0021284987017821144,
    -0.55789841321675513e-6,
)  # fmt: skip
_ASYMPTOTIC = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B(2k) / 2k."""
_ROOT_OF_F32 = (1532632 / 2**20, 3.70066018591262659542e-7, 1.408431e-14)
_ABOVE_OF_F32 = (0.25479851023250261, -0.44981331915268368, -0.43916936919946835, -0.061041765350579073)
_BELOW_OF_F32 = (1.0, 1.5890202430554952, 0.65341249856146947, 0.063851690523355715)
"""The same for 24 bits."""


@irdl_op_definition
class DigammaOp(Special):
    """The derivative of lgamma(x): infinite for zeros, with the opposite sign; NaN for -1, -2 ... and -inf.

    Below 0 it has zeros between the poles: there the error is one of max(|digamma(x)|, 1). f32 is computed in f32.
    """

    name = "graph.digamma"
    ULPS: ClassVar[float | None] = 8.0
    SLACK: ClassVar[float] = 16

    def scalar(self, x: Scalar) -> Scalar:
        return self.in_f64(x) if x.dtype is F32 else super().scalar(x)

    def in_f64(self, x: Scalar) -> Scalar:
        """In the type of x, which is f32 or f64."""
        negative = x < 0.0
        y = sc.where(negative, 1.0 - x, x)
        value = sc.where(y < 3.0, _digamma_small(y), _digamma_large(sc.maximum(y, 3.0)))
        rest = x - sc.round_half_even(x)
        reflected = sc.where(sc.equal(rest, 0.0), nan, value - pi / sc.tan(rest * pi))
        return sc.where(negative, reflected, value)


def _digamma_small(y: Scalar) -> Scalar:
    """Between 0 and 3, about the zero."""
    below, above = y < 1.0, y >= 2.0
    t = sc.where(below, y + 1.0, sc.where(above, y - 1.0, y))
    root, numerator, divisor = (
        (_ROOT, _ABOVE, _BELOW) if y.dtype is F64 else (_ROOT_OF_F32, _ABOVE_OF_F32, _BELOW_OF_F32)
    )
    g = ((t - root[0]) - root[1]) - root[2]
    value = g * (_NEAR_ROOT + polynomial(numerator, t - 1.0) / polynomial(divisor, t - 1.0))
    return sc.where(below, value - 1.0 / y, sc.where(above, value + 1.0 / t, value))


def _digamma_large(y: Scalar) -> Scalar:
    """From 3 on, where the asymptotic series is exact for f32; of f64 by the recurrence up to where it is."""
    if y.dtype is F32:
        reciprocal = 1.0 / y
        square = reciprocal * reciprocal
        return (sc.log(y) - 0.5 * reciprocal) - square * polynomial(_ASYMPTOTIC[:-1], square)
    shift: Scalar = sc.constant(0.0, y.dtype)
    for _ in range(7):
        low = y < 10.0
        shift = sc.where(low, shift + 1.0 / y, shift)
        y = sc.where(low, y + 1.0, y)
    square = 1.0 / (y * y)
    return ((sc.log(y) - 0.5 / y) - square * polynomial(_ASYMPTOTIC, square)) - shift


_I0E_SMALL = (
    0.6767952744094761,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_I0E_LARGE = (
    0.8044904110141088,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
)
_I1E_SMALL = (
    0.25258718644363365,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
    2.7779141127610464e-18,
)
_I1E_LARGE = (
    0.7785762350182801,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
    4.414348323071708e-18,
    7.517296310842105e-18,
)
"""Chebyshev series of exp(-x) I0(x) and exp(-x) I1(x) / x over [0, 8], and times sqrt(x) over 32 / x above."""


@irdl_op_definition
class I0eOp(Special):
    """The modified Bessel function of order 0 times exp(-|x|); 0 for infinities."""

    name = "graph.i0e"
    ULPS: ClassVar[float | None] = 8.0

    def in_f64(self, x: Scalar) -> Scalar:
        size = abs(x)
        large = _chebyshev(_I0E_LARGE, 16.0 / size - 1.0) / sc.sqrt(size)
        return sc.where(size <= 8.0, _chebyshev(_I0E_SMALL, size * 0.25 - 1.0), large)


@irdl_op_definition
class I1eOp(Special):
    """The modified Bessel function of order 1 times exp(-|x|), with the sign of x; 0 for infinities."""

    name = "graph.i1e"
    ULPS: ClassVar[float | None] = 8.0

    def in_f64(self, x: Scalar) -> Scalar:
        size = abs(x)
        large = sc.copysign(_chebyshev(_I1E_LARGE, 16.0 / size - 1.0) / sc.sqrt(size), x)
        return sc.where(size <= 8.0, x * _chebyshev(_I1E_SMALL, size * 0.25 - 1.0), large)
