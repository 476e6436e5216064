"""Records of calls that PyTorch's own kernels run in a compiled program; exported text holds graph ops for them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

LIBRARY, handler = handlers()


@handler(
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    library=True,
)
def _attention(call: Call) -> Sequence[SSAValue]:
    q, k, v = (call.tensor(name) for name in ("query", "key", "value"))
    if call["dropout_p"]:
        raise NotCoveredError("drops out")
    mask = [call.tensor("attn_mask")] if call.has("attn_mask") else []
    scale = call["scale"]
    options = {"is_causal": bool(call["is_causal"]), "scale": None if scale is None else float(scale)}
    y = call.emit.scaled_dot_product_attention(q, k, v, *mask, **options)
    return y, call.number(0, call.element(call.out[1].dtype), call.extents(call.out[1]))
