"""Attention: generated where its scores are for one kernel to know, a call of PyTorch's where others read what it keeps."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.attention import attention_problem
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

ATTENTION, handler = handlers()


@handler("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention(call: Call) -> Sequence[SSAValue]:
    q, k, v = (call.tensor(name) for name in ("query", "key", "value"))
    if call["dropout_p"]:
        raise NotCoveredError("drops out")
    if not call.exported:
        _refuse(call, q, k, v)
    mask = [call.tensor("attn_mask")] if call.has("attn_mask") else []
    scale = call["scale"]
    options = {"is_causal": bool(call["is_causal"]), "scale": None if scale is None else float(scale)}
    y = call.emit.scaled_dot_product_attention(q, k, v, *mask, **options)
    return y, call.number(0, call.element(call.out[1].dtype), call.extents(call.out[1]))


def _refuse(call: Call, q: SSAValue, k: SSAValue, v: SSAValue) -> None:
    """Raises NotCoveredError for what PyTorch's own kernel runs."""
    if call.is_used(1):
        raise NotCoveredError("is run by PyTorch's own kernel, whose row statistics the backward graph reads")
    if dtype(q) not in (F32, F64):
        raise NotCoveredError(f"is run by PyTorch's own kernel: no code is generated for attention of {dtype(q)}")
    problem = attention_problem(shape(q)[-2], shape(k)[-2], shape(k)[-1], shape(v)[-1], dtype(q).itemsize)
    if problem is not None:
        raise NotCoveredError(f"is run by PyTorch's own kernel: {problem}")
