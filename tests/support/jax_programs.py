"""Programs of jax that the StableHLO importer is checked on: functions and example arguments by name. Needs jax."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = jax.lax

_RNG = np.random.default_rng(0)
LAYOUT = ("NHWC", "HWIO", "NHWC")


def floats(*shape: int) -> Any:
    scale = np.sqrt(shape[-2]) if len(shape) > 1 else 1.0
    return (_RNG.standard_normal(shape) / scale).astype(np.float32)


def ids(limit: int, *shape: int) -> Any:
    return _RNG.integers(0, limit, shape).astype(np.int32)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def attention(x: Any, *weights: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = ((x @ w).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3) for w in weights[:3])
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(width // 4)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ weights[3]


def block(x: Any, g1: Any, b1: Any, wq: Any, wk: Any, wv: Any, wo: Any, g2: Any, b2: Any, w1: Any, w2: Any) -> Any:
    x = x + attention(layer_norm(x, g1, b1), wq, wk, wv, wo)
    return x + jax.nn.gelu(layer_norm(x, g2, b2) @ w1) @ w2


def loss(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
    logits = jax.nn.log_softmax(jax.nn.relu(x @ w1 + b1) @ w2 + b2)
    return -jnp.mean(jnp.take_along_axis(logits, y[:, None], 1))


def training_step(*arguments: Any) -> Any:
    value, gradients = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(*arguments)
    return value, *(p - 0.1 * g for p, g in zip(arguments, gradients, strict=False))


def adam(p: Any, g: Any, m: Any, v: Any, t: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def convolutions(w1: Any, w2: Any, x: Any) -> Any:
    y = jax.nn.relu(lax.conv_general_dilated(x, w1, (2, 2), "SAME", dimension_numbers=LAYOUT))
    y = lax.conv_general_dilated(y, w2, (1, 1), "VALID", rhs_dilation=(2, 1), dimension_numbers=LAYOUT)
    return (lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 1), (1, 1, 2, 1), "VALID") ** 2).mean()


def rotated(x: Any, positions: Any) -> Any:
    angle = positions[:, None] / 10000 ** (jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
    c, s, a, b = jnp.cos(angle), jnp.sin(angle), x[..., ::2], x[..., 1::2]
    return jnp.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def recurrence(x: Any, w: Any) -> Any:
    def step(state: Any, element: Any) -> Any:
        return jnp.tanh(state @ w + element), state.sum()

    return lax.scan(step, jnp.zeros(x.shape[1:]), x)


def indexing(x: Any, at: Any, start: Any) -> Any:
    return (
        x.at[at].add(1.0),
        x.at[1:3, ::2].set(2.0),
        x[at, 1],
        jax.ops.segment_sum(x, at, num_segments=5),
        lax.dynamic_update_slice(x, x[:1] * 2, (start, 0)),
        lax.top_k(x, 2),
        jnp.argsort(x, -1),
        jnp.argmax(x, 0),
        jnp.sort(x, 0),
        jnp.roll(x, 1, 0),
        jnp.cumsum(x, 1),
        jnp.median(x),
    )


def squares(table: Any, at: Any) -> Any:
    return (table[at] ** 2).sum()


def gradient(function: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
    """The gradients of the mean square of a function's value by its first arguments."""

    def scalar(*arguments: Any) -> Any:
        return (function(*arguments) ** 2).mean()

    return jax.grad(scalar, argnums=tuple(range(count)))


def _drawn(draw: Callable[[Any], Any]) -> tuple[Callable[..., Any], list[Any]]:
    """Random numbers by a key that is an argument."""
    return draw, [np.array([17, 3000000019], np.uint32)]


_D = 16
PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "layer_norm": (layer_norm, [floats(4, _D), floats(_D), floats(_D)]),
    "attention": (attention, [floats(2, 8, _D), *(floats(_D, _D) for _ in range(4))]),
    "training_step": (training_step, [floats(8, _D), floats(_D), floats(_D, 4), floats(4), floats(6, 8), ids(4, 6)]),
    "adam": (adam, [floats(5, 3), floats(5, 3), floats(5, 3), np.abs(floats(5, 3)), np.float32(3)]),
    "embedding_gradient": (jax.grad(squares), [floats(7, 3), ids(7, 2, 2)]),
    "convolutions": (convolutions, [floats(3, 3, 2, 4), floats(3, 2, 4, 5), floats(2, 9, 8, 2)]),
    "rotated": (rotated, [floats(2, 6, 8), np.arange(6, dtype=np.float32)]),
    "recurrence": (recurrence, [floats(3, 2, 4), floats(4, 4)]),
    "indexing": (indexing, [floats(4, 4), ids(4, 4), np.int32(2)]),
}
_BLOCK = [floats(2, 8, _D), floats(_D), floats(_D), *(floats(_D, _D) for _ in range(4)), floats(_D), floats(_D)]
PROGRAMS["block"] = (block, [*_BLOCK, floats(_D, 32), floats(32, _D)])
for _name in ("layer_norm", "block", "convolutions"):
    _function, _arguments = PROGRAMS[_name]
    PROGRAMS[f"{_name}_gradient"] = (gradient(_function, len(_arguments)), _arguments)
PROGRAMS.update(
    {
        "random_uniform": _drawn(lambda key: jax.random.uniform(key, (5, 7), minval=-1.0, maxval=3.0)),
        "random_normal": _drawn(lambda key: jax.random.normal(key, (6, 5))),
        "random_bits": _drawn(lambda key: [jax.random.bits(key, (4, 3), f"uint{bits}") for bits in (8, 16, 32)]),
        "random_integers": _drawn(lambda key: jax.random.randint(key, (40,), -5, 17)),
        "random_permutation": _drawn(lambda key: jax.random.permutation(key, 19)),
        "random_split": _drawn(lambda key: [jax.random.split(key, 3), jax.random.fold_in(key, 5)]),
        "random_bernoulli": _drawn(lambda key: jax.random.bernoulli(key, 0.3, (33,))),
        "random_categorical": _drawn(lambda key: jax.random.categorical(key, jnp.arange(24.0).reshape(4, 6) / 7)),
    }
)
"""Threefry's numbers are integers: the same bits everywhere."""
