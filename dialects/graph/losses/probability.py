"""Losses of probabilities against target probabilities, with their backward forms."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def

from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AbsOp,
    AddOp,
    DivideOp,
    MaximumOp,
    MultiplyOp,
    NegativeOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp, Log1pOp, LogOp
from fuse_opt.dialects.graph.elementwise.smooth_activations import SigmoidOp
from fuse_opt.dialects.graph.losses.regression import Backward, Forward, ValueLoss
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import flag


class BinaryCrossEntropy(ValueLoss):
    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        one, least = scalar_constant(builder, 1.0, x), scalar_constant(builder, -100.0, x)
        hit = builder(MaximumOp, builder(LogOp, x), least)
        miss = builder(MaximumOp, builder(Log1pOp, builder(NegativeOp, x)), least)
        missed = builder(MultiplyOp, builder(SubtractOp, one, target), miss)
        return builder(NegativeOp, builder(AddOp, builder(MultiplyOp, target, hit), missed))

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        one, least = scalar_constant(builder, 1.0, x), scalar_constant(builder, 1e-12, x)
        divisor = builder(MaximumOp, builder(MultiplyOp, builder(SubtractOp, one, x), x), least)
        return builder(DivideOp, builder(SubtractOp, x, target), divisor)


@irdl_op_definition
class BinaryCrossEntropyOp(Forward, BinaryCrossEntropy):
    """-(target * log(x) + (1 - target) * log(1 - x)) of probabilities x; logarithms below -100 count as -100 (torch).

    `reduction` is "mean" (default), "sum" or "none". An x outside of 0 <= x <= 1 gives NaN.
    """

    name = "graph.binary_cross_entropy"


@irdl_op_definition
class BinaryCrossEntropyBackwardOp(Backward, BinaryCrossEntropy):
    """The gradient of binary_cross_entropy's x: grad * (x - target) / max(x * (1 - x), 1e-12), over the count for a mean."""

    name = "graph.binary_cross_entropy_backward"


class BinaryCrossEntropyWithLogits(ValueLoss):
    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        positive = builder(MaximumOp, x, scalar_constant(builder, 0.0, x))
        linear = builder(SubtractOp, positive, builder(MultiplyOp, x, target))
        rest = builder(Log1pOp, builder(ExpOp, builder(NegativeOp, builder(AbsOp, x))))
        return builder(AddOp, linear, rest)

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        return builder(SubtractOp, builder(SigmoidOp, x), target)


@irdl_op_definition
class BinaryCrossEntropyWithLogitsOp(Forward, BinaryCrossEntropyWithLogits):
    """max(x, 0) - x * target + log(1 + exp(-|x|)): binary cross entropy of sigmoid(x), without its overflow.

    `reduction` is "mean" (default), "sum" or "none".
    """

    name = "graph.binary_cross_entropy_with_logits"


@irdl_op_definition
class BinaryCrossEntropyWithLogitsBackwardOp(Backward, BinaryCrossEntropyWithLogits):
    """The gradient of binary_cross_entropy_with_logits's x: grad * (sigmoid(x) - target), over the count for a mean."""

    name = "graph.binary_cross_entropy_with_logits_backward"


class KlDiv(ValueLoss):
    REDUCTIONS: ClassVar[tuple[str, ...]] = ("mean", "batchmean", "sum", "none")
    log_target = opt_prop_def(BoolAttr)

    def losses(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        if flag(self.log_target):
            return builder(MultiplyOp, builder(ExpOp, target), builder(SubtractOp, target, x))
        zero = scalar_constant(builder, 0.0, x)
        certain = builder(EqualOp, target, zero)
        entropy = builder(MultiplyOp, target, builder(LogOp, target))
        return builder(SubtractOp, builder(WhereOp, certain, zero, entropy), builder(MultiplyOp, target, x))

    def slopes(self, builder: GraphBuilder, x: SSAValue, target: SSAValue) -> SSAValue:
        return builder(NegativeOp, builder(ExpOp, target) if flag(self.log_target) else target)


@irdl_op_definition
class KlDivOp(Forward, KlDiv):
    """Divergence target * (log(target) - x) of log-probabilities x (Kullback & Leibler 1951), -0 * x where target is 0.

    With `log_target` (default false) targets are log-probabilities, too. `reduction` is "mean" (default: over all
    elements), "batchmean" (the sum over the extent of axis 0), "sum" or "none".
    """

    name = "graph.kl_div"


@irdl_op_definition
class KlDivBackwardOp(Backward, KlDiv):
    """The gradient of kl_div's x: -target * grad, or -exp(target) * grad with `log_target`, over the count for a mean."""

    name = "graph.kl_div_backward"
