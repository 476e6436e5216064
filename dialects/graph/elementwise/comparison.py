"""Comparisons, tests and logic, with results of i1; and what works on the bits of integers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Binary, Elementwise, Unary
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import BOOL


@irdl_op_definition
class EqualOp(Binary):
    """x == y as i1; NaN is equal to nothing, -0 to 0."""

    name = "graph.equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.equal(x, y)


@irdl_op_definition
class NotEqualOp(Binary):
    """x != y as i1; true where one is NaN."""

    name = "graph.not_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.not_equal(x, y)


@irdl_op_definition
class LessOp(Binary):
    """x < y as i1; false where one is NaN."""

    name = "graph.less"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x < y


@irdl_op_definition
class LessEqualOp(Binary):
    """x <= y as i1; false where one is NaN."""

    name = "graph.less_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x <= y


@irdl_op_definition
class GreaterOp(Binary):
    """x > y as i1; false where one is NaN."""

    name = "graph.greater"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x > y


@irdl_op_definition
class GreaterEqualOp(Binary):
    """x >= y as i1; false where one is NaN."""

    name = "graph.greater_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x >= y


@irdl_op_definition
class IsnanOp(Unary):
    """Whether x is NaN, as i1; false of integers."""

    name = "graph.isnan"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.is_nan(x)


@irdl_op_definition
class IsinfOp(Unary):
    """Whether x is an infinity of either sign, as i1; false of integers."""

    name = "graph.isinf"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.equal(abs(x), inf) if x.dtype.is_float else sc.not_equal(x, x)


@irdl_op_definition
class IsfiniteOp(Unary):
    """Whether x is neither infinite nor NaN, as i1; true of integers."""

    name = "graph.isfinite"

    def scalar(self, x: Scalar) -> Scalar:
        return abs(x) < inf if x.dtype.is_float else sc.equal(x, x)


class Logical(Elementwise):
    """Of truth values only: of integers it could mean their bits or whether they are zero."""

    def infer_types(self) -> Sequence[AnyTensor]:
        bits = self.name.replace("logical", "bitwise")
        for number, value in enumerate(self._operands):
            if dtype(value) is not BOOL:
                remedy = f"use {bits} on the bits of integers, or make truth values with graph.not_equal"
                raise VerifyException(f"operand {number}: expected elements of i1, got '{value.type}'; {remedy}")
        return super().infer_types()


@irdl_op_definition
class LogicalAndOp(Logical, Binary):
    """Whether both of two truth values hold, of i1."""

    name = "graph.logical_and"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x & y


@irdl_op_definition
class LogicalOrOp(Logical, Binary):
    """Whether at least one of two truth values holds, of i1."""

    name = "graph.logical_or"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x | y


@irdl_op_definition
class LogicalXorOp(Logical, Binary):
    """Whether exactly one of two truth values holds, of i1."""

    name = "graph.logical_xor"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x ^ y


@irdl_op_definition
class LogicalNotOp(Logical, Unary):
    """Whether a truth value does not hold, of i1."""

    name = "graph.logical_not"

    def scalar(self, x: Scalar) -> Scalar:
        return ~x


@irdl_op_definition
class BitwiseAndOp(Binary):
    """The bits set in both of two integers, or both truth values of i1."""

    name = "graph.bitwise_and"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x & y


@irdl_op_definition
class BitwiseOrOp(Binary):
    """The bits set in at least one of two integers, or one of two truth values of i1."""

    name = "graph.bitwise_or"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x | y


@irdl_op_definition
class BitwiseXorOp(Binary):
    """The bits set in exactly one of two integers, or exactly one of two truth values of i1."""

    name = "graph.bitwise_xor"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x ^ y


@irdl_op_definition
class BitwiseNotOp(Unary):
    """The bits not set in an integer, -x - 1 when it is signed; of i1 the other truth value (array API: `bitwise_invert`)."""

    name = "graph.bitwise_not"

    def scalar(self, x: Scalar) -> Scalar:
        return ~x


@irdl_op_definition
class BitwiseLeftShiftOp(Binary):
    """x * 2**y of integers, wrapped; 0 where y is negative or not below the width of x in bits, as in NumPy."""

    name = "graph.bitwise_left_shift"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.shift_left(x, y)


@irdl_op_definition
class BitwiseRightShiftOp(Binary):
    """floor(x / 2**y) of integers: the sign is kept.

    Where y is negative or not below the width of x in bits all is shifted out, as in NumPy: 0, or -1 for x < 0.
    """

    name = "graph.bitwise_right_shift"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.shift_right(x, y)
