"""Parts of sparse values as ops are built over them: elements at the places of a pattern, other patterns, rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from fuse_opt.dialects.graph.bases.movement import slice_properties
from fuse_opt.dialects.graph.creation.constant import number_constant
from fuse_opt.dialects.graph.creation.filled import FullOp, IotaOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MaximumOp, MinimumOp, SubtractOp, WhereOp
from fuse_opt.dialects.graph.elementwise.comparison import GreaterEqualOp, LessOp
from fuse_opt.dialects.graph.movement.gather import IndexOp, TakeOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp, SliceOp
from fuse_opt.dialects.graph.sparse.csr import CsrRowsOp, CsrTakeOp, CsrTransposeOp, CsrUnionOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, float_value, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import dtype, shape, tensor


class Parts(NamedTuple):
    """The parts of a value of a storage kind."""

    indptr: SSAValue
    indices: SSAValue
    values: SSAValue

    @property
    def capacity(self) -> int:
        return shape(self.indices)[0]

    def shares_pattern(self, other: Parts) -> bool:
        """Whether both are known to have entries at the same places."""
        return self.indptr is other.indptr and self.indices is other.indices


def zeros(builder: GraphBuilder, extents: Sequence[int], like: SSAValue) -> SSAValue:
    """A tensor of zeros of the element type of another one."""
    zero = float_value(0.0) if dtype(like).is_float else int_value(0)
    return builder(FullOp, value=zero, shape=int_array(extents), dtype=tensor(like).element_type)


def reshaped(builder: GraphBuilder, x: SSAValue, extents: Sequence[int]) -> SSAValue:
    return x if shape(x) == tuple(extents) else builder(ReshapeOp, x, shape=int_array(extents))


def some(builder: GraphBuilder, x: SSAValue, first: int, count: int) -> SSAValue:
    """Neighbouring elements of a list."""
    return builder(SliceOp, x, **slice_properties([range(first, first + count)], shape(x)))


def rows_at(builder: GraphBuilder, x: SSAValue, positions: SSAValue) -> SSAValue:
    """Rows of x (of a list: elements); zeros where x has none, as positions are then of no account."""
    if not shape(x)[0] or not shape(positions)[0]:
        return zeros(builder, (*shape(positions), *shape(x)[1:]), x)
    return builder(TakeOp, x, positions, axis=int_value(0))


def spread(builder: GraphBuilder, values: SSAValue, places: SSAValue) -> SSAValue:
    """Rows of values at places, zeros where a place is -1."""
    zero = number_constant(builder, 0, places)
    there = builder(GreaterEqualOp, places, zero)
    found = rows_at(builder, values, builder(MaximumOp, places, zero))
    there = reshaped(builder, there, (*shape(places), *[1] * (len(shape(values)) - 1)))
    return builder(WhereOp, there, found, number_constant(builder, 0, values))


def at_pattern(builder: GraphBuilder, x: SSAValue, indptr: SSAValue, indices: SSAValue) -> SSAValue:
    """The elements at the places of a csr pattern of a dense tensor that broadcasts to the matrix."""
    extents = shape(x)
    if prod(extents) == 1:
        return reshaped(builder, x, ())
    if len(extents) < 2 or extents[0] == 1:
        return rows_at(builder, reshaped(builder, x, extents[-1:]), indices)
    rows = builder(CsrRowsOp, indptr, capacity=int_value(shape(indices)[0]))
    if extents[1] == 1:
        return rows_at(builder, reshaped(builder, x, extents[:1]), rows)
    if not prod(extents) or not shape(indices)[0]:
        return zeros(builder, shape(indices), x)
    return builder(IndexOp, x, rows, indices)


def transposed(builder: GraphBuilder, parts: Parts, columns: int) -> Parts:
    """The parts of the transposed matrix."""
    indptr, indices, places = builder.all(CsrTransposeOp, parts.indptr, parts.indices, columns=int_value(columns))
    return Parts(indptr, indices, rows_at(builder, parts.values, places))


def union(builder: GraphBuilder, a: Parts, b: Parts, capacity: int) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
    """The pattern of both, and where each of its places is in the one and the other."""
    operands = (a.indptr, a.indices, b.indptr, b.indices)
    indptr, indices, in_a, in_b = builder.all(CsrUnionOp, *operands, capacity=int_value(capacity))
    return indptr, indices, in_a, in_b


def resized(builder: GraphBuilder, parts: Parts, capacity: int) -> Parts:
    """The same entries with room for another number of them."""
    if capacity == parts.capacity:
        return parts
    indptr, indices, places, _ = union(builder, parts, parts, capacity)
    return Parts(indptr, indices, spread(builder, parts.values, places))


def taken(builder: GraphBuilder, parts: Parts, ids: SSAValue, capacity: int, wraps: bool) -> Parts:
    """The rows of a csr matrix that ids name."""
    given = {"capacity": int_value(capacity), "wrap_negative": bool_value(wraps)}
    indptr, indices, places = builder.all(CsrTakeOp, parts.indptr, parts.indices, ids, **given)
    return Parts(indptr, indices, rows_at(builder, parts.values, places))


def row_slice(builder: GraphBuilder, parts: Parts, start: int, rows: int, capacity: int) -> Parts:
    """Neighbouring rows of a csr matrix."""
    bounds = some(builder, parts.indptr, start, rows + 1)
    first, last = some(builder, bounds, 0, 1), some(builder, bounds, rows, 1)
    indptr = builder(SubtractOp, bounds, first)
    if not capacity:
        return Parts(indptr, some(builder, parts.indices, 0, 0), some(builder, parts.values, 0, 0))
    places = builder(AddOp, builder(IotaOp, shape=int_array([capacity]), dtype=i32), first)
    inside = builder(LessOp, places, last)
    safe = builder(MinimumOp, places, number_constant(builder, parts.capacity - 1, places))
    indices = builder(WhereOp, inside, rows_at(builder, parts.indices, safe), number_constant(builder, 0, places))
    return Parts(indptr, indices, rows_at(builder, parts.values, safe))
