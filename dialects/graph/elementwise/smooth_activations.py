"""Smooth activation functions of neural networks, and their backward forms. NaN gives NaN unless said otherwise.

A backward form multiplies a gradient with the derivative, as torch's `aten` op of its name does; the operands are
(gradient, x), or (gradient, y) with the forward result y where the derivative follows from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, StringAttr
from xdsl.irdl import irdl_op_definition, opt_prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Elementwise, FloatBinary, FloatUnary, number
from fuse_opt.dialects.interfaces.op import ErrorBound
from fuse_opt.dialects.interfaces.shapes import AnyTensor
from fuse_opt.dialects.scalar import Scalar

_UNDERFLOW = 1e-30
"""`SLACK` of what multiplies with an exponential that underflows: far below an epsilon."""
_TWICE_ROOT = 2 * sqrt(2 / pi)


def _sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), accurate at both ends: the exponential does not overflow."""
    small = sc.exp(-abs(x))
    return sc.where(x < 0, small, 1.0) / (1.0 + small)


@irdl_op_definition
class SigmoidOp(FloatUnary):
    """1 / (1 + exp(-x)), accurate for large negative x too."""

    name = "graph.sigmoid"
    ULPS: ClassVar[float | None] = 6

    def scalar(self, x: Scalar) -> Scalar:
        return _sigmoid(x)


@irdl_op_definition
class SigmoidBackwardOp(FloatBinary):
    """gradient * (1 - y) * y, operands (gradient, y) with y = sigmoid(x)."""

    name = "graph.sigmoid_backward"
    ULPS: ClassVar[float | None] = 4
    SLACK: ClassVar[float] = _UNDERFLOW

    def scalar(self, gradient: Scalar, y: Scalar) -> Scalar:
        return gradient * ((1.0 - y) * y)


@irdl_op_definition
class LogSigmoidOp(FloatUnary):
    """log(1 / (1 + exp(-x))) as min(x, 0) - log1p(exp(-|x|)), which does not overflow."""

    name = "graph.log_sigmoid"
    ULPS: ClassVar[float | None] = 11

    def scalar(self, x: Scalar) -> Scalar:
        return sc.minimum(x, 0) - sc.log1p(sc.exp(-abs(x)))


@irdl_op_definition
class LogSigmoidBackwardOp(FloatBinary):
    """gradient * sigmoid(-x), operands (gradient, x)."""

    name = "graph.log_sigmoid_backward"
    ULPS: ClassVar[float | None] = 7
    SLACK: ClassVar[float] = _UNDERFLOW

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        return gradient * _sigmoid(-x)


@irdl_op_definition
class TanhBackwardOp(FloatBinary):
    """gradient * (1 - y * y), operands (gradient, y) with y = tanh(x)."""

    name = "graph.tanh_backward"
    ULPS: ClassVar[float | None] = 4

    def scalar(self, gradient: Scalar, y: Scalar) -> Scalar:
        return gradient * ((1.0 - y) * (1.0 + y))


class Softened(Elementwise):
    """What softplus and its backward form share: `beta`, and the `threshold` beyond which it is the identity."""

    beta = opt_prop_def(FloatAttr)
    threshold = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if number(self.beta, 1.0) == 0.0:
            raise VerifyException("attribute 'beta': expected a number other than 0, got 0.0; leave it out for 1.0")
        return super().infer_types()

    def error_bound(self) -> ErrorBound:
        """With beta * x rounded the exponential is off by an absolute error."""
        return ErrorBound(11, _UNDERFLOW if number(self.beta, 1.0) == 1.0 else 4)

    def _scaled(self, x: Scalar) -> Scalar:
        return x if number(self.beta, 1.0) == 1.0 else number(self.beta, 1.0) * x

    def _within(self, scaled: Scalar, curve: Scalar, beyond: Scalar) -> Scalar:
        return curve if self.threshold is None else sc.where(scaled > number(self.threshold, 0.0), beyond, curve)


@irdl_op_definition
class SoftplusOp(Softened, FloatUnary):
    """log(1 + exp(beta * x)) / beta as max(x, 0) + log1p(exp(-|z|)) / beta with z = beta * x, which does not overflow.

    `beta` (1.0) must not be 0; with min instead of max where it is negative. Where z is above `threshold`, if there is
    one, the result is x: torch's default is 20.0, which changes float64 results by 2e-9. Without one there is no jump.
    """

    name = "graph.softplus"

    def scalar(self, x: Scalar) -> Scalar:
        z, beta = self._scaled(x), number(self.beta, 1.0)
        bend = sc.log1p(sc.exp(-abs(z)))
        line = sc.maximum(x, 0) if beta > 0 else sc.minimum(x, 0)
        return self._within(z, line + (bend if z is x else bend / beta), x)


@irdl_op_definition
class SoftplusBackwardOp(Softened, FloatBinary):
    """gradient * sigmoid(beta * x), operands (gradient, x); the gradient itself where beta * x is above `threshold`.

    `beta` (1.0) and `threshold` (none) are those of `softplus`.
    """

    name = "graph.softplus_backward"

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        z = self._scaled(x)
        return self._within(z, gradient * _sigmoid(z), gradient)


@irdl_op_definition
class SoftsignOp(FloatUnary):
    """x / (1 + |x|); NaN for an infinite x, as in torch."""

    name = "graph.softsign"
    ULPS: ClassVar[float | None] = 2

    def scalar(self, x: Scalar) -> Scalar:
        return x / (1.0 + abs(x))


@irdl_op_definition
class SiluOp(FloatUnary):
    """x * sigmoid(x) (Elfwing et al. 2017), accurate for large negative x too; NaN for -inf, as in torch."""

    name = "graph.silu"
    ULPS: ClassVar[float | None] = 7
    SLACK: ClassVar[float] = _UNDERFLOW

    def scalar(self, x: Scalar) -> Scalar:
        return x * _sigmoid(x)


@irdl_op_definition
class SiluBackwardOp(FloatBinary):
    """gradient * s * (1 + x * (1 - s)) with s = sigmoid(x), operands (gradient, x); NaN for an infinite x, as in torch."""

    name = "graph.silu_backward"
    SLACK: ClassVar[float] = 8

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        return gradient * (_sigmoid(x) * (1.0 + x * _sigmoid(-x)))


@irdl_op_definition
class MishOp(FloatUnary):
    """x * tanh(softplus(x)) (Misra 2019); NaN for -inf, as in torch.

    Computed with one exponential: tanh(log(1 + e)) = n / (n + 2) with n = e * (e + 2), divided by e * e where e = exp(x) > 1.
    """

    name = "graph.mish"
    ULPS: ClassVar[float | None] = 11
    SLACK: ClassVar[float] = _UNDERFLOW

    def scalar(self, x: Scalar) -> Scalar:
        small = sc.exp(-abs(x))
        part = sc.where(x < 0, small * (small + 2.0), 1.0 + 2.0 * small)
        rest = sc.where(x < 0, 2.0, 2.0 * small * small)
        return x * (part / (part + rest))


class Gaussian(Elementwise):
    """What gelu and its backward form share: `approximate`."""

    approximate = opt_prop_def(StringAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if self.approximate is not None and self.approximate.data not in ("none", "tanh"):
            raise VerifyException(f'attribute \'approximate\': expected "none" or "tanh", got {self.approximate}')
        return super().infer_types()

    def _by_tanh(self) -> bool:
        return self.approximate is not None and self.approximate.data == "tanh"


@irdl_op_definition
class GeluOp(Gaussian, FloatUnary):
    """Gaussian error linear unit x * Phi(x), 0.5 * x * (1 + erf(x / sqrt(2))) (Hendrycks & Gimpel 2016).

    With `approximate` = "tanh" instead of "none", the default, it is 0.5 * x * (1 + tanh(w)), as x * sigmoid(2 * w), with
    w = sqrt(2 / pi) * (x + 0.044715 * x**3). NaN for -inf, as in torch.
    """

    name = "graph.gelu"
    SLACK: ClassVar[float] = 6

    def scalar(self, x: Scalar) -> Scalar:
        if self._by_tanh():
            return x * _sigmoid(_TWICE_ROOT * (x + 0.044715 * x * x * x))
        return 0.5 * x * (1.0 + sc.erf(x * sqrt(0.5)))


@irdl_op_definition
class GeluBackwardOp(Gaussian, FloatBinary):
    """gradient * (Phi(x) + x * exp(-x * x / 2) / sqrt(2 * pi)), operands (gradient, x).

    `approximate` as of `gelu`: with "tanh" the derivative of that formula. Infinite x give the limits, 0 and the gradient.
    """

    name = "graph.gelu_backward"
    SLACK: ClassVar[float] = 8

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        x = sc.minimum(sc.maximum(x, -50.0), 50.0)  # where all is 0 or 1, and nothing overflows
        if not self._by_tanh():
            density = sc.exp(-0.5 * (x * x)) * sqrt(0.5 / pi)
            return gradient * (0.5 * (1.0 + sc.erf(x * sqrt(0.5))) + x * density)
        square = x * x
        wave = _TWICE_ROOT * (x + 0.044715 * square * x)
        slope = _TWICE_ROOT * (1.0 + 3 * 0.044715 * square)
        return gradient * (_sigmoid(wave) * (1.0 + x * _sigmoid(-wave) * slope))
