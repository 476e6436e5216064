"""Losses of scores for classes against the number of the right class, with their backward forms."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import axis_of
from fuse_opt.dialects.graph.creation.constant import number_constant, number_of, scalar_constant
from fuse_opt.dialects.graph.creation.filled import FullOp, IotaOp
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AddOp,
    DivideOp,
    MultiplyOp,
    NegativeOp,
    ReciprocalOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp, GreaterEqualOp, LessOp, LogicalAndOp, NotEqualOp
from fuse_opt.dialects.graph.losses.regression import Loss
from fuse_opt.dialects.graph.movement.read_at import ReadAtOp
from fuse_opt.dialects.graph.movement.views import ExpandDimsOp, ReshapeOp
from fuse_opt.dialects.graph.nn.softmax_layer_norm import log_softmax_of
from fuse_opt.dialects.graph.reductions.composite import (
    check_shape,
    narrowed,
    number,
    on_axis,
    share_of,
    softmax_of,
    total_of,
    widened,
)
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import extents_array, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, shape_text, tensor
from fuse_opt.dialects.types.dtypes import I32, I64
from fuse_opt.dialects.types.size import Size


class ClassLoss(Loss):
    """Losses of the rows along `axis` of scores, each against its class; classes may have weights."""

    axis = opt_prop_def(IntegerAttr)
    ignore_index = opt_prop_def(IntegerAttr)

    def class_axis(self, x: SSAValue) -> int:
        rank = len(shape(x))
        return axis_of(self.axis, rank, min(1, rank - 1))

    def check_operands(self, x: SSAValue, targets: SSAValue, weight: Sequence[SSAValue]) -> tuple[int, ...]:
        """The shape of the losses; raises VerifyException when the operands do not go together."""
        extents, axis = shape(x), self.class_axis(x)
        self.check_floats([x, *weight], list(self._operands).index(x))
        if dtype(targets) not in (I32, I64):
            raise VerifyException(f"operand 'targets': expected classes of i32 or i64, got '{targets.type}'")
        number_of("ignore_index", self.ignore_index, dtype(targets))
        losses = extents[:axis] + extents[axis + 1 :]
        check_shape("targets", targets, losses)
        if extents[axis] == 0:
            raise VerifyException(f"axis {axis} of {shape_text(extents)}: expected at least one class")
        if len(weight) > 1:
            raise VerifyException(f"expected at most the operand weight behind targets, got {len(weight)}")
        for value in weight:
            check_shape("weight", value, (extents[axis],))
        return losses

    def smoothing(self) -> float:
        """How much of a target is spread over all classes."""
        return 0.0

    def log_probabilities(self, builder: GraphBuilder, x: SSAValue) -> SSAValue:
        """Those that the scores stand for."""
        return x

    def hits(self, builder: GraphBuilder, x: SSAValue, targets: SSAValue) -> SSAValue:
        """Whether a score is that of its row's class."""
        extents, axis = shape(x), self.class_axis(x)
        along = int_array([n if k == axis else 1 for k, n in enumerate(extents)])
        classes = builder(IotaOp, shape=along, axis=int_value(axis), dtype=dtype(targets).attribute)
        return builder(EqualOp, classes, builder(ExpandDimsOp, targets, axis=int_value(axis)))

    def of_class(self, builder: GraphBuilder, x: SSAValue, targets: SSAValue, values: SSAValue) -> SSAValue:
        """Of values along the scores' axis that of each row's class; 0 where the target names no class."""
        axis, none = self.class_axis(x), number_constant(builder, 0, targets)
        place = builder(ExpandDimsOp, targets, axis=int_value(axis))
        found = builder(ReadAtOp, values, place, axis=int_value(axis))
        found = builder(ReshapeOp, found, shape=extents_array(shape(targets)))
        count = number_constant(builder, shape(x)[axis], targets)
        known = builder(LogicalAndOp, builder(GreaterEqualOp, targets, none), builder(LessOp, targets, count))
        return builder(WhereOp, known, found, scalar_constant(builder, 0.0, values))

    def of_counted(self, builder: GraphBuilder, targets: SSAValue, value: SSAValue) -> SSAValue:
        """The value where a target is not the class to ignore, else 0."""
        if self.ignore_index is None:
            return value
        ignored = builder(FullOp, shape=int_array([]), dtype=dtype(targets).attribute, value=self.ignore_index)
        counts = builder(NotEqualOp, targets, ignored)
        return builder(WhereOp, counts, value, scalar_constant(builder, 0.0, value))

    def mean_divisor(
        self, builder: GraphBuilder, x: SSAValue, targets: SSAValue, weight: Sequence[SSAValue]
    ) -> SSAValue | None:
        """What the sum of losses is divided by: the sum of weights of the rows' classes. None for no division."""
        if self.way() != "mean":
            return None
        if not weight and self.ignore_index is None:
            divisor = self.divisor(shape(targets))
            if isinstance(divisor, Size):
                return builder(ReciprocalOp, share_of(builder, 1.0, divisor, x))
            return scalar_constant(builder, divisor, x)
        rows = scalar_constant(builder, 1.0, x)
        if weight:
            extents = [n if k == self.class_axis(x) else 1 for k, n in enumerate(shape(x))]
            along = builder(ReshapeOp, weight[0], shape=extents_array(extents))
            rows = self.of_class(builder, x, targets, along)
        return total_of(builder, self.of_counted(builder, targets, rows), range(len(shape(targets))))


class Forward(ClassLoss):
    x = operand_def(TensorType)
    targets = operand_def(TensorType)
    weight = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (self.loss_type(self.check_operands(self.x, self.targets, self.weight)),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, weight = widened(builder, self.x), [widened(builder, value) for value in self.weight]
        axis = self.class_axis(x)
        values = self.log_probabilities(builder, x)
        if weight:
            values = builder(MultiplyOp, values, on_axis(builder, weight[0], axis, len(shape(x))))
        hit = self.of_class(builder, x, self.targets, values)
        losses = self.of_counted(builder, self.targets, self._smoothed(builder, hit, values, axis))
        if self.way() != "none":
            losses = total_of(builder, losses, range(len(shape(losses))))
        if (divisor := self.mean_divisor(builder, x, self.targets, weight)) is not None:
            losses = builder(DivideOp, losses, divisor)
        return (narrowed(builder, losses, self.x),)

    def _smoothed(self, builder: GraphBuilder, hit: SSAValue, values: SSAValue, axis: int) -> SSAValue:
        """The rows' losses: of their classes' values, and of the mean of all values for the part that is spread."""
        if not (smoothing := self.smoothing()):
            return builder(NegativeOp, hit)
        spread = share_of(builder, smoothing, shape(values)[axis], hit)
        all_ = builder(MultiplyOp, spread, total_of(builder, values, [axis]))
        return builder(
            NegativeOp, builder(AddOp, builder(MultiplyOp, scalar_constant(builder, 1 - smoothing, hit), hit), all_)
        )


class Backward(ClassLoss):
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    targets = operand_def(TensorType)
    weight = var_operand_def(TensorType)
    dx = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_gradient(self.check_operands(self.x, self.targets, self.weight))
        self.check_floats([self.grad])
        return (tensor(self.x),)

    def score_gradient(self, builder: GraphBuilder, x: SSAValue) -> SSAValue:
        """The gradient of the log-probabilities: minus each one's share in the loss of its row."""
        weight = [widened(builder, value) for value in self.weight]
        axis, hits = self.class_axis(x), self.hits(builder, x, self.targets)
        full, smoothing = 1 - self.smoothing(), self.smoothing()
        spread = smoothing / shape(x)[axis] if smoothing else 0.0
        part, none = scalar_constant(builder, -full - spread, x), scalar_constant(builder, -spread, x)
        shares = builder(WhereOp, hits, part, none)
        if weight:
            shares = builder(MultiplyOp, shares, on_axis(builder, weight[0], axis, len(shape(x))))
        grad = widened(builder, self.grad)
        if (divisor := self.mean_divisor(builder, x, self.targets, weight)) is not None:
            grad = builder(DivideOp, grad, divisor)
        grad = self.of_counted(builder, self.targets, grad)
        if shape(grad):
            grad = builder(ExpandDimsOp, grad, axis=int_value(axis))
        return builder(MultiplyOp, shares, grad)


@irdl_op_definition
class NllLossOp(Forward):
    """Negative log-likelihood, -x[target] * weight[target], of log-probabilities `x` along `axis` (1, of a vector 0).

    Operands are x, `targets` (numbers of classes, i32 or i64, of the shape of x without the axis) and, which may be left
    out, `weight`, one for each class. Targets equal to `ignore_index` (none when absent) and targets that name no class
    give 0. `reduction` is "mean" (default; over the sum of the targets' weights, NaN when that is 0 or nothing counts),
    "sum" or "none".
    """

    name = "graph.nll_loss"


@irdl_op_definition
class NllLossBackwardOp(Backward):
    """The gradient of nll_loss's x, from `grad` and nll_loss's operands: -weight * grad at the targets, 0 elsewhere."""

    name = "graph.nll_loss_backward"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        return (narrowed(builder, self.score_gradient(builder, widened(builder, self.x)), self.x),)


class CrossEntropy(ClassLoss):
    label_smoothing = opt_prop_def(FloatAttr)

    def smoothing(self) -> float:
        return number(self.label_smoothing, 0.0)

    def log_probabilities(self, builder: GraphBuilder, x: SSAValue) -> SSAValue:
        return log_softmax_of(builder, x, self.class_axis(x))

    def infer_types(self) -> Sequence[AnyTensor]:
        if not 0 <= self.smoothing() <= 1:
            raise VerifyException(f"attribute 'label_smoothing': expected 0 to 1, got {self.smoothing()}")
        return super().infer_types()


@irdl_op_definition
class CrossEntropyOp(CrossEntropy, Forward):
    """nll_loss of log_softmax(x), of scores `x` along `axis` (1, of a vector 0); attributes and operands are nll_loss's.

    `label_smoothing` (0) is the part of each target that is spread evenly over all classes (Szegedy et al. 2016).
    """

    name = "graph.cross_entropy"


@irdl_op_definition
class CrossEntropyBackwardOp(CrossEntropy, Backward):
    """The gradient of cross_entropy's x, from `grad` and cross_entropy's operands.

    Without weights or smoothing it is grad * (softmax(x) - 1 at the target), over the number of targets for a mean.
    """

    name = "graph.cross_entropy_backward"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x = widened(builder, self.x)
        gradient = self.score_gradient(builder, x)
        total = total_of(builder, gradient, [self.class_axis(x)], True)
        probabilities = softmax_of(builder, x, self.class_axis(x))
        dx = builder(SubtractOp, gradient, builder(MultiplyOp, probabilities, total))
        return (narrowed(builder, dx, self.x),)
