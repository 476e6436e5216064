"""Rows of writes at positions that are data: one update after another, in row-major order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from graph_op_table import ANY, FLOATS, INTEGERS, Array, Case, Row, ramp, rounded, wide, wrapped
from rows_indexing import INDEXED, axes_attribute, indexed, indices, positions

NUMBERS = (*FLOATS, *INTEGERS)


def _larger(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else min(a, b)


JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": _larger,
    "min": _smaller,
}


def _written(x: Array, updates: list[tuple[int, Any]], reduce: str) -> Array:
    """x with updates at flat positions; numbers joined as float64 or Python's integers."""
    name = next(name for name in ANY if ramp(name).dtype == x.dtype)
    if reduce == "none":
        out = x.copy()
        for place, value in updates:
            out.reshape(-1)[place] = value
        return out
    total = wide(x) if name in FLOATS else x.astype(object)
    flat = total.reshape(-1)
    for place, value in updates:
        given = wide(value).reshape(())[()] if name in FLOATS else int(value)
        flat[place] = JOIN[reduce](flat[place], given)
    return rounded(total, name) if name in FLOATS else wrapped(total, name)


SCATTERS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5,), (8,), 0),
    ((4, 3), (6, 3), 0),
    ((4, 3), (3, 5), -1),
    ((2, 3, 4), (2, 7, 3), 1),
    ((1, 1), (1, 1), 1),
    ((4, 3), (0, 3), 0),
    ((0, 3), (0, 2), 1),
]


def _along(op: str, names: tuple[str, ...], reduce: str, attribute: bool) -> Iterator[Case]:
    for name in names:
        for number, (shape, extents, axis) in enumerate(SCATTERS):
            x, updates = ramp(name, *shape), np.flip(ramp(name, *extents)).copy()
            updates = updates.view(type(x))
            index = indices(("i64", "i32", "i8")[number % 3], shape[axis], *extents)
            places: list[tuple[int, Any]] = []
            for at in np.ndindex(*extents):
                where = list(at)
                where[axis] = int(index[at]) % shape[axis]
                places.append((int(np.ravel_multi_index(where, shape)), updates[at]))
            text = [f"axis = {axis} : i64"] * bool(axis) + [f'reduce = "{reduce}"'] * attribute
            yield Case(f"graph.{op}", ", ".join(text), (x, index, updates), _written(x, places, reduce))


def _scatter_reduce_cases() -> Iterator[Case]:
    for reduce in ("add", "mul", "max", "min"):
        yield from _along("scatter_reduce", NUMBERS, reduce, True)
    for reduce in ("max", "min", "add"):
        for name in FLOATS:
            x = rounded(np.array([1.0, math.nan, -math.inf, 2.0]), name)
            updates = rounded(np.array([math.nan, 3.0, math.inf, 5.0]), name)
            index = np.array([0, 1, 2, 3])
            places = [(k, updates[k]) for k in range(4)]
            yield Case("graph.scatter_reduce", f'reduce = "{reduce}"', (x, index, updates), _written(x, places, reduce))


SCATTERS_ND: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((4, 3), (5,), 2),
    ((4, 3), (2, 3), 1),
    ((2, 3, 4), (7,), 2),
    ((4, 3), (), 1),
    ((4, 3), (0,), 1),
    ((2, 300), (5,), 1),
]
"""The shape of x, that of the positions, and their length."""


def _scatter_nd_cases() -> Iterator[Case]:
    for reduce in JOIN:
        for name in ANY if reduce == "none" else NUMBERS:
            for shape, extents, length in SCATTERS_ND:
                x, index = ramp(name, *shape), positions(shape[:length], *extents)
                updates = np.flip(ramp(name, *extents, *shape[length:])).copy().view(type(x))
                places: list[tuple[int, Any]] = []
                for at in np.ndindex(*extents):
                    named = [int(i) % n for i, n in zip(index[at], shape, strict=False)]
                    for rest in np.ndindex(*shape[length:]):
                        place = int(np.ravel_multi_index([*named, *rest], shape))
                        places.append((place, updates[(*at, *rest)]))
                text = "" if reduce == "none" else f'reduce = "{reduce}"'
                yield Case("graph.scatter_nd", text, (x, index, updates), _written(x, places, reduce))


def _index_put_cases() -> Iterator[Case]:
    for accumulate in (False, True):
        for name in NUMBERS if accumulate else ANY:
            for number, (shape, axes, extents) in enumerate(INDEXED):
                x, (given, flat) = ramp(name, *shape), indexed(shape, axes, extents)
                values = np.flip(ramp(name, *(flat.shape if number % 2 else flat.shape[-1:]))).copy().view(type(x))
                each = np.broadcast_to(values, flat.shape, subok=True)
                places = [(int(flat[at]), each[at]) for at in np.ndindex(*flat.shape)]
                text = [*axes_attribute(axes), *["accumulate = true"] * accumulate]
                value = _written(x, places, "add" if accumulate else "none")
                yield Case("graph.index_put", ", ".join(text), (x, values, *given), value)


def _embedding_backward_cases() -> Iterator[Case]:
    for name in FLOATS:
        for kind, rows, extents, width, padding in [
            ("i64", 5, (9,), 3, None),
            ("i32", 4, (2, 6), 2, 1),
            ("i64", 3, (7,), 300, -1),
            ("i64", 3, (), 4, None),
            ("i64", 3, (0,), 4, None),
            ("i32", 0, (0,), 4, None),
            ("i64", 3, (5,), 0, None),
        ]:
            grad, ids = ramp(name, *extents, width), indices(kind, rows, *extents)
            total, given = np.zeros((rows, width)), wide(grad)
            for at in np.ndindex(*extents):
                row = int(ids[at]) % rows
                if padding is None or row != padding % rows:
                    total[row] += given[at]
            text = [f"rows = {rows} : i64", *([] if padding is None else [f"padding_index = {padding} : i64"])]
            yield Case("graph.embedding_backward", ", ".join(text), (grad, ids), rounded(total, name))


ROWS: list[Row] = [
    Row("scatter", ANY, lambda: _along("scatter", ANY, "none", False)),
    Row("scatter_add", NUMBERS, lambda: _along("scatter_add", NUMBERS, "add", False)),
    Row("scatter_reduce", NUMBERS, _scatter_reduce_cases),
    Row("scatter_nd", ANY, _scatter_nd_cases),
    Row("index_put", ANY, _index_put_cases),
    Row("embedding_backward", FLOATS, _embedding_backward_cases),
]
