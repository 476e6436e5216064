"""Activations of com.microsoft, with the bias that onnxruntime's optimiser puts into them."""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.node import MICROSOFT, Node, Results, handler


def _with_bias(n: Node, g: Emitter) -> Value:
    x, *bias = n.operands()
    return g.add(x, bias[0]) if bias else x


@handler("Gelu", "BiasGelu", table=MICROSOFT)
def gelu(n: Node, g: Emitter) -> Results:
    return g.gelu(_with_bias(n, g))


@handler("FastGelu", table=MICROSOFT)
def fast_gelu(n: Node, g: Emitter) -> Results:
    return g.gelu(_with_bias(n, g), approximate="tanh")


@handler("QuickGelu", table=MICROSOFT)
def quick_gelu(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    return g.multiply(x, g.sigmoid(g.multiply(x, g.like(n.number("alpha", 1.702), x))))


@handler("BiasSplitGelu", table=MICROSOFT)
def bias_split_gelu(n: Node, g: Emitter) -> Results:
    left, right = _halves(g, _with_bias(n, g))
    return g.multiply(left, g.gelu(right))


def _halves(g: Emitter, x: Value) -> list[Value]:
    half = extents(x)[-1] // 2
    return g.all("split", x, sizes=[half, extents(x)[-1] - half], axis=rank(x) - 1)


@handler("BiasAdd", table=MICROSOFT)
def bias_add(n: Node, g: Emitter) -> Results:
    return g.add(_with_bias(n, g), n.operand(2))


@handler("BiasSoftmax", table=MICROSOFT)
def bias_softmax(n: Node, g: Emitter) -> Results:
    """Over all axes from `axis` on; the bias broadcasts as in the Add that it comes from."""
    x = n.operand(0)
    axis, shape = n.integer("axis", 1) % max(rank(x), 1), extents(x)
    y = g.add(x, n.operand(1))
    if axis == rank(x) - 1:
        return g.softmax(y, axis=axis)
    flat = g.reshape(y, shape=[*shape[:axis], -1])
    return g.reshape(g.softmax(flat, axis=axis), shape=list(shape))


def activated(n: Node, g: Emitter, x: Value, name: str, numbers: Sequence[float]) -> Value:
    """A value with the activation that a fused node names, and its numbers in ONNX's order."""
    match name, list(numbers):
        case "", _:
            return x
        case (("Relu" | "Sigmoid" | "Tanh" | "Softplus" | "Softsign" as plain), _):
            return getattr(g, plain.lower())(x)
        case "Clip", [low, high, *_]:
            return g.clip(x, g.like(low, x), g.like(high, x))
        case "LeakyRelu", given:
            return g.leaky_relu(x, alpha=given[0] if given else 0.01)
        case "Elu", given:
            return g.elu(x, alpha=given[0] if given else 1.0)
        case "HardSigmoid", given:
            alpha, beta = (*given, *(0.2, 0.5)[len(given) :])[:2]
            return g.hard_sigmoid(x, alpha=alpha, beta=beta)
        case _:
            raise n.refuse(f"the activation {name} with numbers {list(numbers)} is not supported")
