"""Properties of ops: integers, flags and axes as attributes, and as Python's own values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import TypeAlias, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.size import Extent, NotANumber, Size
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr, SizeAttr

IntArray: TypeAlias = DenseArrayBase[IntegerType]
PlainScalar: TypeAlias = bool | int | float | str
PlainValue: TypeAlias = PlainScalar | tuple[PlainScalar, ...]
"""A property as Python has it; an element type is its name, and a size of symbols stands for a number."""


def ints(attribute: IntArray | None, default: Sequence[int] = ()) -> tuple[int, ...]:
    """The integers of an `array<i64: ...>` property, or the default when it is absent; raises NotANumber where it holds sizes."""
    if isinstance(sizes := cast(object, attribute), ShapeAttr):  # as a front end builds it before anybody verifies
        raise NotANumber(next(extent for extent in sizes.sizes if isinstance(extent, Size)))
    return tuple(default) if attribute is None else attribute.get_values()


def flag(attribute: IntegerAttr | None) -> bool:
    return attribute is not None and attribute.value.data != 0


def int_array(values: Sequence[int]) -> IntArray:
    return _array(tuple(values))


@lru_cache(maxsize=4096)
def _array(values: tuple[int, ...]) -> IntArray:
    return DenseArrayBase.from_list(i64, values)


def extents_array(extents: Sequence[Extent]) -> IntArray | ShapeAttr:
    """The shape that a `reshape` gives: a size is written as -1 where it is the only one, as it follows from the others."""
    if sum(isinstance(extent, Size) for extent in extents) != 1:
        return shape_attribute(extents)
    return int_array([-1 if isinstance(extent, Size) else extent for extent in extents])


def shape_attribute(extents: Sequence[Extent]) -> IntArray | ShapeAttr:
    """The shape that a property says: numbers, or sizes among them."""
    if any(isinstance(extent, Size) for extent in extents):
        return ShapeAttr.of(extents)
    return int_array(cast("Sequence[int]", extents))


def stated_extents(attribute: IntArray | ShapeAttr) -> tuple[int, ...]:
    """What such a property says; sizes stand for numbers, as in `shape`."""
    found = attribute.sizes if isinstance(attribute, ShapeAttr) else attribute.get_values()
    return cast("tuple[int, ...]", found)


def int_value(value: int) -> IntegerAttr:
    return _number(index(value))


@lru_cache(maxsize=4096)
def _number(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def float_value(value: float) -> FloatAttr:
    return FloatAttr(value, f64)


def bool_value(value: bool) -> BoolAttr:
    return BoolAttr.from_bool(value)


def normalize_axis(axis: int, rank: int) -> int:
    """A non-negative axis; raises VerifyException when it is out of range."""
    if not -rank <= axis < rank:
        raise VerifyException(f"axis {axis} is out of range for rank {rank}; expected {-rank} <= axis < {rank}")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Sorted non-negative axes; raises VerifyException when one is out of range or named twice."""
    found = sorted(normalize_axis(axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise VerifyException(f"axes {list(axes)} name an axis twice")
    return tuple(found)


def plain_properties(op: Operation) -> dict[str, PlainValue]:
    """The op's properties as plain Python values. Raises TypeError for a property of another kind."""
    return {name: plain_value(name, value) for name, value in op.properties.items()}


def plain_value(name: str, value: Attribute) -> PlainValue:
    """A number, a size, a truth value, a text, the name of an element type, or a tuple of such."""
    match value:
        case DenseArrayBase():
            values = cast(IntArray, value).get_values()  # floats are read by the same method
            return tuple(v != 0 for v in values) if value.elt_type == i1 else tuple(values)
        case ArrayAttr():
            return tuple(_plain_scalar(name, element) for element in value.data)
        case _:
            return _plain_scalar(name, value)


def _plain_scalar(name: str, value: Attribute) -> PlainScalar:
    match value:
        case IntegerAttr():
            return value.value.data != 0 if value.type == i1 else value.value.data
        case FloatAttr():
            return value.value.data
        case StringAttr():
            return value.data
        case SizeAttr():
            return cast(int, value.data)
        case DenseIntOrFPElementsAttr() if value.is_splat():
            return value.get_values()[0]  # pyright: ignore[reportReturnType]
        case _ if (element := dtype_of(value)) is not None:
            return element.name
        case _:
            raise TypeError(f"property '{name}' of kind {type(value).__name__} cannot be given to a library")
