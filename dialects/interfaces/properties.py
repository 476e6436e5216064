"""Properties of ops: integers, flags and axes as attributes, and as Python's own values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    f64,
    i64,
)
from xdsl.utils.exceptions import VerifyException

IntArray: TypeAlias = DenseArrayBase[IntegerType]


def ints(attribute: IntArray | None, default: Sequence[int] = ()) -> tuple[int, ...]:
    """The integers of an `array<i64: ...>` property, or the default when it is absent."""
    return tuple(default) if attribute is None else attribute.get_values()


def flag(attribute: IntegerAttr | None) -> bool:
    return attribute is not None and attribute.value.data != 0


def int_array(values: Sequence[int]) -> IntArray:
    return DenseArrayBase.from_list(i64, list(values))


def int_value(value: int) -> IntegerAttr:
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
