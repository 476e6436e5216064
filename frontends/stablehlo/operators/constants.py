"""Numbers of a StableHLO program that are known when it is read: constants, and the counters of loops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, Operation

from fuse_opt.dialects.graph.creation.constant import is_splat
from fuse_opt.dialects.scalar.bits import elements
from fuse_opt.dialects.scalar.evaluate import converted
from fuse_opt.dialects.types.dtypes import DType, dtype_of
from fuse_opt.frontends.stablehlo.operators.op import HloOp, name_of

Number: TypeAlias = "int | float | None"
"""What a value is everywhere, where that is known."""


def _clamp(low: int, x: int, high: int) -> int:
    return min(max(x, low), high)


def _select(condition: int, x: int, y: int) -> int:
    return x if condition else y


def _maximum(x: int, y: int) -> int:
    return max(x, y)


def _minimum(x: int, y: int) -> int:
    return min(x, y)


_ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "stablehlo.add": int.__add__,
    "stablehlo.and": int.__and__,
    "stablehlo.clamp": _clamp,
    "stablehlo.maximum": _maximum,
    "stablehlo.minimum": _minimum,
    "stablehlo.multiply": int.__mul__,
    "stablehlo.negate": int.__neg__,
    "stablehlo.or": int.__or__,
    "stablehlo.select": _select,
    "stablehlo.subtract": int.__sub__,
}
"""Of integers; truth values are 0 and 1."""
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
    "NE": operator.ne,
}
_SAME = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.optimization_barrier")


def known_number(op: Operation, attributes: Mapping[str, Attribute], numbers: Sequence[Number]) -> Number:
    """The number that the result of an op is everywhere, from those of its operands; None where that is not known."""
    name = name_of(op)
    if name == "stablehlo.constant":
        return _constant(attributes.get("value"))
    if not numbers or any(number is None for number in numbers) or len(op.results) != 1:
        return None
    if name in _SAME:
        return numbers[0]
    element = _element(op)
    if element is None:
        return None
    if name == "stablehlo.convert":
        return _number(converted(cast(float, numbers[0]), element))
    if element.is_float or any(isinstance(number, float) for number in numbers):
        return None  # floats are not computed here: they would be rounded otherwise
    if name == "stablehlo.compare":
        return int(_COMPARISONS[HloOp(op, (), attributes).words("comparison_direction")](*numbers))
    return _number(converted(_ARITHMETIC[name](*numbers), element)) if name in _ARITHMETIC else None


def _element(op: Operation) -> DType | None:
    type_ = op.results[0].type
    return dtype_of(cast("TensorType[Attribute]", type_).element_type) if isinstance(type_, TensorType) else None


def _number(value: int | float | bool) -> Number:
    return int(value) if isinstance(value, bool) else value


def _constant(attribute: Attribute | None) -> Number:
    if not isinstance(attribute, DenseIntOrFPElementsAttr):
        return None
    dense = cast("DenseIntOrFPElementsAttr[Any]", attribute)
    if len(dense) == 0 or dtype_of(dense.get_element_type()) is None or not is_splat(dense):
        return None
    return _number(elements(dense)[0])
