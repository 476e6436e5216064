"""Reductions: a scalar function of each element, combined over axes by one scalar primitive.

Sums and products are joined in any order, in the type in which the elements are computed: integers wrap, f16 and bf16 are
joined in f32 and rounded once. What passes the largest float on the way (or, in products, the smallest) stays infinite
(or 0) though the rest might bring it back; no bound holds then. Over no elements a reduction gives its neutral value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.creation.constant import number_constant, scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp
from fuse_opt.dialects.graph.movement.views import BroadcastToOp, ReshapeOp
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.properties import flag, int_array, ints, normalize_axes
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape, shape_text, tensor_type
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import PRIMITIVES, Scalar
from fuse_opt.dialects.types.dtypes import BOOL, I64, DType, Kind
from fuse_opt.dialects.types.index_expr import Index


def reduced_shape(source: Sequence[int], axes: Sequence[int], keepdims: bool) -> list[int]:
    """A shape without the axes, or with extents of 1 there."""
    return [1 if axis in axes else n for axis, n in enumerate(source) if keepdims or axis not in axes]


def extreme(element: DType, largest: bool) -> int | float:
    """The value of a type that is above, or below, all others."""
    if element.is_float:
        return float("inf") if largest else float("-inf")
    if element.kind is Kind.UINT:
        return 2**element.bits - 1 if largest else 0
    return 2 ** (element.bits - 1) - 1 if largest else -(2 ** (element.bits - 1))


def require_numbers(value: SSAValue) -> None:
    """Raises VerifyException unless the elements can be compared as numbers."""
    if (element := dtype(value)) is BOOL or element.storage_only:
        raise VerifyException(f"expected elements of numbers to compare, got {element}; insert graph.astype")


def require_elements(x: SSAValue, axes: Sequence[int], remedy: str) -> None:
    """Raises VerifyException when there is nothing along one of the axes, for what has no value over no elements."""
    if any(shape(x)[axis] == 0 for axis in axes):
        raise VerifyException(f"has no value over an empty axis of {shape_text(shape(x))}; {remedy}")


class OverAxes(GraphOp):
    """Over `axes` of the first operand (all when absent; none when empty); `keepdims` (false) leaves them with extent 1."""

    axes = opt_prop_def(DenseArrayBase[IntegerType])
    keepdims = opt_prop_def(BoolAttr)

    def reduced_axes(self) -> tuple[int, ...]:
        rank = len(shape(self._operands[0]))
        return normalize_axes(ints(self.axes, range(rank)), rank)


class Joined(StructuredOp):
    """Elements of one operand joined by COMBINE."""

    x = operand_def(TensorType)
    result = result_def(TensorType)

    EMPTY: ClassVar[int | float | bool | None] = None
    """The value over no elements; None when the operand's type decides (the extremes)."""

    CANCELS: ClassVar[bool] = True
    """Whether a sum may be small next to what is summed."""

    def error_bound(self) -> ErrorBound:
        """Sums and products in any order: an error at each element joined, none where the larger or smaller is chosen."""
        if self.COMBINE not in ("add", "mul"):
            return super().error_bound()
        count = prod(max(n, 0) for n in self.reduced_extents())
        cancels = self.COMBINE == "add" and self.CANCELS
        return ErrorBound(1.0, count) if cancels else ErrorBound(1.0 + count)

    def scalar(self, x: Scalar) -> Scalar:
        return x

    def initial(self) -> int | float | bool:
        return extreme(dtype(self.x), self.COMBINE == "min") if self.EMPTY is None else self.EMPTY


class Reduction(OverAxes, Joined):
    """Elements joined over axes."""

    def reduced_extents(self) -> tuple[int, ...]:
        source = shape(self.x)
        return tuple(source[axis] for axis in self.reduced_axes())

    def infer_types(self) -> Sequence[AnyTensor]:
        source, axes = shape(self.x), self.reduced_axes()
        if self.EMPTY is None:
            require_elements(self.x, axes, "reduce over non-empty axes")
        sc.apply(self.COMBINE, self.body(), self.body())
        return (tensor_type(self.result_dtype().attribute, reduced_shape(source, axes, flag(self.keepdims))),)

    def canonical(self) -> GraphOp | None:
        """A reshape where nothing is joined; of what was repeated along the axes, of one each."""
        if not all(map(is_static, (self.x, self.result))):
            return None
        return self._of_single_elements() or self._of_repeated(exact=self.body().dtype.is_float)

    def relaxed(self) -> GraphOp | None:
        return self._of_repeated(exact=False) if all(map(is_static, (self.x, self.result))) else None

    def _of_single_elements(self) -> GraphOp | None:
        if self.body().function != "operand" or any(n != 1 for n in self.reduced_extents()):
            return None
        builder = GraphBuilder()
        moved = builder(ReshapeOp, self.x, shape=int_array(shape(self.result)))
        if self.COMBINE == "add" and self.body().dtype.is_float:
            builder(AddOp, moved, scalar_constant(builder, 0.0, moved))  # 0 + -0.0 is 0.0
        return builder.ops[-1]

    def _of_repeated(self, exact: bool) -> GraphOp | None:
        """The reduction of a broadcast along the axes that are not repeated, a sum times how often they are.

        Exact of integers; of floats only the one element that is repeated is, as of several zeros either is the largest.
        """
        view = self.x.owner
        same = PRIMITIVES[self.COMBINE].idempotent or (not exact and self.COMBINE == "add")
        if not isinstance(view, BroadcastToOp) or not same:
            return None
        full = shape(self.x)
        source = (1,) * (len(full) - len(shape(view.x))) + shape(view.x)
        repeated = [axis for axis in self.reduced_axes() if source[axis] == 1 and full[axis] > 1]
        if not repeated or (exact and any(source[axis] != 1 for axis in self.reduced_axes())):
            return None
        builder, extents = GraphBuilder(), [1 if axis in repeated else n for axis, n in enumerate(full)]
        thin = builder(BroadcastToOp, view.x, shape=int_array(extents))
        total = builder(type(self), thin, **self.properties)
        if self.COMBINE == "add":
            builder(MultiplyOp, total, number_constant(builder, prod(full[axis] for axis in repeated), total))
        return builder.ops[-1]

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axes = self.reduced_axes()
        inner = iter(reduced)
        if flag(self.keepdims):
            return tuple(next(inner) if axis in axes else i for axis, i in enumerate(index))
        outer = iter(index)
        return tuple(next(inner) if axis in axes else next(outer) for axis in range(len(shape(self.x))))


@irdl_op_definition
class SumOp(Reduction):
    """The sum of the elements over `axes` (all when absent), which `keepdims` leaves with extent 1; 0 over none.

    Sums of floats begin at +0: that of -0 alone is +0, as in NumPy and PyTorch. Truth values are no numbers: count them with
    `graph.count_nonzero`, or insert `graph.astype`.
    """

    name = "graph.sum"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0


@irdl_op_definition
class ProdOp(Reduction):
    """The product of the elements over `axes` (all when absent), which `keepdims` leaves with extent 1; 1 over none.

    The error bound holds where no product of some of the elements passes the largest float or falls below the smallest
    normal one: in which order they are joined is not said, and neither is what happens on the way.
    """

    name = "graph.prod"
    COMBINE: ClassVar[str] = "mul"
    EMPTY: ClassVar[int | float | bool | None] = 1


@irdl_op_definition
class MaxOp(Reduction):
    """The largest element over `axes` (all when absent), which `keepdims` leaves with extent 1; NaN when any is.

    Empty axes are refused. torch's `amax`.
    """

    name = "graph.max"
    COMBINE: ClassVar[str] = "max"


@irdl_op_definition
class MinOp(Reduction):
    """The smallest element over `axes` (all when absent), which `keepdims` leaves with extent 1; NaN when any is.

    Empty axes are refused. torch's `amin`.
    """

    name = "graph.min"
    COMBINE: ClassVar[str] = "min"


@irdl_op_definition
class AmaxOp(Reduction):
    """The same as `graph.max`, under torch's name; canonicalisation makes it that."""

    name = "graph.amax"
    COMBINE: ClassVar[str] = "max"

    def canonical(self) -> GraphOp | None:
        return MaxOp.build_op(self.x, **self.properties)


@irdl_op_definition
class AminOp(Reduction):
    """The same as `graph.min`, under torch's name; canonicalisation makes it that."""

    name = "graph.amin"
    COMBINE: ClassVar[str] = "min"

    def canonical(self) -> GraphOp | None:
        return MinOp.build_op(self.x, **self.properties)


@irdl_op_definition
class SumSquaresOp(Reduction):
    """The sum of x * x over `axes` (all when absent), which `keepdims` leaves with extent 1; 0 over none.

    Squares of large floats overflow to infinity, those of small ones underflow to 0. ONNX ReduceSumSquare.
    """

    name = "graph.sum_squares"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0
    CANCELS: ClassVar[bool] = False

    def scalar(self, x: Scalar) -> Scalar:
        return x * x


@irdl_op_definition
class Norm1Op(Reduction):
    """The sum of |x| over `axes` (all when absent), which `keepdims` leaves with extent 1; 0 over none.

    |x| of the most negative integer is itself. ONNX ReduceL1.
    """

    name = "graph.norm1"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0
    CANCELS: ClassVar[bool] = False

    def scalar(self, x: Scalar) -> Scalar:
        return abs(x)


@irdl_op_definition
class CountNonzeroOp(Reduction):
    """How many elements are not 0 (of i1: hold) over `axes` (all when absent), as i64; NaN is not 0, -0.0 is.

    `keepdims` leaves the axes with extent 1; 0 over none.
    """

    name = "graph.count_nonzero"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cast(x if x.dtype is BOOL else sc.not_equal(x, 0), I64)


@irdl_op_definition
class AnyOp(Reduction):
    """Whether one of the i1 elements holds over `axes` (all when absent); bitwise or of integers; false over none.

    `keepdims` leaves the axes with extent 1.
    """

    name = "graph.any"
    COMBINE: ClassVar[str] = "or"
    EMPTY: ClassVar[int | float | bool | None] = False


@irdl_op_definition
class AllOp(Reduction):
    """Whether all i1 elements hold over `axes` (all when absent); bitwise and of integers; true (all bits) over none.

    `keepdims` leaves the axes with extent 1.
    """

    name = "graph.all"
    COMBINE: ClassVar[str] = "and"
    EMPTY: ClassVar[int | float | bool | None] = True

    def initial(self) -> int | float | bool:
        if (element := dtype(self.x)) is BOOL:
            return True
        return extreme(element, True) if element.kind is Kind.UINT else -1
