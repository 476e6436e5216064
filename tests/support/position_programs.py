"""Reads and writes at positions in random programs, and what models do with rows that they read: products, sums, norms, views.

Positions are numbers of the program, computed by it from integers of its arguments, or where an extreme value is; all are in
range, as others are refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod
from typing import Protocol, cast

from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.creation.constant import ConstantOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp, RemainderOp, SubtractOp
from fuse_opt.dialects.graph.elementwise.math import RsqrtOp, TanhOp
from fuse_opt.dialects.graph.movement import gather, scatter, views
from fuse_opt.dialects.graph.nn.rms_lp_norm import RmsNormOp
from fuse_opt.dialects.graph.nn.softmax_layer_norm import SoftmaxOp
from fuse_opt.dialects.graph.reductions.reductions import MaxOp, SumOp
from fuse_opt.dialects.graph.reductions.statistics import ArgmaxOp, MeanOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import bool_value, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape
from fuse_opt.dialects.types.dtypes import I32, I64, DType
from fuse_opt.dialects.types.extents import is_number, least

Shape = tuple[int, ...]

LAST: dict[str, Attribute] = {"axes": int_array([-1]), "keepdims": bool_value(True)}


class Writer(Protocol):
    """A function under construction."""

    rng: random.Random

    def add(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> SSAValue | None: ...
    def pick(self) -> SSAValue: ...
    def partner(self, value: SSAValue) -> SSAValue: ...
    def of_type(self, type_: AnyTensor) -> SSAValue: ...
    def argument(self, element: DType, extents: Sequence[int]) -> SSAValue: ...


def at_positions(writer: Writer) -> None:
    """A read at positions, or a write, of a value there is; mostly with what reads the result."""
    rng, x = writer.rng, writer.pick()
    if not shape(x) or not all(least(n) for n in shape(x)):
        return
    found = rng.choice([_take, _take, _embedding, _along, _index, _gather_nd, _extremes, _written, _added_rows])(
        writer, x
    )
    if found is not None and rng.random() < 0.2 and shape(found) and all(least(n) for n in shape(found)):
        found = _take(writer, found)  # rows of rows
    if found is not None and rng.random() < 0.8:
        _read_on(writer, found, x)


def _positions(writer: Writer, extents: Sequence[int], end: int, wraps: bool) -> SSAValue | None:
    """Integers of a shape below `end`, not below -`end` where such count from there."""
    rng, element = writer.rng, writer.rng.choice([I32, I64])
    type_ = cast(TensorType[AnyFloat], TensorType(element.attribute, extents))
    if rng.random() < 0.5 and all(map(is_number, extents)) and prod(extents) <= 64:
        numbers = [rng.randrange(-end if wraps else 0, end) for _ in range(prod(extents))]
        return writer.add(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(type_, numbers))
    type_ = TensorType(element.attribute, [n if is_number(n) else 1 for n in extents])
    found = _below(writer, writer.of_type(type_), element, end)
    if found is None or not wraps or rng.random() < 0.6:
        return found
    return writer.add(SubtractOp, found, _number(writer, element, end))


def _below(writer: Writer, value: SSAValue, element: DType, end: int) -> SSAValue | None:
    return writer.add(RemainderOp, value, _number(writer, element, end))


def _number(writer: Writer, element: DType, value: int) -> SSAValue:
    type_ = cast(TensorType[AnyFloat], TensorType(element.attribute, []))
    found = writer.add(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(type_, [value]))
    assert found is not None
    return found


def _axis(writer: Writer, x: SSAValue) -> int:
    return writer.rng.randrange(-len(shape(x)), len(shape(x)))


def _some(writer: Writer, most: int) -> Shape:
    """The shape of positions that have axes of their own."""
    return tuple(writer.rng.choice([1, 2, 3, 5]) for _ in range(writer.rng.randint(0, most)))


def _wraps(writer: Writer) -> dict[str, Attribute]:
    return {"wrap_negative": bool_value(False)} if writer.rng.random() < 0.4 else {}


def _take(writer: Writer, x: SSAValue) -> SSAValue | None:
    axis, wraps = _axis(writer, x), _wraps(writer)
    at = _positions(writer, _some(writer, 2), least(shape(x)[axis]), not wraps)
    return None if at is None else writer.add(gather.TakeOp, x, at, axis=int_value(axis), **wraps)


def _rows(writer: Writer, x: SSAValue) -> SSAValue | None:
    """The value as rows."""
    if len(shape(x)) == 2:
        return x
    return (
        writer.add(views.ReshapeOp, x, shape=int_array([-1, shape(x)[-1]])) if all(map(is_number, shape(x))) else None
    )


def _embedding(writer: Writer, x: SSAValue) -> SSAValue | None:
    table, wraps = _rows(writer, x), _wraps(writer)
    ids = None if table is None else _positions(writer, _some(writer, 2), least(shape(table)[0]), not wraps)
    return None if table is None or ids is None else writer.add(gather.EmbeddingOp, table, ids, **wraps)


def _along(writer: Writer, x: SSAValue) -> SSAValue | None:
    """One of an axis for each other position, or for all alike."""
    axis, wraps = _axis(writer, x), _wraps(writer)
    extents = [n if is_number(n) and writer.rng.random() < 0.7 else 1 for n in shape(x)]
    extents[axis] = writer.rng.choice([1, 2, 4])
    at = _positions(writer, extents, least(shape(x)[axis]), not wraps)
    return None if at is None else writer.add(gather.TakeAlongAxisOp, x, at, axis=int_value(axis), **wraps)


def _index(writer: Writer, x: SSAValue) -> SSAValue | None:
    axes = sorted(writer.rng.sample(range(len(shape(x))), writer.rng.randint(1, min(2, len(shape(x))))))
    extents = _some(writer, 2)
    at = [_positions(writer, extents, least(shape(x)[axis]), True) for axis in axes]
    given = [value for value in at if value is not None]
    return writer.add(gather.IndexOp, x, *given, axes=int_array(axes)) if len(given) == len(axes) else None


def _gather_nd(writer: Writer, x: SSAValue) -> SSAValue | None:
    """Positions of one or two axes, all below the least of these extents."""
    length = writer.rng.randint(1, min(2, len(shape(x))))
    end = min(least(n) for n in shape(x)[:length])
    at = _positions(writer, (*_some(writer, 1), length), end, True)
    return None if at is None else writer.add(gather.GatherNdOp, x, at)


def _extremes(writer: Writer, x: SSAValue) -> SSAValue | None:
    """What stands where the largest element does, as in a loss of classes."""
    axis = int_value(_axis(writer, x))
    at = writer.add(ArgmaxOp, x, axis=axis, keepdims=bool_value(True))
    return None if at is None else writer.add(gather.TakeAlongAxisOp, x, at, axis=axis)


def _written(writer: Writer, x: SSAValue) -> SSAValue | None:
    """A copy with other elements, or elements joined, along an axis."""
    rng, axis = writer.rng, _axis(writer, x)
    if not all(map(is_number, shape(x))):
        return None
    extents = list(shape(x))
    extents[axis] = rng.choice([1, 2, 3])
    at = _positions(writer, extents, shape(x)[axis], True)
    if at is None:
        return None
    updates = writer.of_type(TensorType(dtype(x).attribute, extents))
    op_type = rng.choice([scatter.ScatterOp, scatter.ScatterAddOp, scatter.ScatterReduceOp])
    reduce = StringAttr(rng.choice(["add", "mul", "max", "min"]))
    properties: dict[str, Attribute] = {"reduce": reduce} if op_type is scatter.ScatterReduceOp else {}
    return writer.add(op_type, x, at, updates, axis=int_value(axis), **properties)


def _added_rows(writer: Writer, x: SSAValue) -> SSAValue | None:
    """The gradient of a table whose rows were read, and a step with it."""
    if not dtype(x).is_float or not all(map(is_number, shape(x))):
        return None
    ids, rows = shape(x)[:-1], writer.rng.choice([2, 3, 5])
    at = _positions(writer, ids, rows, False)
    if at is None:
        return None
    found = writer.add(scatter.EmbeddingBackwardOp, x, at, rows=int_value(rows))
    if found is None:
        return None
    return writer.add(SubtractOp, writer.of_type(TensorType(dtype(x).attribute, shape(found))), found)


def _read_on(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """What reads what was read at positions; `source` is what it was read from."""
    rng = writer.rng
    steps = [_products, _products, _moments, _softmax, _norm, _matmul, _viewed, _in_place, _with_source]
    for step in rng.sample(steps, rng.randint(1, 2)):
        step(writer, x, source)


def _products(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """Sums of squares, or of products with another value, which scale what they are of."""
    other = x if writer.rng.random() < 0.5 else writer.partner(x)
    product = writer.add(MultiplyOp, x, other)
    if product is not None and shape(product):
        total = writer.add(writer.rng.choice([SumOp, SumOp, MeanOp, MaxOp]), product, **LAST)
        if total is not None and writer.rng.random() < 0.7:
            writer.add(MultiplyOp, product, total)


def _moments(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """A norm of the root of squares written out."""
    square = writer.add(MultiplyOp, x, x) if dtype(x).is_float and shape(x) else None
    mean = None if square is None else writer.add(MeanOp, square, **LAST)
    root = None if mean is None else writer.add(RsqrtOp, mean)
    if root is not None:
        writer.add(MultiplyOp, x, root)


def _softmax(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    if shape(x):
        writer.add(SoftmaxOp, x, axis=int_value(_axis(writer, x)))


def _norm(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    if shape(x) and dtype(x).is_float and is_number(shape(x)[-1]):
        writer.add(RmsNormOp, x, writer.argument(dtype(x), shape(x)[-1:]))


def _matmul(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """On the left, on the right, or on both sides."""
    if not dtype(x).is_float or len(shape(x)) < 2 or not all(map(is_number, shape(x)[-2:])):
        return
    rows, columns = shape(x)[-2:]
    kind = writer.rng.randrange(3)
    if kind == 0:
        writer.add(MatmulOp, x, writer.argument(dtype(x), [columns, 3]))
    elif kind == 1:
        writer.add(MatmulOp, writer.argument(dtype(x), [4, rows]), x)
    else:
        axes = [*range(len(shape(x)) - 2), len(shape(x)) - 1, len(shape(x)) - 2]
        turned = writer.add(views.PermuteDimsOp, x, axes=int_array(axes))
        if turned is not None:
            writer.add(MatmulOp, x, turned)


def _viewed(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """A view of what was read, which is then summed."""
    axes = list(range(len(shape(x))))
    writer.rng.shuffle(axes)
    view = writer.add(views.PermuteDimsOp, x, axes=int_array(axes)) if axes else None
    if view is not None:
        writer.add(SumOp, view, axes=int_array([writer.rng.randrange(len(axes))]))


def _in_place(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """What might be written over what it is read from."""
    other = source if dtype(source) is dtype(x) and shape(source) == shape(x) else writer.partner(x)
    writer.add(writer.rng.choice([AddOp, SubtractOp]), other, x)


def _with_source(writer: Writer, x: SSAValue, source: SSAValue) -> None:
    """The source in other numbers, while it is still read at positions."""
    changed = writer.add(TanhOp, source) if dtype(source).is_float else None
    if changed is not None and shape(changed) and is_number(shape(changed)[0]):
        at = _positions(writer, (2,), shape(changed)[0], False)
        if at is not None:
            writer.add(gather.TakeOp, changed, at, axis=int_value(0))
