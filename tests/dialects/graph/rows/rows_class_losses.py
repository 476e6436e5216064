"""Rows of losses against classes: plain loops, and gradients by complex steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from derivatives import gradient
from graph_op_table import FLOATS, Array, Case, Row, converted, noise, ramp, rounded, wide
from rows_normalization import log_softmax


@dataclass(frozen=True)
class Setting:
    """The shape of scores, and attributes."""

    shape: tuple[int, ...]
    axis: int | None = None
    weighted: bool = False
    ignored: int | None = None
    smoothing: float = 0.0
    targets: str = "i64"

    @property
    def class_axis(self) -> int:
        return min(1, len(self.shape) - 1) if self.axis is None else self.axis % len(self.shape)

    def text(self, reduction: str) -> str:
        """The attributes."""
        parts = [] if self.axis is None else [f"axis = {self.axis} : i64"]
        parts += [] if self.ignored is None else [f"ignore_index = {self.ignored} : i64"]
        parts += [f"label_smoothing = {self.smoothing} : f64"] if self.smoothing else []
        return ", ".join([*parts, f'reduction = "{reduction}"'])

    def classes(self) -> Array:
        """A class for each row; now and then the one to ignore, and one that there is not."""
        axis, count = self.class_axis, self.shape[self.class_axis]
        rows = self.shape[:axis] + self.shape[axis + 1 :]
        values = np.arange(int(np.prod(rows))) * 5 % count
        if self.ignored is not None:
            values[::3] = self.ignored
        values[4:5] = count + 2
        return values.astype(np.int64 if self.targets == "i64" else np.int32).reshape(rows)

    def weight(self, name: str) -> tuple[Array, ...]:
        count = self.shape[self.class_axis]
        return (converted(np.abs(wide(noise(name, count))) + 0.25, name),) if self.weighted else ()

    def value(self, logs: Any, targets: Array, weight: Any, reduction: str) -> Any:
        """The loss, row by row."""
        logs = np.moveaxis(logs, self.class_axis, -1)
        losses, shares = np.zeros(targets.shape, logs.dtype), 0.0
        for at in np.ndindex(*targets.shape):
            target, row = targets[at], logs[at]
            if target == self.ignored:
                continue
            hit = -row[target] * weight[target] if 0 <= target < len(row) else 0.0
            shares += weight[target] if 0 <= target < len(row) else 0.0 if np.any(weight != 1) else 1.0
            losses[at] = (1 - self.smoothing) * hit
            if self.smoothing:
                losses[at] -= self.smoothing / len(row) * (row * weight).sum()
        with np.errstate(all="ignore"):
            total = losses.sum()
            return {"none": losses, "sum": total, "mean": total / np.float64(shares)}[reduction]


PLAIN = [
    Setting((6, 5)),
    Setting((5,)),
    Setting((3, 4, 2), targets="i32"),
    Setting((3, 2, 4), axis=-1),
    Setting((6, 5), weighted=True),
    Setting((6, 5), ignored=-100),
    Setting((7, 4), weighted=True, ignored=2, targets="i32"),
    Setting((0, 4)),
    Setting((0, 4), weighted=True, ignored=1),
    Setting((1, 3), ignored=0),
]
SMOOTH = [Setting((6, 5), smoothing=0.1), Setting((2, 3, 4), weighted=True, ignored=1, smoothing=0.25)]
Make = Callable[[Any, int], Any]


def as_it_is(x: Any, axis: int) -> Any:
    return x


def operands_of(settings: list[Setting]) -> Iterator[tuple[str, Setting, str, list[Array], Array]]:
    """Every setting and reduction in f32, one setting in three in other types: with operands, and the weights they mean."""
    for name in FLOATS:
        some = settings if name == "f32" else settings[::3]
        for setting, reduction in product(some, ("mean", "sum", "none")):
            weight = setting.weight(name)
            weights = wide(weight[0]) if weight else np.ones(setting.shape[setting.class_axis])
            yield name, setting, reduction, [noise(name, *setting.shape), setting.classes(), *weight], weights


def forward(op: str, make: Make, settings: list[Setting]) -> Iterator[Case]:
    for name, setting, reduction, operands, weights in operands_of(settings):
        x, targets = operands[:2]
        value = setting.value(make(wide(x), setting.class_axis), targets, weights, reduction)
        yield Case(f"graph.{op}", setting.text(reduction), tuple(operands), rounded(value, name))


def backward(op: str, make: Make, settings: list[Setting]) -> Iterator[Case]:
    for name, setting, reduction, operands, weights in operands_of(settings):
        x, targets = operands[:2]
        grad = ramp(name, *(targets.shape if reduction == "none" else ()))

        def formula(v: Any, s: Setting = setting, t: Array = targets, w: Array = weights, r: str = reduction) -> Any:
            return s.value(make(v, s.class_axis), t, w, r)

        value = gradient(formula, [x], 0, wide(grad))
        if np.all(targets == setting.ignored):
            value = np.zeros(x.shape)  # NaN only where 0 rows are divided by their number
        yield Case(f"graph.{op}", setting.text(reduction), (grad, *operands), rounded(value, name))


def _cross_entropy_cases() -> Iterator[Case]:
    yield from forward("cross_entropy", log_softmax, [*PLAIN, *SMOOTH])
    x = np.array([[1e4, -1e4, 0.0], [-np.inf, 0.0, 0.0], [np.nan, 0.0, 0.0]], np.float32)
    expected = np.array([2e4, np.inf, np.nan], np.float32)
    yield Case("graph.cross_entropy", 'reduction = "none"', (x, np.array([1, 0, 1], np.int32)), expected)


ROWS: list[Row] = [
    Row("cross_entropy", FLOATS, _cross_entropy_cases),
    Row("nll_loss", FLOATS, lambda: forward("nll_loss", as_it_is, PLAIN)),
    Row("cross_entropy_backward", FLOATS, lambda: backward("cross_entropy_backward", log_softmax, [*PLAIN, *SMOOTH])),
    Row("nll_loss_backward", FLOATS, lambda: backward("nll_loss_backward", as_it_is, PLAIN)),
]
