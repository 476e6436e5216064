"""Quantisation to narrow types and back, as in ONNX: an element stands for (q - zero_point) * scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import axis_of
from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AddOp,
    AstypeOp,
    DivideOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
    NegativeOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp
from fuse_opt.dialects.graph.elementwise.math import RoundOp
from fuse_opt.dialects.graph.reductions.composite import check_shape, narrowed, on_axis, widened
from fuse_opt.dialects.graph.reductions.reductions import MaxOp, MinOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import flag
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.types.dtypes import F8E4M3, F8E5M2, I8, I16, I32, I64, U8, U16, DType

_LARGEST: dict[DType, float] = {F8E4M3: 448.0, F8E5M2: 57344.0}


class Quantization(CompositeOp):
    """One scale and zero point for all (rank 0), or one for each position of `axis` (1; of a vector 0) of x."""

    ACCEPTS_STORAGE: ClassVar[bool] = True
    axis = opt_prop_def(IntegerAttr)

    def scale_axis(self, x: SSAValue) -> int:
        rank = len(shape(x))
        return axis_of(self.axis, rank, min(1, rank - 1)) if rank else 0

    def check_parameters(self, x: SSAValue, scale: SSAValue, zero_point: Sequence[SSAValue]) -> None:
        """Raises VerifyException unless the parameters are of rank 0, or of the axis' extent, and of one shape."""
        if len(zero_point) > 1:
            raise VerifyException(f"expected at most the operand zero_point behind scale, got {len(zero_point)}")
        if shape(scale):
            if not shape(x):
                raise VerifyException(f"operand 'scale': expected rank 0 for a scalar, got {shape_text(shape(scale))}")
            check_shape("scale", scale, (shape(x)[self.scale_axis(x)],))
        for value in zero_point:
            check_shape("zero_point", value, shape(scale))
        if not _computes(dtype(scale)):
            raise VerifyException(f"operand 'scale': expected floats, got '{scale.type}'; insert graph.astype")

    def along(self, builder: GraphBuilder, value: SSAValue, x: SSAValue) -> SSAValue:
        """A parameter, as it broadcasts to x."""
        return on_axis(builder, value, self.scale_axis(x), len(shape(x))) if shape(value) else value


def _computes(element: DType) -> bool:
    return element.is_float and not element.storage_only


@irdl_op_definition
class QuantizeLinearOp(Quantization):
    """round(x / scale) + zero_point, halves to even, saturated to the element type of `zero_point` (ONNX QuantizeLinear).

    `scale`, of x's type, and `zero_point`, of i8, ui8, i16, ui16, f8E4M3FN or f8E5M2, are of rank 0, or have one element for
    each position of `axis` (1; of a vector 0). The quotient is rounded to the type it is computed in, f32 or f64, first.
    Integers: NaN gives 0, infinities the limits. 8-bit floats: nothing is rounded to whole numbers, NaN stays NaN, and
    what is too large gives the largest finite number, or with `saturate` false (default true) what graph.astype gives.
    """

    name = "graph.quantize_linear"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = operand_def(TensorType)
    result = result_def(TensorType)
    saturate = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not _computes(dtype(self.x)) or dtype(self.scale) is not dtype(self.x):
            raise VerifyException(
                f"expected floats of one type, got '{self.x.type}' and '{self.scale.type}'; insert graph.astype"
            )
        if dtype(self.zero_point) not in (I8, U8, I16, U16, F8E4M3, F8E5M2):
            raise VerifyException(
                f"operand 'zero_point': expected elements of i8, ui8, i16, ui16, f8E4M3FN or f8E5M2, got '{self.zero_point.type}'"
            )
        self.check_parameters(self.x, self.scale, [self.zero_point])
        return (tensor_type(tensor(self.zero_point).element_type, shape(self.x)),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, scale, target = widened(builder, self.x), widened(builder, self.scale), dtype(self.zero_point)
        value = builder(DivideOp, x, self.along(builder, scale, x))
        if not target.is_float:
            value = builder(RoundOp, value)
        zero_point = builder(AstypeOp, self.zero_point, dtype=dtype(x).attribute)
        value = builder(AddOp, value, self.along(builder, zero_point, x))
        if target.is_float and (self.saturate is None or flag(self.saturate)):
            limit = _LARGEST[target]
            value = builder(MinimumOp, value, scalar_constant(builder, limit, x))
            value = builder(MaximumOp, value, scalar_constant(builder, -limit, x))
        return (builder(AstypeOp, value, dtype=target.attribute),)


@irdl_op_definition
class DequantizeLinearOp(Quantization):
    """(x - zero_point) * scale, in the type of `scale` (ONNX DequantizeLinear).

    Operands are x, of i8, ui8, i16, ui16, i32, f8E4M3FN or f8E5M2, `scale`, and `zero_point` of x's type, which may be left
    out: 0. Scale and zero point are of rank 0, or have one element for each position of `axis` (1; of a vector 0).
    """

    name = "graph.dequantize_linear"
    ULPS: ClassVar[float | None] = 1.0
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        if dtype(self.x) not in (I8, U8, I16, U16, I32, F8E4M3, F8E5M2):
            raise VerifyException(
                f"operand 'x': expected elements of i8, ui8, i16, ui16, i32, f8E4M3FN or f8E5M2, got '{self.x.type}'"
            )
        self.check_parameters(self.x, self.scale, self.zero_point)
        for value in self.zero_point:
            if dtype(value) is not dtype(self.x):
                raise VerifyException(f"operand 'zero_point': expected elements of {dtype(self.x)}, got '{value.type}'")
        return (tensor_type(tensor(self.scale).element_type, shape(self.x)),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        scale, given = widened(builder, self.scale), dtype(self.x)
        exact = dtype(scale) if given.is_float else I64 if given is I32 else I32
        value = builder(AstypeOp, self.x, dtype=exact.attribute)
        for zero_point in self.zero_point:
            wide = builder(AstypeOp, zero_point, dtype=exact.attribute)
            value = builder(SubtractOp, value, self.along(builder, wide, self.x))
        value = value if given.is_float else builder(AstypeOp, value, dtype=dtype(scale).attribute)
        return (narrowed(builder, builder(MultiplyOp, value, self.along(builder, scale, self.x)), self.scale),)


@irdl_op_definition
class DynamicQuantizeLinearOp(CompositeOp):
    """Quantisation to ui8 of all values' range with 0 in it: gives (y, scale, zero_point) (ONNX DynamicQuantizeLinear).

    scale is (max - min) / 255, or 1 when that is 0, zero_point round(-min / scale), and y quantize_linear(x, scale,
    zero_point). With NaN or infinities among the values, scale is none to quantise with.
    """

    name = "graph.dynamic_quantize_linear"
    ULPS: ClassVar[float | None] = 1.0
    x = operand_def(TensorType)
    y = result_def(TensorType)
    scale = result_def(TensorType)
    zero_point = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not _computes(dtype(self.x)):
            raise VerifyException(f"operand 'x': expected floats, got '{self.x.type}'; insert graph.astype")
        if 0 in shape(self.x):
            raise VerifyException(f"expected elements, {shape_text(shape(self.x))} has none; there is no range")
        element = tensor(self.x).element_type
        return (tensor_type(U8.attribute, shape(self.x)), tensor_type(element, []), tensor_type(U8.attribute, []))

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x = widened(builder, self.x)
        zero = scalar_constant(builder, 0.0, x)
        low = builder(MinimumOp, builder(MinOp, x), zero)
        high = builder(MaximumOp, builder(MaxOp, x), zero)
        steps = scalar_constant(builder, 255.0, x)
        scale = builder(DivideOp, builder(SubtractOp, high, low), steps)
        scale = builder(WhereOp, builder(EqualOp, scale, zero), scalar_constant(builder, 1.0, x), scale)
        scale = narrowed(builder, scale, self.x)
        whole = builder(RoundOp, builder(DivideOp, builder(NegativeOp, low), widened(builder, scale)))
        zero_point = builder(AstypeOp, whole, dtype=U8.attribute)
        return (builder(QuantizeLinearOp, self.x, scale, zero_point), scale, zero_point)
