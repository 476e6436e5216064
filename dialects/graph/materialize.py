"""Ops for passes that name none: which op of the dialect computes a scalar body, found by tracing all of them; conversions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import copysign, isfinite, prod
from typing import TypeAlias, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl import OptPropertyDef, VarOperandDef
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import Elementwise
from fuse_opt.dialects.graph.creation.constant import ConstantOp
from fuse_opt.dialects.graph.creation.filled import FullOp
from fuse_opt.dialects.graph.movement.layouts import ToLayoutOp
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape
from fuse_opt.dialects.scalar import Scalar, ScalarTypeError, operand, topological
from fuse_opt.dialects.scalar.bits import packed
from fuse_opt.dialects.scalar.evaluate import Number, converted, known
from fuse_opt.dialects.types.dtypes import DType, dtype_of
from fuse_opt.dialects.types.encodings import EncodingPart

LARGEST_CONSTANT = 4096
"""Elements up to which a splat is written as a constant; a larger one would take memory for each."""

_Key: TypeAlias = tuple[tuple[str, tuple[int, ...], str, str], ...]


def filled(value: Number, type_: AnyTensor) -> GraphOp:
    """A creation op that gives a number of the element type everywhere in a static shape."""
    element, extents = _element(type_), type_.get_shape()
    if prod(extents) <= LARGEST_CONSTANT:
        return _constant(packed([value], element) * prod(extents), type_)
    number = FloatAttr(float(value), f64) if element.is_float else IntegerAttr(int(value), i64)
    return FullOp.build_op(value=number, shape=int_array(extents), dtype=type_.element_type)


def stored(values: Sequence[Number], type_: AnyTensor) -> GraphOp:
    """A constant of these numbers of the element type, in row-major order."""
    return _constant(packed(values, _element(type_)), type_)


def _element(type_: AnyTensor) -> DType:
    element = dtype_of(type_.element_type)
    assert element is not None
    return element


def _constant(data: bytes, type_: AnyTensor) -> GraphOp:
    attribute = DenseIntOrFPElementsAttr(cast(TensorType[AnyFloat], type_), BytesAttr(data))
    return ConstantOp.build_op(value=attribute)


def computed(body: Scalar, values: Sequence[SSAValue], exact: bool = True) -> GraphBuilder | None:
    """Ops that compute a body over values, the last one the result; None when the dialect has no ops for it.

    One op where a record has that body, else one for each primitive. Constants get the element type of the operand beside them;
    they must be numbers of it, unless the result need not be `exact`.
    """
    builder = GraphBuilder()
    if _built(builder, body, values) is not None:
        return builder
    done: dict[int, SSAValue] = {}
    for node in topological(body):
        if node.function == "operand":
            done[id(node)] = values[int(node.value)]
        elif node.args:
            result = _of_word(builder, node, done, exact)
            if result is None:
                builder.discard()
                return None
            done[id(node)] = result
    return builder


def _of_word(builder: GraphBuilder, node: Scalar, done: dict[int, SSAValue], exact: bool) -> SSAValue | None:
    """A primitive on values and constants."""
    given = {arg: done[id(arg)] for arg in node.args if id(arg) in done}
    for arg in node.args:
        if arg in given:
            continue
        beside = next((dtype(value) for value in given.values() if dtype(value).compute is arg.dtype), None)
        if arg.function != "constant" or beside is None or not _fits(known(arg), beside, exact):
            return None
        builder.ops.append(filled(converted(known(arg), beside), TensorType(beside.attribute, [])))
        given[arg] = builder.ops[-1].results[0]
    for args in (list(given), node.args):  # x + x may have a record of its own; else it is that of x + y
        places = range(len(args)) if args is node.args else map(args.index, node.args)
        leaves = [operand(place, arg.dtype) for place, arg in zip(places, node.args, strict=True)]
        primitive = Scalar(node.function, tuple(leaves), node.dtype, node.value)
        if (found := _built(builder, primitive, [given[arg] for arg in args])) is not None:
            return found
    return None


def _fits(value: Number, element: DType, exact: bool) -> bool:
    kept = converted(value, element)
    if exact:
        return kept == value and copysign(1, kept) == copysign(1, value)
    return not element.is_float or (isfinite(kept) and (kept != 0) == (value != 0))


def _built(builder: GraphBuilder, body: Scalar, values: Sequence[SSAValue]) -> SSAValue | None:
    """The result of the one op that has the body, on the values that it reads."""
    order: dict[int, int] = {}
    types: list[DType] = []
    for node in topological(body):
        if node.function == "operand" and int(node.value) not in order:
            order[int(node.value)] = len(order)
            types.append(node.dtype)
    record = _records(tuple(types)).get(_key(body, order))
    if record is None:
        return None
    try:
        return builder(record, *(values[number] for number in order))
    except (VerifyException, ScalarTypeError):
        return None


def _key(body: Scalar, order: dict[int, int]) -> _Key:
    """The structure of a body, operands numbered in the order in which they are met."""
    nodes = topological(body)
    places = {id(node): place for place, node in enumerate(nodes)}
    found: list[tuple[str, tuple[int, ...], str, str]] = []
    for node in nodes:
        value = order[int(node.value)] if node.function == "operand" else node.value
        if node.function == "constant":
            value = known(node)
        found.append((node.function, tuple(places[id(arg)] for arg in node.args), node.dtype.name, repr(value)))
    return tuple(found)


@cache
def _records(types: tuple[DType, ...]) -> dict[_Key, type[Elementwise]]:
    """The elementwise ops without properties to be given, by their bodies on operands of these types."""
    from fuse_opt.dialects.graph.dialect import GRAPH

    block = Block(arg_types=[TensorType(element.attribute, []) for element in types])
    found: dict[_Key, type[Elementwise]] = {}
    for record in GRAPH.operations:
        if not issubclass(record, Elementwise) or not _takes(record, len(types)):
            continue
        try:
            op = record.build_op(*block.args)
        except (VerifyException, ScalarTypeError):
            continue
        order = _in_order(op.body(), len(types))
        if order is not None:
            found.setdefault(_key(op.body(), order), record)
        op.erase()
    return found


def _in_order(body: Scalar, count: int) -> dict[int, int] | None:
    """The operands by number when the body meets them as the op lists them, else None."""
    met = [int(node.value) for node in topological(body) if node.function == "operand"]
    order = {number: place for place, number in enumerate(dict.fromkeys(met))}
    return order if list(order) == list(range(count)) else None


def _takes(record: type[GraphOp], count: int) -> bool:
    definition = record.get_irdl_definition()
    return (
        len(definition.operands) == count
        and not any(isinstance(operand, VarOperandDef) for _, operand in definition.operands)
        and all(isinstance(property_, OptPropertyDef) for property_ in definition.properties.values())
    )


def laid_out(value: SSAValue, encoding: EncodingPart | None) -> GraphOp:
    """The op, in no block yet, that gives a value in another layout; in row-major order for None."""
    return ToLayoutOp.of(value, encoding)


def is_conversion(op: Operation | Block) -> bool:
    """Whether an op does nothing but to give its operand in another layout."""
    return isinstance(op, ToLayoutOp)


def conversion_counts(functions: Iterable[Operation]) -> tuple[int, int]:
    """How many conversions functions hold that move something, in kernels or not, and the bytes of their results."""
    found = [op for function in functions for op in function.walk() if isinstance(op, ToLayoutOp) and not op.is_alias()]
    return len(found), sum(prod(shape(op.result)) * dtype(op.result).itemsize for op in found if is_static(op.result))
