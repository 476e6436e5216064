"""Sizes in StableHLO: what is computed from extents, as arrays of integers and sizes, and ops whose shape is an operand.

What jax.export writes for symbolic dimensions is arithmetic on `get_dimension_size`; it is done when the program is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, Operation

from fuse_opt.dialects.interfaces.shapes import are_equal
from fuse_opt.dialects.scalar.bits import elements
from fuse_opt.dialects.types.dtypes import DType, dtype_of
from fuse_opt.dialects.types.extents import largest, smallest, truncated_quotient
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.frontends.builder import Array, Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, attributes_of, handler

Known: TypeAlias = "int | float | Array | None"
"""What a value is where that is known: a number everywhere, or integers and sizes by element."""
_LARGEST = 64
"""Elements of arrays that are known by element: shapes are short."""


def _remainder(a: Extent, b: Extent) -> Extent:
    return a - truncated_quotient(a, b) * b


def _differ(a: Extent, b: Extent) -> bool:
    return not are_equal(a, b)


def _sign(a: Extent) -> int:
    return 1 if a > 0 else 0 if are_equal(a, 0) else -1


def _select(condition: int, a: Extent, b: Extent) -> Extent:
    return a if condition else b


def _clamp(low: Extent, a: Extent, high: Extent) -> Extent:
    return smallest(largest(a, low), high)


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "stablehlo.add": operator.add,
    "stablehlo.subtract": operator.sub,
    "stablehlo.multiply": operator.mul,
    "stablehlo.divide": truncated_quotient,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": largest,
    "stablehlo.minimum": smallest,
    "stablehlo.negate": operator.neg,
    "stablehlo.abs": operator.abs,
    "stablehlo.sign": _sign,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
}
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQ": are_equal,
    "NE": _differ,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


def known_sizes(h: HloOp, attributes: Mapping[str, Attribute]) -> Known:
    """The elements of an op's only result, integers and sizes, from those of its operands; None where they are not known."""
    element, shape = _integers(h.op)
    if element is None or (element.is_float or int(np.prod(shape)) > _LARGEST):
        return None
    if h.name == "stablehlo.constant":
        return _constant(attributes.get("value"), shape)
    if h.name == "stablehlo.get_dimension_size":
        return _array(extents(h.operand())[h.integer("dimension")], ())
    given = [h.elements(number) for number in range(len(h.operands))]
    if not given or any(each is None for each in given):
        return None
    try:
        found = _computed(h, cast("list[Array]", given), shape)
    except SizeRefusal:
        return None  # computed by the program, from what sizes are at the call
    if found is None:
        return None
    values = _array(found, shape)
    same = set(values.reshape(-1).tolist())
    return same.pop() if len(same) == 1 and not has_sizes(values) else values


def by_element(known: Known) -> Array | None:
    """What a scalar is known to be, as an array."""
    return (
        np.asarray(known, dtype=object) if isinstance(known, int) else known if isinstance(known, np.ndarray) else None
    )


def _computed(h: HloOp, given: Sequence[Array], shape: Sequence[int]) -> Any:
    match h.name:
        case "stablehlo.reshape" | "stablehlo.convert":
            return given[0].reshape(shape)
        case "stablehlo.concatenate":
            return np.concatenate(list(given), axis=h.integer("dimension"))
        case "stablehlo.broadcast_in_dim" if given[0].size == 1:
            return np.full(shape, given[0].item(), object)
        case "stablehlo.slice":
            limits = (h.integers(name) for name in ("start_indices", "limit_indices", "strides"))
            return given[0][tuple(slice(*each) for each in zip(*limits, strict=True))]
        case "stablehlo.compare":
            join = _COMPARISONS[h.words("comparison_direction")]
            return np.frompyfunc(lambda a, b: int(join(a, b)), 2, 1)(*given)
        case name if name in _ARITHMETIC:
            return np.frompyfunc(_ARITHMETIC[name], len(given), 1)(*given)
        case _:
            return None


def _array(values: Any, shape: Sequence[int]) -> Array:
    return np.asarray(values, dtype=object).reshape(shape)


def _integers(op: Operation) -> tuple[DType | None, tuple[int, ...]]:
    """The element type and the extents of an op's only result; no element type where these are not known."""
    type_ = op.results[0].type if len(op.results) == 1 else None
    if not isinstance(type_, TensorType) or any(extent < 0 for extent in type_.get_shape()):
        return None, ()
    return dtype_of(cast("TensorType[Attribute]", type_).element_type), type_.get_shape()


def _constant(attribute: Attribute | None, shape: Sequence[int]) -> Known:
    if not isinstance(attribute, DenseIntOrFPElementsAttr):
        return None
    found = [int(value) for value in elements(cast("DenseIntOrFPElementsAttr[Any]", attribute))]
    return _array(found * (int(np.prod(shape)) if len(found) == 1 else 1), shape)


def has_sizes(known: Known) -> bool:
    """Whether an element is a size."""
    return isinstance(known, np.ndarray) and any(isinstance(extent, Size) for extent in known.reshape(-1).tolist())


@handler("stablehlo.get_dimension_size")
def get_dimension_size(h: HloOp, g: Emitter) -> Results:
    return g.number(extents(h.operand())[h.integer("dimension")], h.dtype())


@handler("stablehlo.set_dimension_size")
def set_dimension_size(h: HloOp, g: Emitter) -> Results:
    """The leading part: what a bounded type keeps behind it nobody may ask for."""
    x, axis = h.operand(), h.integer("dimension")
    stops = list(extents(x))
    (stops[axis],) = h.sizes(1)
    return g.slice(x, starts=[0] * rank(x), stops=stops)


@handler("stablehlo.real_dynamic_slice")
def real_dynamic_slice(h: HloOp, g: Emitter) -> Results:
    starts, stops, steps = (h.sizes(number) for number in (1, 2, 3))
    return g.slice(h.operand(), starts=starts, stops=stops, steps=steps)


def sliced_at(h: HloOp, g: Emitter, starts: Sequence[Extent], sizes: Sequence[Extent]) -> Value:
    """The slices of these sizes, whose starts are moved such that they lie inside. Raises SizeRefusal."""
    pairs = zip(extents(h.operand()), starts, sizes, strict=True)
    found = [smallest(largest(start, 0), extent - size) for extent, start, size in pairs]
    stops = [start + size for start, size in zip(found, sizes, strict=True)]
    return g.slice(h.operand(), starts=found, stops=stops)


def shape_assertion(h: HloOp, condition: Operation | None, compared: Sequence[Known]) -> None:
    """
    What has to hold of extents, which `condition` compares. Raises NeedsEqual where calls are to keep it, StableHLOError where it
    is never so, or cannot be said of a call.
    """
    message = h.text("error_message").partition(" Using the")[0].partition(" Obtained")[0]
    given = h.elements(0)
    if given is not None:
        if given.item():
            return
        raise h.refuse(f"a condition on extents never holds: {message}")
    sides = [each.item() for each in compared if isinstance(each, np.ndarray) and each.size == 1]
    if condition is None or len(sides) != 2:
        raise h.refuse(f"a condition that depends on more than extents: {message}")
    direction = HloOp(condition, (), attributes_of(condition)).words("comparison_direction")
    raise Needed(sides[0], sides[1], direction, message)


class Needed(Exception):
    """A comparison of extents that calls have to keep."""

    def __init__(self, a: Extent, b: Extent, direction: str, message: str) -> None:
        super().__init__(message)
        self.a, self.b, self.direction = a, b, direction
