"""Rows of normalisation by channel; gradients are those of the forward formulas, by complex steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from derivatives import gradients
from graph_op_table import FLOATS, Array, Case, Row, converted, noise, ramp, rounded, wide
from rows_normalization import layer_norm

CHANNELS = [((2, 3, 4), 1), ((4, 3), -1), ((3,), 0)]


def along(value: Any, rank: int, axis: int) -> Any:
    """A vector's elements on one axis."""
    extents = [1] * rank
    extents[axis] = -1
    return value.reshape(extents)


def _batch_norm_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, CHANNELS):
        x, channels = noise(name, *shape), shape[axis]
        scale, bias, mean = (noise(name, 3 * channels)[k::3].copy() for k in range(3))
        variance = converted(np.abs(noise(name, channels)) + np.asarray(0.5, np.float16), name)
        s, b, m, v = (along(wide(a), len(shape), axis) for a in (scale, bias, mean, variance))
        value = (wide(x) - m) / np.sqrt(v + 1e-5) * s + b
        yield Case("graph.batch_norm", f"axis = {axis} : i64", (x, scale, bias, mean, variance), rounded(value, name))


def batch_norm(shape: tuple[int, ...], axis: int) -> Callable[..., Any]:
    others = tuple(other for other in range(len(shape)) if other != axis % len(shape))

    def formula(x: Any, scale: Any, bias: Any) -> Any:
        scale, bias = (along(value, len(shape), axis) for value in (scale, bias))
        return layer_norm(others)(x, scale, bias)

    return formula


BATCHES = [((2, 3, 4), 1), ((4, 3), -1), ((3, 5), 0), ((2, 2, 3, 2), 1)]


def _batch_norm_training_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, BATCHES):
        x, scale, bias = noise(name, *shape), noise(name, shape[axis]), ramp(name, shape[axis])
        others = tuple(other for other in range(len(shape)) if other != axis % len(shape))
        values = (
            batch_norm(shape, axis)(wide(x), wide(scale), wide(bias)),
            wide(x).mean(axis=others),
            wide(x).var(axis=others),
        )
        attributes = f"axis = {axis} : i64, epsilon = 1.0e-03 : f64"
        yield Case("graph.batch_norm_training", attributes, (x, scale, bias), tuple(rounded(v, name) for v in values))
    none = np.full(3, np.nan, np.float32)
    x = ramp("f32", 0, 3)
    yield Case("graph.batch_norm_training", "", (x, ramp("f32", 3), ramp("f32", 3)), (x, none, none))


def _batch_norm_backward_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(("f32", "f64"), BATCHES):
        x, grad, scale = noise(name, *shape), ramp(name, *shape), noise(name, shape[axis])
        others = tuple(other for other in range(len(shape)) if other != axis % len(shape))
        mean, variance = (rounded(v, name) for v in (wide(x).mean(axis=others), wide(x).var(axis=others)))
        values = gradients(batch_norm(shape, axis), [x, scale, np.zeros(shape[axis])], wide(grad))
        attributes = f"axis = {axis} : i64, epsilon = 1.0e-03 : f64"
        operands = (grad, x, scale, mean, variance)
        yield Case("graph.batch_norm_backward", attributes, operands, tuple(rounded(v, name) for v in values))
    for name, (shape, axis) in product(FLOATS, CHANNELS):
        yield _frozen(name, shape, axis)


def _frozen(name: str, shape: tuple[int, ...], axis: int) -> Case:
    """With statistics that are no function of x, and need not be its own."""
    x, grad, scale, mean = noise(name, *shape), ramp(name, *shape), noise(name, shape[axis]), ramp(name, shape[axis])
    variance = converted(np.abs(wide(scale)) + 0.5, name)
    m, v = (along(wide(value), len(shape), axis) for value in (mean, variance))

    def formula(x: Any, scale: Any, bias: Any) -> Any:
        return (x - m) / np.sqrt(v + 1e-5) * along(scale, len(shape), axis) + along(bias, len(shape), axis)

    values = gradients(formula, [x, scale, np.zeros(shape[axis])], wide(grad))
    operands = (grad, x, scale, mean, variance)
    attributes = f"axis = {axis} : i64, training = false"
    return Case("graph.batch_norm_backward", attributes, operands, tuple(rounded(value, name) for value in values))


GROUPS = [((2, 4, 3), 2), ((2, 4, 3), 4), ((3, 6), 2), ((1, 2, 2, 3), 1), ((0, 4, 3), 2), ((2, 4, 0), 2)]


def group_norm(shape: tuple[int, ...], groups: int) -> Callable[..., Any]:
    """Statistics of each part that a group is, parts one after another."""

    def formula(x: Any, scale: Any = 1.0, bias: Any = 0.0) -> Any:
        inner = layer_norm(tuple(range(1, len(shape))))
        result = np.concatenate([inner(part) if part.size else part for part in np.split(x, groups, axis=1)], axis=1)
        scale, bias = (along(np.ones(shape[1]) * value, len(shape), 1) for value in (scale, bias))
        return result * scale + bias

    return formula


def _group_cases(op: str) -> Iterator[Case]:
    for name, (shape, groups), count in product(FLOATS, GROUPS, range(3)):
        given = groups if op == "group_norm" else shape[1]
        operands = (noise(name, *shape), noise(name, shape[1]), ramp(name, shape[1]))[: count + 1]
        value = group_norm(shape, given)(*map(wide, operands))
        attributes = "epsilon = 1.0e-03 : f64" + (f", num_groups = {groups} : i64" if op == "group_norm" else "")
        yield Case(f"graph.{op}", attributes, operands, rounded(value, name))


def _group_norm_backward_cases() -> Iterator[Case]:
    for name, (shape, groups), scaled in product(FLOATS, GROUPS, (True, False)):
        x, grad, scale = noise(name, *shape), ramp(name, *shape), noise(name, shape[1])
        used = wide(scale) if scaled else np.ones(shape[1])
        values = gradients(group_norm(shape, groups), [x, used, np.zeros(shape[1])], wide(grad))
        operands = (grad, x, scale) if scaled else (grad, x)
        attributes = f"epsilon = 1.0e-03 : f64, num_groups = {groups} : i64"
        expected = tuple(rounded(value, name) for value in values)
        yield Case("graph.group_norm_backward", attributes, operands, expected)


def local_response(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """The definition, element by element."""
    result = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        first, last = max(0, at[1] - (size - 1) // 2), min(x.shape[1] - 1, at[1] + size // 2)
        total = sum(x[(at[0], k, *at[2:])] ** 2 for k in range(first, last + 1))
        result[at] = x[at] / (bias + alpha / size * total) ** beta
    return result


def _local_response_norm_cases() -> Iterator[Case]:
    layouts = [((2, 5, 3), 3), ((1, 6), 4), ((2, 3, 2, 2), 9), ((1, 4, 2), 1), ((0, 3), 2), ((2, 0, 3), 2)]
    for name, (shape, size) in product(FLOATS, layouts):
        x = noise(name, *shape)
        value = local_response(wide(x), size, 1e-4, 0.75, 1.0)
        yield Case("graph.local_response_norm", f"size = {size} : i64", (x,), rounded(value, name))
        attributes = f"size = {size} : i64, alpha = 2.0 : f64, beta = 0.5 : f64, bias = 0.25 : f64"
        value = local_response(wide(x), size, 2.0, 0.5, 0.25)
        yield Case("graph.local_response_norm", attributes, (x,), rounded(value, name))


ROWS: list[Row] = [
    Row("batch_norm", FLOATS, _batch_norm_cases),
    Row("batch_norm_training", FLOATS, _batch_norm_training_cases),
    Row("batch_norm_backward", FLOATS, _batch_norm_backward_cases),
    Row("group_norm", FLOATS, lambda: _group_cases("group_norm")),
    Row("instance_norm", FLOATS, lambda: _group_cases("instance_norm")),
    Row("group_norm_backward", FLOATS, _group_norm_backward_cases),
    Row("local_response_norm", FLOATS, _local_response_norm_cases),
]
