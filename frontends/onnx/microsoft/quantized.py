"""Operators of com.microsoft on bytes with scales: exact products of integers, and functions between two scales."""

from __future__ import annotations

import math
from collections.abc import Callable

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, I32
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.byte_products import byte_product
from fuse_opt.frontends.onnx.operators.node import HANDLERS, MICROSOFT, Node, Results, handler

MICROSOFT.update({name: HANDLERS[name] for name in ("QuantizeLinear", "DequantizeLinear")})


def _scalar(n: Node, g: Emitter, position: int) -> Value:
    """An operand, of rank 0 where it has one element."""
    value = n.operand(position)
    return g.reshaped(value, []) if math.prod(extents(value)) == 1 else value


def _read(n: Node, g: Emitter, x: int, scale: int, zero: int) -> Value:
    """The numbers that bytes stand for."""
    zeros = [_scalar(n, g, zero)] if n.has(zero) else []
    return g.dequantize_linear(n.operand(x), _scalar(n, g, scale), *zeros)


def _written(n: Node, g: Emitter, y: Value, scale: int, zero: int, like: int) -> Value:
    """Numbers as bytes; of the type of the operand `like` where there is no zero point."""
    zeros = _scalar(n, g, zero) if n.has(zero) else g.number(0, dtype(n.operand(like)))
    return g.quantize_linear(y, g.cast(_scalar(n, g, scale), dtype(y)), zeros)


def _of_two(name: str) -> Callable[[Node, Emitter], Results]:
    def build(n: Node, g: Emitter) -> Results:
        (y,) = g.all(name, _read(n, g, 0, 1, 2), _read(n, g, 3, 4, 5))
        return _written(n, g, y, 6, 7, 0)

    return build


MICROSOFT.update({"QLinearAdd": _of_two("add"), "QLinearMul": _of_two("multiply")})


@handler("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", table=MICROSOFT)
def qlinear_activation(n: Node, g: Emitter) -> Results:
    x = _read(n, g, 0, 1, 2)
    if n.op_type == "QLinearSigmoid":
        y = g.sigmoid(x)
    elif n.op_type == "QLinearLeakyRelu":
        y = g.leaky_relu(x, alpha=n.number("alpha", 0.01))
    else:
        axis = n.integer("axis", -1) % max(rank(x), 1)
        if n.integer("opset", 13) < 13 and axis != rank(x) - 1:
            raise n.refuse("softmax over several axes is not supported")
        y = g.softmax(x, axis=axis)
    return _written(n, g, y, 3, 4, 0)


@handler("QLinearGlobalAveragePool", table=MICROSOFT)
def qlinear_global_average_pool(n: Node, g: Emitter) -> Results:
    x = _read(n, g, 0, 1, 2)
    axes = range(1, rank(x) - 1) if n.flag("channels_last") else range(2, rank(x))
    return _written(n, g, g.mean(x, axes=list(axes), keepdims=True), 3, 4, 0)


@handler("QLinearConcat", table=MICROSOFT)
def qlinear_concat(n: Node, g: Emitter) -> Results:
    parts = [_read(n, g, k, k + 1, k + 2) for k in range(2, len(n.slots), 3)]
    return _written(n, g, g.concat(*parts, axis=n.integer("axis")), 0, 1, 2)


@handler("DynamicQuantizeMatMul", table=MICROSOFT)
def dynamic_quantize_matmul(n: Node, g: Emitter) -> Results:
    a, scale, zero = g.all("dynamic_quantize_linear", n.operand(0))
    y = byte_product(g, (a, n.operand(1)), [g.cast(zero, I32), _zero(n, g, 3)], n.is_known(1))
    return _scaled(n, g, y, g.multiply(scale, _scalar(n, g, 2)), 4)


@handler("MatMulIntegerToFloat", table=MICROSOFT)
def matmul_integer_to_float(n: Node, g: Emitter) -> Results:
    y = byte_product(g, (n.operand(0), n.operand(1)), [_zero(n, g, 4), _zero(n, g, 5)], n.is_known(1))
    return _scaled(n, g, y, g.multiply(_scalar(n, g, 2), _scalar(n, g, 3)), 6)


def _zero(n: Node, g: Emitter, position: int) -> Value | None:
    return g.cast(_scalar(n, g, position), I32) if n.has(position) else None


def _scaled(n: Node, g: Emitter, total: Value, scale: Value, bias: int) -> Value:
    y = g.multiply(g.cast(total, F32), scale)
    return g.add(y, n.operand(bias)) if n.has(bias) else y


@handler("QGemm", table=MICROSOFT)
def qgemm(n: Node, g: Emitter) -> Results:
    """An exact product of integers with a bias in i32, scaled once; floats where no scale of the result is given."""
    a, b = (_turned(g, n.operand(k), n.flag(name)) for k, name in ((0, "transA"), (3, "transB")))
    y = byte_product(g, (a, b), [_zero(n, g, 2), _zero(n, g, 5)], n.is_known(3))
    y = g.add(y, n.operand(6)) if n.has(6) else y
    scale = g.multiply(_scalar(n, g, 1), _scalar(n, g, 4))
    y = g.multiply(g.cast(y, F32), g.multiply(scale, g.like(n.number("alpha", 1.0), scale)))
    return _written(n, g, y, 7, 8, 0) if n.has(7) else y


def _turned(g: Emitter, x: Value, is_turned: bool) -> Value:
    return g.permute_dims(x, axes=[1, 0]) if is_turned else x
