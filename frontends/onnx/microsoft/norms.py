"""Norms of com.microsoft, with the sum that onnxruntime's optimiser puts before them."""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, I32
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.node import MICROSOFT, Node, Results, handler

_LAYER, _RMS = "layer_norm", "rms_norm"


@handler("SimplifiedLayerNormalization", table=MICROSOFT)
def simplified(n: Node, g: Emitter) -> Results:
    """RMSNormalization as onnxruntime called it, in the domain `ai.onnx`, before there was one."""
    x, axis = n.operand(0), n.integer("axis", -1) % max(rank(n.operand(0)), 1)
    (y,) = g.all(_RMS, x, n.operand(1), axis=axis, epsilon=n.number("epsilon", 1e-5))
    if not n.wants(1):
        return y
    wide = g.cast(x, F32)
    squares = g.mean(g.multiply(wide, wide), axes=list(range(axis, rank(x))), keepdims=True)
    return [y, g.rsqrt(g.add(squares, g.like(n.number("epsilon", 1e-5), squares)))]


@handler("SkipLayerNormalization", table=MICROSOFT)
def skip_layer_norm(n: Node, g: Emitter) -> Results:
    return _of_sum(n, g, _LAYER, [n.operand(2), *n.optional(3)], n.optional(4))


@handler("SkipSimplifiedLayerNormalization", table=MICROSOFT)
def skip_rms_norm(n: Node, g: Emitter) -> Results:
    return _of_sum(n, g, _RMS, [n.operand(2)], n.optional(3))


def _of_sum(n: Node, g: Emitter, name: str, parameters: Sequence[Value], bias: Sequence[Value]) -> Results:
    total = g.add(n.operand(0), n.operand(1))
    for value in bias:
        total = g.add(total, value)
    axis, epsilon = rank(total) - 1, n.number("epsilon", 1e-12 if name == _LAYER else 1e-5)
    (y,) = g.all(name, total, *parameters, axis=axis, epsilon=epsilon)
    found: list[Value] = [y, *_moments(n, g, total, epsilon, name), total]
    return found


def _moments(n: Node, g: Emitter, total: Value, epsilon: float, name: str) -> list[Value]:
    """What is given of mean and deviation; any value where nobody asks."""
    if not (n.wants(1) or n.wants(2)):
        return [total, total]
    if name == _RMS:
        raise n.refuse("its mean and deviation are not supported")
    variance, mean = g.all("var_mean", g.cast(total, F32), axes=[rank(total) - 1], keepdims=True)
    return [mean, g.rsqrt(g.add(variance, g.like(epsilon, variance)))]


@handler("EmbedLayerNormalization", table=MICROSOFT)
def embed_layer_norm(n: Node, g: Emitter) -> Results:
    ids = n.operand(0)
    batch, length = extents(ids)
    total = g.embedding(n.operand(2), ids)
    if n.has(8):
        total = g.add(total, g.embedding(n.operand(3), n.operand(8)))
    else:
        table = n.operand(3)
        total = g.add(total, g.slice(table, starts=[0, 0], stops=[length, extents(table)[1]]))
    if n.has(1):
        total = g.add(total, g.embedding(n.operand(4), n.operand(1)))
    numbers = {"axis": 2, "epsilon": n.number("epsilon", 1e-12)}
    (y,) = g.all(_LAYER, total, n.operand(5), n.operand(6), **numbers)
    if n.has(7):
        lengths = g.sum(g.cast(n.operand(7), I32), axes=[1])
    else:
        lengths = g.number(0, I32, [batch])
    return [y, lengths, total]


@handler("GroupNorm", table=MICROSOFT)
def group_norm(n: Node, g: Emitter) -> Results:
    """Channels last, unless the node says otherwise; in f32."""
    x, is_last = n.operand(0), n.flag("channels_last", True)
    order = [0, rank(x) - 1, *range(1, rank(x) - 1)]
    first = g.permute_dims(x, axes=order) if is_last else x
    numbers = {"num_groups": n.integer("groups"), "epsilon": n.number("epsilon", 1e-5)}
    (y,) = g.all("group_norm", first, *(g.cast(n.operand(k), dtype(x)) for k in (1, 2)), **numbers)
    y = g.permute_dims(y, axes=[0, *range(2, rank(x)), 1]) if is_last else y
    return g.silu(y) if n.flag("activation") else y
