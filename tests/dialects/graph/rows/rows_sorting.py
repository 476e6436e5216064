"""Rows of orders and running totals: Python's stable sort, and totals one element after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import FLOATS, INTEGERS, Array, Case, Row, noise, ramp, rounded, samples, wide, wrapped

NUMBERS = (*FLOATS, *INTEGERS)
ORDERED = (*NUMBERS, "i1")


def _order(line: Array, descending: bool) -> list[int]:
    """NaN is the greatest; equal elements keep their order."""
    values = [float(v) for v in wide(line)] if line.dtype.kind in "fV" else [int(v) for v in line]
    keys = [(True, 0.0) if v != v else (False, v) for v in values]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)


def _orders(x: Array, axis: int, descending: bool) -> Array:
    lines = np.moveaxis(x, axis, -1)
    out = np.empty(lines.shape, np.int64)
    for at in np.ndindex(*lines.shape[:-1]):
        out[at] = _order(lines[at], descending)
    return out


def _picked(x: Array, axis: int, order: Array) -> tuple[Array, Array]:
    """Values and positions, the line's axis put back in its place."""
    lines = np.moveaxis(x, axis, -1)
    values = np.empty(order.shape, x.dtype).view(type(x))
    for at in np.ndindex(*order.shape):
        values[at] = lines[(*at[:-1], int(order[at]))]
    return np.moveaxis(values, -1, axis).copy(), np.moveaxis(order, -1, axis).copy()


SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((5,), 0),
    ((3, 8), -1),
    ((6, 4), 0),
    ((2, 5, 3), 1),
    ((0, 3), -1),
    ((3, 0), 1),
    ((1,), -1),
]


def _tensors(name: str) -> Iterator[tuple[Array, int]]:
    """Ramps, and the samples with all of them twice."""
    for shape, axis in SHAPES:
        yield ramp(name, *shape), axis
    once = samples(name)
    yield np.concatenate([once, once[::-1]]).view(type(once)), -1


def _order_text(axis: int, descending: bool, stable: bool) -> str:
    parts = ["" if axis == -1 else f"axis = {axis} : i64", "descending = true" if descending else ""]
    return ", ".join(part for part in [*parts, "" if stable else "stable = false"] if part)


def _sort_cases() -> Iterator[Case]:
    for name in ORDERED:
        for x, axis in _tensors(name):
            for descending in (False, True):
                values, _ = _picked(x, axis, _orders(x, axis, descending))
                yield Case("graph.sort", _order_text(axis, descending, True), (x,), values, signed_zeros=True)
                yield Case("graph.sort", _order_text(axis, descending, False), (x,), values)


def _argsort_cases() -> Iterator[Case]:
    for name in ORDERED:
        for x, axis in _tensors(name):
            for descending in (False, True):
                order = np.moveaxis(_orders(x, axis, descending), -1, axis).copy()
                yield Case("graph.argsort", _order_text(axis, descending, True), (x,), order)


def _top_k_case(x: Array, axis: int, k: int, largest: bool, more: str = "") -> Case:
    values, order = _picked(x, axis, _orders(x, axis, largest)[..., :k])
    parts = ["" if axis == -1 else f"axis = {axis} : i64", "" if largest else "largest = false", more]
    text = ", ".join([f"k = {k} : i64", *(part for part in parts if part)])
    return Case("graph.top_k", text, (x,), (values, order), signed_zeros=True)


def _top_k_cases() -> Iterator[Case]:
    for name in ORDERED:
        for (x, axis), largest in product(_tensors(name), (True, False)):
            for k in sorted({0, 1, min(3, x.shape[axis]), x.shape[axis]} if x.shape[axis] else {0}):
                yield _top_k_case(x, axis, k, largest)
    for name, largest in product(("f16", "f32", "i32", "ui8"), (True, False)):
        x = noise(name, 2, 2000) if name in FLOATS else ramp(name, 2, 2000)  # long lines, many equal
        yield _top_k_case(np.round(x) if name in FLOATS else x, -1, 7, largest)
    for count, largest in product((0, 3, 20, 1300), (True, False)):
        x = noise("f32", 1300)
        x[:count] = math.nan
        yield _top_k_case(x, -1, 9, largest)


def _searchsorted_cases() -> Iterator[Case]:
    for name in ORDERED:
        x = samples(name)
        x = x[_order(x, False)]
        for values, side in product((samples(name), ramp(name, 2, 3), ramp(name), ramp(name, 0)), ("left", "right")):
            count = np.empty(values.shape, np.int64)
            for at in np.ndindex(*values.shape):
                ordered = [_rank(v) for v in (wide(x) if name in FLOATS else x.astype(object))]
                key = _rank(wide(values)[at] if name in FLOATS else values.astype(object)[at])
                count[at] = sum(v < key or (side == "right" and v == key) for v in ordered)
            text = "" if side == "left" else 'side = "right"'
            yield Case("graph.searchsorted", text, (x, values), count)


def _rank(value: Any) -> tuple[bool, Any]:
    return (True, 0.0) if value != value else (False, value)


TOTALS: list[tuple[tuple[int, ...], int | None]] = [
    ((5,), None),
    ((40,), -1),
    ((3, 6), -1),
    ((6, 4), 0),
    ((2, 5, 3), 1),
    ((0, 3), 1),
    ((3, 0), 1),
    ((0,), None),
]
MODES = [
    "",
    "include_initial = true",
    "exclusive = true",
    "reverse = true",
    "exclusive = true, reverse = true",
    "include_initial = true, reverse = true",
]


def _totals(name: str, x: Array, axis: int, mode: str, join: Callable[[Any, Any], Any], start: int) -> Array:
    lines = np.moveaxis(wide(x) if name in FLOATS else x.astype(object), axis, -1)
    initial, exclusive, reverse = ("include_initial" in mode, "exclusive" in mode, "reverse" in mode)
    out = np.empty((*lines.shape[:-1], lines.shape[-1] + initial), lines.dtype)
    for at in np.ndindex(*lines.shape[:-1]):
        total: Any = float(start) if name in FLOATS else start
        found = [total]
        for value in list(lines[at])[:: -1 if reverse else 1]:
            total = join(total, value)
            found.append(total)
        found = found if initial else found[:-1] if exclusive else found[1:]
        out[at] = found[:: -1 if reverse else 1]
    total = np.moveaxis(out, -1, axis)
    return rounded(total, name) if name in FLOATS else wrapped(total, name)


def _total_cases(op: str, join: Callable[[Any, Any], Any], start: int) -> Iterator[Case]:
    for name in NUMBERS:
        for (shape, axis), mode in product(TOTALS, MODES):
            x = ramp(name, *shape)
            text = ", ".join(part for part in ["" if axis is None else f"axis = {axis} : i64", mode] if part)
            yield Case(f"graph.{op}", text, (x,), _totals(name, x, axis or 0, mode, join, start))
        if name in FLOATS:
            for values in ([1.0, math.inf, 2.0, -math.inf, 3.0], [1.0, math.nan, 2.0], [-0.0, 0.5, -0.5]):
                x = rounded(np.array(values), name)
                yield Case(f"graph.{op}", "", (x,), _totals(name, x, 0, "", join, start))
        else:
            x = samples(name)
            yield Case(f"graph.{op}", "", (x,), _totals(name, x, 0, "", join, start))


ROWS: list[Row] = [
    Row("sort", ORDERED, _sort_cases),
    Row("argsort", ORDERED, _argsort_cases),
    Row("top_k", ORDERED, _top_k_cases),
    Row("searchsorted", ORDERED, _searchsorted_cases),
    Row("cumulative_sum", NUMBERS, lambda: _total_cases("cumulative_sum", lambda a, b: a + b, 0)),
    Row("cumulative_prod", NUMBERS, lambda: _total_cases("cumulative_prod", lambda a, b: a * b, 1)),
]
