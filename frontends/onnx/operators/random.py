"""ONNX operators that draw random numbers; the generator is ours, so the numbers are others than those of another runtime."""

from __future__ import annotations

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, F32, I32, DType
from fuse_opt.frontends.builder import Emitter, extents
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler

RANDOM = frozenset(
    (
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)
"""Operators that are not evaluated when a model is imported."""


def _seed(n: Node, g: Emitter) -> int:
    """The node's own, or one that no other node of the model has."""
    return int(n.number("seed", len(g.block.ops) + 1))


@handler("Bernoulli")
def bernoulli(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    drawn = g.random_uniform(shape=extents(x), dtype=dtype(x), seed=_seed(n, g))
    return g.cast(g.less(drawn, x), n.element("dtype", dtype(x)))


@handler("Multinomial")
def multinomial(n: Node, g: Emitter) -> Results:
    """The largest log-probability plus Gumbel noise (Gumbel 1954)."""
    x = n.operand(0)
    batch, classes = extents(x)
    shape = [batch, n.integer("sample_size", 1), classes]
    drawn = g.random_uniform(shape=shape, dtype=dtype(x), seed=_seed(n, g))
    noise = g.negative(g.log(g.negative(g.log(drawn))))
    return g.astype(g.argmax(g.add(g.expand_dims(x, axis=1), noise), axis=2), dtype=n.element("dtype", I32))


@handler("RandomNormal", "RandomNormalLike")
def random_normal(n: Node, g: Emitter) -> Results:
    shape, element = _of(n)
    mean, scale = n.number("mean", 0.0), n.number("scale", 1.0)
    return g.random_normal(shape=shape, dtype=element, seed=_seed(n, g), mean=mean, std=scale)


@handler("RandomUniform", "RandomUniformLike")
def random_uniform(n: Node, g: Emitter) -> Results:
    shape, element = _of(n)
    low, high = n.number("low", 0.0), n.number("high", 1.0)
    return g.random_uniform(shape=shape, dtype=element, seed=_seed(n, g), low=low, high=high)


def _of(n: Node) -> tuple[list[int], DType]:
    if n.op_type.endswith("Like"):
        return list(extents(n.operand(0))), n.element("dtype", dtype(n.operand(0)))
    return n.integers("shape"), n.element("dtype", F32)


@handler("Dropout")
def dropout(n: Node, g: Emitter) -> Results:
    """The mask is that of `seed`, the same in every run."""
    x = n.operand(0)
    ratio = float(n.known(1).reshape(())) if n.has(1) else n.number("ratio", 0.5)
    training = bool(n.known(2).reshape(())) if n.has(2) else False
    if not training or ratio == 0:
        return [x, g.number(1, BOOL, extents(x))] if n.wants(1) else x
    drawn = g.random_uniform(shape=extents(x), dtype=dtype(x), seed=_seed(n, g))
    kept = g.greater_equal(drawn, g.like(ratio, drawn))
    return [g.dropout(x, kept, p=ratio), kept]
