"""Rows of normalisation layers and softmax; gradients are those of the forward formulas, by complex steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from derivatives import gradient, gradients
from graph_op_table import (
    FLOATS,
    Case,
    Row,
    Unary,
    converted,
    noise,
    ramp,
    rounded,
    wide,
)

SHAPES = [((2, 5), -1), ((3, 4, 2), 1), ((1, 1), 0), ((7,), 0)]
EMPTY = [((3, 0), -1), ((0, 3), 1)]


def softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x)
    return powers / powers.sum(axis=axis, keepdims=True)


def log_softmax(x: Any, axis: int) -> Any:
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def along_axis(op: str, formula: Callable[[Any, int], Any], attributes: str = "") -> Callable[[], Iterator[Case]]:
    """Cases of an op of one operand and an axis."""

    def cases() -> Iterator[Case]:
        for name, (shape, axis) in product(FLOATS, [*SHAPES, *EMPTY]):
            x = noise(name, *shape)
            text = f"axis = {axis} : i64" + attributes
            yield Case(f"graph.{op}", text, (x,), rounded(formula(wide(x), axis), name))
        yield from special(op)

    return cases


def special(op: str) -> Iterator[Case]:
    nan, inf = np.nan, np.inf
    x = np.array([[1e3, 1e3, -inf], [88.0, 89.0, nan], [inf, 1.0, 2.0], [-inf, -inf, -inf]], np.float32)
    half = np.log(0.5)
    known = {
        "softmax": np.array([[0.5, 0.5, 0.0], [nan] * 3, [nan] * 3, [nan] * 3]),
        "log_softmax": np.array([[half, half, -inf], [nan] * 3, [nan] * 3, [nan] * 3]),
    }
    if op in known:
        yield Case(f"graph.{op}", "", (x,), known[op].astype(np.float32))
        big = converted(np.array([[60000.0, 60000.0, 0.0]]), "f16")
        expected = [[0.5, 0.5, 0.0]] if op == "softmax" else [[half, half, -60000.0]]
        yield Case(f"graph.{op}", "", (big,), converted(np.array(expected), "f16"))


def softmax_backward(op: str, formula: Callable[..., Any], inverse: Unary) -> Callable[[], Iterator[Case]]:
    def cases() -> Iterator[Case]:
        for name, (shape, axis) in product(FLOATS, [*SHAPES, *EMPTY]):
            x, grad = wide(noise(name, *shape)), ramp(name, *shape)
            y = rounded(formula(x, axis), name)
            value = gradient(partial(formula, axis=axis), [inverse(wide(y))], 0, wide(grad))
            yield Case(f"graph.{op}", f"axis = {axis} : i64", (grad, y), rounded(value, name))

    return cases


def layer_norm(axes: tuple[int, ...]) -> Callable[..., Any]:
    def formula(x: Any, scale: Any = 1.0, bias: Any = 0.0) -> Any:
        centred = x - x.mean(axis=axes, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + 1e-3) * scale + bias

    return formula


def rms_norm(axes: tuple[int, ...]) -> Callable[..., Any]:
    def formula(x: Any, scale: Any = 1.0, _: Any = 0.0) -> Any:
        return x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + 1e-3) * scale

    return formula


LAYERS = [((4, 8), -1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((5,), 0), ((0, 4), 1), ((3, 0), 1)]
Layer = Callable[[tuple[int, ...]], Callable[..., Any]]


def layer(op: str, make: Layer, most: int) -> Callable[[], Iterator[Case]]:
    """Cases with no parameter, and up to `most`."""

    def cases() -> Iterator[Case]:
        for name, (shape, axis), count in product(FLOATS, LAYERS, range(most + 1)):
            axes = tuple(range(axis % len(shape), len(shape)))
            extents = shape[axes[0] :]
            operands = (noise(name, *shape), noise(name, *extents), ramp(name, *extents))[: count + 1]
            value = make(axes)(*map(wide, operands)) if operands[0].size else operands[0]
            yield Case(f"graph.{op}", f"axis = {axis} : i64, epsilon = 1.0e-03 : f64", operands, rounded(value, name))
        x = converted(np.array([[60000.0, -60000.0, 100.0]]), "f16")
        yield Case(f"graph.{op}", "", (x,), rounded(make((1,))(wide(x)), "f16"))

    return cases


def layer_backward(op: str, make: Layer, most: int) -> Callable[[], Iterator[Case]]:
    """As many gradients as there may be parameters, and that of x, with and without a scale."""

    def cases() -> Iterator[Case]:
        for name, (shape, axis), scaled in product(FLOATS, LAYERS, (True, False)):
            axes = tuple(range(axis % len(shape), len(shape)))
            extents = shape[axes[0] :]
            x, grad, scale = noise(name, *shape), ramp(name, *shape), noise(name, *extents)
            used = wide(scale) if scaled else np.ones(extents)
            values = gradients(make(axes), [x, used, np.zeros(extents)][: most + 1], wide(grad))
            operands = (grad, x, scale) if scaled else (grad, x)
            attributes = f"axis = {axis} : i64, epsilon = 1.0e-03 : f64"
            yield Case(f"graph.{op}", attributes, operands, tuple(rounded(value, name) for value in values))

    return cases


def unit(x: Any, axis: int) -> Any:
    return x / np.sqrt((x * x).sum(axis=axis, keepdims=True))


def _l2_cases() -> Iterator[Case]:
    yield from along_axis("l2_normalize", unit)()
    x = np.array([[0.0, -0.0], [3e-8, 4e-8], [np.nan, 1.0], [1e30, 1.0]], np.float32)
    expected = np.array([[0.0, 0.0], [0.3, 0.4], [np.nan, np.nan], [0.0, 0.0]], np.float32)
    yield Case("graph.l2_normalize", "epsilon = 1.0e-07 : f64", (x,), expected)


def _lp_cases() -> Iterator[Case]:
    yield from along_axis("lp_normalize", unit)()
    yield from along_axis(
        "lp_normalize", lambda x, axis: x / np.abs(x).sum(axis=axis, keepdims=True), ", p = 1 : i64"
    )()
    x = np.array([[0.0, -0.0], [3.0, -1.0], [np.nan, 1.0], [np.inf, 1.0]])
    expected = np.array([[0.0, 0.0], [0.75, -0.25], [np.nan, np.nan], [np.nan, 0.0]])
    for name in ("f16", "f32", "f64"):
        yield Case("graph.lp_normalize", "p = 1 : i64", (converted(x, name),), converted(expected, name))


ROWS: list[Row] = [
    Row("softmax", FLOATS, along_axis("softmax", softmax)),
    Row("log_softmax", FLOATS, along_axis("log_softmax", log_softmax)),
    Row("softmax_backward", FLOATS, softmax_backward("softmax_backward", softmax, np.log)),
    Row("log_softmax_backward", FLOATS, softmax_backward("log_softmax_backward", log_softmax, lambda y: y)),
    Row("layer_norm", FLOATS, layer("layer_norm", layer_norm, 2)),
    Row("layer_norm_backward", FLOATS, layer_backward("layer_norm_backward", layer_norm, 2)),
    Row("rms_norm", FLOATS, layer("rms_norm", rms_norm, 1)),
    Row("rms_norm_backward", FLOATS, layer_backward("rms_norm_backward", rms_norm, 1)),
    Row("l2_normalize", FLOATS, _l2_cases),
    Row("lp_normalize", FLOATS, _lp_cases),
]
