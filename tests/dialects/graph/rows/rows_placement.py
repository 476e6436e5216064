"""Rows of padding, rolling, repeating, diagonals and triangles: each says which element comes where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from graph_op_table import ANY, TYPES, Array, Case, Row, converted, ramp

Shape = tuple[int, ...]


def numbers(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def placed(
    op: str, attributes: str, shape: Shape, function: Callable[[Array], Array], fill: float = 0
) -> Iterator[Case]:
    """A case of each type: `function` gives where each element comes from, -1 for the fill value."""
    count = int(np.prod(shape, dtype=np.int64))
    origin = np.array(function(np.arange(count).reshape(shape)))
    for name in TYPES:
        x = ramp(name, *shape)
        extended = np.concatenate([x.reshape(-1), converted(np.array([fill]), name)])
        yield Case(f"graph.{op}", attributes, (x,), extended[origin.reshape(-1)].reshape(origin.shape))


def _padded(origin: Array, pads: Sequence[int], mode: str) -> Array:
    """NumPy's pad, of what negative pads leave."""
    for axis in range(origin.ndim):
        low, high = pads[axis], pads[axis + origin.ndim]
        n = origin.shape[axis]
        if mode == "constant":
            limits = (max(-low, 0), n - max(-high, 0))
            origin = np.take(origin, range(*limits), axis)
        amounts = [(max(low, 0), max(high, 0)) if k == axis else (0, 0) for k in range(origin.ndim)]
        if mode == "constant":
            origin = np.pad(origin, amounts, constant_values=-1)
        else:
            pad: Callable[..., Array] = np.pad
            origin = pad(origin, amounts, mode)
            start = max(-low, 0)
            origin = np.take(origin, range(start, start + n + low + high), axis)
    return origin


def _pad_cases() -> Iterator[Case]:
    for shape, pads, mode, value in [
        ((3,), (1, 2), "", 0),
        ((2, 3), (0, 1, 2, 0), "constant", 0),
        ((2, 3), (-1, 2, 4, -1), "constant", 1),
        ((4,), (-4, 0), "constant", 1),
        ((4,), (-2, 9), "constant", 1),
        ((2, 3, 4), (0, 0, 0, 0, 0, 0), "constant", 1),
        ((0, 2), (1, 0, 2, 1), "constant", 1),
        ((2, 0), (0, 0, 0, 0), "constant", 1),
        ((), (), "constant", 1),
        ((3,), (2, 3), "edge", 0),
        ((2, 3), (1, 7, -1, 0), "edge", 0),
        ((0, 3), (0, 1, 0, 1), "edge", 0),
        ((4,), (3, 3), "reflect", 0),
        ((5, 2), (0, 1, 4, 1), "reflect", 0),
        ((3,), (9, 11), "reflect", 0),
        ((1, 4), (2, -2, 3, 2), "reflect", 0),
        ((4,), (-4, 0), "reflect", 0),
        ((3,), (2, 1), "wrap", 0),
        ((3, 2), (7, -1, 10, 1), "wrap", 0),
    ]:
        parts = [f"pads = {numbers(pads)}"] + ([f'mode = "{mode}"'] if mode else [])
        parts += [f"value = {value} : i64"] if value else []
        yield from placed(
            "pad", ", ".join(parts), shape, lambda x, p=pads, m=mode or "constant": _padded(x, p, m), value
        )
    for name, text, value in [
        ("f32", "0x7F800000 : f32", np.inf),
        ("f32", "-0.0 : f64", -0.0),
        ("f64", "0.1 : f64", 0.1),
        ("f16", "2 : i64", 2),
        ("i8", "-128 : i64", -128),
        ("ui8", "255 : i64", 255),
        ("i64", "9223372036854775807 : i64", 2**63 - 1),
        ("i1", "true", True),
    ]:
        x = ramp(name, 2)
        expected = np.concatenate([np.array([value], x.dtype), x, np.array([value] * 2, x.dtype)])
        yield Case("graph.pad", f"pads = array<i64: 1, 2>, value = {text}", (x,), expected, signed_zeros=True)


def _roll_cases() -> Iterator[Case]:
    for shape, shifts, axes in [
        ((5,), (2,), (0,)),
        ((5,), (-7,), (-1,)),
        ((3, 4), (1, -1), (1, 0)),
        ((3, 4), (1, 1), (0, 0)),
        ((2, 3), (0,), (1,)),
        ((0, 3), (1, 1), (0, 1)),
        ((2, 3), (4,), None),
        ((0,), (4,), None),
        ((), (1,), None),
        ((), (), ()),
    ]:
        text = f"shifts = {numbers(shifts)}" + ("" if axes is None else f", axes = {numbers(axes)}")

        def rolled(x: Array, shifts: Shape = shifts, axes: Shape | None = axes) -> Array:
            if axes is None:
                return np.roll(x, shifts[0])
            return np.roll(x, shifts, axes) if axes else x

        yield from placed("roll", text, shape, rolled)


def _tile_cases() -> Iterator[Case]:
    for shape, repeats in [
        ((3,), (2,)),
        ((2, 3), (2, 1)),
        ((2, 3), (3,)),
        ((3,), (2, 2)),
        ((2, 3), (1, 1)),
        ((2,), (0,)),
        ((0, 2), (3, 2)),
        ((), (2, 2)),
        ((2,), ()),
    ]:
        yield from placed("tile", f"repeats = {numbers(repeats)}", shape, lambda x, r=repeats: np.tile(x, r))


def _repeat_cases() -> Iterator[Case]:
    for shape, repeats, axis in [
        ((3,), 2, 0),
        ((2, 3), 3, -2),
        ((2, 3), 2, -1),
        ((2, 3), 1, 1),
        ((2, 3), 0, 1),
        ((0, 3), 2, 1),
        ((2, 3), 2, None),
        ((), 3, None),
    ]:
        text = f"repeats = {repeats} : i64" + ("" if axis is None else f", axis = {axis} : i64")
        yield from placed("repeat", text, shape, lambda x, r=repeats, a=axis: np.repeat(x, r, a))


def _diagonal_cases() -> Iterator[Case]:
    for shape, offset, axes in [
        ((3, 3), 0, None),
        ((2, 5), 1, None),
        ((4, 2), -1, None),
        ((2, 3), 3, None),
        ((2, 3), -9, None),
        ((2, 3, 4), 1, (0, 1)),
        ((2, 3, 4), 0, (-1, 0)),
        ((0, 3), 0, None),
        ((2, 0, 2), 1, (0, 2)),
    ]:
        parts = [f"offset = {offset} : i64"] * bool(offset)
        parts += [] if axes is None else [f"axis1 = {axes[0]} : i64, axis2 = {axes[1]} : i64"]
        first, second = axes or (-2, -1)
        yield from placed(
            "diagonal", ", ".join(parts), shape, lambda x, o=offset, a=first, b=second: np.diagonal(x, o, a, b)
        )


def _triangle_cases(op: str, keep: Callable[[Array, int], Array]) -> Iterator[Case]:
    shapes: list[tuple[Shape, int]] = [((3, 3), 0), ((2, 5), 1), ((4, 3), -2), ((2, 3), 9), ((2, 3), -9)]
    shapes += [((2, 1, 3, 2), 0), ((0, 3), 0), ((3, 0), 1), ((2, 0, 2), 0), ((1, 1), 0)]
    for shape, k in shapes:
        mask = keep(np.ones(shape[-2:], np.bool_), k)
        yield from placed(op, f"k = {k} : i64" * bool(k), shape, lambda x, mask=mask: np.where(mask, x, -1))


ROWS: list[Row] = [
    Row("pad", ANY, _pad_cases),
    Row("roll", ANY, _roll_cases),
    Row("tile", ANY, _tile_cases),
    Row("repeat", ANY, _repeat_cases),
    Row("diagonal", ANY, _diagonal_cases),
    Row("tril", ANY, lambda: _triangle_cases("tril", np.tril)),
    Row("triu", ANY, lambda: _triangle_cases("triu", np.triu)),
]
