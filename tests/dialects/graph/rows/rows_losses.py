"""Rows of losses; gradients are those of the forward formulas, by complex steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from derivatives import gradient, size, where
from graph_op_table import FLOATS, Array, Case, Row, Unary, converted, noise, ramp, rounded, wide

Loss = Callable[[Any, Any], Any]
SHAPES = {"f32": [(2, 5), (7,), (), (3, 0), (2, 3, 2)]}
"""For other types, the first is enough."""


def reduced(losses: Any, reduction: str) -> Any:
    with np.errstate(all="ignore"):
        if reduction == "none":
            return losses
        total = losses.sum()
        if reduction == "sum":
            return total
        return total / np.float64(losses.shape[0] if reduction == "batchmean" else losses.size)


def joined(formula: Loss, target: Array, reduction: str, x: Any) -> Any:
    return reduced(formula(x, wide(target)), reduction)


def smooth_l1(beta: float) -> Loss:
    def formula(x: Any, t: Any) -> Any:
        d = size(x - t)
        return where(d.real < beta, d * d / (2 * beta or 1), d - beta / 2)

    return formula


def huber(delta: float) -> Loss:
    def formula(x: Any, t: Any) -> Any:
        d = size(x - t)
        return where(d.real <= delta, d * d / 2, delta * (d - delta / 2))

    return formula


def kl_div(x: Any, t: Any) -> Any:
    positive = np.where(t == 0, 1, t)
    return t * (np.log(positive) - x)


def as_it_is(x: Any) -> Any:
    return x


def probability(x: Any) -> Any:
    """Between 0 and 1, without them."""
    return (np.abs(x) + 0.125) / 3.5


LOSSES: list[tuple[str, str, Loss, Unary, Unary]] = [
    ("mse_loss", "", lambda x, t: (x - t) ** 2, as_it_is, as_it_is),
    ("l1_loss", "", lambda x, t: size(x - t), as_it_is, as_it_is),
    ("smooth_l1_loss", "", smooth_l1(1.0), as_it_is, as_it_is),
    ("smooth_l1_loss", "beta = 0.25 : f64", smooth_l1(0.25), as_it_is, as_it_is),
    ("smooth_l1_loss", "beta = 0.0 : f64", smooth_l1(0.0), as_it_is, as_it_is),
    ("huber_loss", "", huber(1.0), as_it_is, as_it_is),
    ("huber_loss", "delta = 0.75 : f64", huber(0.75), as_it_is, as_it_is),
    ("binary_cross_entropy", "", lambda x, t: -(t * np.log(x) + (1 - t) * np.log(1 - x)), probability, probability),
    ("binary_cross_entropy_with_logits", "", lambda x, t: np.log(1 + np.exp(x)) - x * t, as_it_is, probability),
    ("kl_div", "", kl_div, as_it_is, probability),
    ("kl_div", "log_target = true", lambda x, t: np.exp(t) * (t - x), as_it_is, as_it_is),
]
"""Name, attributes, formula, and how x and the target are made from noise."""


def value_operands(name: str, shape: tuple[int, ...], of_x: Unary, of_target: Unary) -> tuple[Array, Array]:
    """Values and targets that differ, none of them where a loss has a kink."""
    x, target = of_x(wide(noise(name, *shape))), of_target(wide(ramp(name, *shape)) * 0.3 + 0.0625)
    return converted(x, name), converted(target, name)


def attributes_of(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def reductions(op: str) -> list[str]:
    return ["mean", "sum", "none", *(["batchmean"] if op == "kl_div" else [])]


def settings(op: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Element types, shapes and reductions to try."""
    for name, reduction in product(FLOATS, reductions(op)):
        shapes = SHAPES.get(name, SHAPES["f32"][:1])
        yield from ((name, shape, reduction) for shape in shapes if shape or reduction != "batchmean")


def value_cases(op: str) -> Iterator[Case]:
    for known, attributes, formula, of_x, of_target in LOSSES:
        if known != op:
            continue
        for name, shape, reduction in settings(op):
            x, t = value_operands(name, shape, of_x, of_target)
            text = attributes_of(attributes, f'reduction = "{reduction}"')
            yield Case(f"graph.{op}", text, (x, t), rounded(reduced(formula(wide(x), wide(t)), reduction), name))
    yield from special_values(op)


def special_values(op: str) -> Iterator[Case]:
    """Where a formula needs more than its words: at the ends of its domain, and where exp would overflow."""
    nan, inf = np.nan, np.inf
    known: dict[str, tuple[list[float], list[float], list[float]]] = {
        "mse_loss": ([nan, inf, 1e30], [0, 0, -1e30], [nan, inf, inf]),
        "smooth_l1_loss": ([nan, inf, 3e38], [0, 0, 0], [nan, inf, 3e38]),
        "binary_cross_entropy": ([0, 1, 0, 1, nan, 2], [0, 1, 1, 0, 0, 1], [0, 0, 100, 100, nan, nan]),
        "binary_cross_entropy_with_logits": ([1e3, -1e3, 1e3, nan], [0, 1, 1, 0], [1e3, 1e3, 0, nan]),
        "kl_div": ([-1.0, -inf, nan], [0, 0.5, 0.5], [0, inf, nan]),
    }
    if op in known:
        x, t, value = (np.array(values, np.float32) for values in known[op])
        yield Case(f"graph.{op}", 'reduction = "none"', (x, t), value)
    x = np.array([1.0, 3.0], np.float32)
    if op == "mse_loss":
        yield Case("graph.mse_loss", "", (x, np.zeros(2, np.float32)), np.array(5.0, np.float32))


def backward_cases(op: str) -> Iterator[Case]:
    for known, attributes, formula, of_x, of_target in LOSSES:
        if f"{known}_backward" != op:
            continue
        for name, shape, reduction in settings(known):
            x, t = value_operands(name, shape, of_x, of_target)
            grad = ramp(name, *(shape if reduction == "none" else ()))
            value = np.zeros(shape)
            if x.size:
                value = gradient(partial(joined, formula, t, reduction), [x], 0, wide(grad))
            text = attributes_of(attributes, f'reduction = "{reduction}"')
            yield Case(f"graph.{op}", text, (grad, x, t), rounded(value, name))
    yield from special_slopes(op)


def special_slopes(op: str) -> Iterator[Case]:
    known: dict[str, tuple[list[float], list[float], list[float]]] = {
        "l1_loss_backward": ([1.0, np.nan, -np.inf], [1.0, 0.0, 0.0], [0.0, np.nan, -1.0]),
        "smooth_l1_loss_backward": ([1.0, np.nan, -np.inf], [1.0, 0.0, 0.0], [0.0, np.nan, -1.0]),
        "huber_loss_backward": ([1.0, np.nan, -np.inf], [1.0, 0.0, 0.0], [0.0, np.nan, -1.0]),
        "binary_cross_entropy_backward": ([0.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1e12]),
        "binary_cross_entropy_with_logits_backward": ([1e3, -1e3], [0.0, 1.0], [1.0, -1.0]),
    }
    if op in known:
        x, t, value = (np.array(values, np.float32) for values in known[op])
        yield Case(f"graph.{op}", 'reduction = "none"', (np.ones_like(x), x, t), value)


NAMES = list(dict.fromkeys(loss[0] for loss in LOSSES))
ROWS: list[Row] = [
    *(Row(op, FLOATS, lambda op=op: value_cases(op)) for op in NAMES),
    *(Row(op, FLOATS, lambda op=op: backward_cases(op)) for op in [f"{name}_backward" for name in NAMES]),
]
