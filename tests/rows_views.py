"""Rows of views and movement."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import (
    FLOATS,
    INTEGERS,
    TYPES,
    Case,
    Row,
    moved,
    ramp,
)


def _reshape_cases() -> Iterator[Case]:
    for source, target in [
        ((6,), (2, 3)),
        ((2, 3, 4), (4, 6)),
        ((), (1, 1)),
        ((1, 1), ()),
        ((0, 3), (3, 0, 2)),
        ((4,), (4,)),
    ]:
        text = ", ".join(map(str, target))
        attributes = f"shape = array<i64: {text}>" if target else "shape = array<i64>"
        yield from moved("reshape", attributes, source, lambda x, target=target: np.reshape(x, target))


def _permute_cases() -> Iterator[Case]:
    for shape, axes in [
        ((2, 3), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 1, 3), (1, 2, 0)),
        ((0, 2), (1, 0)),
        ((5,), (0,)),
    ]:
        attributes = f"axes = array<i64: {', '.join(map(str, axes))}>"
        yield from moved("permute_dims", attributes, shape, lambda x, axes=axes: np.transpose(x, axes))
    yield from moved("permute_dims", "axes = array<i64>", (), lambda x: x)


def _broadcast_cases() -> Iterator[Case]:
    for source, target in [((3,), (2, 3)), ((2, 1), (2, 4)), ((), (3, 2)), ((1, 3, 1), (4, 5, 3, 2)), ((1,), (0,))]:
        attributes = f"shape = array<i64: {', '.join(map(str, target))}>"
        yield from moved("broadcast_to", attributes, source, lambda x, target=target: np.broadcast_to(x, target))


def _slice_cases() -> Iterator[Case]:
    def of(starts: str, stops: str, steps: str) -> str:
        text = f"starts = array<i64: {starts}>, stops = array<i64: {stops}>"
        return text + (f", steps = array<i64: {steps}>" if steps else "")

    yield from moved("slice", of("-3", "-1", ""), (7,), lambda x: x[-3:-1])
    yield from moved("slice", of("6", "-8", "-1"), (7,), lambda x: x[::-1])
    yield from moved("slice", of("5", "0", "-2"), (7,), lambda x: x[5:0:-2])
    yield from moved("slice", of("1, 0", "9, 3", "2, 1"), (6, 4), lambda x: x[1::2, :3])
    yield from moved("slice", of("-1, 3", "-7, 0", "-3, -1"), (6, 4), lambda x: x[::-3, 3:0:-1])
    yield from moved("slice", of("4, 1", "2, 3", ""), (6, 4), lambda x: x[4:2, 1:3])
    yield from moved("slice", of("100", "200", ""), (5,), lambda x: x[100:200])
    yield from moved("slice", of("0, 0, 0", "1, 2, 2", ""), (1, 2, 3), lambda x: x[:, :, :2])
    yield from moved("slice", "starts = array<i64>, stops = array<i64>", (), lambda x: x)


def _concat_cases() -> Iterator[Case]:
    layouts = [
        ([(2, 3), (4, 3)], 0),
        ([(2, 3), (2, 1), (2, 2)], -1),
        ([(0, 2), (3, 2), (0, 2)], 0),
        ([(3,)], 0),
        ([(0,), (0,)], 0),
    ]
    for name, (shapes, axis) in product(TYPES, layouts):
        parts = tuple(ramp(name, *shape) for shape in shapes)
        attributes = f"axis = {axis} : i64" if axis else ""
        yield Case("graph.concat", attributes, parts, np.concatenate(parts, axis))


_ANY = [*FLOATS, *INTEGERS, "i1"]


ROWS: list[Row] = [
    Row("reshape", _ANY, _reshape_cases),
    Row("permute_dims", _ANY, _permute_cases),
    Row("broadcast_to", _ANY, _broadcast_cases),
    Row("slice", _ANY, _slice_cases),
    Row("concat", _ANY, _concat_cases),
]
