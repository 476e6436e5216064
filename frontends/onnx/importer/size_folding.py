"""Evaluates nodes on known arrays some elements of which are sizes: the arithmetic on shapes that exporters write.

Arrays of sizes have the type `object`, and hold integers beside them. Only what is exact for all values of symbols is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import numpy as np

from fuse_opt.dialects.interfaces.shapes import are_equal
from fuse_opt.dialects.types.extents import largest, smallest, truncated_quotient
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.builder import Array
from fuse_opt.frontends.onnx.operators.movement import first_taken
from fuse_opt.frontends.onnx.operators.node import Node, as_known

_I64 = 7
"""The number of i64 in `TensorProto.DataType`."""
_Fold = Callable[[Node, Sequence[Array]], Array]


def has_sizes(array: Array | None) -> bool:
    """Whether an element is a size."""
    return array is not None and array.dtype == object


def fold_sizes(node: Node) -> Array | None:
    """The output of a node of known operands with sizes among them; None where it is nothing that sizes can say."""
    given = [slot.array for slot in node.slots if slot is not None]
    name = "Identity" if node.op_type == "Cast" and node.integer("to") == _I64 else node.op_type
    if (fold := _FOLDS.get(name)) is None or len(given) != len(node.slots):
        return None
    found: Any = fold(node, cast("Sequence[Array]", given))
    is_truth: bool = getattr(getattr(found, "dtype", None), "kind", "") == "b"
    return found if is_truth else as_known(found)


def _gather(node: Node, given: Sequence[Array]) -> Array:
    return np.take(given[0], given[1].astype(np.int64), axis=node.integer("axis"))


def cut(node: Node, array: Array) -> Array:
    """What a Slice of known operands takes of an array: as `sliced` does, which the reference does not."""
    starts, ends = node.axes(1, "starts") or [], node.axes(2, "ends") or []
    axes = node.axes(3) or list(range(len(starts)))
    steps = node.known_integers(4) or [1] * len(starts)
    taken = [slice(None)] * array.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        taken[axis] = slice(first_taken(start, step, array.shape[axis]), end, step)
    return array[tuple(taken)]


def _squeeze(node: Node, given: Sequence[Array]) -> Array:
    axes = given[1].tolist() if len(given) > 1 else node.attributes.get("axes")
    return np.squeeze(given[0], None if axes is None else tuple(axes))


def _unsqueeze(node: Node, given: Sequence[Array]) -> Array:
    axes = given[1].tolist() if len(given) > 1 else node.integers("axes")
    return np.expand_dims(given[0], tuple(axes))


def _reshape(node: Node, given: Sequence[Array]) -> Array:
    return given[0].reshape(cast("list[int]", given[1].tolist()))


def _elementwise(join: Callable[[Any, Any], Any]) -> _Fold:
    return lambda node, given: np.asarray(np.frompyfunc(join, 2, 1)(given[0], given[1]), dtype=object)


def _compared(join: Callable[[Any, Any], Any]) -> _Fold:
    return lambda node, given: np.asarray(np.frompyfunc(join, 2, 1)(given[0], given[1])).astype(bool)


def _reduced(join: Callable[[Any, Any], Any]) -> _Fold:
    """Of all elements; along axes of several nobody has a use for it."""

    def fold(node: Node, given: Sequence[Array]) -> Array:
        axes = given[1].tolist() if len(given) > 1 else node.attributes.get("axes")
        if given[0].ndim > 1 or (not axes and node.flag("noop_with_empty_axes")):
            raise SizeRefusal(f"{node}: sizes are reduced along several axes or none")
        found = np.asarray(reduce(join, given[0].reshape(-1).tolist()), dtype=object)
        return found.reshape([1] * given[0].ndim if node.flag("keepdims", True) else [])

    return fold


def _remainder(node: Node, given: Sequence[Array]) -> Array:
    if node.flag("fmod"):
        raise SizeRefusal(f"{node}: has the sign of the dividend")
    return _elementwise(lambda a, b: a % b)(node, given)


_FOLDS: dict[str, _Fold] = {
    "Identity": lambda node, given: given[0],
    "Gather": _gather,
    "Slice": lambda node, given: cut(node, given[0]),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": lambda node, given: np.concatenate(list(given), axis=node.integer("axis")),
    "Reshape": _reshape,
    "Shape": lambda node, given: np.asarray(given[0].shape[node.integer("start") : node.attributes.get("end")]),
    "Size": lambda node, given: np.asarray(given[0].size),
    "Expand": lambda node, given: given[0] * np.ones([int(n) for n in given[1].tolist()], object),
    "Tile": lambda node, given: np.tile(given[0], [int(n) for n in given[1].tolist()]),
    "ReduceProd": _reduced(lambda a, b: a * b),
    "ReduceSum": _reduced(lambda a, b: a + b),
    "ReduceMax": _reduced(largest),
    "ReduceMin": _reduced(smallest),
    "Neg": lambda node, given: -given[0],
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(truncated_quotient),
    "Mod": _remainder,
    "Max": _elementwise(largest),
    "Min": _elementwise(smallest),
    "Equal": _compared(are_equal),
    "Less": _compared(lambda a, b: a < b),
    "LessOrEqual": _compared(lambda a, b: a <= b),
    "Greater": _compared(lambda a, b: a > b),
    "GreaterOrEqual": _compared(lambda a, b: a >= b),
    "Where": lambda node, given: np.where(given[0], given[1], given[2]),
}
"""What raises a SizeRefusal is computed by the program instead."""
