"""Orders and running totals: sort, top_k, cumulative sums and products.

NaN is greater than every number: last in ascending order, first in descending order, as in torch (NumPy, for ascending
order). -0.0 and 0.0 are equal. Equal elements keep their order, ascending and descending, so that every backend gives the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, BoolAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import AxisOp
from fuse_opt.dialects.interfaces.op import ErrorBound
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import flag
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, extents_of, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.types.dtypes import BOOL


class Ordering(AxisOp, OpaqueOp):
    """Along `axis` (default -1), ascending unless `descending` (default false)."""

    DEFAULT_AXIS: ClassVar[int] = -1
    x = operand_def(TensorType)
    result = result_def(TensorType)
    descending = opt_prop_def(BoolAttr)
    stable = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        self.checked_axis()
        return (tensor(self.x),)


@irdl_op_definition
class SortOp(Ordering):
    """The elements in order along `axis` (default -1), ascending unless `descending` (default false): array API `sort`.

    Equal elements keep their order; `stable = false` (default true) allows an implementation to leave that to chance. NaN
    is greater than every number.
    """

    name = "graph.sort"


@irdl_op_definition
class ArgsortOp(Ordering):
    """Where the elements in order along `axis` (default -1) come from, as i64: array API `argsort`.

    `descending` (default false) and `stable` (default true) as in `graph.sort`; NaN is greater than every number.
    """

    name = "graph.argsort"

    def infer_types(self) -> Sequence[AnyTensor]:
        (like,) = super().infer_types()
        return (tensor_type(i64, extents_of(like)),)


@irdl_op_definition
class TopKOp(AxisOp, OpaqueOp):
    """The `k` largest elements along `axis` (default -1), in descending order, and where they come from (i64).

    With `largest = false` (default true) the smallest in ascending order. Of equal elements those of smaller indices come
    first, as in ONNX `TopK`. `sorted = false` (default true) allows an implementation any order of the k. NaN is greater
    than every number.
    """

    name = "graph.top_k"
    DEFAULT_AXIS: ClassVar[int] = -1
    x = operand_def(TensorType)
    values = result_def(TensorType)
    indices = result_def(TensorType)
    k = prop_def(IntegerAttr)
    largest = opt_prop_def(BoolAttr)
    sorted = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source, k = shape(self.x), self.k.value.data
        axis = self.checked_axis()
        if k < 0 or k > source[axis] != DYNAMIC_INDEX:
            raise VerifyException(
                f"attribute 'k': expected 0 to {source[axis]}, the extent of axis {axis} of {shape_text(source)}, got {k}"
            )
        extents = [*source[:axis], k, *source[axis + 1 :]]
        return (tensor_type(tensor(self.x).element_type, extents), tensor_type(i64, extents))


@irdl_op_definition
class SearchsortedOp(OpaqueOp):
    """Where each element of `values` belongs in `x` (1-d, ascending) to keep it in order, as i64: array API `searchsorted`.

    `side` is "left" (the default: before equal elements) or "right" (behind them). What an x that is not in order gives is
    not defined. NaN is greater than every number.
    """

    name = "graph.searchsorted"
    x = operand_def(TensorType)
    values = operand_def(TensorType)
    result = result_def(TensorType)
    side = opt_prop_def(StringAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if len(shape(self.x)) != 1:
            raise VerifyException(f"operand 'x': expected rank 1, got {shape_text(shape(self.x))}")
        if dtype(self.x) is not dtype(self.values):
            raise VerifyException(f"element types {dtype(self.x)} and {dtype(self.values)} differ; insert graph.astype")
        if self.side is not None and self.side.data not in ("left", "right"):
            raise VerifyException(f'attribute \'side\': expected "left" or "right", got "{self.side.data}"')
        return (tensor_type(i64, shape(self.values)),)


class Cumulative(AxisOp, OpaqueOp):
    """Running totals along an axis."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    include_initial = opt_prop_def(BoolAttr)
    exclusive = opt_prop_def(BoolAttr)
    reverse = opt_prop_def(BoolAttr)

    def checked_axis(self) -> int:
        rank = len(shape(self.x))
        if self.axis is None and rank != 1:
            raise VerifyException(f"attribute 'axis': expected one for a tensor of rank {rank}, got none")
        return super().checked_axis()

    def infer_types(self) -> Sequence[AnyTensor]:
        if dtype(self.x) is BOOL:
            raise VerifyException("expected numbers, got i1; insert graph.astype")
        if flag(self.include_initial) and flag(self.exclusive):
            raise VerifyException("attributes 'include_initial' and 'exclusive' exclude each other; remove one")
        extents, axis = list(shape(self.x)), self.checked_axis()
        if flag(self.include_initial) and extents[axis] != DYNAMIC_INDEX:
            extents[axis] += 1
        return (tensor_type(tensor(self.x).element_type, extents),)

    def count(self) -> int:
        """The most elements that are joined."""
        return max(0, shape(self.x)[self.checked_axis()])


@irdl_op_definition
class CumulativeSumOp(Cumulative):
    """Sums of the elements so far along `axis`, which only a 1-d tensor may leave out: array API `cumulative_sum`.

    `include_initial` (default false) puts a 0 in front. As in ONNX `CumSum`, `exclusive` (default false) leaves the element
    itself out, and `reverse` (default false) sums from the end. Integers wrap; floats are added to +0, as in PyTorch, without
    rounding to their type in between, or at most to f32.
    """

    name = "graph.cumulative_sum"

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0, self.count()) if dtype(self.x).is_float else ErrorBound()


@irdl_op_definition
class CumulativeProdOp(Cumulative):
    """Products of the elements so far along `axis`, which only a 1-d tensor may leave out: array API `cumulative_prod`.

    `include_initial` (default false) puts a 1 in front. As in ONNX `CumProd`, `exclusive` (default false) leaves the element
    itself out, and `reverse` (default false) multiplies from the end. Integers wrap; floats are multiplied without rounding
    to their type in between, or at most to f32.
    """

    name = "graph.cumulative_prod"

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0 + self.count()) if dtype(self.x).is_float else ErrorBound()
