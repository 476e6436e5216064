"""The demo's programs as a person writes them in NumPy and in PyTorch: what fused programs are compared with."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from fuse_opt.tools.compiler.signature import Array


def numpy_function(name: str) -> Callable[..., Any] | None:
    """The example in NumPy; None where nobody wrote it."""
    return _FUNCTIONS.get(name)


def torch_function(name: str) -> Callable[..., Any] | None:
    """The example in PyTorch's eager mode, from arrays to arrays; None where there is no PyTorch."""
    if find_spec("torch") is None:
        return None
    from fuse_opt.tools.commands import demo_torch

    return demo_torch.function_of_arrays(name)


def _adam_step(p: Array, g: Array, m: Array, v: Array) -> tuple[Array, ...]:
    f = np.float32
    m = m * f(0.9) + g * f(0.1)
    v = v * f(0.999) + np.square(g) * f(0.001)
    update = (m / f(0.6513215599)) / (np.sqrt(v / f(0.009955119790251765)) + f(1e-8))
    return p - update * f(0.001), m, v


def _gated_unit(h: Array, bias: Array) -> Array:
    gate, up = np.split(h + bias, 2, axis=1)
    return gate / (1 + np.exp(-gate)) * up


def _layernorm_residual(x: Array, residual: Array, keep: Array, scale: Array, bias: Array) -> tuple[Array, Array]:
    total = np.where(keep, x * np.float32(1.1111111), np.float32(0)) + residual
    return total, _layer_norm(total, scale, bias)


def _layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    variance = np.square(centered).mean(-1, keepdims=True)
    return centered / np.sqrt(variance + np.float32(1e-5)) * scale + bias


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _scaled_softmax(x: Array) -> Array:
    return _softmax(x * np.float32(0.125))


def _gelu(x: Array) -> Array:
    """With erf to 1.5e-7 (Abramowitz & Stegun 7.1.26): NumPy has none."""
    f, z = np.float32, np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + f(0.3275911) * z)
    series = f(-1.453152027) + t * f(1.061405429)
    for factor in (1.421413741, -0.284496736, 0.254829592):
        series = f(factor) + t * series
    return x * (1 + np.copysign(1 - t * series * np.exp(-z * z), x)) / 2


def _transformer_block(
    x: Array,
    mask: Array,
    ln1_scale: Array,
    ln1_bias: Array,
    w_qkv: Array,
    b_qkv: Array,
    w_proj: Array,
    b_proj: Array,
    ln2_scale: Array,
    ln2_bias: Array,
    w_up: Array,
    b_up: Array,
    w_down: Array,
    b_down: Array,
) -> Array:
    heads, width = 8, x.shape[-1]
    qkv = _layer_norm(x, ln1_scale, ln1_bias) @ w_qkv + b_qkv
    q, k, v = (part.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) for part in np.split(qkv, 3, axis=-1))
    scores = np.where(mask, q @ k.transpose(0, 1, 3, 2) * np.float32(0.125), np.float32(-1e9))
    context = (_softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(*x.shape[:2], width)
    x = x + (context @ w_proj + b_proj)
    return x + (_gelu(_layer_norm(x, ln2_scale, ln2_bias) @ w_up + b_up) @ w_down + b_down)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "adam_step": _adam_step,
    "gated_unit": _gated_unit,
    "layernorm_residual": _layernorm_residual,
    "softmax": _scaled_softmax,
    "transformer_block": _transformer_block,
}
