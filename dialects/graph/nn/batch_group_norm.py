"""Normalisation by channel: batch normalisation in training, group and instance normalisation, with backward forms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import axis_of
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp, SquareOp, SubtractOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    check_parameters,
    check_shape,
    inverse_root,
    mean_of,
    narrowed,
    number,
    on_axis,
    scaled,
    standardized,
    standardized_gradient,
    total_of,
    widened,
)
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import extents_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, extents_of, shape, shape_text, tensor, tensor_type


class ByChannel(FloatComposite):
    """Channels on `axis` (1); statistics are over all other axes, with `epsilon` (1e-5)."""

    axis = opt_prop_def(IntegerAttr)
    epsilon = opt_prop_def(FloatAttr)

    def split_axes(self, x: SSAValue) -> tuple[int, list[int]]:
        """The channels' axis, and the others."""
        rank = len(shape(x))
        axis = axis_of(self.axis, rank, 1)
        return axis, [other for other in range(rank) if other != axis]

    def channel_type(self, x: SSAValue) -> AnyTensor:
        """The type of what there is one of for each channel."""
        return tensor_type(tensor(x).element_type, [shape(x)[self.split_axes(x)[0]]])


@irdl_op_definition
class BatchNormTrainingOp(ByChannel):
    """Batch normalisation with the batch's own statistics (Ioffe & Szegedy 2015): gives (y, mean, variance).

    y is (x - mean) / sqrt(variance + epsilon) * scale + bias for each channel on `axis` (1); the variance is the
    population's (divided by the count), `epsilon` is 1e-5 when absent. Statistics of no elements are NaN.
    """

    name = "graph.batch_norm_training"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    y = result_def(TensorType)
    mean = result_def(TensorType)
    variance = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        channels = self.channel_type(self.x)
        check_shape("scale", self.scale, extents_of(channels))
        check_shape("bias", self.bias, extents_of(channels))
        return (*super().infer_types(), channels, channels)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, scale, bias = (widened(builder, value) for value in self._operands)
        axis, others = self.split_axes(x)
        rank, extents = len(shape(x)), extents_array(shape(self.scale))
        mean = mean_of(builder, x, others, True)
        centred = builder(SubtractOp, x, mean)
        variance = mean_of(builder, builder(SquareOp, centred), others, True)
        factor = inverse_root(builder, variance, number(self.epsilon, 1e-5))
        factor = builder(MultiplyOp, factor, on_axis(builder, scale, axis, rank))
        y = builder(AddOp, builder(MultiplyOp, centred, factor), on_axis(builder, bias, axis, rank))
        flat = (builder(ReshapeOp, value, shape=extents) for value in (mean, variance))
        return [narrowed(builder, value, self.x) for value in (y, *flat)]


@irdl_op_definition
class BatchNormBackwardOp(ByChannel):
    """The gradients (dx, dscale, dbias) of batch normalisation, from `grad`, `x`, `scale`, `mean` and `variance`.

    With r = 1 / sqrt(variance + epsilon) and n = (x - mean) * r, dbias is the sum of grad and dscale that of grad * n
    over all axes but the channels'; dx is scale * r * (grad - dbias / count - n * dscale / count). With `training`
    false (default true) the statistics are constants, as in batch_norm, and dx is scale * r * grad.
    """

    name = "graph.batch_norm_backward"
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    dx = result_def(TensorType)
    dscale = result_def(TensorType)
    dbias = result_def(TensorType)
    training = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        channels = self.channel_type(self.x)
        check_shape("grad", self.grad, shape(self.x))
        for name, value in (("scale", self.scale), ("mean", self.mean), ("variance", self.variance)):
            check_shape(name, value, extents_of(channels))
        super().infer_types()
        return (tensor(self.x), channels, channels)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        grad, x, *rest = (widened(builder, value) for value in self._operands)
        axis, others = self.split_axes(x)
        scale, mean, variance = (on_axis(builder, value, axis, len(shape(x))) for value in rest)
        factor = inverse_root(builder, variance, number(self.epsilon, 1e-5))
        normal = builder(MultiplyOp, builder(SubtractOp, x, mean), factor)
        along = builder(MultiplyOp, grad, normal)
        slope = builder(MultiplyOp, scale, factor)
        if self.training is None or self.training.value.data:
            dx = standardized_gradient(builder, grad, normal, slope, others)
        else:
            dx = builder(MultiplyOp, slope, grad)
        sums = (total_of(builder, along, others), total_of(builder, grad, others))
        return [narrowed(builder, value, self.x) for value in (dx, *sums)]


class ByGroup(FloatComposite):
    """x [N, C, ...] whose channels are taken in groups; statistics are of a batch element's group, `epsilon` is 1e-5."""

    epsilon = opt_prop_def(FloatAttr)

    def check_groups(self, x: SSAValue, groups: int) -> None:
        """Raises VerifyException unless the channels divide into so many groups."""
        extents = shape(x)
        if len(extents) < 2:
            raise VerifyException(f"expected x [N, C, ...] of rank 2 or more, got {shape_text(extents)}")
        if groups < 1 or (extents[1] != DYNAMIC_INDEX and extents[1] % groups):
            raise VerifyException(
                f"attribute 'num_groups': expected a positive divisor of the {extents[1]} channels, got {groups}"
            )


def _grouped(builder: GraphBuilder, x: SSAValue, groups: int) -> SSAValue:
    """[N, C, ...] as [N, groups, C / groups, all else]; [C] as [1, groups, C / groups, 1]."""
    extents = shape(x)
    batch, channels, inner = (1, extents[0], 1) if len(extents) == 1 else (*extents[:2], prod(extents[2:]))
    return builder(ReshapeOp, x, shape=extents_array([batch, groups, channels // groups, inner]))


@irdl_op_definition
class GroupNormOp(ByGroup):
    """Group normalisation (Wu & He 2018), (x - mean) / sqrt(variance + epsilon) * scale + bias.

    Operands are x [N, C, ...], then `scale` and `bias` [C], of which the last or both may be left out. Each batch element
    has statistics for each of `num_groups` groups of consecutive channels; `epsilon` is 1e-5 when absent.
    """

    name = "graph.group_norm"
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    result = result_def(TensorType)
    num_groups = prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_groups(self.x, self.num_groups.value.data)
        check_parameters(self.x, shape(self.x)[1:2], self.parameters, ("scale", "bias"))
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        groups = self.num_groups.value.data
        x, *parameters = (_grouped(builder, widened(builder, value), groups) for value in self._operands)
        result, _ = standardized(builder, x, [2, 3], number(self.epsilon, 1e-5))
        result = narrowed(builder, scaled(builder, result, parameters), self.x)
        result = builder(ReshapeOp, result, shape=extents_array(shape(self.x)))
        return (result,)


@irdl_op_definition
class GroupNormBackwardOp(ByGroup):
    """The gradients (dx, dscale, dbias) of group_norm, from `grad`, `x` and, where there was one, `scale`.

    As layer_norm_backward, with statistics of each group of `num_groups`; dscale and dbias are sums over the batch and
    all axes behind the channels. With as many groups as channels these are the gradients of instance_norm.
    """

    name = "graph.group_norm_backward"
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    dx = result_def(TensorType)
    dscale = result_def(TensorType)
    dbias = result_def(TensorType)
    num_groups = prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_groups(self.x, self.num_groups.value.data)
        check_shape("grad", self.grad, shape(self.x))
        parameter = check_parameters(self.x, shape(self.x)[1:2], self.parameters, ("scale",))
        super().infer_types()
        return (tensor(self.x), parameter, parameter)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        groups = self.num_groups.value.data
        grad, x, *scale = (_grouped(builder, widened(builder, value), groups) for value in self._operands)
        normal, factor = standardized(builder, x, [2, 3], number(self.epsilon, 1e-5))
        dx = standardized_gradient(builder, scaled(builder, grad, scale), normal, factor, [2, 3])
        dscale = total_of(builder, builder(MultiplyOp, grad, normal), [0, 3])
        found = (
            (dx, shape(self.x)),
            (dscale, shape(self.x)[1:2]),
            (total_of(builder, grad, [0, 3]), shape(self.x)[1:2]),
        )
        return [
            builder(ReshapeOp, narrowed(builder, value, self.x), shape=extents_array(extents))
            for value, extents in found
        ]


@irdl_op_definition
class InstanceNormOp(ByGroup):
    """Instance normalisation (Ulyanov et al. 2016): group_norm with a group for each channel.

    Operands are x [N, C, ...], then `scale` and `bias` [C], of which the last or both may be left out; `epsilon` is 1e-5
    when absent.
    """

    name = "graph.instance_norm"
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_groups(self.x, 1)
        check_parameters(self.x, shape(self.x)[1:2], self.parameters, ("scale", "bias"))
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        if 0 in shape(self.x):
            return (self.x,)
        properties: dict[str, Attribute] = {"num_groups": int_value(shape(self.x)[1])}
        if self.epsilon is not None:
            properties["epsilon"] = self.epsilon
        return (builder(GroupNormOp, *self._operands, **properties),)
