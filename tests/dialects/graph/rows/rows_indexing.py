"""Rows of reads at positions that are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from graph_op_table import ANY, INTEGERS, TYPES, UNSIGNED, Array, Case, Row, ramp


def indices(name: str, extent: int, *shape: int) -> Array:
    """Positions of both signs, some twice; of unsigned types from 0 on."""
    count = int(np.prod(shape))
    values = np.arange(count) * 5 % (2 * extent or 1) - extent
    return (
        (np.where(values < 0, values + extent, values) if name in UNSIGNED else values)
        .astype(TYPES[name])
        .reshape(shape)
    )


def _taken(x: Array, index: Array, axis: int) -> Array:
    """One element after another."""
    axis %= x.ndim
    out = np.empty((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
    for at in np.ndindex(*out.shape):
        position = int(index[at[axis : axis + index.ndim]])
        out[at] = x[(*at[:axis], position, *at[axis + index.ndim :])]
    return out


TAKES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5,), (3,), 0),
    ((4, 3, 5), (7,), 1),
    ((4, 3), (2, 3), -1),
    ((4, 3), (), 0),
    ((4, 3), (0,), 1),
    ((0, 3), (2,), 1),
    ((0, 3), (0, 2), 0),
    ((4, 0), (2,), 0),
    ((4,), (), 0),
]


def _take_cases() -> Iterator[Case]:
    for name in ANY:
        for shape, extents, axis in TAKES:
            x, index = ramp(name, *shape), indices("i64", shape[axis], *extents)
            text = f"axis = {axis} : i64" if axis else ""
            yield Case("graph.take", text, (x, index), _taken(x, index, axis))
    for kind in INTEGERS:
        x, index = ramp("f32", 6, 2), indices(kind, 6, 9)
        yield Case("graph.take", "", (x, index), _taken(x, index, 0))


def _embedding_cases() -> Iterator[Case]:
    for name in ANY:
        for kind, extents in (("i32", (2, 4)), ("i64", ()), ("i64", (0, 3))):
            x, index = ramp(name, 7, 3), indices(kind, 7, *extents)
            yield Case("graph.embedding", "", (x, index), _taken(x, index, 0))


def _along(x: Array, index: Array, axis: int) -> Array:
    axis %= x.ndim
    others = np.broadcast_shapes(*[(*array.shape[:axis], 1, *array.shape[axis + 1 :]) for array in (x, index)])
    out = np.empty((*others[:axis], index.shape[axis], *others[axis + 1 :]), x.dtype)
    for at in np.ndindex(*out.shape):
        where = tuple(0 if n == 1 and k != axis else i for k, (i, n) in enumerate(zip(at, index.shape, strict=True)))
        source = [0 if n == 1 else i for i, n in zip(at, x.shape, strict=True)]
        source[axis] = int(index[where])
        out[at] = x[tuple(source)]
    return out


ALONG: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5,), (3,), 0),
    ((4, 3), (4, 6), -1),
    ((4, 3), (7, 3), 0),
    ((2, 3, 4), (2, 5, 4), 1),
    ((2, 3, 4), (1, 5, 4), 1),
    ((1, 3, 4), (2, 2, 1), -2),
    ((1, 1), (1, 1), -1),
    ((4, 3), (4, 0), 1),
    ((0, 3), (0, 2), 1),
]


def _along_cases() -> Iterator[Case]:
    for name in ANY:
        for shape, extents, axis in ALONG:
            x, index = ramp(name, *shape), indices("i64", shape[axis], *extents)
            text = f"axis = {axis} : i64" if axis != -1 else ""
            yield Case("graph.take_along_axis", text, (x, index), _along(x, index, axis))
    for kind in INTEGERS:
        x, index = ramp("i32", 2, 6), indices(kind, 6, 2, 4)
        yield Case("graph.take_along_axis", "", (x, index), _along(x, index, -1))


def _read_at_cases() -> Iterator[Case]:
    """Positions of both signs and beyond the end, which are limited to what is there."""
    for name in ANY:
        for shape, extents, axis in ALONG:
            x, index = ramp(name, *shape), indices("i64", shape[axis] + 1, *extents)
            text = f"axis = {axis} : i64" if axis != -1 else ""
            known = np.clip(index, 0, shape[axis] - 1) if shape[axis] else index
            yield Case("graph.read_at", text, (x, index), _along(x, known, axis))
    for kind in INTEGERS:
        x, index = ramp("i32", 2, 300), indices(kind, 6, 2, 4)
        index[1] = np.iinfo(TYPES[kind]).max
        yield Case("graph.read_at", "", (x, index), _along(x, np.clip(index, 0, 299), -1))


def _checked_cases() -> Iterator[Case]:
    for kind in INTEGERS:
        index = indices(kind, 6, 3, 5)
        named = np.where(index < 0, index + 6, index)
        for extent, element in ((6, "i32"), (2**31, "i64")):
            wraps = extent == 6
            given, known = (index, named) if wraps else (named.astype(TYPES[kind]), named)
            text = f'axis = 1 : i64, extent = {extent} : i64, op = "graph.take"'
            text += "" if wraps else ", wrap_negative = false"
            yield Case("graph.checked_positions", text, (given,), known.astype(TYPES[element]))


def positions(extents: Sequence[int], *shape: int, kind: str = "i64") -> Array:
    """Positions in a tensor of `extents` along a new last axis."""
    parts = [np.roll(indices(kind, extent, *shape).reshape(-1), k) for k, extent in enumerate(extents)]
    return np.stack([part.reshape(shape) for part in parts], axis=-1)


GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = [
    ((4, 3), (5,), 2, 0),
    ((4, 3), (2, 2), 1, 0),
    ((2, 3, 4), (2, 5), 1, 1),
    ((2, 3, 4, 2), (2, 3, 2), 2, 1),
    ((2, 3, 4), (2, 3), 1, 2),
    ((4, 3), (), 2, 0),
    ((4, 3), (0,), 1, 0),
    ((0, 3), (0, 2), 1, 1),
]
"""Shapes of x and of the positions, their length, batch_dims."""


def _gather_nd_cases() -> Iterator[Case]:
    for name in ANY:
        for number, (shape, extents, length, batch) in enumerate(GATHERS):
            named = shape[batch : batch + length]
            x, index = ramp(name, *shape), positions(named, *extents, kind=("i64", "i32")[number % 2])
            out = np.empty((*extents, *shape[batch + length :]), x.dtype)
            for at in np.ndindex(*extents):
                out[at] = x[(*at[:batch], *map(int, index[at]))]
            yield Case("graph.gather_nd", f"batch_dims = {batch} : i64" if batch else "", (x, index), out)


INDEXED: list[tuple[tuple[int, ...], list[int] | None, list[tuple[int, ...]]]] = [
    ((5, 3), None, [(4,)]),
    ((5, 3), [1], [(2, 2)]),
    ((5, 3), [0, 1], [(4,), (4,)]),
    ((5, 3), [0, 1], [(2, 1), (3,)]),
    ((5, 3, 4), [1, -1], [(2,), ()]),
    ((5, 3, 4), [0, 2], [(2,), (3, 1)]),
    ((5, 3, 4), [2, 0], [(2,), (2,)]),
    ((5, 3, 4), [2, 1], [(2,), (2,)]),
    ((5, 3), [0, 1], [(), ()]),
    ((5, 3), [0], [(0,)]),
    ((0, 3), [1], [(2,)]),
]
"""The shape of x, the axes, and the shapes of the indices."""


def indexed(
    shape: Sequence[int], axes: Sequence[int] | None, extents: Sequence[tuple[int, ...]]
) -> tuple[list[Array], Array]:
    """Index tensors, and the flat position in x of each element that they mean, by NumPy's rule for where axes go."""
    chosen = [axis % len(shape) for axis in (range(len(extents)) if axes is None else axes)]
    given = [
        indices(("i64", "i32")[k % 2], shape[axis], *e) for k, (axis, e) in enumerate(zip(chosen, extents, strict=True))
    ]
    together = np.broadcast_shapes(*extents)
    rest = [axis for axis in range(len(shape)) if axis not in chosen]
    adjacent = sorted(chosen) == list(range(min(chosen), min(chosen) + len(chosen)))
    before = [axis for axis in rest if adjacent and axis < min(chosen)]
    behind = [axis for axis in rest if axis not in before]
    out = np.empty((*(shape[a] for a in before), *together, *(shape[a] for a in behind)), np.int64)
    for at in np.ndindex(*out.shape):
        middle = at[len(before) : len(before) + len(together)]
        where = dict(zip([*before, *behind], [*at[: len(before)], *at[len(before) + len(together) :]], strict=True))
        for axis, index in zip(chosen, given, strict=True):
            where[axis] = int(np.broadcast_to(index, together)[middle]) % shape[axis]
        out[at] = np.ravel_multi_index([where[axis] for axis in range(len(shape))], tuple(shape))
    return given, out


def axes_attribute(axes: Sequence[int] | None) -> list[str]:
    return [] if axes is None else [f"axes = array<i64: {', '.join(map(str, axes))}>"]


def _index_cases() -> Iterator[Case]:
    for name in ANY:
        for shape, axes, extents in INDEXED:
            x, (given, flat) = ramp(name, *shape), indexed(shape, axes, extents)
            value = x.reshape(-1)[flat]
            yield Case("graph.index", ", ".join(axes_attribute(axes)), (x, *given), value)


ROWS: list[Row] = [
    Row("take", ANY, _take_cases),
    Row("embedding", ANY, _embedding_cases),
    Row("take_along_axis", ANY, _along_cases),
    Row("checked_positions", INTEGERS, _checked_cases),
    Row("read_at", ANY, _read_at_cases),
    Row("gather_nd", ANY, _gather_nd_cases),
    Row("index", ANY, _index_cases),
]
