"""Arithmetic, selection and conversion: the ops of one or more operands of a type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Binary, Elementwise, Unary
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, tensor_type
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import BOOL, Kind, dtype_of


@irdl_op_definition
class AddOp(Binary):
    """x + y; integers wrap."""

    name = "graph.add"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x + y


@irdl_op_definition
class SubtractOp(Binary):
    """x - y; integers wrap."""

    name = "graph.subtract"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x - y


@irdl_op_definition
class MultiplyOp(Binary):
    """x * y; integers wrap."""

    name = "graph.multiply"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x * y


@irdl_op_definition
class DivideOp(Binary):
    """x / y of floats, IEEE 754: a number by zero is infinite, zero by zero NaN."""

    name = "graph.divide"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x / y


@irdl_op_definition
class FloorDivideOp(Binary):
    """The largest whole number not above x / y, as in NumPy; of floats (x - x % y) / y, and x / y where y is zero.

    An integer divided by zero gives 0; the most negative integer by -1 wraps to itself.
    """

    name = "graph.floor_divide"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x // y


@irdl_op_definition
class TruncateDivideOp(Binary):
    """x / y of integers, rounded towards zero: C's, ONNX's and StableHLO's quotient.

    Divided by zero 0; the most negative integer by -1 wraps to itself.
    """

    name = "graph.truncate_divide"
    ACCEPTS: ClassVar[tuple[Kind, ...]] = (Kind.INT, Kind.UINT)

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.truncated(x, y) if x.dtype.kind is Kind.INT else x // y


@irdl_op_definition
class RemainderOp(Binary):
    """x - y * floor(x / y), with the sign of y, as in NumPy.

    An integer modulo zero gives 0; of floats, y = 0 or an infinite x gives NaN.
    """

    name = "graph.remainder"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x % y


@irdl_op_definition
class FmodOp(Binary):
    """x - y * trunc(x / y), with the sign of x: the remainder of C, `fmod` of NumPy and torch; exact.

    An integer modulo zero gives 0; of floats, y = 0 or an infinite x gives NaN, and an infinite y gives x.
    """

    name = "graph.fmod"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind is not Kind.INT:
            return sc.fmod(x, y) if x.dtype.is_float else x % y
        floored = x % y
        # no choice: of one that others ask for, compilers make truth values that are chosen between, and no vectors
        return floored - y * sc.cast(sc.not_equal(floored, 0) & ((floored < 0) ^ (x < 0)), x.dtype)


@irdl_op_definition
class PowOp(Binary):
    """x to the power y; of floats C's pow: 1 for y = 0 or x = 1 even next to NaN, NaN for x < 0 and a fractional y.

    Integers wrap; a negative exponent gives 1 / x**-y truncated towards zero as in torch: 0 unless x is 1 or -1.
    """

    name = "graph.pow"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return _integer_power(x, y) if x.dtype.kind in (Kind.INT, Kind.UINT) else x**y


def _integer_power(x: Scalar, y: Scalar) -> Scalar:
    """The product of x**(2**k) over the bits k of the exponent."""
    power, result = x, sc.where(sc.not_equal(y & 1, 0), x, 1)
    for bit in range(1, y.dtype.bits - (y.dtype.kind is Kind.INT)):
        power = power * power
        result = sc.where(sc.not_equal(y & (1 << bit), 0), result * power, result)
    if y.dtype.kind is Kind.UINT:
        return result
    sign = sc.where(sc.not_equal(y & 1, 0), x, 1)  # of x = -1
    return sc.where(y < 0, sc.where(sc.equal(x, 1), 1, sc.where(sc.equal(x, -1), sign, 0)), result)


@irdl_op_definition
class MaximumOp(Binary):
    """The larger of two; NaN when either is; of two zeros either."""

    name = "graph.maximum"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.maximum(x, y)


@irdl_op_definition
class MinimumOp(Binary):
    """The smaller of two; NaN when either is; of two zeros either."""

    name = "graph.minimum"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.minimum(x, y)


@irdl_op_definition
class FmaxOp(Binary):
    """The larger of two; the other one where one is NaN, and NaN when both are; of two zeros either."""

    name = "graph.fmax"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return _ignoring_nan(x, y, sc.maximum(x, y))


@irdl_op_definition
class FminOp(Binary):
    """The smaller of two; the other one where one is NaN, and NaN when both are; of two zeros either."""

    name = "graph.fmin"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return _ignoring_nan(x, y, sc.minimum(x, y))


def _ignoring_nan(x: Scalar, y: Scalar, chosen: Scalar) -> Scalar:
    if not x.dtype.is_float:
        return chosen
    return sc.where(sc.is_nan(x), y, sc.where(sc.is_nan(y), x, chosen))


@irdl_op_definition
class CopysignOp(Binary):
    """The magnitude of x with the sign of y, of floats; the sign of a zero counts."""

    name = "graph.copysign"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.copysign(x, y)


@irdl_op_definition
class NegativeOp(Unary):
    """-x; integers wrap: the most negative stays itself, unsigned ones give 2**bits - x."""

    name = "graph.negative"

    def scalar(self, x: Scalar) -> Scalar:
        return -x


@irdl_op_definition
class AbsOp(Unary):
    """|x|; the most negative integer stays itself."""

    name = "graph.abs"

    def scalar(self, x: Scalar) -> Scalar:
        return abs(x)


@irdl_op_definition
class SquareOp(Unary):
    """x * x; integers wrap."""

    name = "graph.square"

    def scalar(self, x: Scalar) -> Scalar:
        return x * x


@irdl_op_definition
class ReciprocalOp(Unary):
    """1 / x of floats; infinite, with its sign, for zero."""

    name = "graph.reciprocal"

    def scalar(self, x: Scalar) -> Scalar:
        return 1.0 / x


@irdl_op_definition
class SignOp(Unary):
    """-1, 0 or 1; NaN stays NaN, and -0 gives 0, as in NumPy."""

    name = "graph.sign"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(x > 0, 1, sc.where(x < 0, -1, x + 0))


@irdl_op_definition
class AstypeOp(Unary):
    """Conversion to `dtype`: floats are rounded to nearest, halves to even; integers wrap; i1 counts as 0 or 1.

    Floats to integers truncate and saturate at the type's limits, NaN gives 0. Anything but zero, NaN too, is true in i1.
    f64 and integers become f16, bf16 and 8-bit floats by way of f32. Where a float type has no infinity (f8E4M3FN), what is
    too large, and an infinity, becomes NaN.
    """

    name = "graph.astype"
    dtype = prop_def(Attribute)

    def scalar(self, x: Scalar) -> Scalar:
        target = dtype_of(self.dtype)
        if target is None:
            raise VerifyException(f"attribute 'dtype': element type '{self.dtype}' is not supported")
        return sc.cast(x, target.compute)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.body()
        return (tensor_type(self.dtype, shape(self.x)),)


@irdl_op_definition
class WhereOp(Elementwise):
    """x where the i1 condition holds, else y."""

    name = "graph.where"
    condition = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def scalar(self, condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
        return sc.where(condition, x, y)

    def infer_types(self) -> Sequence[AnyTensor]:
        if dtype(self.condition) is not BOOL:
            given = f"got '{self.condition.type}'; insert a comparison or graph.astype"
            raise VerifyException(f"operand 'condition': expected an i1 condition, {given}")
        if dtype(self.x) is not dtype(self.y):
            given = f"got {dtype(self.x)} and {dtype(self.y)}; insert graph.astype"
            raise VerifyException(f"operands 'x' and 'y': expected one element type, {given}")
        return super().infer_types()


@irdl_op_definition
class ClipOp(Elementwise):
    """min(max(x, min), max), the bounds being operands that broadcast; NaN when one of the three is.

    Where min > max the result is max, as in NumPy.
    """

    name = "graph.clip"
    x = operand_def(TensorType)
    min = operand_def(TensorType)
    max = operand_def(TensorType)
    result = result_def(TensorType)

    def scalar(self, x: Scalar, low: Scalar, high: Scalar) -> Scalar:
        return sc.minimum(sc.maximum(x, low), high)


@irdl_op_definition
class LerpOp(Elementwise):
    """start + weight * (end - start) of floats where |weight| < 0.5, else end - (end - start) * (1 - weight), as in torch.

    So both ends are met exactly. Overflows where end - start does.
    """

    name = "graph.lerp"
    SLACK: ClassVar[float] = 8
    start = operand_def(TensorType)
    end = operand_def(TensorType)
    weight = operand_def(TensorType)
    result = result_def(TensorType)
    ACCEPTS: ClassVar[tuple[Kind, ...]] = (Kind.FLOAT,)

    def scalar(self, start: Scalar, end: Scalar, weight: Scalar) -> Scalar:
        length = end - start
        return sc.where(abs(weight) < 0.5, start + weight * length, end - length * (1.0 - weight))


@irdl_op_definition
class FmaOp(Elementwise):
    """x * y + z of floats, rounded once; narrow floats are rounded to f32 first."""

    name = "graph.fma"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    z = operand_def(TensorType)
    result = result_def(TensorType)

    def scalar(self, x: Scalar, y: Scalar, z: Scalar) -> Scalar:
        return sc.fma(x, y, z)
