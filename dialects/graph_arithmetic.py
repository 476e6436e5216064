"""Arithmetic records, selection and conversion: the ops of one or more operands of a type."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from . import scalar as sc
from .dtypes import dtype_of
from .graph_elementwise import Binary, Elementwise, Unary
from .graph_op import AnyTensor, tensor
from .scalar import Scalar


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
    """x / y of floats, IEEE 754."""

    name = "graph.divide"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x / y


@irdl_op_definition
class FloorDivideOp(Binary):
    """The largest whole number not above x / y, as in NumPy; of floats (x - x % y) / y; an integer divided by zero gives 0."""

    name = "graph.floor_divide"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x // y


@irdl_op_definition
class RemainderOp(Binary):
    """x - y * floor(x / y), with the sign of y; an integer modulo zero gives 0, as in NumPy."""

    name = "graph.remainder"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x % y


@irdl_op_definition
class PowOp(Binary):
    """x to the power y, of floats (C's pow)."""

    name = "graph.pow"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x**y


@irdl_op_definition
class MaximumOp(Binary):
    """The larger of two; NaN when either is."""

    name = "graph.maximum"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.maximum(x, y)


@irdl_op_definition
class MinimumOp(Binary):
    """The smaller of two; NaN when either is."""

    name = "graph.minimum"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.minimum(x, y)


@irdl_op_definition
class NegativeOp(Unary):
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
    name = "graph.square"

    def scalar(self, x: Scalar) -> Scalar:
        return x * x


@irdl_op_definition
class ReciprocalOp(Unary):
    name = "graph.reciprocal"

    def scalar(self, x: Scalar) -> Scalar:
        return 1.0 / x


@irdl_op_definition
class SignOp(Unary):
    """-1, 0 or 1; NaN stays NaN."""

    name = "graph.sign"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(x > 0, 1, sc.where(x < 0, -1, x * 0))


@irdl_op_definition
class AstypeOp(Unary):
    """Conversion to `dtype`; floats to integers truncate and saturate, NaN gives 0."""

    name = "graph.astype"
    dtype = prop_def(Attribute)

    def scalar(self, x: Scalar) -> Scalar:
        target = dtype_of(self.dtype)
        if target is None:
            raise VerifyException(f"attribute 'dtype': element type '{self.dtype}' is not supported")
        return sc.cast(x, target.compute)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.body()
        return (TensorType(self.dtype, tensor(self.x).get_shape()),)


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
