"""Softmax, layer and batch normalisation, with backward forms.

A backward form takes the gradient of the result first, and computes again from the operands what it needs of the
forward form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, var_operand_def

from fuse_opt.dialects.graph.bases.movement import AxisOp, axis_of
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp, SubtractOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp, LogOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    check_parameters,
    check_shape,
    inverse_root,
    narrowed,
    number,
    scaled,
    softmax_of,
    standardized,
    standardized_gradient,
    total_of,
    widened,
)
from fuse_opt.dialects.graph.reductions.reductions import MaxOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, tensor


class AlongAxis(AxisOp, FloatComposite):
    """Each row along `axis` (-1) by itself; an empty tensor gives an empty one."""

    DEFAULT_AXIS: ClassVar[int] = -1

    def infer_types(self) -> Sequence[AnyTensor]:
        self.checked_axis()
        for value in self._operands[1:]:
            check_shape("y", value, shape(self._operands[0]))
        return super().infer_types()


@irdl_op_definition
class SoftmaxOp(AlongAxis):
    """exp(x - max) * (1 / sum(exp(x - max))) along `axis` (-1).

    A row has one reciprocal, not a division for each element: next to the errors of exp and the sum, up to 1.5 ULP where a
    division adds 0.5. Rows of equal numbers, and those of which one outweighs all others, are rounded once.
    A row that holds NaN or inf, or nothing but -inf, gives NaN.
    """

    name = "graph.softmax"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        if 0 in shape(self.x):
            return (self.x,)  # nothing to normalise, and no largest element
        result = softmax_of(builder, widened(builder, self.x), self.checked_axis())
        return (narrowed(builder, result, self.x),)


@irdl_op_definition
class LogSoftmaxOp(AlongAxis):
    """x - max - log(sum(exp(x - max))) along `axis` (-1): the logarithm of softmax, without its underflow.

    A row that holds NaN or inf, or nothing but -inf, gives NaN.
    """

    name = "graph.log_softmax"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        if 0 in shape(self.x):
            return (self.x,)
        return (narrowed(builder, log_softmax_of(builder, widened(builder, self.x), self.checked_axis()), self.x),)


def log_softmax_of(builder: GraphBuilder, x: SSAValue, axis: int) -> SSAValue:
    """The logarithm of softmax along an axis that is not empty."""
    shifted = builder(SubtractOp, x, builder(MaxOp, x, axes=int_array([axis]), keepdims=bool_value(True)))
    total = total_of(builder, builder(ExpOp, shifted), [axis], True)
    return builder(SubtractOp, shifted, builder(LogOp, total))


@irdl_op_definition
class SoftmaxBackwardOp(AlongAxis):
    """The gradient of softmax's operand, y * (grad - sum(grad * y)) along `axis` (-1); `y` is softmax's result."""

    name = "graph.softmax_backward"
    grad = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        grad, y = widened(builder, self.grad), widened(builder, self.y)
        return (narrowed(builder, softmax_gradient(builder, grad, y, self.checked_axis()), self.grad),)


def softmax_gradient(builder: GraphBuilder, grad: SSAValue, y: SSAValue, axis: int) -> SSAValue:
    """The gradient before softmax, of that behind it."""
    along = total_of(builder, builder(MultiplyOp, grad, y), [axis], True)
    return builder(MultiplyOp, y, builder(SubtractOp, grad, along))


@irdl_op_definition
class LogSoftmaxBackwardOp(AlongAxis):
    """The gradient of log_softmax's operand, grad - exp(y) * sum(grad) along `axis` (-1); `y` is log_softmax's result."""

    name = "graph.log_softmax_backward"
    grad = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        grad, y = widened(builder, self.grad), widened(builder, self.y)
        part = builder(MultiplyOp, builder(ExpOp, y), total_of(builder, grad, [self.checked_axis()], True))
        return (narrowed(builder, builder(SubtractOp, grad, part), self.grad),)


class LayerNorm(FloatComposite):
    """Over the axes from `axis` (-1) on, with `epsilon` (1e-5); parameters are of the extents of these axes."""

    axis = opt_prop_def(IntegerAttr)
    epsilon = opt_prop_def(FloatAttr)

    def normalized_axes(self, x: SSAValue) -> list[int]:
        rank = len(shape(x))
        return list(range(axis_of(self.axis, rank, -1), rank))

    def check_parameters(self, x: SSAValue, parameters: Sequence[SSAValue], names: Sequence[str]) -> AnyTensor:
        """The type of parameters; raises VerifyException when those given are not named or not of that shape."""
        return check_parameters(x, [shape(x)[axis] for axis in self.normalized_axes(x)], parameters, names)


@irdl_op_definition
class LayerNormOp(LayerNorm):
    """Layer normalisation (Ba et al. 2016), (x - mean) / sqrt(variance + epsilon) * scale + bias.

    Operands are x, then `scale` and `bias`, of which the last or both may be left out. Statistics are those of the axes
    from `axis` (-1) on, of which the parameters have the extents; `epsilon` is 1e-5 when absent.
    """

    name = "graph.layer_norm"
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_parameters(self.x, self.parameters, ("scale", "bias"))
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, *parameters = (widened(builder, value) for value in self._operands)
        result, _ = standardized(builder, x, self.normalized_axes(x), number(self.epsilon, 1e-5))
        return (narrowed(builder, scaled(builder, result, parameters), self.x),)


@irdl_op_definition
class LayerNormBackwardOp(LayerNorm):
    """The gradients (dx, dscale, dbias) of layer_norm, from `grad`, `x` and, where there was one, `scale`.

    With n = (x - mean) / sqrt(variance + epsilon) and g = grad * scale, dx is (g - mean(g) - n * mean(g * n)) /
    sqrt(variance + epsilon), dscale the sum of grad * n, and dbias that of grad, over the axes before `axis` (-1).
    """

    name = "graph.layer_norm_backward"
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    dx = result_def(TensorType)
    dscale = result_def(TensorType)
    dbias = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        check_shape("grad", self.grad, shape(self.x))
        parameter = self.check_parameters(self.x, self.parameters, ("scale",))
        super().infer_types()
        return (tensor(self.x), parameter, parameter)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        grad, x, *scale = (widened(builder, value) for value in self._operands)
        axes = self.normalized_axes(x)
        normal, factor = standardized(builder, x, axes, number(self.epsilon, 1e-5))
        dx = standardized_gradient(builder, scaled(builder, grad, scale), normal, factor, axes)
        dscale = total_of(builder, builder(MultiplyOp, grad, normal), range(axes[0]))
        dbias = total_of(builder, grad, range(axes[0]))
        return [narrowed(builder, value, self.x) for value in (dx, dscale, dbias)]


@irdl_op_definition
class BatchNormOp(AxisOp, FloatComposite):
    """Batch normalisation with given statistics (Ioffe & Szegedy 2015), channels on `axis` (1), `epsilon` (1e-5).

    (x - mean) / sqrt(variance + epsilon) * scale + bias, with one element of each operand behind x for each channel.
    """

    name = "graph.batch_norm"
    DEFAULT_AXIS: ClassVar[int] = 1
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    result = result_def(TensorType)
    epsilon = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        channels = shape(self.x)[self.checked_axis()]
        for name, value in zip(("scale", "bias", "mean", "variance"), self._operands[1:], strict=True):
            check_shape(name, value, (channels,))
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        # Statistics are joined per channel before they meet x: one multiplication and one addition an element.
        x, scale, bias, mean, variance = (widened(builder, value) for value in self._operands)
        factor = builder(MultiplyOp, scale, inverse_root(builder, variance, number(self.epsilon, 1e-5)))
        shift = builder(SubtractOp, bias, builder(MultiplyOp, mean, factor))
        extents = int_array([shape(x)[a] if a == self.checked_axis() else 1 for a in range(len(shape(x)))])
        wide = (builder(ReshapeOp, value, shape=extents) for value in (factor, shift))
        return (narrowed(builder, builder(AddOp, builder(MultiplyOp, x, next(wide)), next(wide)), self.x),)
