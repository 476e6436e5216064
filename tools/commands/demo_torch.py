"""The demo's programs in PyTorch's eager mode; imported only where there is PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, cast

from fuse_opt.tools.compiler.signature import Array

torch: Any = import_module("torch")
functional: Any = import_module("torch.nn.functional")
Tensor = Any


def function_of_arrays(name: str) -> Callable[..., Any] | None:
    """The example on NumPy arrays, whose memory its tensors share."""
    function = _FUNCTIONS.get(name)
    return None if function is None else partial(_call, function)


def _call(function: Callable[..., Any], *arrays: Array) -> Any:
    with torch.inference_mode():
        results: Any = function(*(torch.from_numpy(array) for array in arrays))
    if isinstance(results, tuple):
        return tuple(result.numpy() for result in cast("tuple[Tensor, ...]", results))
    return results.numpy()


def _adam_step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """In place, as PyTorch's own optimizer has it."""
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    denominator = (v / 0.009955119790251765).sqrt_().add_(1e-8)
    return p.addcdiv_(m, denominator, value=-0.001 / 0.6513215599), m, v


def _gated_unit(h: Tensor, bias: Tensor) -> Tensor:
    gate, up = (h + bias).chunk(2, dim=1)
    return functional.silu(gate) * up


def _layernorm_residual(
    x: Tensor, residual: Tensor, keep: Tensor, scale: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    total = torch.where(keep, x * 1.1111111, 0.0) + residual
    return total, functional.layer_norm(total, total.shape[-1:], scale, bias)


def _softmax(x: Tensor) -> Tensor:
    return functional.softmax(x * 0.125, dim=-1)


def _transformer_block(x: Tensor, mask: Tensor, *weights: Tensor) -> Tensor:
    ln1_scale, ln1_bias, w_qkv, b_qkv, w_proj, b_proj, ln2_scale, ln2_bias, w_up, b_up, w_down, b_down = weights
    qkv = functional.layer_norm(x, x.shape[-1:], ln1_scale, ln1_bias) @ w_qkv + b_qkv
    q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    context = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(-2)
    x = x + (context @ w_proj + b_proj)
    inner = functional.layer_norm(x, x.shape[-1:], ln2_scale, ln2_bias) @ w_up + b_up
    return x + (functional.gelu(inner) @ w_down + b_down)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "adam_step": _adam_step,
    "gated_unit": _gated_unit,
    "layernorm_residual": _layernorm_residual,
    "softmax": _softmax,
    "transformer_block": _transformer_block,
}
