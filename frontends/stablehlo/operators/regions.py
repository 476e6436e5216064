"""Regions of StableHLO ops as graph ops on whole tensors: what a region says of scalars is done at every element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.ir import Block, Operation

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, I64, DType
from fuse_opt.frontends.builder import Array, Emitter, Value, extents, numpy_name, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, attributes_of, name_of

Region = Callable[..., list[Value]]
"""A region on tensors: operands of one shape up to broadcasting to results, one scalar after another."""

_ORDER_ONLY = frozenset(f"stablehlo.{name}" for name in ("compare", "select", "and", "or", "not", "constant", "return"))
"""Ops that see of numbers only how they compare: of constants just zero and NaN are allowed besides."""


def combiner(block: Block) -> str | None:
    """The op that a region joins its two arguments by; None where it is another one."""
    ops = list(block.ops)
    if len(ops) != 2 or len(block.args) != 2 or set(ops[0].operands) != set(block.args):
        return None
    return name_of(ops[0]) if list(ops[1].operands) == list(ops[0].results) else None


def region_of(h: HloOp, number: int = 0) -> Region:
    """A region of the op as a function on tensors; results are broadcast to the operands' shape."""
    block = h.op.regions[number].block

    def call(g: Emitter, *operands: Value) -> list[Value]:
        shape = np.broadcast_shapes(*(extents(value) for value in operands))
        results = h.apply(block, operands)
        return [value if extents(value) == shape else g.broadcast_to(value, shape=shape) for value in results]

    return call


def _part(g: Emitter, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    starts, stops, steps = [0] * rank(x), list(extents(x)), [1] * rank(x)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return x if (start, stop, step) == (0, extents(x)[axis], 1) else g.slice(x, starts=starts, stops=stops, steps=steps)


def reduced(
    g: Emitter, region: Region, values: Sequence[Value], initial: Sequence[Value], axes: list[int]
) -> list[Value]:
    """Values joined over axes, neighbours first and in order: the region is associative, as StableHLO wants it."""
    shape = extents(values[0])
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    lead, count = [shape[axis] for axis in kept], prod(shape[axis] for axis in axes)
    if count == 0 or prod(lead) == 0:
        return [g.broadcast_to(value, shape=lead) for value in initial]
    rows = [g.reshaped(g.permute_dims(value, axes=[*kept, *sorted(axes)]), [*lead, count]) for value in values]
    last = len(lead)
    while count > 1:
        whole = count - count % 2
        firsts = [_part(g, row, last, 0, whole, 2) for row in rows]
        seconds = [_part(g, row, last, 1, whole, 2) for row in rows]
        joined = region(g, *firsts, *seconds)
        if whole < count:
            joined = [
                g.concat(a, _part(g, b, last, whole, count), axis=last) for a, b in zip(joined, rows, strict=True)
            ]
        rows, count = joined, (count + 1) // 2
    return region(g, *initial, *(g.reshaped(row, lead) for row in rows))


def windowed(
    g: Emitter, region: Region, values: Sequence[Value], window: list[int], strides: list[int], dilations: list[int]
) -> list[Value]:
    """Values joined over windows in row-major order, on each axis in as many joined blocks as its extent has digits."""
    found = list(values)
    for axis, size, stride, step in reversed([*zip(range(len(window)), window, strides, dilations, strict=True)]):
        found = _windowed_axis(g, region, found, axis, size, step)
        found = [_part(g, value, axis, 0, extents(value)[axis], stride) for value in found]
    return found


def windowed_in_order(
    g: Emitter,
    region: Region,
    values: Sequence[Value],
    initial: Sequence[Value],
    window: list[int],
    strides: list[int],
    dilations: list[int],
) -> list[Value]:
    """As `windowed`, one element after another from the start values on: rounded as StableHLO's interpreter does it."""
    spans = [(size - 1) * step + 1 for size, step in zip(window, dilations, strict=True)]
    found = list(initial)
    for at in product(*map(range, window)):
        pieces = list(values)
        for axis, (place, step, span) in enumerate(zip(at, dilations, spans, strict=True)):
            first = place * step
            stop = first + max(extents(values[0])[axis] - span + 1, 0)
            pieces = [_part(g, piece, axis, first, stop, strides[axis]) for piece in pieces]
        found = region(g, *found, *pieces)
    return found


def _windowed_axis(g: Emitter, region: Region, values: list[Value], axis: int, size: int, step: int) -> list[Value]:
    count = extents(values[0])[axis] - (size - 1) * step
    if count <= 0:
        return [_part(g, value, axis, 0, 0) for value in values]
    blocks, width, taken = values, 1, 0
    result: list[Value] | None = None
    while True:
        if size & width:
            pieces = [_part(g, block, axis, taken * step, taken * step + count) for block in blocks]
            result = pieces if result is None else region(g, *result, *pieces)
            taken += width
        if taken == size:
            assert result is not None
            return result
        length = extents(blocks[0])[axis] - width * step
        firsts = [_part(g, block, axis, 0, length) for block in blocks]
        seconds = [_part(g, block, axis, width * step, width * step + length) for block in blocks]
        blocks, width = region(g, *firsts, *seconds), 2 * width


def places(g: Emitter, less: Region, values: Sequence[Value], axis: int) -> Value:
    """The stable order that a comparison says, any strict weak one: each element's place is the number of those before it."""
    rows = [_before_last(g, value, axis) for value in values]
    count, last = extents(rows[0])[-1], rank(rows[0])
    mine = [g.expand_dims(row, axes=[last]) for row in rows]
    others = [g.expand_dims(row, axes=[last - 1]) for row in rows]
    (before,) = less(g, *(side for pair in zip(others, mine, strict=True) for side in pair))
    (behind,) = less(g, *(side for pair in zip(mine, others, strict=True) for side in pair))
    here, there = (g.iota(shape=[count, count], axis=number, dtype=I64) for number in (0, 1))
    first = g.logical_or(before, g.logical_and(g.logical_not(behind), g.less(there, here)))
    order = g.argsort(g.sum(g.cast(first, I64), axes=[last]), axis=-1)
    back = list(range(rank(order) - 1))
    back.insert(axis % rank(order), rank(order) - 1)
    return g.permute_dims(order, axes=back)


def _before_last(g: Emitter, x: Value, axis: int) -> Value:
    axis %= rank(x)
    return g.permute_dims(x, axes=[*(number for number in range(rank(x)) if number != axis), axis])


def order_of(h: HloOp, block: Block) -> tuple[int, str] | None:
    """The operand and the direction, `LT` or `GT`, by which a comparator sorts; None where it may be another order.

    It is tried on numbers that compare in every way, which decides what ops that see nothing but order can say."""
    if not _sees_order_only(block):
        return None
    types = [dtype(value) for value in h.operands]
    for key, element in enumerate(types):
        numbers = _samples(element)
        pairs = np.array(list(product(range(len(numbers)), repeat=2)))
        x, y = numbers[pairs[:, 0]], numbers[pairs[:, 1]]
        answers: list[Array] = []
        for others in (0, 1, 2):
            operands = [
                side
                for number, other in enumerate(types)
                for side in ((x, y) if number == key else _other_pair(other, others, len(x)))
            ]
            answers.append(_tried(h, block, operands)[0])
        if any(not np.array_equal(answer, answers[0]) for answer in answers):
            continue
        for direction in ("LT", "GT"):
            if any(np.array_equal(answers[0], wanted) for wanted in _orders(x, y, direction)):
                return key, direction
    return None


def _orders(x: Array, y: Array, direction: str) -> list[Array]:
    """The comparison as it is, which is none of NaN, and as sorts mean it: NaN above all."""
    a, b = (x, y) if direction == "LT" else (y, x)
    last = (a < b) | (np.isnan(b) & ~np.isnan(a)) if a.dtype.kind == "f" else a < b
    return [np.asarray(a < b), np.asarray(last)]


def _other_pair(element: DType, way: int, count: int) -> tuple[Array, Array]:
    """Two other operands, equal or in either order."""
    low, high = np.zeros(count, numpy_name(_plain(element))), np.ones(count, numpy_name(_plain(element)))
    return ((low, low), (low, high), (high, low))[way]


def arg_direction(h: HloOp, block: Block) -> str | None:
    """
    `GT` or `LT` where a region of values and positions gives the first largest or smallest value, NaN before all. Of two NaN that
    do not come in order it may give either, as that of JAX does: nothing says in which order values are reduced.
    """
    if not _sees_order_only(block):
        return None
    element, counter = dtype(h.operand(0)), dtype(h.operand(1))
    numbers, at = _samples(element), np.array([3, 5], numpy_name(counter))
    rows = list(product(range(len(numbers)), range(len(numbers)), (0, 1)))
    a, b = (numbers[[row[side] for row in rows]] for side in (0, 1))
    i, j = at[[row[2] for row in rows]], at[[1 - row[2] for row in rows]]
    got = _tried(h, block, [a, i, b, j])
    for direction in ("GT", "LT"):
        x, y = (a, b) if direction == "GT" else (b, a)
        nan = (np.isnan(a), np.isnan(b)) if a.dtype.kind == "f" else (np.zeros(a.shape, bool),) * 2
        same = (a == b) | (nan[0] & nan[1])
        first = np.where(same, i < j, nan[0] | (~nan[1] & (x > y)))
        value, place = np.where(first, a, b), np.where(first, i, j)
        is_either = nan[0] & nan[1] & (i > j)
        if np.array_equal(got[1][~is_either], place[~is_either]) and np.array_equal(
            got[0], value, equal_nan=a.dtype.kind == "f"
        ):
            return direction
    return None


def _sees_order_only(block: Block) -> bool:
    for op in block.ops:
        if name_of(op) not in _ORDER_ONLY:
            return False
        if name_of(op) == "stablehlo.constant" and not _is_zero_or_nan(op):
            return False
    return True


def _is_zero_or_nan(op: Operation) -> bool:
    elements: Any = attributes_of(op).get("value")
    return all(value == 0 or value != value for value in elements.get_values())


@cache
def _samples(element: DType) -> Array:
    """Numbers of all kinds that comparisons tell apart, in the type or, of narrow floats, in f32."""
    if element is BOOL:
        return np.array([False, True])
    if element.is_float:
        return np.array([np.nan, -np.nan, -np.inf, -2.0, -0.0, 0.0, 1.0, 2.0, np.inf], numpy_name(_plain(element)))
    signed = element is not element.unsigned
    return np.array([*([-2, -1] if signed else []), 0, 1, 2, 3], numpy_name(element))


def _plain(element: DType) -> DType:
    """A type that NumPy has, in which the element type's numbers compare alike."""
    return element.compute


def _tried(h: HloOp, block: Block, operands: Sequence[Array]) -> list[Array]:
    """What a region gives for scalars, at each element of these arrays."""
    g = Emitter()
    types = [dtype(value) for value in h.operands]
    counts = len(operands) // len(types)
    pairwise = h.name == "stablehlo.sort"
    elements = [element for element in types for _ in range(counts)] if pairwise else types * counts
    given = [g.argument(f"x{k}", _plain(e), a.shape) for k, (e, a) in enumerate(zip(elements, operands, strict=True))]
    values = [g.cast(value, element) for value, element in zip(given, elements, strict=True)]
    results = h.apply(block, values, g)
    module = g.finish(
        [g.broadcast_to(g.cast(value, _plain(dtype(value))), shape=operands[0].shape) for value in results]
    )
    assert h.evaluate is not None  # where there are regions, an importer made the op
    found = h.evaluate(module, *operands)
    return list(cast("tuple[Array, ...]", found)) if isinstance(found, tuple) else [cast(Array, found)]
