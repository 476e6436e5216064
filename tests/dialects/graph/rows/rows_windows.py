"""Rows of ops on sliding windows, by plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import (
    ANY,
    FLOATS,
    INTEGERS,
    Array,
    Case,
    Row,
    converted,
    decode,
    noise,
    ramp,
    rounded,
    samples,
    wrapped,
)

Element = Any


@dataclass(frozen=True)
class Windows:
    """Windows along some axes of a shape, and the attributes that say so."""

    shape: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None

    @property
    def attributes(self) -> str:
        given = {"window": self.window, "strides": self.strides, "dilations": self.dilations, "axes": self.axes}
        return ", ".join(f"{name} = {array_text(values)}" for name, values in given.items() if values is not None)

    def starts(self) -> list[list[int]]:
        """By axis, where windows begin."""
        found = [list(range(n)) for n in self.shape]
        for axis, span, stride in zip(self._axes(), self._spans(), self._steps(self.strides), strict=True):
            found[axis] = [at for at in range(0, self.shape[axis], stride) if at + span <= self.shape[axis]]
        return found

    def inside(self) -> list[tuple[int, ...]]:
        """The elements of a window, as distances from its beginning on all axes, in row-major order."""
        ranges = [range(0, k * d, d) for k, d in zip(self.window, self._steps(self.dilations), strict=True)]
        places: list[tuple[int, ...]] = []
        for chosen in product(*ranges):
            place = [0] * len(self.shape)
            for axis, distance in zip(self._axes(), chosen, strict=True):
                place[axis] = distance
            places.append(tuple(place))
        return places

    def _axes(self) -> list[int]:
        rank = len(self.shape)
        return [axis % rank for axis in self.axes or range(rank - len(self.window), rank)]

    def _spans(self) -> list[int]:
        return [(k - 1) * d + 1 for k, d in zip(self.window, self._steps(self.dilations), strict=True)]

    def _steps(self, given: tuple[int, ...] | None) -> Sequence[int]:
        return given or (1,) * len(self.window)


def array_text(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


LAYOUTS = [
    Windows((9,), (3,)),
    Windows((9,), (3,), (2,)),
    Windows((9,), (3,), (4,), (3,)),
    Windows((9,), (1,), (3,)),
    Windows((5,), (5,)),
    Windows((6,), (2,), (2,)),
    Windows((7, 8), (2, 3), (2, 1)),
    Windows((7, 8), (3, 2), (3, 2), (2, 5)),
    Windows((7, 8), (2, 3), (1, 2), None, (1, 0)),
    Windows((6, 3, 5), (3, 4), (2, 1), (2, 1), (-3, -1)),
    Windows((2, 5, 4, 4), (2, 2, 3), (3, 2, 1)),
    Windows((0, 4), (2,)),
    Windows((3, 4), ()),
]


def elements_of(x: Array, layout: Windows) -> list[list[Element]]:
    """The elements of each window, window after window in row-major order."""
    values = np.asarray(decode(x))
    return [
        [values[tuple(a + b for a, b in zip(start, place, strict=True))].item() for place in layout.inside()]
        for start in product(*layout.starts())
    ]


def _window_row(op: str, join: Callable[[Element, Element], Element]) -> Row:
    def case(name: str, x: Array, layout: Windows) -> Case:
        values = [reduce(join, elements) for elements in elements_of(x, layout)]
        made = (
            rounded(np.array(values, np.float64), name) if name in FLOATS else wrapped(np.array(values, object), name)
        )
        extents = [len(starts) for starts in layout.starts()]
        return Case(f"graph.{op}", layout.attributes, (x,), made.reshape(extents))

    def cases() -> Iterator[Case]:
        for name in (*FLOATS, *INTEGERS):
            for layout in LAYOUTS:
                yield case(name, ramp(name, *layout.shape), layout)
            values = samples(name)
            yield case(name, values, Windows(values.shape, (2,)))
            yield case(name, values, Windows(values.shape, (3,), (2,), (2,)))
        for name in FLOATS:
            yield case(name, noise(name, 6, 11), Windows((6, 11), (3, 4), (2, 1), (1, 2)))
            special = [-math.inf, -math.inf, -math.inf, math.nan, 1.0, -0.0, math.inf, math.inf]
            yield case(name, converted(np.array(special), name), Windows((8,), (2,)))

    return Row(op, (*FLOATS, *INTEGERS), cases)


def larger(x: Element, y: Element) -> Element:
    return x if x != x or x > y else y


def smaller(x: Element, y: Element) -> Element:
    return x if x != x or x < y else y


def _sliding_cases() -> Iterator[Case]:
    for name in ANY:
        for layout in LAYOUTS:
            x = ramp(name, *layout.shape)
            extents = [*(len(starts) for starts in layout.starts()), *layout.window]
            places = np.zeros(extents, np.int64).reshape(-1)
            read = [
                np.ravel_multi_index([a + b for a, b in zip(start, place, strict=True)], layout.shape)
                for start in product(*layout.starts())
                for place in layout.inside()
            ]
            places[...] = read
            yield Case("graph.sliding_windows", layout.attributes, (x,), x.reshape(-1)[places].reshape(extents))


ROWS: list[Row] = [
    _window_row("window_max", larger),
    _window_row("window_min", smaller),
    _window_row("window_sum", lambda x, y: x + y),
    Row("sliding_windows", ANY, _sliding_cases),
]
