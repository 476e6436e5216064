"""Composite records: defined by decomposition into primitive ops, so that one definition serves every backend."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, FloatAttr, IntegerAttr, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from .graph_constant import scalar_constant
from .graph_elementwise import (
    AddOp,
    AstypeOp,
    DivideOp,
    ExpOp,
    MultiplyOp,
    RsqrtOp,
    SquareOp,
    SubtractOp,
)
from .graph_op import (
    AnyTensor,
    CompositeOp,
    GraphBuilder,
    agree,
    bool_value,
    dtype,
    flag,
    int_array,
    ints,
    normalize_axes,
    normalize_axis,
    shape,
    shape_text,
    tensor,
)
from .graph_reductions import MaxOp, SumOp
from .graph_views import ReshapeOp


def _mean(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool) -> SSAValue:
    total = builder(SumOp, x, axes=int_array(axes), keepdims=bool_value(keepdims))
    count = prod(shape(x)[axis] for axis in axes)
    return builder(MultiplyOp, total, scalar_constant(builder, 1.0 / count if count else float("nan"), x))


def _widened(builder: GraphBuilder, x: SSAValue) -> SSAValue:
    """The value in the type it is computed in: a sum of halves may pass their largest number though its mean does not."""
    given = dtype(x)
    return x if given.compute is given else builder(AstypeOp, x, dtype=given.compute.attribute)


def _narrowed(builder: GraphBuilder, value: SSAValue, like: SSAValue) -> SSAValue:
    return value if dtype(value) is dtype(like) else builder(AstypeOp, value, dtype=dtype(like).attribute)


def _variance(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool) -> SSAValue:
    """The mean of squared distances from the mean: two passes, exact where one pass would cancel."""
    centred = builder(SubtractOp, x, _mean(builder, x, axes, True))
    return _mean(builder, builder(SquareOp, centred), axes, keepdims)


class FloatComposite(CompositeOp):
    """Shape and element type are those of the first operand, which must be of floats."""

    def infer_types(self) -> Sequence[AnyTensor]:
        x = self._operands[0]
        for number, value in enumerate(self._operands):
            if not dtype(value).is_float or dtype(value) is not dtype(x):
                raise VerifyException(f"operand {number}: expected floats of one type, got '{value.type}'")
        return (tensor(x),)


class Moment(FloatComposite):
    """A mean or variance over `axes` (all when absent)."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])
    keepdims = opt_prop_def(BoolAttr)

    def reduced_axes(self) -> tuple[int, ...]:
        rank = len(shape(self.x))
        return normalize_axes(ints(self.axes, range(rank)), rank)

    def infer_types(self) -> Sequence[AnyTensor]:
        (full,) = super().infer_types()
        axes, keep = self.reduced_axes(), flag(self.keepdims)
        extents = [1 if a in axes else n for a, n in enumerate(full.get_shape()) if keep or a not in axes]
        return (TensorType(full.element_type, extents),)


@irdl_op_definition
class MeanOp(Moment):
    """Arithmetic mean."""

    name = "graph.mean"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        mean = _mean(builder, _widened(builder, self.x), self.reduced_axes(), flag(self.keepdims))
        return (_narrowed(builder, mean, self.x),)


@irdl_op_definition
class VarOp(Moment):
    """Population variance (divided by the count)."""

    name = "graph.var"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        variance = _variance(builder, _widened(builder, self.x), self.reduced_axes(), flag(self.keepdims))
        return (_narrowed(builder, variance, self.x),)


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
        x = _widened(builder, self.x)
        weights = builder(ExpOp, builder(SubtractOp, x, builder(MaxOp, x, axes=axes, keepdims=keep)))
        result = builder(DivideOp, weights, builder(SumOp, weights, axes=axes, keepdims=keep))
        return (_narrowed(builder, result, self.x),)


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
        x, scale, bias = (_widened(builder, value) for value in (self.x, self.scale, self.bias))
        centred = builder(SubtractOp, x, _mean(builder, x, axes, True))
        variance = _mean(builder, builder(SquareOp, centred), axes, True)
        epsilon = scalar_constant(builder, 1e-5 if self.epsilon is None else self.epsilon.value.data, x)
        normal = builder(MultiplyOp, centred, builder(RsqrtOp, builder(AddOp, variance, epsilon)))
        result = builder(AddOp, builder(MultiplyOp, normal, scale), bias)
        return (_narrowed(builder, result, self.x),)


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
