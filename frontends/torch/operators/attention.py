"""Attention, generated: under inference one kernel; in training with a logarithm of each row's sum, from which another kernel
makes the gradients. What these do not take is a call of PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import attention_problem
from fuse_opt.dialects.analysis.contractions.attention_gradients import gradient_problem
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

ATTENTION, handler = handlers()
MOST_WEIGHTS = 128 << 20
"""Bytes of all weights, which the backward graph has in memory where no kernel makes gradients; beyond PyTorch's kernel runs."""


@handler("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention(call: Call) -> Sequence[SSAValue]:
    q, k, v = _operands(call)
    y = call.emit.scaled_dot_product_attention(q, k, v, *_mask(call), **_options(call))
    if call.exported or not call.is_used(1):
        return y, call.number(0, call.element(call.out[1].dtype), call.extents(call.out[1]))
    _refuse_training(q, k, v)
    return y, call.emit.scaled_dot_product_attention_logsumexp(q, k, *_mask(call), **_options(call))


@handler("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def _attention_backward(call: Call) -> Sequence[SSAValue]:
    q, k, v = _operands(call)
    _refuse_training(q, k, v)
    kept = call.tensor("out"), call.tensor("logsumexp")
    grad = call.tensor("grad_out")
    operands = grad, q, k, v, *kept, *_mask(call)
    return call.emit.all("scaled_dot_product_attention_backward", *operands, **_options(call))


def _operands(call: Call) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Queries, keys and values. Raises NotCoveredError for what PyTorch's own kernel runs."""
    q, k, v = (call.tensor(name) for name in ("query", "key", "value"))
    if call["dropout_p"]:
        raise NotCoveredError("drops out")
    if call.exported:
        return q, k, v
    if dtype(q) not in (F32, F64):
        raise NotCoveredError(f"is run by PyTorch's own kernel: no code is generated for attention of {dtype(q)}")
    problem = attention_problem(shape(q)[-2], shape(k)[-2], shape(k)[-1], shape(v)[-1], dtype(q).itemsize)
    if problem is not None:
        raise NotCoveredError(f"is run by PyTorch's own kernel: {problem}")
    return q, k, v


def _refuse_training(q: SSAValue, k: SSAValue, v: SSAValue) -> None:
    """What holds for the forward graph holds for the backward one, too: one reads what the other keeps of its rows."""
    scores, size = (*shape(q)[:-1], shape(k)[-2]), dtype(q).itemsize
    problem = gradient_problem(scores, shape(k)[-1], shape(v)[-1], size)
    if problem is not None and prod(scores) * size > MOST_WEIGHTS:
        raise NotCoveredError(f"is run by PyTorch's own kernel: all weights would be in memory, as {problem}")


def _options(call: Call) -> dict[str, Any]:
    scale = call["scale"]
    return {"is_causal": bool(call["is_causal"]), "scale": None if scale is None else float(scale)}


def _mask(call: Call) -> list[SSAValue]:
    return [call.tensor("attn_mask")] if call.has("attn_mask") else []
