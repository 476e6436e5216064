"""Records of calls that PyTorch's own kernels run in a compiled program; exported text holds graph ops for them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.graph_op import shape
from fuse_opt.frontends.torch_records import Call, NotCoveredError, records

LIBRARY, record = records()


@record("aten.convolution.default", library=True)
def _convolution(call: Call) -> SSAValue:
    x, weight = call.tensor("input"), call.tensor("weight")
    spatial = len(shape(x)) - 2
    strides, padding, dilation = (list(call[n]) * spatial for n in ("stride", "padding", "dilation"))
    if call["transposed"]:
        raise NotCoveredError("is transposed")
    pads = padding[:spatial] * 2
    options = {"strides": strides[:spatial], "pads": pads, "dilations": dilation[:spatial], "groups": call["groups"]}
    y = call.emit.conv(x, weight, **options)
    if not call.has("bias"):
        return y
    bias = call.tensor("bias")
    return call.emit.add(y, call.reshaped(bias, [shape(bias)[0], *[1] * spatial]))


@record(
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
