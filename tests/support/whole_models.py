"""Small models as programs: Llama, BERT, GPT-2, a ResNet block, and steps of training, with the ops that front ends give them.

Norms, rotations, attention and losses stand as ops, or `apart`, as PyTorch's and JAX's graphs have them: written out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
from ir_testing import Array, function, random_arguments
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import F32, I64, DType
from fuse_opt.frontends.builder import Emitter
from fuse_opt.lowering.program.float_formats import is_narrow, narrow, widen

BATCH, TOKENS, WIDTH, HEADS, INNER, WORDS = 2, 6, 16, 2, 24, 40
HEAD = WIDTH // HEADS
LAST = {"axes": [-1], "keepdims": True}


class _Model:
    """A function under construction; `apart` writes out what has an op."""

    def __init__(self, apart: bool, element: DType = F32) -> None:
        self.emit, self.apart, self.element = Emitter(), apart, element

    def weight(self, *extents: int) -> SSAValue:
        return self.emit.argument(f"w{len(self.emit.block.args)}", self.element, extents)

    def ids(self, name: str, *extents: int) -> SSAValue:
        return self.emit.argument(name, I64, extents)

    def rows(self, ids: SSAValue, count: int = WORDS) -> tuple[SSAValue, SSAValue]:
        """The rows of a table, and the table."""
        table = self.weight(count, WIDTH)
        return self.emit.embedding(table, ids), table

    def linear(self, x: SSAValue, outs: int, bias: bool = True) -> SSAValue:
        """As torch has it, of a weight that is turned."""
        turned = self.emit.permute_dims(self.weight(outs, shape(x)[-1]), axes=[1, 0])
        flat = self.emit.reshape(x, shape=[-1, shape(x)[-1]])
        y = self.emit.reshape(self.emit.matmul(flat, turned), shape=[*shape(x)[:-1], outs])
        return self.emit.add(y, self.weight(outs)) if bias else y

    def rms_norm(self, x: SSAValue) -> SSAValue:
        emit, scale = self.emit, self.weight(shape(x)[-1])
        if not self.apart:
            return emit.rms_norm(x, scale, epsilon=1e-5)
        mean = emit.mean(emit.multiply(x, x), **LAST)
        return emit.multiply(emit.multiply(x, emit.rsqrt(emit.add(mean, emit.like(1e-5, x)))), scale)

    def layer_norm(self, x: SSAValue) -> SSAValue:
        emit, scale, bias = self.emit, self.weight(shape(x)[-1]), self.weight(shape(x)[-1])
        if not self.apart:
            return emit.layer_norm(x, scale, bias, axis=-1, epsilon=1e-5)
        centred = emit.subtract(x, emit.mean(x, **LAST))
        variance = emit.mean(emit.multiply(centred, centred), **LAST)
        y = emit.multiply(centred, emit.rsqrt(emit.add(variance, emit.like(1e-5, x))))
        return emit.add(emit.multiply(y, scale), bias)

    def rotated(self, x: SSAValue) -> SSAValue:
        """By angles that grow with the place: halves of a head are pairs."""
        emit, half = self.emit, HEAD // 2
        angles = np.outer(np.arange(TOKENS), 10000.0 ** (-np.arange(half) / half)).astype(np.float32)
        cos, sin = (emit.cast(emit.dense(f(angles)), self.element) for f in (np.cos, np.sin))
        if not self.apart:
            return emit.rotary_embedding(x, cos, sin)
        starts, ends = [0] * 4, list(shape(x))
        a = emit.slice(x, starts=starts, stops=[*ends[:3], half])
        b = emit.slice(x, starts=[0, 0, 0, half], stops=ends)
        turned = emit.concat(emit.negative(b), a, axis=3)
        cos, sin = (emit.concat(each, each, axis=1) for each in (cos, sin))
        return emit.add(emit.multiply(x, cos), emit.multiply(turned, sin))

    def heads(self, x: SSAValue) -> SSAValue:
        return self.emit.permute_dims(self.emit.reshape(x, shape=[BATCH, TOKENS, -1, HEAD]), axes=[0, 2, 1, 3])

    def attention(self, q: SSAValue, k: SSAValue, v: SSAValue, causal: bool) -> SSAValue:
        emit = self.emit
        if not self.apart:
            return emit.scaled_dot_product_attention(q, k, v, is_causal=causal)
        scores = emit.matmul(q, emit.permute_dims(k, axes=[0, 1, 3, 2]))
        scores = emit.multiply(scores, emit.like(1 / sqrt(HEAD), q))
        if causal:
            seen = emit.dense(np.tril(np.ones((TOKENS, TOKENS), bool)))
            scores = emit.where(seen, scores, emit.like(-1e9, q))
        powers = emit.exp(emit.subtract(scores, emit.max(scores, **LAST)))
        return emit.matmul(emit.divide(powers, emit.sum(powers, **LAST)), v)

    def joined(self, x: SSAValue) -> SSAValue:
        return self.emit.reshape(self.emit.permute_dims(x, axes=[0, 2, 1, 3]), shape=[BATCH, TOKENS, -1])

    def loss(self, scores: SSAValue, targets: SSAValue) -> SSAValue:
        """The mean cross entropy of rows."""
        emit = self.emit
        flat, right = emit.reshape(scores, shape=[-1, shape(scores)[-1]]), emit.reshape(targets, shape=[-1])
        if not self.apart:
            return emit.cross_entropy(flat, right)
        shifted = emit.subtract(flat, emit.max(flat, **LAST))
        total = emit.log(emit.sum(emit.exp(shifted), **LAST))
        picked = emit.take_along_axis(emit.subtract(shifted, total), emit.expand_dims(right, axis=1), axis=1)
        return emit.negative(emit.mean(picked))


def llama(apart: bool, element: DType = F32) -> ModuleOp:
    """A layer with grouped heads, rotations and SwiGLU between an embedding and its loss."""
    model = _Model(apart, element)
    emit = model.emit
    x, _ = model.rows(model.ids("ids", BATCH, TOKENS))
    y = model.rms_norm(x)
    q, k, v = (model.heads(model.linear(y, outs, bias=False)) for outs in (WIDTH, HEAD, HEAD))
    k, v = (emit.broadcast_to(each, shape=[BATCH, HEADS, TOKENS, HEAD]) for each in (model.rotated(k), v))
    y = model.joined(model.attention(model.rotated(q), k, v, causal=True))
    x = emit.add(x, model.linear(y, WIDTH, bias=False))
    y = model.rms_norm(x)
    gate, up = (model.linear(y, INNER, bias=False) for _ in range(2))
    gate = emit.multiply(gate, emit.sigmoid(gate)) if apart else emit.silu(gate)
    x = emit.add(x, model.linear(emit.multiply(gate, up), WIDTH, bias=False))
    scores = model.linear(model.rms_norm(x), WORDS, bias=False)
    return emit.finish([scores, model.loss(scores, model.ids("targets", BATCH, TOKENS))])


def bert(apart: bool, element: DType = F32) -> ModuleOp:
    """Three embeddings and a layer with norms behind, and the first token's classes."""
    model = _Model(apart, element)
    emit = model.emit
    x, _ = model.rows(model.ids("ids", BATCH, TOKENS))
    kinds, _ = model.rows(model.ids("kinds", BATCH, TOKENS), 2)
    places, _ = model.rows(emit.iota(shape=[TOKENS], axis=0, dtype=I64), TOKENS)
    x = model.layer_norm(emit.add(emit.add(x, kinds), places))
    q, k, v = (model.heads(model.linear(x, WIDTH)) for _ in range(3))
    x = model.layer_norm(emit.add(x, model.linear(model.joined(model.attention(q, k, v, causal=False)), WIDTH)))
    y = model.linear(emit.gelu(model.linear(x, INNER)), WIDTH)
    x = model.layer_norm(emit.add(x, y))
    first = emit.reshape(emit.slice(x, starts=[0, 0, 0], stops=[BATCH, 1, WIDTH]), shape=[BATCH, WIDTH])
    return emit.finish([model.linear(emit.tanh(model.linear(first, WIDTH)), 3)])


def gpt2(apart: bool, element: DType = F32) -> ModuleOp:
    """One product for q, k and v, norms before, scores by the table of the embedding, and the loss of the next token."""
    model = _Model(apart, element)
    emit = model.emit
    ids = model.ids("ids", BATCH, TOKENS)
    x, table = model.rows(ids)
    places, _ = model.rows(emit.iota(shape=[TOKENS], axis=0, dtype=I64), TOKENS)
    x = emit.add(x, places)
    three = model.linear(model.layer_norm(x), 3 * WIDTH)
    parts = [emit.slice(three, starts=[0, 0, k * WIDTH], stops=[BATCH, TOKENS, (k + 1) * WIDTH]) for k in range(3)]
    y = model.joined(model.attention(*map(model.heads, parts), causal=True))
    x = emit.add(x, model.linear(y, WIDTH))
    y = model.linear(emit.gelu(model.linear(model.layer_norm(x), INNER), approximate="tanh"), WIDTH)
    x = model.layer_norm(emit.add(x, y))
    scores = emit.matmul(x, emit.permute_dims(table, axes=[1, 0]))
    before = emit.slice(scores, starts=[0, 0, 0], stops=[BATCH, TOKENS - 1, WORDS])
    after = emit.slice(ids, starts=[0, 1], stops=[BATCH, TOKENS])
    return emit.finish([scores, model.loss(before, after)])


def resnet_block(apart: bool, element: DType = F32) -> ModuleOp:
    """Convolutions of which the first has a stride, batch norms, a short cut by a product, pooling and classes."""
    model = _Model(apart, element)
    emit = model.emit
    image = emit.argument("image", element, [BATCH, 4, 8, 8])

    def normed(x: SSAValue, channels: int) -> SSAValue:
        scale, bias, mean, variance = (model.weight(channels) for _ in range(4))
        variance = emit.abs(variance)
        if not apart:
            return emit.batch_norm(x, scale, bias, mean, variance, axis=1, epsilon=1e-3)
        scale, bias, mean, variance = (emit.reshape(w, shape=[channels, 1, 1]) for w in (scale, bias, mean, variance))
        root = emit.rsqrt(emit.add(variance, emit.like(1e-3, x)))
        return emit.add(emit.multiply(emit.multiply(emit.subtract(x, mean), root), scale), bias)

    y = emit.conv(image, model.weight(8, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    y = emit.conv(emit.relu(normed(y, 8)), model.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
    short = normed(emit.conv(image, model.weight(8, 4, 1, 1), strides=[2, 2]), 8)
    y = emit.relu(emit.add(normed(y, 8), short))
    pooled = emit.max_pool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    return emit.finish([model.linear(emit.mean(pooled, axes=[2, 3]), 5)])


def training_step(apart: bool, element: DType = F32) -> ModuleOp:
    """Forward, backward and SGD of an embedding, a norm, attention and classes: the weights after a step, and the loss."""
    model = _Model(apart, element)
    emit = model.emit
    ids, targets = model.ids("ids", BATCH, TOKENS), model.ids("targets", BATCH, TOKENS)
    x, table = model.rows(ids)
    scale, root_weight = model.weight(WIDTH), model.weight(WIDTH, WORDS)
    root = emit.rsqrt(emit.add(emit.mean(emit.multiply(x, x), **LAST), emit.like(1e-5, x)))
    normed = emit.multiply(x, root)
    y = emit.multiply(normed, scale)
    q = model.heads(y)
    mixed = model.attention(q, q, q, causal=True)
    flat = emit.reshape(model.joined(mixed), shape=[BATCH * TOKENS, WIDTH])
    scores, right = emit.matmul(flat, root_weight), emit.reshape(targets, shape=[-1])
    loss = emit.cross_entropy(scores, right)
    one = emit.like(1.0, x)
    d_scores = emit.cross_entropy_backward(one, scores, right)
    d_weight = emit.matmul(emit.permute_dims(flat, axes=[1, 0]), d_scores)
    d_flat = emit.matmul(d_scores, emit.permute_dims(root_weight, axes=[1, 0]))
    d_mixed = model.heads(emit.reshape(d_flat, shape=[BATCH, TOKENS, WIDTH]))
    dq, dk, dv = _attention_backward(model, d_mixed, q, mixed)
    dy = model.joined(emit.add(emit.add(dq, dk), dv))
    d_scale = emit.sum(emit.multiply(dy, normed), axes=[0, 1])
    dn = emit.multiply(dy, scale)
    inner = emit.multiply(emit.mean(emit.multiply(dn, normed), **LAST), normed)
    dx = emit.multiply(emit.subtract(dn, inner), root)
    d_table = emit.embedding_backward(dx, ids, rows=WORDS)
    pairs = ((table, d_table), (scale, d_scale), (root_weight, d_weight))
    rate = emit.like(0.1, x)
    return emit.finish([*(emit.subtract(w, emit.multiply(d, rate)) for w, d in pairs), loss])


def _attention_backward(model: _Model, grad: SSAValue, q: SSAValue, mixed: SSAValue) -> tuple[SSAValue, ...]:
    """The gradients of q, k and v, which are one value here, of causal attention."""
    emit = model.emit
    if not model.apart:
        logs = emit.scaled_dot_product_attention_logsumexp(q, q, is_causal=True)
        found = emit.all("scaled_dot_product_attention_backward", grad, q, q, q, mixed, logs, is_causal=True)
        return tuple(found)
    turned = emit.permute_dims(q, axes=[0, 1, 3, 2])
    scores = emit.multiply(emit.matmul(q, turned), emit.like(1 / sqrt(HEAD), q))
    seen = emit.dense(np.tril(np.ones((TOKENS, TOKENS), bool)))
    scores = emit.where(seen, scores, emit.like(-1e9, q))
    powers = emit.exp(emit.subtract(scores, emit.max(scores, **LAST)))
    weights = emit.divide(powers, emit.sum(powers, **LAST))
    dv = emit.matmul(emit.permute_dims(weights, axes=[0, 1, 3, 2]), grad)
    d_weights = emit.matmul(grad, turned)
    rows = emit.sum(emit.multiply(d_weights, weights), **LAST)
    d_scores = emit.multiply(weights, emit.subtract(d_weights, rows))
    d_scores = emit.multiply(d_scores, emit.like(1 / sqrt(HEAD), q))
    return emit.matmul(d_scores, q), emit.matmul(emit.permute_dims(d_scores, axes=[0, 1, 3, 2]), q), dv


MODELS: dict[str, Callable[[bool, DType], ModuleOp]] = {
    each.__name__: each for each in (llama, bert, gpt2, resnet_block, training_step)
}


def arguments_of(module: ModuleOp, seed: int = 0) -> list[Array]:
    """Small floats, and integers that name a row of every table."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    elements = [dtype(value) for value in function(module).body.block.args]
    for given, element in zip(random_arguments(module, seed), elements, strict=True):
        if given.dtype.kind in "iu":
            found.append(rng.integers(0, 2, given.shape).astype(given.dtype))
        elif is_narrow(given.dtype):  # of no arithmetic, where ml_dtypes is missing
            found.append(narrow(widen(given) / 2, element.name))
        else:
            found.append(given / 2)
    return found
