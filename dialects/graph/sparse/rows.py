"""Ops over the parts of row-sparse tensors: `indptr` is 0 and how many rows there are, `indices` which, ascending.

So a list of rows is the pattern of a csr matrix of one row, and what works out patterns of these does for rows, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i32
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.sparse.csr import count_of, positions
from fuse_opt.dialects.interfaces.op import ErrorBound
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, shape_text, tensor
from fuse_opt.dialects.types.dtypes import BOOL


class _RowsOp(OpaqueOp):
    """A copy of x with other rows in the place of those that are listed."""

    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    indptr = operand_def(TensorType)
    indices = operand_def(TensorType)
    values = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        positions("indptr", self.indptr, (2,))
        wanted = (positions("indices", self.indices), *shape(self.x)[1:])
        if not shape(self.x) or shape(self.values) != wanted or dtype(self.values) is not dtype(self.x):
            raise VerifyException(
                f"operand 'values': expected elements of {dtype(self.x)} and shape {shape_text(wanted)}, as rows of x are, "
                f"got '{self.values.type}'"
            )
        return (tensor(self.x),)

    def elements_touched(self) -> Sequence[int | None]:
        """In place nothing but the rows that are listed is written, and none read."""
        return 0, None, None, None, prod(shape(self.values))


@irdl_op_definition
class RowsPutOp(_RowsOp):
    """A copy of x with other rows in the place of those that are listed: `values` [capacity, ...], of which `indptr[1]` count."""

    name = "graph.rows_put"


@irdl_op_definition
class RowsSubtractOp(_RowsOp):
    """A copy of x with `values` [capacity, ...], of which `indptr[1]` count, subtracted from the rows that are listed; floats."""

    name = "graph.rows_subtract"
    ACCEPTS_STORAGE: ClassVar[bool] = False
    ULPS: ClassVar[float | None] = 0.5

    def infer_types(self) -> Sequence[AnyTensor]:
        if not dtype(self.x).is_float:
            raise VerifyException(f"operand 'x': expected floats, got '{self.x.type}'; insert graph.astype")
        return super().infer_types()

    def elements_touched(self) -> Sequence[int | None]:
        """In place the rows that are listed are read and written."""
        return prod(shape(self.values)), None, None, None, prod(shape(self.values))


@irdl_op_definition
class EmbeddingRowsBackwardOp(OpaqueOp):
    """The parts of `graph.embedding_backward` as a row-sparse tensor: each id that occurs, and the sum of its rows of `grad`.

    Sums are in the order of the ids, of narrow floats in f32, rounded once. More different ids than `capacity` are an error
    of the run. Behind the last row `values` holds zeros.
    """

    name = "graph.embedding_rows_backward"
    grad = operand_def(TensorType)
    ids = operand_def(TensorType)
    rows = prop_def(IntegerAttr)
    capacity = prop_def(IntegerAttr)
    padding_index = opt_prop_def(IntegerAttr)
    wrap_negative = opt_prop_def(BoolAttr)
    indptr = result_def(TensorType)
    indices = result_def(TensorType)
    values = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        grad, ids = shape(self.grad), shape(self.ids)
        count_of("rows", self.rows)
        capacity = count_of("capacity", self.capacity)
        if dtype(self.ids).is_float or dtype(self.ids) is BOOL:
            raise VerifyException(f"operand 'ids': expected integers, got '{self.ids.type}'; insert graph.astype")
        if grad[:-1] != ids or len(grad) != len(ids) + 1 or not dtype(self.grad).is_float:
            raise VerifyException(
                f"operand 'grad': expected floats of shape {shape_text((*ids, -1))}, a row for each id, got '{self.grad.type}'"
            )
        element = tensor(self.grad).element_type
        return TensorType(i32, [2]), TensorType(i32, [capacity]), TensorType(element, [capacity, grad[-1]])

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0, prod(shape(self.ids)))
