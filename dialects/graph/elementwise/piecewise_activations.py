"""Activation functions of pieces: rectifiers and the hard forms of smooth functions, with their backward forms.

Operands of backward forms are as for the smooth ones. NaN gives NaN unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr
from xdsl.irdl import irdl_op_definition, opt_prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Binary, Elementwise, FloatBinary, FloatUnary, Unary, number
from fuse_opt.dialects.interfaces.shapes import AnyTensor
from fuse_opt.dialects.scalar import Scalar

_UNDERFLOW = 1e-30
"""`SLACK` of what multiplies with an exponential that underflows: far below an epsilon."""


@irdl_op_definition
class ReluOp(Unary):
    """max(x, 0), of integers too; the zero that it gives for -0.0 may have either sign."""

    name = "graph.relu"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.maximum(x, 0)


@irdl_op_definition
class Relu6Op(Unary):
    """min(max(x, 0), 6), of integers too; the zero that it gives for -0.0 may have either sign."""

    name = "graph.relu6"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.minimum(sc.maximum(x, 0), 6)


@irdl_op_definition
class ThresholdedReluOp(FloatUnary):
    """x where x > `alpha` (1.0), else 0, where x is NaN too (ONNX)."""

    name = "graph.thresholded_relu"
    alpha = opt_prop_def(FloatAttr)

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(x > number(self.alpha, 1.0), x, 0.0)


@irdl_op_definition
class ThresholdBackwardOp(FloatBinary):
    """0 where x <= `threshold` (0.0), else the gradient, where x is NaN too; operands (gradient, x).

    With the default it is the backward form of relu, for which x may be the forward result as well.
    """

    name = "graph.threshold_backward"
    threshold = opt_prop_def(FloatAttr)

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        return sc.where(x <= number(self.threshold, 0.0), 0.0, gradient)


@irdl_op_definition
class LeakyReluOp(FloatUnary):
    """x where x >= 0, else `alpha` (0.01) * x."""

    name = "graph.leaky_relu"
    ULPS: ClassVar[float | None] = 2
    alpha = opt_prop_def(FloatAttr)

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(x < 0, number(self.alpha, 0.01) * x, x)


@irdl_op_definition
class LeakyReluBackwardOp(FloatBinary):
    """The gradient where x > 0, else, and where x is NaN, `alpha` (0.01) * gradient; operands (gradient, x).

    For alpha >= 0, x may be the forward result as well.
    """

    name = "graph.leaky_relu_backward"
    ULPS: ClassVar[float | None] = 2
    alpha = opt_prop_def(FloatAttr)

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        return sc.where(x > 0, gradient, number(self.alpha, 0.01) * gradient)


@irdl_op_definition
class PreluOp(Binary):
    """x where x >= 0, else slope * x (He et al. 2015), operands (x, slope), of integers too.

    The slope broadcasts as in NumPy and ONNX: one slope per channel of x [N, C, H, W] has the shape [C, 1, 1].
    """

    name = "graph.prelu"

    def scalar(self, x: Scalar, slope: Scalar) -> Scalar:
        return sc.where(x < 0, slope * x, x)


@irdl_op_definition
class EluOp(FloatUnary):
    """x where x > 0, else `alpha` (1.0) * expm1(x) (Clevert et al. 2015)."""

    name = "graph.elu"
    ULPS: ClassVar[float | None] = 8
    alpha = opt_prop_def(FloatAttr)

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(x > 0, x, number(self.alpha, 1.0) * sc.expm1(x))


@irdl_op_definition
class EluBackwardOp(FloatBinary):
    """The gradient where x > 0, or where x is NaN, else gradient * `alpha` (1.0) * exp(x); operands (gradient, x)."""

    name = "graph.elu_backward"
    ULPS: ClassVar[float | None] = 7
    SLACK: ClassVar[float] = _UNDERFLOW
    alpha = opt_prop_def(FloatAttr)

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        return sc.where(x <= 0, gradient * (number(self.alpha, 1.0) * sc.exp(x)), gradient)


@irdl_op_definition
class SeluOp(FloatUnary):
    """`gamma` * x where x > 0, else `gamma` * `alpha` * expm1(x) (Klambauer et al. 2017).

    `alpha` is 1.6732632423543772 and `gamma` 1.0507009873554805 when absent; ONNX rounds both to float32.
    """

    name = "graph.selu"
    ULPS: ClassVar[float | None] = 10
    alpha = opt_prop_def(FloatAttr)
    gamma = opt_prop_def(FloatAttr)

    def scalar(self, x: Scalar) -> Scalar:
        alpha, gamma = number(self.alpha, 1.6732632423543772848), number(self.gamma, 1.0507009873554804934)
        return gamma * sc.where(x > 0, x, alpha * sc.expm1(x))


@irdl_op_definition
class CeluOp(FloatUnary):
    """max(x, 0) + min(`alpha` * expm1(x / `alpha`), 0), with `alpha` (1.0) above 0 (Barron 2017)."""

    name = "graph.celu"
    ULPS: ClassVar[float | None] = 10
    alpha = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not number(self.alpha, 1.0) > 0.0:
            raise VerifyException(
                f"attribute 'alpha': expected a number above 0, got {number(self.alpha, 1.0)}; leave it out for 1.0"
            )
        return super().infer_types()

    def scalar(self, x: Scalar) -> Scalar:
        alpha = number(self.alpha, 1.0)
        return sc.where(x > 0, x, alpha * sc.expm1(x / alpha))


class HardSigmoid(Elementwise):
    """The line alpha * x + beta, and its parameters."""

    alpha = opt_prop_def(FloatAttr)
    beta = opt_prop_def(FloatAttr)

    def _line(self, x: Scalar) -> Scalar:
        return number(self.alpha, 0.2) * x + number(self.beta, 0.5)


@irdl_op_definition
class HardSigmoidOp(HardSigmoid, FloatUnary):
    """min(max(`alpha` * x + `beta`, 0), 1), with ONNX's defaults 0.2 and 0.5; torch's `alpha` is 1/6."""

    name = "graph.hard_sigmoid"
    SLACK: ClassVar[float] = 4

    def scalar(self, x: Scalar) -> Scalar:
        return sc.minimum(sc.maximum(self._line(x), 0), 1)


@irdl_op_definition
class HardSigmoidBackwardOp(HardSigmoid, FloatBinary):
    """gradient * `alpha` where `alpha` * x + `beta` is between 0 and 1, else, and where x is NaN, 0; operands (gradient, x).

    `alpha` (0.2) and `beta` (0.5) are those of `hard_sigmoid`; torch's `alpha` is 1/6.
    """

    name = "graph.hard_sigmoid_backward"
    ULPS: ClassVar[float | None] = 2

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        line = self._line(x)
        return sc.where((line > 0) & (line < 1), number(self.alpha, 0.2) * gradient, 0.0)


@irdl_op_definition
class HardSwishOp(FloatUnary):
    """x * (min(max(x + 3, 0), 6) / 6) (Howard et al. 2019); NaN for -inf, as in torch."""

    name = "graph.hard_swish"
    ULPS: ClassVar[float | None] = 3

    def scalar(self, x: Scalar) -> Scalar:
        return x * (sc.minimum(sc.maximum(x + 3.0, 0), 6) / 6.0)


@irdl_op_definition
class HardSwishBackwardOp(FloatBinary):
    """0 where x < -3, gradient * (x / 3 + 0.5) up to x = 3, else, and where x is NaN, the gradient; operands (gradient, x)."""

    name = "graph.hard_swish_backward"
    SLACK: ClassVar[float] = 2

    def scalar(self, gradient: Scalar, x: Scalar) -> Scalar:
        return sc.where(x < -3.0, 0.0, sc.where(x <= 3.0, gradient * (x / 3.0 + 0.5), gradient))


@irdl_op_definition
class HardTanhOp(FloatUnary):
    """min(max(x, `min`), `max`), with -1.0 and 1.0 for absent bounds."""

    name = "graph.hard_tanh"
    min = opt_prop_def(FloatAttr)
    max = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        low, high = number(self.min, -1.0), number(self.max, 1.0)
        if not low <= high:
            raise VerifyException(f"attributes 'min' and 'max': expected min <= max, got {low} and {high}; swap them")
        return super().infer_types()

    def scalar(self, x: Scalar) -> Scalar:
        return sc.minimum(sc.maximum(x, number(self.min, -1.0)), number(self.max, 1.0))


@irdl_op_definition
class ShrinkOp(FloatUnary):
    """x + `bias` where x < -`lambd`, x - `bias` where x > `lambd`, else 0 (ONNX), with `lambd` 0.5 and `bias` 0.0.

    Of numbers it is torch's softshrink with bias = lambd, hardshrink with bias = 0; a NaN becomes 0.
    """

    name = "graph.shrink"
    SLACK: ClassVar[float] = 2
    lambd = opt_prop_def(FloatAttr)
    bias = opt_prop_def(FloatAttr)

    def scalar(self, x: Scalar) -> Scalar:
        lambd, bias = number(self.lambd, 0.5), number(self.bias, 0.0)
        return sc.where(x < -lambd, x + bias, sc.where(x > lambd, x - bias, 0.0))
