"""Writes at positions that are data: scatter, index_put, the backward form of an embedding.

Operands are never written to: the result is a copy of x with the updates in it. Indices are those of `graph_indexing`.
Where several updates meet in one element, they are applied in row-major order of the indices, so that the last one stays
where nothing is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
)
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.bases.movement import AxisOp
from fuse_opt.dialects.graph.movement.gather import indexed_shape, position_length
from fuse_opt.dialects.graph.movement.read_at import index_shape
from fuse_opt.dialects.interfaces.op import ErrorBound
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import flag
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    agree,
    dtype,
    extents_of,
    is_static,
    shape,
    shape_text,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.interfaces.stored_rules import GradientRows, StoredRule
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import RowSparseAttr, stored_as

REDUCTIONS = ("add", "mul", "max", "min")


def _same_type(name: str, value: SSAValue, x: SSAValue) -> None:
    if dtype(value) is not dtype(x):
        raise VerifyException(f"operand '{name}': expected elements of type {dtype(x)} as x has, got {dtype(value)}")


def _reduced(x: SSAValue, reduce: str, count: int) -> ErrorBound:
    """The tolerance where so many updates may meet in one element."""
    if not dtype(x).is_float or reduce not in ("add", "mul"):
        return ErrorBound()
    return ErrorBound(1.0, count) if reduce == "add" else ErrorBound(1.0 + count)


def _refuse_bools(x: SSAValue) -> None:
    if dtype(x) is BOOL:
        raise VerifyException("expected numbers to reduce, got i1; insert graph.astype")


def _reduction(attribute: StringAttr | None, x: SSAValue, allowed: Sequence[str]) -> str:
    """The name of a reduction; raises VerifyException when there is none like it, or it does not apply to x."""
    reduce = allowed[0] if attribute is None else attribute.data
    if reduce not in allowed:
        raise VerifyException(f"attribute 'reduce': expected one of {', '.join(allowed)}, got \"{reduce}\"")
    if reduce in REDUCTIONS:
        _refuse_bools(x)
    return reduce


class AlongAxis(AxisOp, OpaqueOp):
    """Updates put into a copy of x along `axis` (default 0), where `indices`, of the updates' shape, says it."""

    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    result = result_def(TensorType)
    wrap_negative = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source, indices, updates = shape(self.x), index_shape(self.indices), shape(self.updates)
        _same_type("updates", self.updates, self.x)
        axis = self.checked_axis()
        if not agree(indices, updates):
            raise VerifyException(
                f"operand 'updates': expected shape {shape_text(indices)} as the indices have, got {shape_text(updates)}; "
                "slice or broadcast them"
            )
        if len(indices) != len(source) or any(
            n > m != DYNAMIC_INDEX for k, (n, m) in enumerate(zip(indices, source, strict=True)) if k != axis
        ):
            raise VerifyException(
                f"operand 'indices': expected rank {len(source)} and no more than {shape_text(source)} beside axis {axis}, "
                f"got {shape_text(indices)}"
            )
        return (tensor(self.x),)

    def meeting(self) -> int:
        """How many updates may meet in one element."""
        return shape(self.indices)[self.checked_axis()]


@irdl_op_definition
class ScatterOp(AlongAxis):
    """A copy of x with `updates` at the positions that `indices` gives along `axis` (default 0): torch `scatter`.

    Also ONNX `ScatterElements`. Of several updates for one element the last in row-major order stays. On the other axes
    the indices may be shorter than x.
    """

    name = "graph.scatter"
    ACCEPTS_STORAGE: ClassVar[bool] = True


@irdl_op_definition
class ScatterAddOp(AlongAxis):
    """A copy of x with `updates` added at the positions that `indices` gives along `axis` (default 0): torch `scatter_add`.

    Integers wrap; narrow floats are added in f32 and rounded once.
    """

    name = "graph.scatter_add"

    def infer_types(self) -> Sequence[AnyTensor]:
        _refuse_bools(self.x)
        return super().infer_types()

    def error_bound(self) -> ErrorBound:
        return _reduced(self.x, "add", self.meeting())


@irdl_op_definition
class ScatterReduceOp(AlongAxis):
    """A copy of x whose elements are joined with `updates` along `axis` (default 0) by `reduce`: add, mul, max or min.

    ONNX `ScatterElements` with a reduction, torch `scatter_reduce` with `include_self`. Integers wrap; narrow floats are
    computed in f32 and rounded once; NaN makes max and min NaN.
    """

    name = "graph.scatter_reduce"
    reduce = prop_def(StringAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        _reduction(self.reduce, self.x, REDUCTIONS)
        return super().infer_types()

    def error_bound(self) -> ErrorBound:
        return _reduced(self.x, self.reduce.data, self.meeting())


@irdl_op_definition
class ScatterNdOp(OpaqueOp):
    """A copy of x with `updates` at the positions along the last axis of `indices`: ONNX `ScatterND`.

    A position of length k names the first k axes of x. `reduce` (default none: the last update stays) joins what is there
    with the updates: add, mul, max or min.
    """

    name = "graph.scatter_nd"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    result = result_def(TensorType)
    reduce = opt_prop_def(StringAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source, indices = shape(self.x), index_shape(self.indices)
        _same_type("updates", self.updates, self.x)
        _reduction(self.reduce, self.x, ("none", *REDUCTIONS))
        expected = (*indices[:-1], *source[position_length(indices, len(source)) :])
        if not agree(expected, shape(self.updates)):
            raise VerifyException(
                f"operand 'updates': expected shape {shape_text(expected)}, got {shape_text(shape(self.updates))}"
            )
        return (tensor(self.x),)

    def refuse_arithmetic(self) -> None:
        if self.reduce is not None and self.reduce.data != "none":
            super().refuse_arithmetic()

    def error_bound(self) -> ErrorBound:
        reduce = "none" if self.reduce is None else self.reduce.data
        return _reduced(self.x, reduce, prod(shape(self.indices)[:-1]))


@irdl_op_definition
class IndexPutOp(OpaqueOp):
    """A copy of x with `values`, broadcast, at what `graph.index` reads: NumPy's `x[i, :, j] = values`, torch `index_put`.

    With `accumulate` (default false) they are added, else the last of several values for one element stays. Operands: x,
    values, and the index tensors.
    """

    name = "graph.index_put"
    x = operand_def(TensorType)
    values = operand_def(TensorType)
    indices = var_operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])
    accumulate = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        _same_type("values", self.values, self.x)
        expected, given = indexed_shape(self.x, self.indices, self.axes), shape(self.values)
        if flag(self.accumulate):
            _refuse_bools(self.x)
        if len(given) > len(expected) or not agree(broadcast_shapes([given, expected]), expected):
            raise VerifyException(
                f"operand 'values': expected a shape that broadcasts to {shape_text(expected)}, got {shape_text(given)}"
            )
        return (tensor(self.x),)

    def refuse_arithmetic(self) -> None:
        if flag(self.accumulate):
            super().refuse_arithmetic()

    def error_bound(self) -> ErrorBound:
        together = broadcast_shapes([shape(value) for value in self.indices])
        return _reduced(self.x, "add" if flag(self.accumulate) else "none", prod(together))


@irdl_op_definition
class EmbeddingBackwardOp(OpaqueOp):
    """Gradient of `graph.embedding` with respect to its weight of `rows` rows: each row of `grad` is added at its id.

    `grad` is [ids..., width], the result [rows, width], which may be row-sparse. Ids equal to `padding_index` (default:
    none are) add nothing. Sums are in the order of the ids, of narrow floats in f32, rounded once.
    """

    name = "graph.embedding_backward"
    grad = operand_def(TensorType)
    ids = operand_def(TensorType)
    result = result_def(TensorType)
    rows = prop_def(IntegerAttr)
    padding_index = opt_prop_def(IntegerAttr)
    wrap_negative = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        grad, ids, rows = shape(self.grad), index_shape(self.ids, "ids"), self.rows.value.data
        if not dtype(self.grad).is_float:
            raise VerifyException(f"operand 'grad': expected floats, got '{self.grad.type}'")
        if len(grad) != len(ids) + 1 or not agree(grad[:-1], ids):
            raise VerifyException(
                f"operand 'grad': expected {shape_text((*ids, DYNAMIC_INDEX))}, a row for each id, got {shape_text(grad)}"
            )
        if rows < 0:
            raise VerifyException(f"attribute 'rows': expected 0 or more, got {rows}")
        return (tensor_type(tensor(self.grad).element_type, [rows, grad[-1]]),)

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        """Where its result is written as row-sparse."""
        kind = stored_as(self.result.type) if self.results else None
        if not isinstance(kind, RowSparseAttr) or stored_as(self.grad.type) or not all(map(is_static, self.operands)):
            return None
        (type_,) = self.infer_types()
        padding = None if self.padding_index is None else self.padding_index.value.data
        wraps = self.wrap_negative is None or flag(self.wrap_negative)
        wanted = kind.bounded(extents_of(type_), prod(shape(self.ids)))
        return GradientRows((with_encoding(type_, wanted),), padding, wraps)

    def error_bound(self) -> ErrorBound:
        return _reduced(self.grad, "add", prod(shape(self.ids)))
