"""Losses of values against target values of the same shape, with their backward forms.

A backward form takes the gradient of the loss first, of the shape that the loss has, and the same attributes; it gives
the gradient of the first operand of the loss.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, FloatAttr, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AbsOp,
    DivideOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
    NegativeOp,
    SignOp,
    SquareOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import GreaterOp, LessOp
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    check_shape,
    choice,
    divided,
    narrowed,
    number,
    total_of,
    widened,
)
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, tensor, tensor_type
from fuse_opt.dialects.types.size import Size


class Loss(FloatComposite):
    """Losses that `reduction` joins: their "mean" (default), their "sum", or "none": all of them."""

    REDUCTIONS: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")
    reduction = opt_prop_def(StringAttr)

    def way(self) -> str:
        return choice("reduction", self.reduction, self.REDUCTIONS)

    def loss_type(self, losses: Sequence[int]) -> AnyTensor:
        """The type of the result where there are losses of this shape."""
        return tensor_type(tensor(self._operands[0]).element_type, losses if self.way() == "none" else [])

    def check_gradient(self, losses: Sequence[int]) -> None:
        """Raises VerifyException unless operand 0 is of the shape of the result where there are losses of this shape."""
        check_shape("grad", self._operands[0], losses if self.way() == "none" else [])

    def divisor(self, losses: Sequence[int]) -> float | Size:
        """What the sum of losses of this shape is divided by; NaN for a mean of none."""
        counts = {"mean": prod(losses), "batchmean": losses[0] if losses else 1}
        return counts.get(self.way(), 1) or float("nan")

    def error_bound(self) -> ErrorBound:
        """Sums in any order: an error for each element joined."""
        counts = [prod(n for n in shape(value) if n != DYNAMIC_INDEX) for value in self._operands]
        return ErrorBound(0.0, self.SLACK + (0 if self.way() == "none" else max(counts)))


class ValueLoss(Loss):
    """A loss of each element of `x` against that of `target`; a formula states losses and their slopes along x."""

    @abstractmethod
    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        """The loss of each element."""

    @abstractmethod
    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        """The derivative of each loss by its x."""


class Forward(ValueLoss):
    x = operand_def(TensorType)
    target = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        check_shape("target", self.target, shape(self.x))
        super().infer_types()
        return (self.loss_type(shape(self.x)),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        result = self.losses(builder, widened(builder, self.x), widened(builder, self.target))
        if self.way() != "none":
            extents = shape(self.x)
            result = total_of(builder, result, range(len(extents)))
            if (divisor := self.divisor(extents)) != 1:
                result = divided(builder, result, divisor)
        return (narrowed(builder, result, self.x),)


class Backward(ValueLoss):
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    target = operand_def(TensorType)
    dx = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        check_shape("target", self.target, shape(self.x))
        self.check_gradient(shape(self.x))
        super().infer_types()
        return (tensor(self.x),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        grad, x, target = (widened(builder, value) for value in self._operands)
        if (divisor := self.divisor(shape(x))) != 1:
            grad = divided(builder, grad, divisor)
        dx = builder(MultiplyOp, self.slopes(builder, x, target), grad)
        return (narrowed(builder, dx, self.x),)


class Mse(ValueLoss):
    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        return builder(SquareOp, builder(SubtractOp, x, target))

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        return builder(MultiplyOp, scalar_constant(builder, 2.0, x), builder(SubtractOp, x, target))


@irdl_op_definition
class MseLossOp(Forward, Mse):
    """Squared error (x - target)**2; `reduction` is "mean" (default, NaN of no elements), "sum" or "none"."""

    name = "graph.mse_loss"


@irdl_op_definition
class MseLossBackwardOp(Backward, Mse):
    """The gradient of mse_loss's x, 2 * (x - target) * grad, over the count where `reduction` is "mean" (default)."""

    name = "graph.mse_loss_backward"


class L1(ValueLoss):
    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        return builder(AbsOp, builder(SubtractOp, x, target))

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        return builder(SignOp, builder(SubtractOp, x, target))


@irdl_op_definition
class L1LossOp(Forward, L1):
    """Absolute error |x - target|; `reduction` is "mean" (default, NaN of no elements), "sum" or "none"."""

    name = "graph.l1_loss"


@irdl_op_definition
class L1LossBackwardOp(Backward, L1):
    """The gradient of l1_loss's x, sign(x - target) * grad, over the count where `reduction` is "mean" (default)."""

    name = "graph.l1_loss_backward"


class SmoothL1(ValueLoss):
    beta = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not (beta := number(self.beta, 1.0)) >= 0:
            raise VerifyException(f"attribute 'beta': expected a number >= 0, got {beta}")
        return super().infer_types()

    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        beta, half = scalar_constant(builder, number(self.beta, 1.0), x), scalar_constant(builder, 0.5, x)
        size = builder(AbsOp, builder(SubtractOp, x, target))
        near = builder(DivideOp, builder(MultiplyOp, half, builder(SquareOp, size)), beta)
        far = builder(SubtractOp, size, builder(MultiplyOp, half, beta))
        return builder(WhereOp, builder(LessOp, size, beta), near, far)

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        beta, distance = scalar_constant(builder, number(self.beta, 1.0), x), builder(SubtractOp, x, target)
        near = builder(LessOp, builder(AbsOp, distance), beta)
        return builder(WhereOp, near, builder(DivideOp, distance, beta), builder(SignOp, distance))


@irdl_op_definition
class SmoothL1LossOp(Forward, SmoothL1):
    """With d = x - target, d**2 / (2 * beta) where |d| < beta, else |d| - beta / 2 (Girshick 2015).

    `beta` is 1 when absent, and with 0 the loss is l1_loss; `reduction` is "mean" (default), "sum" or "none".
    """

    name = "graph.smooth_l1_loss"


@irdl_op_definition
class SmoothL1LossBackwardOp(Backward, SmoothL1):
    """The gradient of smooth_l1_loss's x: grad times (x - target) / beta within -1 and 1, over the count for a mean."""

    name = "graph.smooth_l1_loss_backward"


class Huber(ValueLoss):
    delta = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not (delta := number(self.delta, 1.0)) > 0:
            raise VerifyException(f"attribute 'delta': expected a number > 0, got {delta}")
        return super().infer_types()

    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        delta, half = scalar_constant(builder, number(self.delta, 1.0), x), scalar_constant(builder, 0.5, x)
        size = builder(AbsOp, builder(SubtractOp, x, target))
        near = builder(MultiplyOp, half, builder(SquareOp, size))
        far = builder(MultiplyOp, delta, builder(SubtractOp, size, builder(MultiplyOp, half, delta)))
        return builder(WhereOp, builder(GreaterOp, size, delta), far, near)

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        delta, distance = scalar_constant(builder, number(self.delta, 1.0), x), builder(SubtractOp, x, target)
        return builder(MaximumOp, builder(MinimumOp, distance, delta), builder(NegativeOp, delta))


@irdl_op_definition
class HuberLossOp(Forward, Huber):
    """With d = x - target, d**2 / 2 where |d| <= delta, else delta * (|d| - delta / 2) (Huber 1964).

    `delta` is 1 when absent; `reduction` is "mean" (default), "sum" or "none".
    """

    name = "graph.huber_loss"


@irdl_op_definition
class HuberLossBackwardOp(Backward, Huber):
    """The gradient of huber_loss's x: grad times x - target within -delta and delta, over the count for a mean."""

    name = "graph.huber_loss_backward"
