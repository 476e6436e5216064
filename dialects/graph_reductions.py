"""Reduction records: a scalar function of each element, joined over axes by one word of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from . import scalar as sc
from .dtypes import BOOL, Kind
from .graph_op import AnyTensor, ErrorBound, StructuredOp, dtype, flag, ints, normalize_axes, shape, shape_text, tensor
from .index_expr import Index
from .scalar import Scalar


class Reduction(StructuredOp):
    """Over `axes` (all when absent); `keepdims` leaves them with extent 1."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])
    keepdims = opt_prop_def(BoolAttr)

    EMPTY: ClassVar[int | float | bool | None] = None
    """The value over no elements; None when the operand's type decides (the extremes)."""

    def error_bound(self) -> ErrorBound:
        """Sums and products in any order: an error at each element joined, none where the larger or smaller is chosen."""
        if self.COMBINE not in ("add", "mul"):
            return super().error_bound()
        count = prod(self.reduced_extents())
        return ErrorBound(1.0 + count if self.COMBINE == "mul" else 1.0, count if self.COMBINE == "add" else 0.0)

    def reduced_axes(self) -> tuple[int, ...]:
        rank = len(shape(self.x))
        return normalize_axes(ints(self.axes, range(rank)), rank)

    def reduced_extents(self) -> tuple[int, ...]:
        source = shape(self.x)
        return tuple(source[axis] for axis in self.reduced_axes())

    def infer_types(self) -> Sequence[AnyTensor]:
        source, axes = shape(self.x), self.reduced_axes()
        if self.EMPTY is None and any(source[axis] == 0 for axis in axes):
            raise VerifyException(
                f"has no value over an empty axis of {shape_text(source)}; reduce over non-empty axes"
            )
        sc.apply(self.COMBINE, self.body(), self.body())
        if flag(self.keepdims):
            result = [1 if axis in axes else n for axis, n in enumerate(source)]
        else:
            result = [n for axis, n in enumerate(source) if axis not in axes]
        return (TensorType(tensor(self.x).element_type, result),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axes = self.reduced_axes()
        inner = iter(reduced)
        if flag(self.keepdims):
            return tuple(next(inner) if axis in axes else i for axis, i in enumerate(index))
        outer = iter(index)
        return tuple(next(inner) if axis in axes else next(outer) for axis in range(len(shape(self.x))))

    def scalar(self, x: Scalar) -> Scalar:
        return x

    def initial(self) -> int | float | bool:
        if self.EMPTY is not None:
            return self.EMPTY
        element = dtype(self.x)
        largest = self.COMBINE == "min"
        if element.is_float:
            return float("inf") if largest else float("-inf")
        if element.kind is Kind.UINT:
            return 2**element.bits - 1 if largest else 0
        return 2 ** (element.bits - 1) - 1 if largest else -(2 ** (element.bits - 1))


@irdl_op_definition
class SumOp(Reduction):
    """Integers wrap; narrow floats accumulate in f32."""

    name = "graph.sum"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0


@irdl_op_definition
class ProdOp(Reduction):
    name = "graph.prod"
    COMBINE: ClassVar[str] = "mul"
    EMPTY: ClassVar[int | float | bool | None] = 1


@irdl_op_definition
class MaxOp(Reduction):
    """NaN when any element is."""

    name = "graph.max"
    COMBINE: ClassVar[str] = "max"


@irdl_op_definition
class MinOp(Reduction):
    """NaN when any element is."""

    name = "graph.min"
    COMBINE: ClassVar[str] = "min"


@irdl_op_definition
class AnyOp(Reduction):
    """Whether one of the i1 elements holds; bitwise or of integers."""

    name = "graph.any"
    COMBINE: ClassVar[str] = "or"
    EMPTY: ClassVar[int | float | bool | None] = False


@irdl_op_definition
class AllOp(Reduction):
    """Whether all i1 elements hold; bitwise and of integers."""

    name = "graph.all"
    COMBINE: ClassVar[str] = "and"
    EMPTY: ClassVar[int | float | bool | None] = True

    def initial(self) -> int | float | bool:
        return True if dtype(self.x) is BOOL else -1
