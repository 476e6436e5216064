"""ONNX operators that reduce axes, normalise over them, and losses."""

from __future__ import annotations

import math
from typing import Any

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, F32, F64, I64, Kind
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.node import HANDLERS, Handler, Node, Results, handler

OF_FLOATS = {"mean", "norm2", "logsumexp", "log_sum"}
"""Reductions whose handlers refuse integers."""


def _axes(n: Node) -> dict[str, Any]:
    axes = n.axes() or ([] if n.flag("noop_with_empty_axes") else None)
    return {"axes": axes, "keepdims": n.flag("keepdims", True)}


def _reduction(name: str) -> Handler:
    def build(n: Node, g: Emitter) -> Results:
        x, axes = n.operand(0), _axes(n)
        element = dtype(x)
        if name in ("max", "min") and element is BOOL:
            return g.all("any" if name == "max" else "all", x, **axes)
        if name in ("max", "min") and axes["axes"] != [] and 0 in extents(x):
            return _empty(g, x, name, axes)
        if axes["axes"] == [] and name in ("max", "min", "sum", "prod", "mean"):
            return x
        if element.is_float or name not in OF_FLOATS:
            return _reduced(g, name, x, axes)
        if name == "mean":
            counted = math.prod(extents(x)) // max(math.prod(extents(g.sum(x, **axes))), 1)
            return g.quotient(g.sum(x, **axes), g.like(counted, x))
        return g.cast(_reduced(g, name, g.cast(x, F64), axes), element)

    return build


def _reduced(g: Emitter, name: str, x: Value, axes: dict[str, Any]) -> Value:
    return g.log(g.sum(x, **axes)) if name == "log_sum" else g.all(name, x, **axes)[0]


def _empty(g: Emitter, x: Value, name: str, axes: dict[str, Any]) -> Value:
    """A reduction of no elements: the neutral value in the shape that a sum has."""
    element, shape = dtype(x), extents(g.sum(x, **axes))
    if element.is_float:
        neutral = math.inf
        value = -neutral if name == "max" else neutral
    elif element.kind is Kind.UINT:
        value = 0 if name == "max" else 2**element.bits - 1
    else:
        value = -(2 ** (element.bits - 1)) if name == "max" else 2 ** (element.bits - 1) - 1
    return g.number(value, element, shape)


HANDLERS.update(
    {
        f"Reduce{operator}": _reduction(name)
        for operator, name in {
            "L1": "norm1",
            "L2": "norm2",
            "LogSum": "log_sum",
            "LogSumExp": "logsumexp",
            "Max": "max",
            "Mean": "mean",
            "Min": "min",
            "Prod": "prod",
            "Sum": "sum",
            "SumSquare": "sum_squares",
        }.items()
    }
)


@handler("BatchNormalization")
def batch_normalization(n: Node, g: Emitter) -> Results:
    x, *parameters = n.operands()
    element, epsilon = dtype(x), n.number("epsilon", 1e-5)
    scale, bias, mean, variance = (g.cast(parameter, element) for parameter in parameters)
    if not n.flag("training_mode"):
        return g.batch_norm(x, scale, bias, mean, variance, epsilon=epsilon)
    y, batch_mean, batch_variance = g.all("batch_norm_training", x, scale, bias, epsilon=epsilon)
    momentum = n.number("momentum", 0.9)

    def running(old: Value, new: Value) -> Value:
        return g.add(g.multiply(old, g.like(momentum, old)), g.multiply(new, g.like(1 - momentum, new)))

    kept = dtype(parameters[2])
    return [y, g.cast(running(mean, batch_mean), kept), g.cast(running(variance, batch_variance), kept)]


@handler("InstanceNormalization")
def instance_normalization(n: Node, g: Emitter) -> Results:
    return g.instance_norm(*n.operands(), epsilon=n.number("epsilon", 1e-5))


@handler("GroupNormalization")
def group_normalization(n: Node, g: Emitter) -> Results:
    x, *parameters = n.operands()
    groups, channels = n.integer("num_groups"), extents(x)[1]
    if n.opset < 21:  # one scale and bias for each group
        parameters = [g.repeat(parameter, repeats=channels // groups, axis=0) for parameter in parameters]
    return g.group_norm(x, *parameters, num_groups=groups, epsilon=n.number("epsilon", 1e-5))


@handler("LayerNormalization")
def layer_normalization(n: Node, g: Emitter) -> Results:
    x, axis, epsilon = n.operand(0), n.integer("axis", -1), n.number("epsilon", 1e-5)
    results = [_normalized(n, g, "layer_norm")]
    if n.wants(1) or n.wants(2):
        axes = list(range(axis % rank(x), rank(x)))
        stashed = g.cast(x, n.element("stash_type", F32))
        variance, mean = g.all("var_mean", stashed, axes=axes, keepdims=True)
        results += [mean, g.rsqrt(g.add(variance, g.like(epsilon, variance)))]
    return results


@handler("RMSNormalization")
def rms_normalization(n: Node, g: Emitter) -> Results:
    return _normalized(n, g, "rms_norm")


def _normalized(n: Node, g: Emitter, name: str) -> Value:
    """With scale and bias of the extents that are normalised, or what broadcasts to these or, from behind, to all of x."""
    x, *parameters = n.operands()
    axis = n.integer("axis", -1) % rank(x)
    numbers, inner = {"axis": axis, "epsilon": n.number("epsilon", 1e-5)}, extents(x)[axis:]
    if all(rank(parameter) <= len(inner) for parameter in parameters):
        whole = [p if extents(p) == inner else g.broadcast_to(p, shape=inner) for p in parameters]
        return g.all(name, x, *whole, **numbers)[0]
    (y,) = g.all(name, x, g.number(1, dtype(x), inner), **numbers)
    for step, parameter in zip((g.multiply, g.add), parameters, strict=False):
        y = step(y, parameter)
    return y


@handler("LpNormalization")
def lp_normalization(n: Node, g: Emitter) -> Results:
    return g.lp_normalize(n.operand(0), axis=n.integer("axis", -1), p=n.integer("p", 2))


@handler("LRN")
def local_response_normalization(n: Node, g: Emitter) -> Results:
    numbers = {"alpha": n.number("alpha", 1e-4), "beta": n.number("beta", 0.75), "bias": n.number("bias", 1.0)}
    return g.local_response_norm(n.operand(0), size=n.integer("size"), **numbers)


@handler("MeanVarianceNormalization")
def mean_variance_normalization(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    variance, mean = g.all("var_mean", x, axes=n.integers("axes", (0, 2, 3)), keepdims=True)
    return g.divide(g.subtract(x, mean), g.add(g.sqrt(variance), g.like(1e-9, variance)))


@handler("Softmax", "LogSoftmax", "Hardmax")
def softmax(n: Node, g: Emitter) -> Results:
    """Before opset 13 over all axes from `axis` on."""
    x = n.operand(0)
    if n.opset >= 13:
        return _softmax(n.op_type, g, x, n.integer("axis", -1))
    axis, shape = n.integer("axis", 1) % max(rank(x), 1), extents(x)
    flat = g.reshaped(x, [math.prod(shape[:axis]), math.prod(shape[axis:])])
    return g.reshaped(_softmax(n.op_type, g, flat, 1), shape)


def _softmax(operator: str, g: Emitter, x: Value, axis: int) -> Value:
    match operator:
        case "Softmax":
            return g.softmax(x, axis=axis)
        case "LogSoftmax":
            return g.log_softmax(x, axis=axis)
        case _:
            return g.one_hot(g.argmax(x, axis=axis), depth=extents(x)[axis], axis=axis, dtype=dtype(x))


@handler("NegativeLogLikelihoodLoss")
def negative_log_likelihood(n: Node, g: Emitter) -> Results:
    return g.nll_loss(*_classes(n, g), ignore_index=_ignored(n), reduction=n.text("reduction", "mean"))


@handler("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(n: Node, g: Emitter) -> Results:
    x, *others = _classes(n, g)
    loss = g.cross_entropy(x, *others, ignore_index=_ignored(n), reduction=n.text("reduction", "mean"))
    return [loss, g.log_softmax(x, axis=1)] if n.wants(1) else loss


def _classes(n: Node, g: Emitter) -> list[Value]:
    x, target, *weight = n.operands()
    return [x, target if dtype(target).bits >= 32 else g.cast(target, I64), *weight]


def _ignored(n: Node) -> int | None:
    return n.attributes.get("ignore_index")
