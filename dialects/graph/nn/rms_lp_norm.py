"""Normalisation by magnitudes: root mean squares, norms of vectors, sums of squares of nearby channels."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import slice_properties
from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AbsOp,
    AddOp,
    DivideOp,
    MaximumOp,
    MultiplyOp,
    PowOp,
    SquareOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp
from fuse_opt.dialects.graph.elementwise.math import SqrtOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import SliceOp
from fuse_opt.dialects.graph.nn.softmax_layer_norm import AlongAxis, LayerNorm
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    check_shape,
    inverse_root,
    mean_of,
    narrowed,
    number,
    scaled,
    total_of,
    widened,
)
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, shape_text, tensor


@irdl_op_definition
class RmsNormOp(LayerNorm):
    """Root mean square normalisation (Zhang & Sennrich 2019), x / sqrt(mean(x**2) + epsilon) * scale.

    Operands are x and, which may be left out, `scale`. The mean is that of the axes from `axis` (-1) on, of which the
    scale has the extents; `epsilon` is 1e-5 when absent.
    """

    name = "graph.rms_norm"
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_parameters(self.x, self.parameters, ("scale",))
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, *scale = (widened(builder, value) for value in self._operands)
        factor = _inverse_rms(builder, x, self.normalized_axes(x), number(self.epsilon, 1e-5))
        result = scaled(builder, builder(MultiplyOp, x, factor), scale)
        return (narrowed(builder, result, self.x),)


@irdl_op_definition
class RmsNormBackwardOp(LayerNorm):
    """The gradients (dx, dscale) of rms_norm, from `grad`, `x` and, where there was one, `scale`.

    With r = 1 / sqrt(mean(x**2) + epsilon), n = x * r and g = grad * scale, dx is r * (g - n * mean(g * n)), and dscale
    the sum of grad * n over the axes before `axis` (-1).
    """

    name = "graph.rms_norm_backward"
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    parameters = var_operand_def(TensorType)
    dx = result_def(TensorType)
    dscale = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        check_shape("grad", self.grad, shape(self.x))
        parameter = self.check_parameters(self.x, self.parameters, ("scale",))
        super().infer_types()
        return (tensor(self.x), parameter)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        grad, x, *scale = (widened(builder, value) for value in self._operands)
        axes = self.normalized_axes(x)
        factor = _inverse_rms(builder, x, axes, number(self.epsilon, 1e-5))
        normal = builder(MultiplyOp, x, factor)
        inner = scaled(builder, grad, scale)
        along = mean_of(builder, builder(MultiplyOp, inner, normal), axes, True)
        dx = builder(MultiplyOp, factor, builder(SubtractOp, inner, builder(MultiplyOp, normal, along)))
        dscale = total_of(builder, builder(MultiplyOp, grad, normal), range(axes[0]))
        return [narrowed(builder, value, self.x) for value in (dx, dscale)]


def _inverse_rms(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], epsilon: float) -> SSAValue:
    return inverse_root(builder, mean_of(builder, builder(SquareOp, x), axes, True), epsilon)


@irdl_op_definition
class L2NormalizeOp(AlongAxis):
    """x / max(sqrt(sum(x**2)), epsilon) along `axis` (-1), with `epsilon` 1e-12 when absent (torch's normalize).

    Squares that overflow make the norm infinite and finite elements 0.
    """

    name = "graph.l2_normalize"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    epsilon = opt_prop_def(FloatAttr)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x = widened(builder, self.x)
        norm = builder(SqrtOp, total_of(builder, builder(SquareOp, x), [self.checked_axis()], True))
        least = scalar_constant(builder, number(self.epsilon, 1e-12), x)
        return (narrowed(builder, builder(DivideOp, x, builder(MaximumOp, norm, least)), self.x),)


@irdl_op_definition
class LpNormalizeOp(AlongAxis):
    """x over its norm along `axis` (-1), sum(|x|) for `p` 1 and sqrt(sum(x**2)) for 2 (default), as ONNX LpNormalization.

    Where the norm is 0, so is the result.
    """

    name = "graph.lp_normalize"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    p = opt_prop_def(IntegerAttr)

    def _order(self) -> int:
        return 2 if self.p is None else self.p.value.data

    def infer_types(self) -> Sequence[AnyTensor]:
        if self._order() not in (1, 2):
            raise VerifyException(f"attribute 'p': expected 1 or 2, got {self._order()}")
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, axes = widened(builder, self.x), [self.checked_axis()]
        if self._order() == 1:
            norm = total_of(builder, builder(AbsOp, x), axes, True)
        else:
            norm = builder(SqrtOp, total_of(builder, builder(SquareOp, x), axes, True))
        is_zero = builder(EqualOp, norm, scalar_constant(builder, 0.0, x))
        divisor = builder(WhereOp, is_zero, scalar_constant(builder, 1.0, x), norm)
        return (narrowed(builder, builder(DivideOp, x, divisor), self.x),)


@irdl_op_definition
class LocalResponseNormOp(FloatComposite):
    """x / (bias + alpha / size * s)**beta, s being the sum of squares over nearby channels (Krizhevsky et al. 2012).

    As ONNX LRN: channels are on axis 1, and `size` of them are summed, from (size - 1) // 2 before an element's own on;
    those outside count 0. Defaults: `alpha` 1e-4, `beta` 0.75, `bias` 1. The channels must be of static extent.
    """

    name = "graph.local_response_norm"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    size = prop_def(IntegerAttr)
    alpha = opt_prop_def(FloatAttr)
    beta = opt_prop_def(FloatAttr)
    bias = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        extents = shape(self.x)
        if len(extents) < 2 or extents[1] == DYNAMIC_INDEX:
            raise VerifyException(f"expected x [N, C, ...] with a static number of channels, got {shape_text(extents)}")
        if (size := self.size.value.data) < 1:
            raise VerifyException(f"attribute 'size': expected a positive integer, got {size}")
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, size = widened(builder, self.x), self.size.value.data
        scaled = builder(
            MultiplyOp,
            _window_total(builder, builder(SquareOp, x), size),
            scalar_constant(builder, number(self.alpha, 1e-4) / size, x),
        )
        base = builder(AddOp, scaled, scalar_constant(builder, number(self.bias, 1.0), x))
        divisor = builder(PowOp, base, scalar_constant(builder, number(self.beta, 0.75), x))
        return (narrowed(builder, builder(DivideOp, x, divisor), self.x),)


def _window_total(builder: GraphBuilder, x: SSAValue, size: int) -> SSAValue:
    """Sums over windows of axis 1, which are around the element and of so many elements."""
    extents = shape(x)
    before, channels = (size - 1) // 2, extents[1]
    pads = [0] * 2 * len(extents)
    pads[1], pads[len(extents) + 1] = before, size - 1 - before
    padded = builder(PadOp, x, pads=int_array(pads))
    total: SSAValue | None = None
    for start in range(size):
        if start + channels <= before or start >= before + channels:
            continue  # nothing but padding
        positions = [range(start, start + channels) if axis == 1 else range(n) for axis, n in enumerate(extents)]
        part = builder(SliceOp, padded, **slice_properties(positions, shape(padded)))
        total = part if total is None else builder(AddOp, total, part)
    return x if total is None else total
