"""Rows of views."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from graph_op_table import (
    ANY,
    Case,
    Row,
    moved,
)
from rows_placement import numbers


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
    for source, text, target in [
        ((2, 6), "3, -1", (3, 4)),
        ((4,), "-1", (4,)),
        ((0, 3), "-1, 3", (0, 3)),
        ((), "-1", (1,)),
    ]:
        attributes = f"shape = array<i64: {text}>"
        yield from moved("reshape", attributes, source, lambda x, target=target: np.reshape(x, target))
    unknown = f"shape = array<i64: 2, {-(2**63)}>"
    yield from moved("reshape", unknown, (4, 3), lambda x: np.reshape(x, (2, 6)))


def _permute_cases() -> Iterator[Case]:
    for shape, axes in [
        ((2, 3), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 1, 3), (1, 2, 0)),
        ((0, 2), (1, 0)),
        ((5,), (0,)),
        ((2, 3, 4), (-1, 0, -2)),
        ((2, 1, 3, 1), (1, 0, 3, 2)),
    ]:
        attributes = f"axes = array<i64: {', '.join(map(str, axes))}>"
        yield from moved("permute_dims", attributes, shape, lambda x, axes=axes: np.transpose(x, axes))
    yield from moved("permute_dims", "axes = array<i64>", (), lambda x: x)


def _broadcast_cases() -> Iterator[Case]:
    for source, target in [((3,), (2, 3)), ((2, 1), (2, 4)), ((), (3, 2)), ((1, 3, 1), (4, 5, 3, 2)), ((1,), (0,))]:
        attributes = f"shape = array<i64: {', '.join(map(str, target))}>"
        yield from moved("broadcast_to", attributes, source, lambda x, target=target: np.broadcast_to(x, target))
    for source, text, target in [
        ((1, 3), "4, -1", (4, 3)),
        ((2, 1), f"5, {-(2**63)}, 3", (5, 2, 3)),
        ((1,), "-1", (1,)),
    ]:
        attributes = f"shape = array<i64: {text}>"
        yield from moved("broadcast_to", attributes, source, lambda x, target=target: np.broadcast_to(x, target))
    yield from moved("broadcast_to", "shape = array<i64>", (), lambda x: x)


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
    yield from moved("slice", of("0", "9223372036854775807", ""), (7,), lambda x: x)
    yield from moved("slice", of("-1", "-9223372036854775807", "-1"), (7,), lambda x: x[::-1])
    yield from moved("slice", of("5", "5", ""), (5,), lambda x: x[5:])
    yield from moved("slice", of("0, 1", "0, 3", "-1, 1"), (0, 4), lambda x: x[:, 1:3])
    yield from moved("slice", of("100", "200", ""), (5,), lambda x: x[100:200])
    yield from moved("slice", of("0, 0, 0", "1, 2, 2", ""), (1, 2, 3), lambda x: x[:, :, :2])
    yield from moved("slice", "starts = array<i64>, stops = array<i64>", (), lambda x: x)


def _squeeze_cases() -> Iterator[Case]:
    for shape, axes in [
        ((1, 3, 1), None),
        ((1, 3, 1), (0,)),
        ((1, 3, 1), (-1, 0)),
        ((1, 0), (0,)),
        ((2, 3), ()),
        ((), None),
        ((1,), None),
    ]:
        attributes = "" if axes is None else f"axes = {numbers(axes)}"
        yield from moved("squeeze", attributes, shape, lambda x, axes=axes: np.squeeze(x, axes))


def _expand_cases() -> Iterator[Case]:
    for shape, axes in [((3,), (0,)), ((2, 3), (-1, 0)), ((2, 3), (1, 3)), ((), (0, 1)), ((0, 2), (-2,)), ((2,), ())]:
        target = list(shape)
        for axis in sorted(axis % (len(shape) + len(axes)) for axis in axes):
            target.insert(axis, 1)
        attributes = f"axes = {numbers(axes)}"
        yield from moved("expand_dims", attributes, shape, lambda x, target=target: np.reshape(x, target))
    yield from moved("expand_dims", "axis = 1 : i64", (2, 3), lambda x: np.reshape(x, (2, 1, 3)))
    yield from moved("expand_dims", "axis = -1 : i64", (), lambda x: np.reshape(x, (1,)))


def _flip_cases() -> Iterator[Case]:
    for shape, axes in [
        ((5,), None),
        ((2, 3), None),
        ((2, 3), (-1,)),
        ((2, 3, 4), (0, 2)),
        ((2, 3), ()),
        ((), None),
        ((0, 3), (1,)),
        ((1, 3), (0,)),
    ]:
        attributes = "" if axes is None else f"axes = {numbers(axes)}"
        chosen = range(len(shape)) if axes is None else [axis % len(shape) for axis in axes]
        order = tuple(slice(None, None, -1 if k in chosen else 1) for k in range(len(shape)))
        yield from moved("flip", attributes, shape, lambda x, order=order: x[order])


def _layout_cases() -> Iterator[Case]:
    for shape in [(5,), (2, 3), (2, 3, 4), (), (0, 3)]:
        yield from moved("to_layout", "", shape, lambda x: x)


ROWS: list[Row] = [
    Row("to_layout", ANY, _layout_cases),
    Row("reshape", ANY, _reshape_cases),
    Row("permute_dims", ANY, _permute_cases),
    Row("broadcast_to", ANY, _broadcast_cases),
    Row("slice", ANY, _slice_cases),
    Row("squeeze", ANY, _squeeze_cases),
    Row("expand_dims", ANY, _expand_cases),
    Row("flip", ANY, _flip_cases),
]
