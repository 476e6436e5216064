"""Rows of attention and of layers without parameters; gradients are those of the forward formulas, by complex steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from derivatives import gradient, where
from graph_op_table import FLOATS, Array, Case, Row, converted, noise, ramp, rounded, wide
from rows_random import words

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """Shapes of q, k, v and the mask, of which element type (of q's when it is "float"), and attributes."""

    q: Shape
    k: Shape
    v: Shape
    mask: Shape | None = None
    kind: str = "i1"
    scale: float | None = None
    causal: bool = False
    grouped: bool = False
    dropout: float | None = None
    """With the seed 11, and the offset 3 as an operand."""

    @property
    def text(self) -> str:
        parts = [] if self.scale is None else [f"scale = {self.scale} : f64"]
        parts += [] if self.dropout is None else [f"dropout_p = {self.dropout} : f64, seed = 11 : i64"]
        parts += ["is_causal = true"] if self.causal else []
        return ", ".join([*parts, *(["enable_gqa = true"] if self.grouped else [])])

    def operands(self, name: str) -> tuple[Array, ...]:
        """Values of each sort, and a mask that hides every third key, and all from the second query."""
        found = (noise(name, *self.q), ramp(name, *self.k), noise(name, *self.v))
        if self.mask is None:
            return found
        keep = np.arange(int(np.prod(self.mask))).reshape(self.mask) % 3 != 2
        if len(self.mask) > 1 and self.mask[-2] > 1:
            keep[..., 1, :] = False
        if self.kind == "i1":
            return (*found, keep)
        return (*found, converted(np.where(keep, wide(noise(name, *self.mask)), -np.inf), name))

    def further(self, name: str) -> tuple[Array, ...]:
        """Masks and the offset."""
        offset = () if self.dropout is None else (np.array(3, np.int64),)
        return (*self.operands(name)[3:], *offset)

    def kept(self, extents: Shape, name: str) -> Any:
        """What dropout multiplies the weights with."""
        if self.dropout is None:
            return 1.0
        drawn = [
            ((w[0] << 21 | w[1] >> 11) * 2.0**-53) if name == "f64" else (w[0] >> 8) * 2.0**-24
            for w in words(int(np.prod(extents)), 11, 3)
        ]
        return np.where(np.reshape(drawn, extents) >= self.dropout, 1 / (1 - self.dropout), 0.0)

    def powers(self, q: Any, k: Any, mask: Any = None) -> Any:
        """exp(q k^T scale + mask)."""
        if self.grouped:
            k = np.repeat(k, q.shape[-3] // max(k.shape[-3], 1), axis=-3)
        scores = q @ np.swapaxes(k, -1, -2) * (self.scale or q.shape[-1] ** -0.5)
        kept: Any = np.ones(scores.shape, np.bool_)
        if self.causal:
            kept = np.tri(scores.shape[-2], scores.shape[-1], dtype=np.bool_)
        if mask is not None and self.kind == "i1":
            kept = np.logical_and(kept, mask)
        elif mask is not None:
            scores, kept = scores + where(np.isinf(mask), 0, mask), np.logical_and(kept, ~np.isinf(mask))
        return where(kept, np.exp(scores), 0)

    def value(self, name: str, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        """softmax(q k^T scale + mask) v, with 0 for no key."""
        if self.grouped:
            v = np.repeat(v, q.shape[-3] // max(v.shape[-3], 1), axis=-3)
        powers = self.powers(q, k, mask)
        total = powers.sum(axis=-1, keepdims=True)
        return powers / where(total == 0, 1, total) * self.kept(powers.shape, name) @ v

    def logsumexp(self, name: str, operands: tuple[Array, ...]) -> Array:
        """The logarithm of each query's sum of exponentials."""
        powers = self.powers(*map(wide, operands[:2]), *masks(operands))
        with np.errstate(divide="ignore"):
            return np.log(powers.sum(axis=-1)).astype(np.float64 if name == "f64" else np.float32)


SETTINGS = [
    Setting((2, 3, 4), (2, 5, 4), (2, 5, 3)),
    Setting((3, 4), (5, 4), (5, 2), scale=0.25),
    Setting((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3), causal=True),
    Setting((2, 3, 2), (2, 5, 2), (2, 5, 2), causal=True),
    Setting((2, 3, 4), (2, 5, 4), (2, 5, 3), mask=(3, 5)),
    Setting((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), mask=(1, 1, 5)),
    Setting((2, 3, 4), (2, 5, 4), (2, 5, 3), mask=(2, 3, 5), kind="float"),
    Setting((1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 3), grouped=True),
    Setting((2, 6, 2, 2), (2, 2, 3, 2), (2, 2, 3, 2), mask=(6, 2, 3), causal=True, grouped=True),
    Setting((2, 3, 4), (2, 5, 4), (2, 5, 3), dropout=0.25),
    Setting((1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 3), mask=(3, 5), grouped=True, dropout=0.5),
    Setting((2, 0, 4), (2, 5, 4), (2, 5, 3)),
    Setting((2, 3, 4), (2, 0, 4), (2, 0, 3)),
    Setting((0, 3, 4), (0, 5, 4), (0, 5, 3), mask=(3, 5)),
]


def settings() -> Iterator[tuple[str, Setting]]:
    """Every setting in f32 and f64, some in narrow types."""
    for name in FLOATS:
        yield from product([name], SETTINGS if name in ("f32", "f64") else SETTINGS[::4])


def masks(operands: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(mask if mask.dtype == np.bool_ else wide(mask) for mask in operands[3:])


def _attention_cases() -> Iterator[Case]:
    for name, setting in settings():
        operands = setting.operands(name)
        value = setting.value(name, *map(wide, operands[:3]), *masks(operands))
        given = (*operands[:3], *setting.further(name))
        yield Case("graph.scaled_dot_product_attention", setting.text, given, rounded(value, name))


def _attention_backward_cases() -> Iterator[Case]:
    for name, setting in settings():
        operands = setting.operands(name)
        grad = ramp(name, *setting.q[:-1], setting.v[-1])

        def formula(
            q: Any, k: Any, v: Any, s: Setting = setting, o: tuple[Array, ...] = operands, n: str = name
        ) -> Any:
            return s.value(n, q, k, v, *masks(o))

        values = (gradient(formula, operands[:3], number, wide(grad)) for number in range(3))
        expected = tuple(rounded(value, name) for value in values)
        out = rounded(setting.value(name, *map(wide, operands[:3]), *masks(operands)), name)
        given = (grad, *operands[:3], out, setting.logsumexp(name, operands), *setting.further(name))
        yield Case("graph.scaled_dot_product_attention_backward", setting.text, given, expected)


def _logsumexp_cases() -> Iterator[Case]:
    for name, setting in settings():
        operands = setting.operands(name)
        given = (*operands[:2], *setting.further(name))
        value = setting.logsumexp(name, operands)
        yield Case("graph.scaled_dot_product_attention_logsumexp", setting.text, given, value)


def rotated(x: Array, cos: Array, sin: Array, count: int, interleaved: bool) -> Array:
    """Pair by pair."""
    result, half = x.copy(), count // 2
    cos, sin = (np.broadcast_to(a, (*x.shape[:-1], half)) for a in (cos, sin))
    for i in range(half):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        result[..., first] = x[..., first] * cos[..., i] - x[..., second] * sin[..., i]
        result[..., second] = x[..., second] * cos[..., i] + x[..., first] * sin[..., i]
    return result


def _rotary_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, Shape, int | None]] = [
        ((2, 3, 4), (3, 2), None),
        ((1, 2, 3, 6), (3, 2), 4),
        ((2, 2, 3, 4), (2, 1, 3, 2), None),
        ((5, 2), (5, 1), None),
        ((2, 3, 4), (1,), 2),
        ((2, 3), (2, 0), 0),
        ((0, 3, 4), (3, 2), None),
    ]
    for name, (shape, angles, count), apart in product(FLOATS, layouts, (False, True)):
        x, cos, sin = noise(name, *shape), ramp(name, *angles), noise(name, *angles)
        parts = [] if count is None else [f"rotary_dim = {count} : i64"]
        value = rotated(wide(x), wide(cos), wide(sin), shape[-1] if count is None else count, apart)
        text = ", ".join([*parts, *(["interleaved = true"] if apart else [])])
        yield Case("graph.rotary_embedding", text, (x, cos, sin), rounded(value, name))


def _dropout_cases() -> Iterator[Case]:
    for name, shape, p in product(FLOATS, [(3, 4), (), (0, 2), (7,)], (None, 0.0, 0.25, 1.0)):
        x, mask = noise(name, *shape), ramp("i1", *shape)
        factor = 0.0 if p == 1 else 1 / (1 - (0.5 if p is None else p))
        text = "" if p is None else f"p = {p} : f64"
        yield Case("graph.dropout", text, (x, mask), rounded(np.where(mask, wide(x) * factor, 0), name))
    x = np.array([np.nan, np.inf, np.nan, -np.inf], np.float32)
    mask = np.array([False, False, True, True])
    yield Case("graph.dropout", "", (x, mask), np.array([0, 0, np.nan, -np.inf], np.float32))
    yield Case("graph.dropout", "p = 1.0 : f64", (x, mask), np.zeros(4, np.float32))


ROWS: list[Row] = [
    Row("scaled_dot_product_attention", FLOATS, _attention_cases),
    Row("scaled_dot_product_attention_logsumexp", FLOATS, _logsumexp_cases),
    Row("scaled_dot_product_attention_backward", FLOATS, _attention_backward_cases),
    Row("rotary_embedding", FLOATS, _rotary_cases),
    Row("dropout", FLOATS, _dropout_cases),
]
