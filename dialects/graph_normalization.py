"""Normalisation layers and softmax, with their backward forms."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from .graph_arithmetic import AddOp, DivideOp, MultiplyOp, SquareOp, SubtractOp
from .graph_composites import FloatComposite, mean_of, narrowed, widened
from .graph_constant import scalar_constant
from .graph_math import ExpOp, RsqrtOp
from .graph_op import (
    AnyTensor,
    GraphBuilder,
    agree,
    bool_value,
    int_array,
    normalize_axis,
    shape,
    shape_text,
)
from .graph_reductions import MaxOp, SumOp
from .graph_views import ReshapeOp


@irdl_op_definition
class SoftmaxOp(FloatComposite):
    """exp(x - max) / sum(exp(x - max)) along `axis` (-1 when absent)."""

    name = "graph.softmax"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)

    def _axis(self) -> int:
        return normalize_axis(-1 if self.axis is None else self.axis.value.data, len(shape(self.x)))

    def infer_types(self) -> Sequence[AnyTensor]:
        self._axis()
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        if 0 in shape(self.x):
            return (self.x,)  # nothing to normalise, and no largest element
        axes, keep = int_array([self._axis()]), bool_value(True)
        x = widened(builder, self.x)
        weights = builder(ExpOp, builder(SubtractOp, x, builder(MaxOp, x, axes=axes, keepdims=keep)))
        result = builder(DivideOp, weights, builder(SumOp, weights, axes=axes, keepdims=keep))
        return (narrowed(builder, result, self.x),)


@irdl_op_definition
class LayerNormOp(FloatComposite):
    """Layer normalisation (Ba et al. 2016) over the axes from `axis` (-1) on, with `epsilon` (1e-5)."""

    name = "graph.layer_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    epsilon = opt_prop_def(FloatAttr)

    def _axes(self) -> range:
        rank = len(shape(self.x))
        return range(normalize_axis(-1 if self.axis is None else self.axis.value.data, rank), rank)

    def infer_types(self) -> Sequence[AnyTensor]:
        normalized = tuple(shape(self.x)[axis] for axis in self._axes())
        for name, value in (("scale", self.scale), ("bias", self.bias)):
            if not agree(shape(value), normalized):
                expected, given = shape_text(normalized), shape_text(shape(value))
                raise VerifyException(f"operand '{name}': expected shape {expected}, got {given}")
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axes = list(self._axes())
        x, scale, bias = (widened(builder, value) for value in (self.x, self.scale, self.bias))
        centred = builder(SubtractOp, x, mean_of(builder, x, axes, True))
        variance = mean_of(builder, builder(SquareOp, centred), axes, True)
        epsilon = scalar_constant(builder, 1e-5 if self.epsilon is None else self.epsilon.value.data, x)
        normal = builder(MultiplyOp, centred, builder(RsqrtOp, builder(AddOp, variance, epsilon)))
        result = builder(AddOp, builder(MultiplyOp, normal, scale), bias)
        return (narrowed(builder, result, self.x),)


@irdl_op_definition
class BatchNormOp(FloatComposite):
    """Batch normalisation with given statistics (Ioffe & Szegedy 2015), channels on `axis` (1), `epsilon` (1e-5)."""

    name = "graph.batch_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    epsilon = opt_prop_def(FloatAttr)

    def _axis(self) -> int:
        return normalize_axis(1 if self.axis is None else self.axis.value.data, len(shape(self.x)))

    def infer_types(self) -> Sequence[AnyTensor]:
        channels = shape(self.x)[self._axis()]
        for number, value in enumerate(self._operands[1:], start=1):
            if not agree(shape(value), (channels,)):
                expected, given = shape_text((channels,)), shape_text(shape(value))
                raise VerifyException(f"operand {number}: expected shape {expected}, got {given}")
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        # Statistics are joined per channel before they meet x: one multiplication and one addition an element.
        epsilon = scalar_constant(builder, 1e-5 if self.epsilon is None else self.epsilon.value.data, self.x)
        factor = builder(MultiplyOp, self.scale, builder(RsqrtOp, builder(AddOp, self.variance, epsilon)))
        shift = builder(SubtractOp, self.bias, builder(MultiplyOp, self.mean, factor))
        extents = int_array([shape(self.x)[a] if a == self._axis() else 1 for a in range(len(shape(self.x)))])
        wide = (builder(ReshapeOp, value, shape=extents) for value in (factor, shift))
        return (builder(AddOp, builder(MultiplyOp, self.x, next(wide)), next(wide)),)
