"""Attention of com.microsoft: projections, masks of lengths and positions, caches; and its rotary embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, I64
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.attention import join_heads, split_heads
from fuse_opt.frontends.onnx.operators.node import MICROSOFT, Node, Results, handler


@handler("RotaryEmbedding", table=MICROSOFT)
def rotary_embedding(n: Node, g: Emitter) -> Results:
    """As ONNX's, with the positions second; one position is where the sequence begins."""
    x, places = n.operand(0), n.operand(1)
    if n.flag("is_packed_batching"):
        raise n.refuse("packed batches are not supported")
    joined, table = rank(x) == 3, n.operand(2)
    width = n.integer("rotary_embedding_dim") or 2 * extents(table)[1]
    if joined:
        x = split_heads(g, x, n.integer("num_heads") or extents(x)[2] // width)
    length = extents(x)[2]
    if rank(places) == 1:
        places = g.add(g.reshape(places, shape=[1, 1]), g.iota(shape=[1, length], axis=1, dtype=I64))
    cosine, sine = (g.expand_dims(g.embedding(n.operand(k), places), axis=1) for k in (2, 3))
    rotary = None if width == extents(x)[3] else width
    y = g.rotary_embedding(x, cosine, sine, interleaved=n.flag("interleaved"), rotary_dim=rotary)
    return join_heads(g, y) if joined else y


@handler("Attention", table=MICROSOFT)
def attention(n: Node, g: Emitter) -> Results:
    """With the projections of query, key and value as one product."""
    if n.flag("do_rotary") or n.flag("past_present_share_buffer"):
        raise n.refuse("rotary embedding inside of it, and caches that share memory, are not supported")
    x, weight = n.operand(0), n.operand(1)
    y = g.matmul(x, weight)
    y = g.add(y, n.operand(2)) if n.has(2) else y
    third = extents(weight)[1] // 3
    sizes = n.integers("qkv_hidden_sizes") or [third] * 3
    q, k, v = (split_heads(g, part, n.integer("num_heads")) for part in g.all("split", y, sizes=sizes, axis=2))
    if n.has(4):
        old = [g.squeeze(part, axes=[0]) for part in g.all("split", n.operand(4), sizes=[1, 1], axis=0)]
        k, v = (g.concat(before, part, axis=2) for before, part in zip(old, (k, v), strict=True))
    y = _attended(n, g, (q, k, v), n.optional(3), n.optional(5))
    return (
        [join_heads(g, y), g.concat(*(g.expand_dims(part, axis=0) for part in (k, v)), axis=0)]
        if n.wants(1)
        else [join_heads(g, y)]
    )


@handler("MultiHeadAttention", table=MICROSOFT)
def multi_head_attention(n: Node, g: Emitter) -> Results:
    if not n.has(1) or not n.has(2) or rank(n.operand(0)) != 3:
        raise n.refuse("packed queries, keys and values are not supported")
    parts, heads = [n.operand(k) for k in range(3)], n.integer("num_heads")
    if n.has(3):
        widths = [extents(part)[2] if rank(part) == 3 else heads * extents(part)[3] for part in parts]
        biases = g.all("split", n.operand(3), sizes=widths, axis=0)
        if any(rank(part) != 3 for part in parts):
            raise n.refuse("a bias for keys and values of four axes is not supported")
        parts = [g.add(part, bias) for part, bias in zip(parts, biases, strict=True)]
    q, k, v = (split_heads(g, part, heads) if rank(part) == 3 else part for part in parts)
    if n.has(6) and n.has(7):
        k, v = (g.concat(n.operand(at), part, axis=2) for at, part in ((6, k), (7, v)))
    return [join_heads(g, _attended(n, g, (q, k, v), n.optional(4), n.optional(5))), k, v]


def _attended(
    n: Node, g: Emitter, parts: tuple[Value, Value, Value], masks: Sequence[Value], added: Sequence[Value]
) -> Value:
    """Where a mask leaves out a place, the node's number is added to its product: a row of such places is as without a mask."""
    q, k, v = parts
    total: Value | None = None
    for mask in masks:
        kept = _kept(n, g, mask, extents(q)[0], extents(k)[2])
        filtered = g.like(n.number("mask_filter_value", -10000.0), q)
        total = g.where(kept, g.like(0, q), filtered)
    for bias in added:
        total = bias if total is None else g.add(total, bias)
    if n.flag("unidirectional"):
        length, keys = extents(q)[2], extents(k)[2]
        rows = g.iota(shape=[length, 1], axis=0, dtype=I64, start=keys - length)
        kept = g.greater_equal(rows, g.iota(shape=[1, keys], axis=1, dtype=I64))
        lowest = g.like(-math.inf, q)
        total = kept if total is None else g.where(kept, total, lowest)
    scale = n.number("scale", 0.0) or None
    return g.scaled_dot_product_attention(q, k, v, *([] if total is None else [total]), scale=scale)


def _kept(n: Node, g: Emitter, mask: Value, batch: int, keys: int) -> Value:
    """Which keys a mask leaves in, as [batch, 1, queries or 1, keys]."""
    if rank(mask) == 1 and extents(mask)[0] == batch:  # how many keys there are
        lengths = g.reshape(g.cast(mask, I64), shape=[batch, 1, 1, 1])
        return g.less(g.iota(shape=[1, 1, 1, keys], axis=3, dtype=I64), lengths)
    if rank(mask) not in (2, 3) or extents(mask)[-1] != keys:
        raise n.refuse(f"a mask of extents {list(extents(mask))} is not supported")
    axes = [1, 2] if rank(mask) == 2 else [1]
    kept = g.expand_dims(mask, axes=axes)
    return kept if dtype(kept) is BOOL else g.not_equal(kept, g.like(0, kept))
