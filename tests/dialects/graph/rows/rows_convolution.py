"""Rows of convolutions and their gradients: every term of every sum, in plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from graph_op_table import FLOATS, Array, Case, Row, noise, ramp, rounded, wide

Place = tuple[int, ...]
BYTES = ("ui8", "i8")


@dataclass(frozen=True)
class Setting:
    """Shapes of x and the weight, and the attributes of a convolution."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    strides: list[int]
    pads: list[int]
    dilations: list[int]
    groups: int = 1

    def attributes(self, *more: str) -> str:
        lists = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        parts = [f"{key} = {integers(values)}" for key, values in lists.items()]
        return ", ".join([*parts, f"groups = {self.groups} : i64", *more])

    def result(self) -> tuple[int, ...]:
        """The shape of what the convolution gives."""
        axes = len(self.strides)
        extents: list[int] = []
        for k in range(axes):
            padded = self.x[2 + k] + self.pads[k] + self.pads[axes + k]
            extents.append((padded - self.dilations[k] * (self.weight[2 + k] - 1) - 1) // self.strides[k] + 1)
        return (self.x[0], self.weight[0], *extents)

    def terms(self, result: Sequence[int] | None = None) -> Iterator[tuple[Place, Place, Place]]:
        """The elements of x and the weight whose product is a term of a result element, and that element."""
        samples, filters, *extents = self.result() if result is None else result
        for n, o, position in product(range(samples), range(filters), np.ndindex(*extents)):
            group = o // (filters // self.groups)
            for c, offset in product(range(self.weight[1]), np.ndindex(*self.weight[2:])):
                along = zip(position, self.strides, offset, self.dilations, self.pads, strict=False)
                at = [p * s + q * d - pad for p, s, q, d, pad in along]
                if all(0 <= i < extent for i, extent in zip(at, self.x[2:], strict=True)):
                    yield (n, group * self.weight[1] + c, *at), (o, c, *offset), (n, o, *position)


def integers(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"


CONVS = [
    Setting((2, 3, 7), (4, 3, 3), [1], [0, 0], [1]),
    Setting((1, 4, 8), (6, 2, 3), [2], [1, 2], [2], 2),
    Setting((2, 2, 5, 6), (3, 2, 3, 2), [2, 1], [1, 0, 2, 1], [1, 2]),
    Setting((1, 4, 4, 4), (4, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 4),
    Setting((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), [1, 1, 1], [0, 1, 0, 0, 1, 0], [1, 1, 1]),
    Setting((0, 3, 7), (4, 3, 3), [1], [0, 0], [1]),
    Setting((1, 2, 9), (2, 2, 2), [3], [0, 0], [2]),
    Setting((1, 2, 4, 3), (2, 2, 3, 1), [3, 2], [3, 2, 4, 0], [1, 1]),
    Setting((2, 3, 5, 5), (2, 3, 1, 1), [1, 1], [0, 0, 0, 0], [1, 1]),
]

PADDINGS = [[0], [1], [1, 1], [0, 0], [0, 0, 0], [0], [2]]
TRANSPOSED = list(zip(CONVS, PADDINGS, strict=False))
"""Convolutions whose gradient is meant, and output paddings."""


def _conv_cases() -> Iterator[Case]:
    for name, setting in product(FLOATS, CONVS):
        x, w = noise(name, *setting.x), noise(name, *setting.weight)
        value, left, right = np.zeros(setting.result()), wide(x), wide(w)
        for a, b, c in setting.terms():
            value[c] += left[a] * right[b]
        yield Case("graph.conv", setting.attributes(), (x, w), rounded(value, name))


def _gradient_of_x(setting: Setting, grad: Array, weight: Array) -> Array:
    value = np.zeros(setting.x)
    for a, b, c in setting.terms(grad.shape):
        value[a] += grad[c] * weight[b]
    return value


def _backward_data_cases() -> Iterator[Case]:
    for name, setting in product(FLOATS, CONVS):
        grad, w = noise(name, *setting.result()), noise(name, *setting.weight)
        value = _gradient_of_x(setting, wide(grad), wide(w))
        text = setting.attributes(f"shape = {integers(setting.x[2:])}")
        yield Case("graph.conv_backward_data", text, (grad, w), rounded(value, name))


def _backward_weight_cases() -> Iterator[Case]:
    for name, setting in product(FLOATS, CONVS):
        grad, x = noise(name, *setting.result()), noise(name, *setting.x)
        value, left, right = np.zeros(setting.weight), wide(grad), wide(x)
        for a, b, c in setting.terms():
            value[b] += left[c] * right[a]
        text = setting.attributes(f"kernel_shape = {integers(setting.weight[2:])}")
        yield Case("graph.conv_backward_weight", text, (grad, x), rounded(value, name))


def _transpose_cases() -> Iterator[Case]:
    """Extents of the result by ONNX's formula; a convolution of it has the operand's shape."""
    for name, (like, padding) in product(FLOATS, TRANSPOSED):
        axes, given = len(padding), like.result()
        extents: list[int] = []
        for k in range(axes):
            whole = like.strides[k] * (given[2 + k] - 1) + (like.weight[2 + k] - 1) * like.dilations[k] + 1
            extents.append(whole + padding[k] - like.pads[k] - like.pads[axes + k])
        setting = Setting(
            (given[0], like.x[1], *extents), like.weight, like.strides, like.pads, like.dilations, like.groups
        )
        x, w = noise(name, *given), noise(name, *like.weight)
        value = _gradient_of_x(setting, wide(x), wide(w))
        more = [f"output_padding = {integers(padding)}"] if any(padding) else []
        yield Case("graph.conv_transpose", setting.attributes(*more), (x, w), rounded(value, name))


def _integer_cases() -> Iterator[Case]:
    """With channels last, and in the weight what they give behind them."""
    for name, setting in product(BYTES, CONVS):
        x, w = ramp(name, *setting.x), ramp("i8", *setting.weight)
        value = np.zeros(setting.result(), np.int32)
        for a, b, c in setting.terms():
            value[c] += int(x[a]) * int(w[b])
        taps = (*range(2, w.ndim), 1, 0)
        given = np.ascontiguousarray(np.moveaxis(x, 1, -1)), np.ascontiguousarray(w.transpose(taps))
        yield Case("graph.conv_integer", setting.attributes(), given, np.ascontiguousarray(np.moveaxis(value, 1, -1)))


_CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "conv": _conv_cases,
    "conv_transpose": _transpose_cases,
    "conv_backward_data": _backward_data_cases,
    "conv_backward_weight": _backward_weight_cases,
}

ROWS: list[Row] = [
    *(Row(op, FLOATS, cases) for op, cases in _CASES.items()),
    Row("conv_integer", BYTES, _integer_cases),
]
