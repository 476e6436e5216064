"""Elementwise records: NumPy broadcasting is implicit, promotion never is."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from . import scalar as sc
from .dtypes import DType, dtype_of
from .graph_op import AnyTensor, FusionKind, StructuredOp, dtype, shape, tensor
from .index_expr import Index, constant
from .scalar import Scalar


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcast shape; a dynamic extent meets any, and wins against 1. Raises VerifyException."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        extents = [s[axis] for s in shapes if len(s) >= -axis]
        known = {n for n in extents if n not in (1, DYNAMIC_INDEX)}
        if len(known) > 1:
            names = ", ".join("x".join("?" if n == DYNAMIC_INDEX else str(n) for n in s) or "scalar" for s in shapes)
            raise VerifyException(
                f"operand shapes {names} do not broadcast: dimension {axis} has extents "
                f"{' and '.join(map(str, sorted(known)))}; make them equal or 1"
            )
        result.append(known.pop() if known else DYNAMIC_INDEX if DYNAMIC_INDEX in extents else 1)
    return tuple(result)


class Elementwise(StructuredOp):
    """Operands of any shapes that broadcast to one; a record states its operands and `scalar`."""

    def infer_types(self) -> Sequence[AnyTensor]:
        self._refuse_mixed_floats()
        element = self.result_dtype().attribute
        first = tensor(self._operands[0])
        if all(v.type == first for v in self._operands):
            return (first if first.element_type == element else TensorType(element, first.get_shape()),)
        return (TensorType(element, broadcast_shapes([shape(value) for value in self._operands])),)

    def _refuse_mixed_floats(self) -> None:
        """Types that are computed alike (f16 and f32) would mix without a word from the scalar body."""
        seen: dict[DType, DType] = {}
        for value in self._operands:
            given = dtype(value)
            if (other := seen.setdefault(given.compute, given)) is not given:
                raise VerifyException(f"operands mix {other} and {given}; insert graph.astype to make them one type")

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        extents = shape(self._operands[operand])
        trailing = index[len(index) - len(extents) :]
        zero = constant(0)
        return tuple(zero if n == 1 else i for n, i in zip(extents, trailing, strict=True))

    def fusion_kind(self) -> FusionKind:
        result = shape(self.results[0])
        same = all(shape(value) == result for value in self._operands)
        return FusionKind.ELEMENTWISE if same else FusionKind.BROADCAST


class Unary(Elementwise):
    x = operand_def(TensorType)
    result = result_def(TensorType)


class Binary(Elementwise):
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)


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
class EqualOp(Binary):
    name = "graph.equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.equal(x, y)


@irdl_op_definition
class NotEqualOp(Binary):
    name = "graph.not_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.not_equal(x, y)


@irdl_op_definition
class LessOp(Binary):
    name = "graph.less"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x < y


@irdl_op_definition
class LessEqualOp(Binary):
    name = "graph.less_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x <= y


@irdl_op_definition
class GreaterOp(Binary):
    name = "graph.greater"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x > y


@irdl_op_definition
class GreaterEqualOp(Binary):
    name = "graph.greater_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x >= y


@irdl_op_definition
class LogicalAndOp(Binary):
    """Conjunction of i1, bitwise of integers."""

    name = "graph.logical_and"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x & y


@irdl_op_definition
class LogicalOrOp(Binary):
    """Disjunction of i1, bitwise of integers."""

    name = "graph.logical_or"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x | y


@irdl_op_definition
class LogicalXorOp(Binary):
    """Exclusive or of i1, bitwise of integers."""

    name = "graph.logical_xor"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x ^ y


@irdl_op_definition
class LogicalNotOp(Unary):
    """Negation of i1, bitwise of integers."""

    name = "graph.logical_not"

    def scalar(self, x: Scalar) -> Scalar:
        return ~x


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
class SqrtOp(Unary):
    name = "graph.sqrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sqrt(x)


@irdl_op_definition
class RsqrtOp(Unary):
    """1 / sqrt(x)."""

    name = "graph.rsqrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.rsqrt(x)


@irdl_op_definition
class ReciprocalOp(Unary):
    name = "graph.reciprocal"

    def scalar(self, x: Scalar) -> Scalar:
        return 1.0 / x


@irdl_op_definition
class ExpOp(Unary):
    name = "graph.exp"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.exp(x)


@irdl_op_definition
class Expm1Op(Unary):
    name = "graph.expm1"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.expm1(x)


@irdl_op_definition
class LogOp(Unary):
    name = "graph.log"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log(x)


@irdl_op_definition
class Log1pOp(Unary):
    name = "graph.log1p"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log1p(x)


@irdl_op_definition
class SinOp(Unary):
    name = "graph.sin"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sin(x)


@irdl_op_definition
class CosOp(Unary):
    name = "graph.cos"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cos(x)


@irdl_op_definition
class TanhOp(Unary):
    name = "graph.tanh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.tanh(x)


@irdl_op_definition
class ErfOp(Unary):
    name = "graph.erf"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.erf(x)


@irdl_op_definition
class FloorOp(Unary):
    name = "graph.floor"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.floor(x)


@irdl_op_definition
class CeilOp(Unary):
    name = "graph.ceil"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.ceil(x)


@irdl_op_definition
class TruncOp(Unary):
    name = "graph.trunc"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.trunc(x)


@irdl_op_definition
class RoundOp(Unary):
    """To the nearest integer, halves to even."""

    name = "graph.round"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.round_half_even(x)


@irdl_op_definition
class SignOp(Unary):
    """-1, 0 or 1; NaN stays NaN."""

    name = "graph.sign"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(x > 0, 1, sc.where(x < 0, -1, x * 0))


@irdl_op_definition
class SigmoidOp(Unary):
    """1 / (1 + exp(-x))."""

    name = "graph.sigmoid"

    def scalar(self, x: Scalar) -> Scalar:
        return 1.0 / (1.0 + sc.exp(-x))


@irdl_op_definition
class ReluOp(Unary):
    """max(x, 0); NaN stays NaN."""

    name = "graph.relu"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.maximum(x, 0)


@irdl_op_definition
class SiluOp(Unary):
    """x * sigmoid(x) (Elfwing et al. 2017)."""

    name = "graph.silu"

    def scalar(self, x: Scalar) -> Scalar:
        return x / (1.0 + sc.exp(-x))


@irdl_op_definition
class GeluOp(Unary):
    """Gaussian error linear unit, x * Phi(x) (Hendrycks & Gimpel 2016); `approximate` is "none" (erf) or "tanh"."""

    name = "graph.gelu"
    approximate = opt_prop_def(StringAttr)

    def scalar(self, x: Scalar) -> Scalar:
        if self.approximate is not None and self.approximate.data == "tanh":
            return 0.5 * x * (1.0 + sc.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1.0 + sc.erf(x * 0.7071067811865476))

    def infer_types(self) -> Sequence[AnyTensor]:
        if self.approximate is not None and self.approximate.data not in ("none", "tanh"):
            raise VerifyException(f'attribute \'approximate\': expected "none" or "tanh", got {self.approximate}')
        return super().infer_types()


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
