"""Rows of steps of optimizers, on dense gradients; what is 0 in a row of one is not a row of it for lazy steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from graph_op_table import FLOATS, Array, Case, Row, converted, noise, rounded, wide

Step = Callable[..., tuple[Any, ...]]


def momentum(weight: Any, grad: Any, rate: Any, velocity: Any) -> tuple[Any, ...]:
    velocity = 0.75 * velocity + grad
    return weight - rate * velocity, velocity


def adam(weight: Any, grad: Any, rate: Any, mean: Any, square: Any) -> tuple[Any, ...]:
    mean, square = 0.5 * (mean + grad), square + 0.25 * (grad**2 - square)
    return weight - rate * mean / (np.sqrt(square) + 0.125), mean, square


def steps(op: str, formula: Step, attributes: str, lazy: bool) -> Callable[[], Iterator[Case]]:
    def cases() -> Iterator[Case]:
        for name in FLOATS:
            for shape in [(4, 3), (5,), (2, 2, 3), (0, 3)]:
                weight, grad = noise(name, *shape), np.flip(noise(name, *shape)).copy()
                grad[1::2] = np.zeros_like(grad[1::2])
                state = [np.abs(np.roll(wide(weight), k + 1)) for k in range(formula.__code__.co_argcount - 3)]
                given = (weight, grad, *(converted(value, name) for value in (0.25, *state)))
                yield Case(f"graph.{op}", attributes, given, _expected(formula, given, lazy, name))

    return cases


def _expected(formula: Step, given: tuple[Array, ...], lazy: bool, name: str) -> tuple[Array, ...]:
    found = [rounded(value, name) for value in formula(*map(wide, given))]
    if lazy:
        for new, old in zip(found, (given[0], *given[3:]), strict=True):
            new[1::2] = old[1::2]
    return tuple(found)


MOMENTUM, ADAM = "momentum = 0.75 : f64", "beta1 = 0.5 : f64, beta2 = 0.75 : f64, epsilon = 0.125 : f64"
ROWS: list[Row] = [
    Row("momentum", FLOATS, steps("momentum", momentum, MOMENTUM, False)),
    Row("lazy_momentum", FLOATS, steps("lazy_momentum", momentum, MOMENTUM, True)),
    Row("adam", FLOATS, steps("adam", adam, ADAM, False)),
    Row("lazy_adam", FLOATS, steps("lazy_adam", adam, ADAM, True)),
]
