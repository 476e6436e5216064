"""Rows of movement: operands joined, taken apart, and written into one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import numpy as np
from graph_op_table import ANY, TYPES, Array, Case, Row, moved, ramp
from rows_placement import Shape, numbers


def parts_of(name: str, shapes: Sequence[Shape]) -> tuple[Array, ...]:
    """Arrays of different values: every other one is in reverse."""
    return tuple(reverse(ramp(name, *shape)) if k % 2 else ramp(name, *shape) for k, shape in enumerate(shapes))


def reverse(x: Array) -> Array:
    return np.array(x[..., ::-1], order="C") if x.ndim else x


def axis_text(axis: int) -> str:
    return f"axis = {axis} : i64" * bool(axis)


def _concat_cases() -> Iterator[Case]:
    layouts: list[tuple[list[Shape], int]] = [
        ([(2, 3), (4, 3)], 0),
        ([(2, 3), (2, 1), (2, 2)], -1),
        ([(0, 2), (3, 2), (0, 2)], 0),
        ([(3,)], 0),
        ([(0,), (0,)], 0),
        ([(2, 0), (3, 0)], 0),
        ([(1,)] * 9, 0),
    ]
    for name, (shapes, axis) in product(TYPES, layouts):
        parts = parts_of(name, shapes)
        yield Case("graph.concat", axis_text(axis), parts, np.concatenate(parts, axis))


def _stack_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, int, int]] = [
        ((2, 3), 2, 0),
        ((2, 3), 3, -1),
        ((2, 3), 2, 1),
        ((), 3, 0),
        ((0, 2), 2, 1),
    ]
    for name, (shape, count, axis) in product(TYPES, [*layouts, ((4,), 1, -2)]):
        parts = parts_of(name, [shape] * count)
        wide = [part[(slice(None),) * (axis % (len(shape) + 1)) + (None,)] for part in parts]
        yield Case("graph.stack", axis_text(axis), parts, np.concatenate(wide, axis))


def _split_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, int, list[int] | int]] = [
        ((6,), 0, 3),
        ((2, 6), -1, 2),
        ((2, 5), 1, [1, 0, 4]),
        ((3, 2), 0, [3]),
        ((0, 2), 0, 2),
        ((4, 0), 0, [1, 3]),
    ]
    for name, (shape, axis, parts) in product(TYPES, layouts):
        x = ramp(name, *shape)
        sizes = parts if isinstance(parts, list) else [shape[axis] // parts] * parts
        text = f"parts = {parts} : i64" if isinstance(parts, int) else f"sizes = {numbers(parts)}"
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        places = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        found = tuple(np.take(x, np.array(at, np.int64), axis) for at in places)
        yield Case("graph.split", ", ".join(filter(None, [axis_text(axis), text])), (x,), found)


def _unstack_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, int]] = [((3,), 0), ((2, 3), 0), ((2, 3), -1), ((2, 1, 3), 1), ((2, 0), 0)]
    for name, (shape, axis) in product(TYPES, layouts):
        x = ramp(name, *shape)
        found = tuple(np.array(np.take(x, at, axis)) for at in range(shape[axis]))
        yield Case("graph.unstack", axis_text(axis), (x,), found)


def _select_cases() -> Iterator[Case]:
    for shape, axis, index in [((5,), 0, 2), ((2, 3), -1, -3), ((2, 3, 4), 1, 2), ((1,), 0, -1), ((2, 0), 0, 1)]:
        text = ", ".join(filter(None, [axis_text(axis), f"index = {index} : i64"]))
        yield from moved("select", text, shape, lambda x, i=index, a=axis: np.take(x, i, a))


def _slice_scatter_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, list[slice]]] = [
        ((7,), [slice(2, 5, 1)]),
        ((7,), [slice(0, 7, 3)]),
        ((7,), [slice(6, -8, -2)]),
        ((7,), [slice(-2, 1, -1)]),
        ((4, 5), [slice(1, 3, 1), slice(0, 99, 1)]),
        ((4, 5), [slice(3, -9, -2), slice(1, 5, 2)]),
        ((4, 5), [slice(2, 2, 1), slice(0, 5, 1)]),
        ((2, 3), [slice(0, 2, 1), slice(0, 3, 1)]),
        ((0, 3), [slice(0, 0, 1), slice(1, 2, 1)]),
        ((), []),
    ]
    for name, (shape, at) in product(TYPES, layouts):
        x = ramp(name, *shape)
        update = reverse(ramp(name, *x[tuple(at)].shape))
        expected = x.copy()
        expected[tuple(at)] = update
        starts, stops, steps = ([getattr(s, field) for s in at] for field in ("start", "stop", "step"))
        text = f"starts = {numbers(starts)}, stops = {numbers(stops)}"
        text += f", steps = {numbers(steps)}" * any(step != 1 for step in steps)
        yield Case("graph.slice_scatter", text, (x, update), expected)


def _select_scatter_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, int, int]] = [
        ((5,), 0, 2),
        ((2, 3), -1, -3),
        ((2, 3, 4), 1, 2),
        ((1,), 0, 0),
        ((2, 0), 0, 1),
    ]
    for name, (shape, axis, index) in product(TYPES, layouts):
        x = ramp(name, *shape)
        at = (*[slice(None)] * (axis % len(shape)), index)
        update = reverse(ramp(name, *x[at].shape))
        expected = x.copy()
        expected[at] = update
        text = ", ".join(filter(None, [axis_text(axis), f"index = {index} : i64"]))
        yield Case("graph.select_scatter", text, (x, update), expected)


def _leading_cases() -> Iterator[Case]:
    for shape, axis, count in [((5,), 0, 3), ((2, 3, 4), 1, 3), ((2, 3), -1, 1), ((4, 2), 0, 0), ((0, 2), 0, 0)]:
        text = ", ".join(filter(None, [axis_text(axis), f"count = #graph.size<{count}>"]))
        at = (*[slice(None)] * (axis % len(shape)), slice(0, count))
        yield from moved("leading", text, shape, lambda x, at=at: np.array(x[at], order="C"))


def _update_slice_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, int, int, int]] = [
        ((7,), 0, 2, 3),
        ((7,), 0, 0, 7),
        ((3, 5, 2), 1, 4, 1),
        ((3, 5), -1, 1, 2),
        ((4, 2), 0, 4, 0),
        ((2, 0), 0, 1, 1),
    ]
    for name, (shape, axis, start, count) in product(TYPES, layouts):
        x = ramp(name, *shape)
        at = (*[slice(None)] * (axis % len(shape)), slice(start, start + count))
        update = reverse(ramp(name, *x[at].shape))
        expected = x.copy()
        expected[at] = update
        text = ", ".join(filter(None, [axis_text(axis), f"start = #graph.size<{start}>"]))
        yield Case("graph.update_slice", text, (x, update), expected)


BOXES: list[tuple[Shape, list[int], list[int], list[int]]] = [
    ((7,), [2], [0], [3]),
    ((7,), [-3], [0], [7]),
    ((3, 5, 2), [9], [1], [2]),
    ((3, 20), [1, -2], [0, 1], [2, 11]),
    ((3, 20), [7, 9], [1, 0], [18, 1]),
    ((4, 3), [2], [0], [0]),
    ((2, 0), [1], [0], [1]),
]


def _dynamic_slice_cases() -> Iterator[Case]:
    """Starts of both signs and beyond where the box fits."""
    for (name, (shape, starts, axes, sizes)), kind in zip(product(TYPES, BOXES), cycle(("i64", "i32"))):
        x, at = _boxed(name, shape, starts, axes, sizes)
        given = [np.array(start, TYPES[kind]) for start in starts]
        text = f"sizes = {numbers(sizes)}" + f", axes = {numbers(axes)}" * (axes != list(range(len(axes))))
        yield Case("graph.dynamic_slice", text, (x, *given), np.array(x[at], order="C"))


def _boxed(
    name: str, shape: Shape, starts: list[int], axes: list[int], sizes: list[int]
) -> tuple[Array, tuple[slice, ...]]:
    at = [slice(0, n) for n in shape]
    for start, axis, size in zip(starts, axes, sizes, strict=True):
        first = min(max(start, 0), shape[axis] - size)
        at[axis] = slice(first, first + size)
    return ramp(name, *shape), tuple(at)


def _dynamic_update_slice_cases() -> Iterator[Case]:
    for (name, (shape, starts, axes, sizes)), kind in zip(product(TYPES, BOXES), cycle(("i64", "i32"))):
        x, at = _boxed(name, shape, starts, axes, sizes)
        update, expected = reverse(ramp(name, *x[at].shape)), x.copy()
        expected[at] = update
        given = [np.array(start, TYPES[kind]) for start in starts]
        text = f"axes = {numbers(axes)}" * (axes != list(range(len(axes))))
        yield Case("graph.dynamic_update_slice", text, (x, update, *given), expected)


ROWS: list[Row] = [
    Row("concat", ANY, _concat_cases),
    Row("stack", ANY, _stack_cases),
    Row("split", ANY, _split_cases),
    Row("unstack", ANY, _unstack_cases),
    Row("select", ANY, _select_cases),
    Row("slice_scatter", ANY, _slice_scatter_cases),
    Row("select_scatter", ANY, _select_scatter_cases),
    Row("leading", ANY, _leading_cases),
    Row("update_slice", ANY, _update_slice_cases),
    Row("dynamic_slice", ANY, _dynamic_slice_cases),
    Row("dynamic_update_slice", ANY, _dynamic_update_slice_cases),
]
