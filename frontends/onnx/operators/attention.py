"""ONNX operators of transformers: attention with caches, masks and windows; rotary embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, I64
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler


def split_heads(g: Emitter, x: Value, heads: int) -> Value:
    batch, length, width = extents(x)
    return g.permute_dims(g.reshape(x, shape=[batch, length, heads, width // heads]), axes=[0, 2, 1, 3])


def join_heads(g: Emitter, x: Value) -> Value:
    batch, heads, length, width = extents(x)
    return g.reshape(g.permute_dims(x, axes=[0, 2, 1, 3]), shape=[batch, length, heads * width])


@handler("RotaryEmbedding")
def rotary_embedding(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    joined = rank(x) == 3
    if joined:
        x = split_heads(g, x, n.integer("num_heads"))
    tables = [g.embedding(n.operand(k), n.operand(3)) if n.has(3) else n.operand(k) for k in (1, 2)]
    cosine, sine = (g.expand_dims(table, axis=1) for table in tables)
    width = n.integer("rotary_embedding_dim") or None
    y = g.rotary_embedding(x, cosine, sine, interleaved=n.flag("interleaved"), rotary_dim=width)
    return join_heads(g, y) if joined else y


@dataclass
class _Masks:
    """What may be attended to: an i1 tensor where something restricts it, and a float one that is added."""

    kept: Value | None = None
    added: Value | None = None

    def keep(self, g: Emitter, condition: Value) -> None:
        self.kept = condition if self.kept is None else g.logical_and(self.kept, condition)

    def joined(self, g: Emitter) -> Value | None:
        if self.kept is None or self.added is None:
            return self.added if self.kept is None else self.kept
        return g.where(self.kept, self.added, g.like(-math.inf, self.added))


@handler("Attention")
def attention(n: Node, g: Emitter) -> Results:
    q, k, v = n.operand(0), n.operand(1), n.operand(2)
    joined = rank(q) == 3
    if joined:
        q = split_heads(g, q, n.integer("q_num_heads"))
        k, v = (split_heads(g, value, n.integer("kv_num_heads")) for value in (k, v))
    past = extents(n.operand(4))[2] if n.has(4) else 0
    if n.has(4):
        k, v = g.concat(n.operand(4), k, axis=2), g.concat(n.operand(5), v, axis=2)
    causal = n.flag("is_causal")
    restricted = past or n.has(6) or max(n.integer("left_window_size", -1), n.integer("right_window_size", -1)) >= 0
    mask = _masks(n, g, q, k, past, causal and bool(restricted)).joined(g)
    plain_causal = causal and not restricted
    scale = n.number("scale", 0.0) if "scale" in n.attributes else None
    products: list[Value] = []
    if n.number("softcap", 0.0) or n.wants(3):
        y, products = _stepwise(n, g, (q, k, v), mask, scale, plain_causal)
    else:
        masks = [] if mask is None else [mask]
        grouped = extents(q)[1] != extents(k)[1]
        y = g.scaled_dot_product_attention(
            q, k, v, *masks, scale=scale, is_causal=plain_causal, enable_gqa=grouped or None
        )
    return [join_heads(g, y) if joined else y, k, v, *products]


def _positions(g: Emitter, length: int, keys: int) -> tuple[Value, Value]:
    """Those of queries, along an axis of their own, and those of keys."""
    return g.iota(shape=[length, 1], axis=0, dtype=I64), g.iota(shape=[1, keys], axis=1, dtype=I64)


def _masks(n: Node, g: Emitter, q: Value, k: Value, past: int, causal: bool) -> _Masks:
    """The restrictions that are not left to the handler itself."""
    (batch, _, length, _), keys = extents(q), extents(k)[2]
    masks = _Masks()
    rows, columns = _positions(g, length, keys)
    if n.has(6):
        valid = g.reshape(g.cast(n.operand(6), I64), shape=[batch, 1, 1, 1])
        masks.keep(g, g.less(columns, valid))
        rows = g.add(rows, g.subtract(valid, g.like(length, valid)))
    elif past:
        rows = g.add(rows, g.like(past, rows))
    left, right = n.integer("left_window_size", -1), n.integer("right_window_size", -1)
    if causal:
        masks.keep(g, g.greater_equal(rows, columns))
    if left >= 0:
        masks.keep(g, g.less_equal(g.subtract(rows, columns), g.like(left, rows)))
    if right >= 0:
        masks.keep(g, g.less_equal(g.subtract(columns, rows), g.like(right, rows)))
    if n.has(3):
        given = n.operand(3)
        missing = keys - extents(given)[-1]
        if missing > 0:
            nothing = -math.inf if dtype(given).is_float else 0
            given = g.pad(given, pads=[0] * (2 * rank(given) - 1) + [missing], value=nothing)
        if dtype(given) is BOOL:
            masks.keep(g, given)
        else:
            masks.added = given
    return masks


def _stepwise(
    n: Node, g: Emitter, operands: tuple[Value, Value, Value], mask: Value | None, scale: float | None, causal: bool
) -> tuple[Value, list[Value]]:
    """Attention as matmul, softmax, matmul: for a softcap, and for the product as a result."""
    q, k, v = operands
    heads, width = extents(q)[1], extents(q)[3]
    k, v = (g.repeat(value, repeats=heads // extents(value)[1], axis=1) for value in (k, v))
    scores = g.matmul(q, k, transpose_rhs=True)
    scores = g.multiply(scores, g.like(width**-0.5 if scale is None else scale, scores))
    stages = [scores]
    softcap = n.number("softcap", 0.0)
    capped = scores
    if softcap:
        cap = g.like(softcap, scores)
        capped = g.multiply(g.tanh(g.divide(scores, cap)), cap)
    nothing = g.like(-math.inf, scores)
    biased = capped
    if causal:
        rows, columns = _positions(g, *extents(scores)[2:])
        biased = g.where(g.greater_equal(rows, columns), biased, nothing)
    if mask is not None:
        biased = g.where(mask, biased, nothing) if dtype(mask) is BOOL else g.add(biased, mask)
    stages += [capped, biased]
    hidden = g.equal(g.max(biased, axes=[-1], keepdims=True), nothing)
    weights = g.where(hidden, g.like(0, biased), g.softmax(biased))
    stages.append(weights)
    return g.matmul(weights, v), [stages[n.integer("qk_matmul_output_mode")]]
