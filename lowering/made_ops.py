"""
Ops that lowering makes by the thousand, without what constructors work out for each anew: they sort operands, results and
properties of any op into those of its definition, which takes three times as long as the op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, cast

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, MemRefType, SymbolRefAttr
from xdsl.ir import Attribute, Operation, SSAValue

_Op = TypeVar("_Op", bound=Operation)
_PROPERTIES: dict[type[Operation], Mapping[str, Attribute]] = {}
"""Of an op that a class has made."""
_INDEX = IndexType()


def scalar_op(build: type[_Op], *operands: SSAValue) -> _Op:
    """`build(*operands)`, of a class whose one result is of the last operand's type, and whose properties are always the same."""
    if (properties := _PROPERTIES.get(build)) is not None:
        return build.create(operands=operands, result_types=(operands[-1].type,), properties=properties)
    op = build(*operands)  # pyright: ignore[reportCallIssue]
    assert [result.type for result in op.results] == [operands[-1].type], op.name
    _PROPERTIES[build] = {**op.properties}
    return op


@lru_cache(maxsize=4096)
def _number(value: int) -> IntegerAttr[IndexType]:
    return IntegerAttr(value, _INDEX)


def number_op(value: IntegerAttr | FloatAttr) -> arith.ConstantOp:
    """A number."""
    return arith.ConstantOp.create(result_types=(value.get_type(),), properties={"value": value})


def index_op(value: int) -> arith.ConstantOp:
    """A number as an index."""
    return number_op(_number(value))


@lru_cache(maxsize=4096)
def _symbol(name: str) -> SymbolRefAttr:
    return SymbolRefAttr(name)


def call_op(function: str, arguments: Sequence[SSAValue], results: Sequence[Attribute]) -> func.CallOp:
    """A call of a function by its name."""
    return func.CallOp.create(operands=arguments, result_types=results, properties={"callee": _symbol(function)})


def load_op(memory: SSAValue, indices: Sequence[SSAValue]) -> memref.LoadOp:
    """An element of a buffer."""
    kind = cast("MemRefType[Attribute]", memory.type)
    return memref.LoadOp.create(operands=(memory, *indices), result_types=(kind.element_type,))


def store_op(value: SSAValue, memory: SSAValue, indices: Sequence[SSAValue]) -> memref.StoreOp:
    """A value as an element of a buffer."""
    return memref.StoreOp.create(operands=(value, memory, *indices))
