"""What ops on sparse values are over their parts, by the rules that they have: no op is named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import number_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import DivideOp, SubtractOp
from fuse_opt.dialects.graph.elementwise.comparison import NotEqualOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp
from fuse_opt.dialects.graph.reductions.reductions import AnyOp, SumOp
from fuse_opt.dialects.graph.sparse.csr import (
    CsrFromDenseOp,
    CsrMatmulOp,
    CsrReduceOp,
    CsrRowsOp,
    CsrSampledMatmulOp,
    CsrToDenseOp,
)
from fuse_opt.dialects.graph.sparse.parts import (
    Parts,
    at_pattern,
    reshaped,
    resized,
    row_slice,
    rows_at,
    spread,
    taken,
    transposed,
    union,
    zeros,
)
from fuse_opt.dialects.graph.sparse.rows import EmbeddingRowsBackwardOp, RowsPutOp, RowsSubtractOp
from fuse_opt.dialects.interfaces import stored_rules as rules
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.properties import bool_value, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import dtype, shape, tensor
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import CsrAttr, StorageKind, stored_as

Flat: TypeAlias = Sequence[SSAValue]
"""What a value is made of: of a dense one, itself."""


def over_parts(op: GraphOp, builder: GraphBuilder, operands: Sequence[Flat]) -> list[Flat] | None:
    """
    Builds what an op on operands of these parts is, by the rule for how it is written; None where it has none. Operands that
    share a pattern have the same values for it.
    """
    rule = op.written_rule()
    if rule is None:
        return None
    made = _BUILD[type(rule)](op, rule, builder, operands)
    found: list[Flat] = []
    for result, type_, flat in zip(op.results, rule.results, made, strict=True):
        kind = stored_as(type_)
        is_whole = kind is None or stored_as(result.type) is not None
        found.append(tuple(flat) if is_whole else (_dense(builder, kind, shape(result), _parts(flat)),))
    return found


def fallback_operands(op: GraphOp) -> tuple[int, ...]:
    """Which stored operands are to be made dense for an op that has no way to run on all of them as they are."""
    return operands_in_the_way(op) or tuple(number for number, value in enumerate(op.operands) if is_stored(value))


def operands_in_the_way(op: GraphOp) -> tuple[int, ...]:
    """
    The stored operands without which an op has a way to run on the others as they are: all that are one value, one, or all but
    one, the smallest that is enough; none where nothing is. A value may be stored to one operand and dense to another.
    """
    stored = [number for number, value in enumerate(op.operands) if is_stored(value)]
    alike = [tuple(k for k in stored if op.operands[k] is op.operands[number]) for number in stored]
    rest = [tuple(k for k in stored if k != number) for number in stored]
    sets = dict.fromkeys([*alike, *((number,) for number in stored), *rest])

    def dense_bytes(numbers: Sequence[int]) -> int:
        values = dict.fromkeys(op.operands[number] for number in numbers)
        return sum(prod(shape(value)) * dtype(value).itemsize for value in values)

    wanted = (numbers for numbers in sorted(sets, key=dense_bytes) if 0 < len(numbers) < len(stored))
    return next((numbers for numbers in wanted if _runs_with_dense(op, numbers)), ())


def with_dense(op: GraphOp, numbers: Sequence[int], operands: Sequence[SSAValue]) -> GraphOp:
    """The op outside of any IR, with other values for some operands; its results are as they are written."""
    copy = op.clone()
    copy.operands = [operands[k] if k in numbers else value for k, value in enumerate(op.operands)]
    return copy


def _runs_with_dense(op: GraphOp, numbers: Sequence[int]) -> bool:
    dense = Block(arg_types=[with_encoding(tensor(value), None) for value in op.operands])
    copy = with_dense(op, numbers, dense.args)
    try:
        return copy.written_rule() is not None
    except VerifyException:
        return False
    finally:
        copy.erase()


def _kind(op: GraphOp, rule: rules.StoredRule) -> StorageKind:
    """How the first result is stored: as it is written, or else by the rule."""
    kind = stored_as(op.results[0].type) or stored_as(rule.results[0])
    assert kind is not None
    return kind


def _parts(flat: Flat) -> Parts:
    return Parts(*flat)


def _swapped(builder: GraphBuilder, x: SSAValue) -> SSAValue:
    return builder(PermuteDimsOp, x, axes=int_array([1, 0]))


def _pointwise(op: GraphOp, rule: rules.Pointwise, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    """The op on values, other operands read at the pattern."""
    kind, stored = _kind(op, rule), {number: _parts(operands[number]) for number in rule.stored}
    first = stored[rule.stored[0]]
    alike = all(parts.shares_pattern(first) for parts in stored.values())
    if alike and kind.capacity.data == first.capacity:
        indptr, indices, values = first.indptr, first.indices, {n: parts.values for n, parts in stored.items()}
    else:
        other = next((parts for parts in stored.values() if not parts.shares_pattern(first)), first)
        indptr, indices, in_first, in_other = union(builder, first, other, kind.capacity.data)
        places = {n: in_first if parts.shares_pattern(first) else in_other for n, parts in stored.items()}
        values = {n: spread(builder, parts.values, places[n]) for n, parts in stored.items()}
    for number, flat in enumerate(operands):
        if number in values:
            continue
        if isinstance(kind, CsrAttr):
            values[number] = at_pattern(builder, flat[0], indptr, indices)
        else:
            values[number] = _of_rows(builder, flat[0], shape(op.results[0]), indices)
    return [(indptr, indices, _on(op, builder, [values[number] for number in range(len(operands))]))]


def _on(op: GraphOp, builder: GraphBuilder, values: Sequence[SSAValue]) -> SSAValue:
    """The op's scalar meaning on other operands; a view of the same shape changes nothing."""
    if isinstance(op, StructuredOp) and op.body().function == "operand":
        moved = values[int(op.body().value)]
        if dtype(op.results[0]) is dtype(moved):
            return moved
    return builder(type(op), *values, **op.properties)


def _of_rows(builder: GraphBuilder, x: SSAValue, extents: Sequence[int], indices: SSAValue) -> SSAValue:
    """What of a dense tensor belongs to some rows of one of these extents that it broadcasts to."""
    broadcasts = len(shape(x)) != len(extents) or shape(x)[0] != extents[0]
    is_the_row = extents[0] == 1 and shape(indices) == (1,)
    return x if broadcasts or is_the_row else rows_at(builder, x, indices)


def _row_update(op: GraphOp, rule: rules.RowUpdate, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    (rows,) = dict.fromkeys(_parts(flat) for flat in operands if len(flat) > 1)
    if len(pair := _difference(op, rule, operands)) == 2:
        return [(builder(RowsSubtractOp, operands[pair[0]][0], *rows[:2], operands[pair[1]][2]),)]
    extents = shape(op.results[0])
    values = [flat[2] if len(flat) > 1 else _of_rows(builder, flat[0], extents, rows.indices) for flat in operands]
    step = type(op) if rule.step is None else cast("type[GraphOp]", rule.step)
    found = builder.all(step, *values, **op.properties)
    kept = [operands[number][0] for number in rule.kept]
    put = zip(kept, found, strict=True)
    return [(builder(RowsPutOp, whole, rows.indptr, rows.indices, value),) for whole, value in put]


def _difference(op: GraphOp, rule: rules.RowUpdate, operands: Sequence[Flat]) -> tuple[int, ...]:
    """The operand whose rows stay and the stored one that is subtracted from it, where an op on floats is that."""
    body = op.body() if rule.step is None and isinstance(op, StructuredOp) else None
    if body is None or body.function != "sub" or any(leaf.function != "operand" for leaf in body.args):
        return ()
    kept, taken = (int(leaf.value) for leaf in body.args)
    if len(operands[taken]) == 1 or kept not in rule.kept or not dtype(op.results[0]).is_float:
        return ()
    same = dtype(op.operands[kept]) is dtype(op.operands[taken]) is dtype(op.results[0])
    return (kept, taken) if same else ()


def _reduced(op: GraphOp, rule: rules.Reduced, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    parts, columns = _parts(operands[0]), shape(op.operands[0])[1]
    assert isinstance(op, StructuredOp)
    if op.body().function != "operand" or dtype(op.results[0]) is not dtype(parts.values):
        alone = reshaped(builder, parts.values, (parts.capacity, 1))
        given = {name: value for name, value in op.properties.items() if name not in ("axes", "keepdims")}
        parts = parts._replace(values=builder(type(op), alone, axes=int_array([1]), **given))
    if rule.axes == (0,):
        parts = transposed(builder, parts, columns)
    found = builder(CsrReduceOp, parts.indptr, parts.values)
    if len(rule.axes) == 2:
        found = builder(SumOp, found)
    return [(reshaped(builder, found, shape(op.results[0])),)]


def _transposed(op: GraphOp, rule: rules.Transposed, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    return [transposed(builder, _parts(operands[0]), shape(op.operands[0])[1])]


def _row_slice(op: GraphOp, rule: rules.RowSlice, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    rows, capacity = shape(op.results[0])[0], _kind(op, rule).capacity.data
    return [row_slice(builder, _parts(operands[0]), rule.start, rows, capacity)]


def _rows_taken(op: GraphOp, rule: rules.RowsTaken, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    """Of ids of any shape, or of a matrix without elements, as a list whose rows are dense."""
    parts, (ids,), result = _parts(operands[0]), operands[1], op.results[0]
    count, columns = prod(shape(ids)), shape(op.operands[0])[1]
    kind = stored_as(result.type) or stored_as(rule.results[0])
    most = CsrAttr.of(0).bounded((count, columns), count * min(columns, parts.capacity)) if kind is None else kind
    found = taken(builder, parts, reshaped(builder, ids, (count,)), most.capacity.data, rule.wraps)
    if kind is not None:
        return [found]
    return [(reshaped(builder, _dense(builder, most, (count, columns), found), shape(result)),)]


def _product(op: GraphOp, rule: rules.Product, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    """`A @ x`, and `x @ A` as the transpose of `A.T @ x.T`."""
    parts, (x,) = _parts(operands[rule.stored]), operands[1 - rule.stored]
    turned = [flag != (rule.stored == 1) for flag in rule.transposed]
    if turned[rule.stored]:
        parts = transposed(builder, parts, shape(op.operands[rule.stored])[1])
    is_vector = len(shape(x)) == 1
    if is_vector:
        x = reshaped(builder, x, (*shape(x), 1))
    elif turned[1 - rule.stored]:
        x = _swapped(builder, x)
    found = builder(CsrMatmulOp, *parts, x)
    if rule.stored == 1 and not is_vector:
        found = _swapped(builder, found)
    return [(reshaped(builder, found, shape(op.results[0])),)]


def _sampled(
    op: GraphOp, rule: rules.SampledProduct, builder: GraphBuilder, operands: Sequence[Flat]
) -> Sequence[Flat]:
    parts, (x,), (y,) = _parts(operands[0]), operands[1], operands[2]
    found = builder(CsrSampledMatmulOp, parts.indptr, parts.indices, x, _swapped(builder, y))
    return [parts._replace(values=found)]


def _softmax(op: GraphOp, rule: rules.StoredSoftmax, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    parts = _parts(operands[0])
    rows = builder(CsrRowsOp, parts.indptr, capacity=int_value(parts.capacity))
    largest = builder(CsrReduceOp, parts.indptr, parts.values, reduce=StringAttr("max"))
    weights = builder(ExpOp, builder(SubtractOp, parts.values, rows_at(builder, largest, rows)))
    total = builder(CsrReduceOp, parts.indptr, weights)
    return [parts._replace(values=builder(DivideOp, weights, rows_at(builder, total, rows)))]


def _gradient(op: GraphOp, rule: rules.GradientRows, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    given: dict[str, Any] = {
        "rows": int_value(shape(op.results[0])[0]),
        "capacity": int_value(_kind(op, rule).capacity.data),
        "wrap_negative": bool_value(rule.wraps),
    }
    if rule.padding is not None:
        given["padding_index"] = int_value(rule.padding)
    (grad,), (ids,) = operands
    return [tuple(builder.all(EmbeddingRowsBackwardOp, grad, ids, **given))]


def _conversion(op: GraphOp, rule: rules.Conversion, builder: GraphBuilder, operands: Sequence[Flat]) -> Sequence[Flat]:
    given, wanted = stored_as(op.operands[0].type), stored_as(op.results[0].type)
    extents, (flat,) = shape(op.results[0]), operands
    if given is None and wanted is None:
        return [flat]
    if given is None:
        return [_stored(builder, flat[0], cast(StorageKind, wanted))]
    parts = _parts(flat)
    if wanted is not None:
        return [resized(builder, parts, wanted.capacity.data)]
    return [(_dense(builder, given, extents, parts),)]


def _dense(builder: GraphBuilder, kind: StorageKind | None, extents: Sequence[int], parts: Parts) -> SSAValue:
    """The dense tensor with these parts."""
    if isinstance(kind, CsrAttr):
        return builder(CsrToDenseOp, *parts, columns=int_value(extents[1]))
    return builder(RowsPutOp, zeros(builder, extents, parts.values), *parts)


def _stored(builder: GraphBuilder, x: SSAValue, wanted: StorageKind) -> Flat:
    """The parts of what a dense tensor has that is not zero."""
    capacity = int_value(wanted.capacity.data)
    if isinstance(wanted, CsrAttr):
        return tuple(builder.all(CsrFromDenseOp, x, capacity=capacity))
    extents = list(shape(x))
    there = builder(NotEqualOp, x, number_constant(builder, 0, x))
    if len(extents) > 1:
        there = builder(AnyOp, there, axes=int_array(range(1, len(extents))))
    indptr, indices, _ = builder.all(CsrFromDenseOp, reshaped(builder, there, (1, extents[0])), capacity=capacity)
    return indptr, indices, rows_at(builder, x, indices)


_Build: TypeAlias = Callable[[GraphOp, Any, GraphBuilder, Sequence[Flat]], Sequence[Flat]]

_BUILD: Mapping[type[rules.StoredRule], _Build] = {
    rules.Pointwise: _pointwise,
    rules.RowUpdate: _row_update,
    rules.Reduced: _reduced,
    rules.Transposed: _transposed,
    rules.RowSlice: _row_slice,
    rules.RowsTaken: _rows_taken,
    rules.Product: _product,
    rules.SampledProduct: _sampled,
    rules.StoredSoftmax: _softmax,
    rules.GradientRows: _gradient,
    rules.Conversion: _conversion,
}
"""By rule."""
