"""Index maps at numbers, for the plan verifier: which elements to try, where they are, and what a view moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from fuse_opt.dialects.interfaces.shapes import is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.encodings import encoding_of
from fuse_opt.dialects.types.index_expr import Dim, Index, IndexExpr, constant, dimensions
from fuse_opt.dialects.verify.at_numbers import at_numbers

Point = tuple[int, ...]

MANY = 24
"""Up to so many elements all are tried."""
FEW = 6
"""Up to so many rows, and columns of each, all are tried."""

_VIEWS: dict[tuple[object, ...], bool] = {}
_REMEMBERED = 4096


def samples(count: int, few: int = FEW) -> list[int]:
    """Numbers below `count`: all when they are few, else the ends and some between."""
    if count <= few:
        return list(range(count))
    return sorted({0, 1, count // 2, count - 1, *(n * 0x9E3779B1 % count for n in range(1, 6))})


def unraveled(number: int, extents: Sequence[int]) -> Point:
    """The row-major index of an element."""
    found: list[int] = []
    for extent in reversed(extents):
        number, rest = divmod(number, max(extent, 1))
        found.append(rest)
    return tuple(reversed(found))


def raveled(at: Sequence[int], extents: Sequence[int]) -> int:
    """The row-major number of an element."""
    number = 0
    for place, extent in zip(at, extents, strict=True):
        number = number * extent + place
    return number


def bound(index: Index, at: Point) -> dict[Dim, int]:
    """The values of dimensions at a point."""
    found: dict[Dim, int] = {}
    for expression, value in zip(index, at, strict=True):
        for dim in expression.dims():
            found[dim] = value
    return found


def evaluated(index: Sequence[IndexExpr], env: Mapping[Dim, int]) -> Point:
    return tuple(expression.evaluate(env) for expression in index)


def moves_nothing(op: Operation) -> bool:
    """Whether the op's result is its operand, element for element in memory; at all elements of few, at some of many."""
    if not isinstance(op, StructuredOp) or len(op.operands) != 1 or op.COMBINE:
        return False
    key = (type(op), op.operands[0].type, op.results[0].type, frozenset(op.properties.items()))
    if key not in _VIEWS:
        if len(_VIEWS) >= _REMEMBERED:
            _VIEWS.clear()
        _VIEWS[key] = _is_in_place(op)
    return _VIEWS[key]


def _is_in_place(given: StructuredOp) -> bool:
    op = at_numbers(given)
    source, result = op.operands[0], op.results[0]
    if not is_static(source) or not is_static(result) or op.body().function != "operand":
        return False
    count = prod(shape(result))
    if count != prod(shape(source)) or tensor(source).element_type != tensor(result).element_type:
        return False
    at = dimensions("at", shape(result))
    index = op.operand_index(0, at, ())
    elements = ((n, element_of(n, result.type)) for n in samples(count, MANY))
    return all(place_of(evaluated(index, bound(at, point)), source.type) == n for n, point in elements)


def place_of(at: Sequence[int], type_: Attribute) -> int:
    """The number, in memory, of an element of a tensor type."""
    extents = cast("TensorType[Attribute]", type_).get_shape()
    if (encoding := encoding_of(type_)) is None:
        return raveled(at, extents)
    place = encoding.to_memory(tuple(map(constant, at)), extents)
    return raveled(evaluated(place, {}), encoding.memory_extents(extents))


def element_of(number: int, type_: Attribute) -> Point:
    """The element of a tensor type that is at a number in memory."""
    extents = cast("TensorType[Attribute]", type_).get_shape()
    if (encoding := encoding_of(type_)) is None:
        return unraveled(number, extents)
    place = unraveled(number, encoding.memory_extents(extents))
    return evaluated(encoding.from_memory(tuple(map(constant, place)), extents), {})


def row_extents(type_: Attribute) -> Point:
    """The extents of a tensor type as it lies in memory."""
    extents = cast("TensorType[Attribute]", type_).get_shape()
    return extents if (encoding := encoding_of(type_)) is None else encoding.memory_extents(extents)
