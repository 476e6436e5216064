"""Floats taken apart and put together: sign, fraction and exponent, neighbours, rounding away from zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Elementwise, FloatBinary, FloatUnary, Unary
from fuse_opt.dialects.graph.elementwise.bits import bits_of, number_of
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, tensor_type
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import BF16, F16, F32, F64, I32, DType, Kind

_MANTISSAS: dict[DType, int] = {F16: 10, BF16: 7, F32: 23, F64: 52}
"""Digits behind the point."""


def _bias(element: DType) -> int:
    return (1 << element.bits - 2 - _MANTISSAS[element]) - 1


@irdl_op_definition
class SignbitOp(FloatUnary):
    """Whether the sign of x is set, of -0 and NaN too; the sign of a NaN that was computed depends on the backend."""

    name = "graph.signbit"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.copysign(sc.constant(1.0, x.dtype), x) < 0.0


@irdl_op_definition
class RoundHalfAwayOp(Unary):
    """To the nearest whole number, halves away from zero (C's round); integers stay, and -0.4 becomes -0."""

    name = "graph.round_half_away"
    ACCEPTS: ClassVar[tuple[Kind, ...]] = (Kind.FLOAT, Kind.INT, Kind.UINT)

    def scalar(self, x: Scalar) -> Scalar:
        if not x.dtype.is_float:
            return x
        whole = sc.trunc(x)
        return sc.where(abs(x - whole) >= 0.5, whole + sc.copysign(sc.constant(1.0, x.dtype), x), whole)


@irdl_op_definition
class NextafterOp(FloatBinary):
    """The number of the type next to x in the direction of y; y where they are equal, NaN where one is (C's nextafter)."""

    name = "graph.nextafter"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        element = dtype(self.lhs)
        bits = bits_of(x, element)
        outwards = ~((x > 0.0) ^ (y > x))
        moved = number_of(sc.where(outwards, bits + 1, bits - 1), element)
        least = sc.copysign(number_of(sc.constant(1, bits.dtype), element), y)
        moved = sc.where(sc.equal(x, 0.0), least, moved)
        moved = sc.where(sc.equal(x, y), y, moved)
        return sc.where(sc.is_nan(x), x, sc.where(sc.is_nan(y), y, moved))


def _exponent_field(x: Scalar) -> Scalar:
    element = x.dtype
    field = sc.shift_right(sc.bitcast(x, element.unsigned), _MANTISSAS[element])
    return field & ((1 << element.bits - 1 - _MANTISSAS[element]) - 1)


def _scaled(x: Scalar) -> tuple[Scalar, Scalar]:
    """x, of denormals times a power of two that makes them normal, and whether it was one."""
    element = x.dtype
    smallest = 2.0 ** (1 - _bias(element))
    small = abs(x) < smallest
    return sc.where(small, x * 2.0 ** (_MANTISSAS[element] + 1), x), small


@irdl_op_definition
class FrexpMantissaOp(FloatUnary):
    """The fraction of x = fraction * 2**exponent, with 0.5 <= |fraction| < 1; zeros, infinities and NaN stay as they are."""

    name = "graph.frexp_mantissa"

    def scalar(self, x: Scalar) -> Scalar:
        element = x.dtype
        mantissa, whole = _MANTISSAS[element], element.unsigned
        scaled, _ = _scaled(x)
        ones = ((1 << element.bits - 1 - mantissa) - 1) << mantissa
        kept = sc.bitcast(scaled, whole) & ((1 << element.bits) - 1 - ones)
        fraction = sc.bitcast(kept | ((_bias(element) - 1) << mantissa), element)
        return sc.where(_is_plain(x), fraction, x)


@irdl_op_definition
class FrexpExponentOp(FloatUnary):
    """The exponent of x = fraction * 2**exponent, with 0.5 <= |fraction| < 1, as i32; 0 for zeros, infinities and NaN."""

    name = "graph.frexp_exponent"

    def scalar(self, x: Scalar) -> Scalar:
        element = x.dtype
        scaled, small = _scaled(x)
        exponent = sc.cast(_exponent_field(scaled), I32) - (_bias(element) - 1)
        exponent = sc.where(small, exponent - (_MANTISSAS[element] + 1), exponent)
        return sc.where(_is_plain(x), exponent, 0)


def _is_plain(x: Scalar) -> Scalar:
    """Neither zero nor infinite nor NaN."""
    return (abs(x) > 0.0) & (abs(x) < float("inf"))


@irdl_op_definition
class FrexpOp(CompositeOp):
    """(fraction, exponent) with x = fraction * 2**exponent, 0.5 <= |fraction| < 1 and an exponent of i32 (C's frexp).

    Zeros, infinities and NaN are their own fraction, with the exponent 0.
    """

    name = "graph.frexp"
    x = operand_def(TensorType)
    fraction = result_def(TensorType)
    exponent = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        if not dtype(self.x).is_float or dtype(self.x).storage_only:
            raise VerifyException(f"operand 'x': expected floats, got '{self.x.type}'; insert graph.astype")
        return (
            tensor_type(dtype(self.x).attribute, shape(self.x)),
            tensor_type(I32.attribute, shape(self.x)),
        )

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        return builder(FrexpMantissaOp, self.x), builder(FrexpExponentOp, self.x)


@irdl_op_definition
class LdexpOp(Elementwise):
    """x * 2**n of a float and an integer, rounded once (C's ldexp): f16 and bf16 in f32 and then to their type."""

    name = "graph.ldexp"
    x = operand_def(TensorType)
    n = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        for value, kinds in ((self.x, (Kind.FLOAT,)), (self.n, (Kind.INT, Kind.UINT))):
            if dtype(value).kind not in kinds:
                wanted = "floats" if value is self.x else "integers"
                raise VerifyException(f"expected {wanted}, got '{value.type}'; insert graph.astype")
        return super().infer_types()

    def scalar(self, x: Scalar, n: Scalar) -> Scalar:
        element = x.dtype
        least, digits = 1 - _bias(element), _MANTISSAS[element] + 1
        count = _within(n, 2 * (_bias(element) + digits) + 2 * digits)
        # Down in steps that leave all digits but in the last one, so that only that rounds.
        value, rest = x, count
        for _ in range(2):
            low, high = rest < least, rest > _bias(element)
            step = sc.where(low, least + digits, sc.where(high, _bias(element), sc.constant(0, I32)))
            value, rest = value * _power_of_two(step, element), rest - step
        rest = sc.maximum(sc.minimum(rest, _bias(element)), least)
        return value * _power_of_two(rest, element)


def _within(n: Scalar, limit: int) -> Scalar:
    """An integer as one of i32 between -limit and limit."""
    signed = n.dtype.kind is Kind.INT
    n = sc.minimum(n, min(limit, (1 << n.dtype.bits - signed) - 1))
    return sc.cast(sc.maximum(n, -min(limit, 1 << n.dtype.bits - 1)) if signed else n, I32)


def _power_of_two(exponent: Scalar, element: DType) -> Scalar:
    whole = element.unsigned
    return sc.bitcast(sc.shift_left(sc.cast(exponent + _bias(element), whole), _MANTISSAS[element]), element)
