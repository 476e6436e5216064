"""Opaque ops of linear algebra: run as a whole by an implementation (a library, or a kernel of its own)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.elementwise.arithmetic import AstypeOp, MultiplyOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import BroadcastToOp, PermuteDimsOp, ReshapeOp, SliceOp
from fuse_opt.dialects.graph.reductions.reductions import SumOp
from fuse_opt.dialects.interfaces.contraction import Contraction, row_major
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import bool_value, flag, int_array
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    agree,
    dtype,
    is_static,
    shape,
    shape_text,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.interfaces.stored_rules import Product, StoredRule
from fuse_opt.dialects.types.dtypes import BOOL, DType, Kind, dtype_of
from fuse_opt.dialects.types.storage_kinds import CsrAttr, stored_as


def _matrices(lhs: SSAValue, rhs: SSAValue) -> tuple[list[int], list[int]]:
    """Their shapes, vectors as a row and a column."""
    a, b = list(shape(lhs)), list(shape(rhs))
    return a if len(a) > 1 else [1, *a], b if len(b) > 1 else [*b, 1]


def _turned(builder: GraphBuilder, value: SSAValue) -> SSAValue:
    """With its last two axes swapped."""
    last = len(shape(value)) - 2
    return builder(PermuteDimsOp, value, axes=int_array([*range(last), last + 1, last]))


def _padded(builder: GraphBuilder, value: SSAValue, added: Sequence[int]) -> SSAValue:
    """With so many zeros behind the last two axes."""
    outer = len(shape(value)) - 2
    if not any(added):
        return value
    return builder(PadOp, value, pads=int_array([*[0] * (2 * outer + 2), *added]))


@irdl_op_definition
class MatmulOp(OpaqueOp):
    """Matrix product as in the array API: stacks broadcast over leading axes, a 1-d operand is a row or a column.

    `transpose_lhs` and `transpose_rhs` (default false) swap the last two axes of that operand first, which must have
    rank 2 or more; nothing is copied for it. Integers are exact and wrap. Narrow floats are computed in f32 and rounded
    once. Over an empty contracted dimension the result is 0.

    `dtype` is a wider element type for the result, in which the product is computed: of 8-bit integers, which may then be of
    two types, mostly i32, and of f16 or bf16 f32, which is not rounded.
    """

    name = "graph.matmul"
    TAKES_ORDERS: ClassVar[bool] = True
    SLACK: ClassVar[float] = 32.0
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    transpose_lhs = opt_prop_def(BoolAttr)
    transpose_rhs = opt_prop_def(BoolAttr)
    dtype = opt_prop_def(Attribute)

    def infer_types(self) -> Sequence[AnyTensor]:
        a, b = shape(self.lhs), shape(self.rhs)
        if len(a) == 0 or len(b) == 0:
            raise VerifyException("expected operands of rank 1 or more, got a scalar")
        element = self._element()
        a = _oriented("transpose_lhs", self.transpose_lhs, a)
        b = _oriented("transpose_rhs", self.transpose_rhs, b)
        inner_a, inner_b = a[-1], b[-2:][0]
        if not agree((inner_a,), (inner_b,)):
            raise VerifyException(
                f"contracted dimensions differ: the last of {shape_text(a)} is {inner_a}, "
                f"that of {shape_text(b)} is {inner_b}; they must be equal"
            )
        result = (*broadcast_shapes([a[:-2], b[:-2]]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
        return (tensor_type(element, result),)

    def _element(self) -> Attribute:
        """Of the result."""
        given = [dtype(self.lhs), dtype(self.rhs)]
        if BOOL in given:
            raise VerifyException("expected operands of numbers, got i1; insert graph.astype")
        if given[0] is not given[1] and (self.dtype is None or given[0].is_float or given[1].is_float):
            raise VerifyException(f"element types {given[0]} and {given[1]} differ; insert graph.astype")
        if self.dtype is None:
            return tensor(self.lhs).element_type
        wanted = dtype_of(self.dtype)
        if wanted is None or not all(_holds(wanted, each) for each in given):
            raise VerifyException(
                f"attribute 'dtype': expected a type that holds all of {given[0]} and {given[1]}, got '{self.dtype}'"
            )
        return self.dtype

    def contraction(self) -> Contraction | None:
        transposed = flag(self.transpose_lhs), flag(self.transpose_rhs)
        return _contraction(shape(self.lhs), shape(self.rhs), shape(self.result), transposed)

    def scaled_axes(self) -> tuple[int, int] | None:
        rank = len(shape(self.rhs))
        return (rank - 1 - flag(self.transpose_rhs), len(shape(self.result)) - 1) if rank > 1 else None

    def aligned(self, builder: GraphBuilder, nbytes: int) -> SSAValue | None:
        """Of a stack of matrices by one matrix, all in rows."""
        values = (self.lhs, self.rhs, self.result)
        a, b, result = map(shape, values)
        if not all(map(is_static, values)) or any_encoded(values) or len(a) < 2 or len(b) != 2 or not all((*a, *b)):
            return None
        turned, per = (flag(self.transpose_lhs), flag(self.transpose_rhs)), nbytes // dtype(self.lhs).itemsize
        rows, depth, columns = result[-2], a[-2 if turned[0] else -1], result[-1]
        added = [-n % per for n in (rows if turned[0] else 0, depth, columns)]
        if per < 2 or not any(added):
            return None
        lhs, rhs = added[:2], added[1:]
        x = _padded(builder, self.lhs, lhs[::-1] if turned[0] else lhs)
        weight = _padded(builder, self.rhs, rhs[::-1] if turned[1] else rhs)
        kept = {name: value for name, value in self.properties.items() if name != "use_implementation"}
        made = builder(MatmulOp, x, weight, **kept)
        if shape(made) == result:
            return made
        return builder(SliceOp, made, starts=int_array([0] * len(result)), stops=int_array(result))

    def otherwise(self, builder: GraphBuilder) -> SSAValue | None:
        """Of floats the product of a stack for each of the result's; of integers, or of nothing, sums of products of elements."""
        values = (self.lhs, self.rhs, self.result)
        if not all(map(is_static, values)) or any_encoded(values):
            return None
        if dtype(self.lhs).is_float and all(extent for value in values for extent in shape(value)):
            return self._by_full_stacks(builder)
        wide = tensor(self.result).element_type
        lhs, rhs = (
            value if tensor(value).element_type == wide else builder(AstypeOp, value, dtype=wide)
            for value in (self.lhs, self.rhs)
        )
        a, b = _matrices(self.lhs, self.rhs)
        lhs, rhs = (builder(ReshapeOp, value, shape=int_array(each)) for value, each in ((lhs, a), (rhs, b)))
        lhs = _turned(builder, lhs) if flag(self.transpose_lhs) else lhs
        if by_rows := flag(self.transpose_rhs):  # both are read along the sums
            pair = [(lhs, (*shape(lhs)[:-1], 1, shape(lhs)[-1])), (rhs, (*shape(rhs)[:-2], 1, *shape(rhs)[-2:]))]
        else:
            pair = [(lhs, (*shape(lhs), 1)), (rhs, (*shape(rhs)[:-2], 1, *shape(rhs)[-2:]))]
        terms = builder(MultiplyOp, *(builder(ReshapeOp, value, shape=int_array(each)) for value, each in pair))
        sums = builder(SumOp, terms, axes=int_array([len(shape(terms)) - (1 if by_rows else 2)]))
        return builder(ReshapeOp, sums, shape=int_array(shape(self.result)))

    def _by_full_stacks(self, builder: GraphBuilder) -> SSAValue | None:
        """None where the operands' stacks are the result's already."""
        stack = broadcast_shapes([shape(self.lhs)[:-2], shape(self.rhs)[:-2]])
        if any(len(shape(value)) < 2 for value in (self.lhs, self.rhs)):
            return None
        if all(shape(value)[:-2] == tuple(stack) for value in (self.lhs, self.rhs)):
            return None
        full = [
            builder(BroadcastToOp, value, shape=int_array([*stack, *shape(value)[-2:]]))
            for value in (self.lhs, self.rhs)
        ]
        kept = {name: value for name, value in self.properties.items() if name != "use_implementation"}
        return builder(MatmulOp, *full, **kept)

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        stored = [number for number, value in enumerate(self.operands) if stored_as(value.type) is not None]
        if (
            len(stored) != 1
            or not isinstance(stored_as(self.operands[stored[0]].type), CsrAttr)
            or self.dtype is not None
        ):
            return None
        if len(shape(self.operands[1 - stored[0]])) > 2 or not is_static(self.operands[1 - stored[0]]):
            return None
        return Product(tuple(self.infer_types()), stored[0], (flag(self.transpose_lhs), flag(self.transpose_rhs)))

    def permuted(self, order: Sequence[int]) -> GraphOp | None:
        """With its last two axes swapped, the product of the operands in the other order, each transposed."""
        lhs, rhs, last = self.lhs, self.rhs, len(order) - 2
        if last < 0 or list(order) != [*range(last), last + 1, last] or any_encoded((lhs, rhs, self.result)):
            return None
        if len(shape(lhs)) != len(shape(rhs)) or shape(lhs)[:-2] != shape(rhs)[:-2]:
            return None  # rows of a stack that meet one operand are one product, its columns are several
        flags = {"transpose_lhs": not flag(self.transpose_rhs), "transpose_rhs": not flag(self.transpose_lhs)}
        kept: dict[str, Attribute] = {name: bool_value(True) for name, value in flags.items() if value}
        if self.dtype is not None:
            kept["dtype"] = self.dtype
        return MatmulOp.build_op(rhs, lhs, **kept)

    def canonical(self) -> GraphOp | None:
        """Of what an operand was transposed from."""
        lhs, rhs = _untransposed(self.lhs), _untransposed(self.rhs)
        if lhs is None and rhs is None:
            return None
        transposed = {"transpose_lhs": (lhs, self.transpose_lhs), "transpose_rhs": (rhs, self.transpose_rhs)}
        flags = {name: bool_value(flag(given) != (source is not None)) for name, (source, given) in transposed.items()}
        kept: dict[str, Attribute] = {name: value for name, value in flags.items() if flag(value)}
        if self.dtype is not None:
            kept["dtype"] = self.dtype
        return MatmulOp.build_op(self.lhs if lhs is None else lhs, self.rhs if rhs is None else rhs, **kept)


def _holds(wider: DType, element: DType) -> bool:
    """Whether each number of an element type is one of a wider type, of the same kind but for unsigned integers."""
    if wider.is_float or element.is_float:
        return wider.is_float and element.is_float and wider.bits > element.bits
    signed_of_unsigned = element.kind is Kind.UINT and wider.kind is Kind.INT
    return wider.bits > element.bits and (wider.kind is element.kind or signed_of_unsigned)


@lru_cache(1024)  # rules ask for it at every change of a program, whose layers are alike
def _contraction(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...], transposed: tuple[bool, bool]
) -> Contraction:
    depth = left[-2] if transposed[0] else left[-1]
    lhs, rhs = _strides(left, transposed[0]), _strides(right, transposed[1])
    lhs = lhs if len(lhs) > 1 else [0, *lhs]
    rhs = rhs if len(rhs) > 1 else [*rhs, 0]
    rows = result[-1 - (len(right) > 1)] if len(left) > 1 else 1
    columns = result[-1] if len(right) > 1 else 1
    batch = result[: len(result) - (len(left) > 1) - (len(right) > 1)]
    lhs, rhs = ([0] * (len(batch) + 2 - len(strides)) + strides for strides in (lhs, rhs))
    return Contraction(batch, rows, columns, depth, tuple(lhs), tuple(rhs)).merged()


def _strides(extents: tuple[int, ...], transposed: bool) -> list[int]:
    """Of an operand's axes as they are multiplied."""
    strides = row_major(extents)
    return [*strides[:-2], strides[-1], strides[-2]] if transposed else strides


def _untransposed(value: SSAValue) -> SSAValue | None:
    """
    What a value is with its last two axes swapped, when an op did no more than that; or a view that keeps the last axis of what
    it is of last, where the value has it before its own last one.
    """
    view = value.owner
    if not isinstance(view, PermuteDimsOp) or len(order := view.order()) < 2 or order[-2] != len(order) - 1:
        return None
    straight = (*order[:-2], order[-1], order[-2])
    if straight == tuple(range(len(order))):
        return view.x
    return PermuteDimsOp.build_op(view.x, axes=int_array(straight)).results[0]


def _oriented(name: str, transpose: BoolAttr | None, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The shape as it is multiplied; raises VerifyException when there are no two axes to swap."""
    if not flag(transpose):
        return extents
    if len(extents) < 2:
        raise VerifyException(
            f"attribute '{name}': expected an operand of rank 2 or more, got {shape_text(extents)}; remove the attribute"
        )
    return (*extents[:-2], extents[-1], extents[-2])
