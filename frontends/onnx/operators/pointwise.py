"""ONNX operators that work on each element: arithmetic, functions, activations, comparisons, bits, conversion."""

from __future__ import annotations

from collections.abc import Mapping

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F8E4M3, F8E5M2, F32, F64, DType
from fuse_opt.frontends.builder import Emitter, Value, element_type, extents, rank
from fuse_opt.frontends.onnx.operators.node import HANDLERS, Handler, Node, Results, element_of, handler

SAME = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "And": "logical_and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Equal": "equal",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "HardSwish": "hard_swish",
    "IsNaN": "isnan",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Log": "log",
    "Mish": "mish",
    "Mul": "multiply",
    "Neg": "negative",
    "Not": "logical_not",
    "Or": "logical_or",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Sub": "subtract",
    "Tan": "tan",
    "Tanh": "tanh",
    "Where": "where",
    "Xor": "logical_xor",
}
"""Operators that are one record of the same operands."""

PARAMETERS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Shrink": ("shrink", {"lambd": 0.5, "bias": 0.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}
"""Operators that are one record with the same numbers as attributes, and ONNX's defaults."""

LARGEST = {F8E4M3: 448.0, F8E5M2: 57344.0}


def _same(name: str) -> Handler:
    def build(n: Node, g: Emitter) -> Results:
        if n.opset < 7 and "axis" in n.attributes:
            return getattr(g, name)(*_along_axis(n, g))
        return getattr(g, name)(*n.operands())

    return build


def _along_axis(n: Node, g: Emitter) -> list[Value]:
    """Operands of opsets before 7, whose second one lies along the axes from `axis` on."""
    x, y = n.operands()
    axis = n.integer("axis") % max(rank(x), 1)
    return [x, g.reshaped(y, [*extents(y), *[1] * (rank(x) - axis - rank(y))])]


def _parametrized(name: str, defaults: Mapping[str, float]) -> Handler:
    return lambda n, g: getattr(g, name)(n.operand(0), **{key: n.number(key, value) for key, value in defaults.items()})


HANDLERS.update({operator: _same(name) for operator, name in SAME.items()})
HANDLERS.update({operator: _parametrized(*parameters) for operator, parameters in PARAMETERS.items()})


@handler("PRelu")
def prelu(n: Node, g: Emitter) -> Results:
    """Before opset 7 a slope of several elements is one for each channel."""
    x, slope = n.operand(0), n.operand(1)
    if n.opset < 7 and rank(slope) == 1:
        slope = g.reshape(slope, shape=[-1] + [1] * (rank(x) - 2))
    return g.prelu(x, slope)


@handler("BitCast")
def bit_cast(n: Node, g: Emitter) -> Results:
    return g.bitcast(n.operand(0), dtype=n.element("to", dtype(n.operand(0))))


@handler("Identity")
def identity(n: Node, g: Emitter) -> Results:
    return n.operand(0)


@handler("Gelu")
def gelu(n: Node, g: Emitter) -> Results:
    return g.gelu(n.operand(0), approximate=n.text("approximate", "none"))


@handler("Swish")
def swish(n: Node, g: Emitter) -> Value:
    x, alpha = n.operand(0), n.number("alpha", 1.0)
    if alpha == 1.0:
        return g.silu(x)
    return g.multiply(x, g.sigmoid(g.multiply(x, g.like(alpha, x))))


@handler("SwiGLU")
def swiglu(n: Node, g: Emitter) -> Results:
    return g.multiply(swish(n, g), n.operand(1))


@handler("Div")
def div(n: Node, g: Emitter) -> Results:
    x, y = _along_axis(n, g) if n.opset < 7 and "axis" in n.attributes else n.operands()
    return g.quotient(x, y)


@handler("Mod")
def mod(n: Node, g: Emitter) -> Results:
    return g.fmod(*n.operands()) if n.flag("fmod") else g.remainder(*n.operands())


@handler("Pow")
def power(n: Node, g: Emitter) -> Results:
    x, y = n.operand(0), n.operand(1)
    if dtype(x) is dtype(y):
        return g.pow(x, y)
    if dtype(x).is_float:
        return g.pow(x, g.cast(y, dtype(x)))
    return g.cast(g.pow(g.cast(x, F64), g.cast(y, F64)), dtype(x))


def chain(n: Node, g: Emitter, name: str) -> Value:
    """All operands joined by an op of two."""
    first, *others = n.operands()
    for other in others:
        (first,) = g.all(name, first, other)
    return first


@handler("Max")
def maximum(n: Node, g: Emitter) -> Results:
    return chain(n, g, "maximum")


@handler("Min")
def minimum(n: Node, g: Emitter) -> Results:
    return chain(n, g, "minimum")


@handler("Sum")
def total(n: Node, g: Emitter) -> Results:
    return chain(n, g, "add")


@handler("Mean")
def mean(n: Node, g: Emitter) -> Results:
    joined = chain(n, g, "add")
    return g.divide(joined, g.like(len(n.operands()), joined))


@handler("BitShift")
def bit_shift(n: Node, g: Emitter) -> Results:
    left = n.text("direction") == "LEFT"
    return g.bitwise_left_shift(*n.operands()) if left else g.bitwise_right_shift(*n.operands())


@handler("IsInf")
def is_inf(n: Node, g: Emitter) -> Results:
    x, positive, negative = n.operand(0), n.flag("detect_positive", True), n.flag("detect_negative", True)
    if not dtype(x).is_float or not (positive or negative):
        return g.not_equal(x, x) if not dtype(x).is_float else g.logical_and(g.isinf(x), g.isnan(x))
    if positive and negative:
        return g.isinf(x)
    return g.logical_and(g.isinf(x), (g.greater if positive else g.less)(x, g.like(0, x)))


@handler("Clip")
def clip(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    low, high = (
        n.operand(position) if n.has(position) else g.like(n.number(name, 0.0), x) if name in n.attributes else None
        for position, name in ((1, "min"), (2, "max"))
    )
    if low is not None and high is not None:
        return g.clip(x, low, high)
    if low is not None:
        return g.maximum(x, low)
    return x if high is None else g.minimum(x, high)


@handler("Cast")
def cast(n: Node, g: Emitter) -> Results:
    return _converted(g, n.operand(0), element_of(n.integer("to")), n.flag("saturate", True))


@handler("CastLike")
def cast_like(n: Node, g: Emitter) -> Results:
    like = n.slots[1]
    known = like.array if like is not None else None
    target = dtype(n.operand(1)) if known is None else element_type(known.dtype.name)
    return _converted(g, n.operand(0), target, n.flag("saturate", True))


def _converted(g: Emitter, x: Value, target: DType, saturate: bool) -> Value:
    if target in LARGEST and saturate:
        if not dtype(x).is_float or dtype(x).bits < 16:
            x = g.astype(x, dtype=F32)
        x = g.clip(x, g.like(-LARGEST[target], x), g.like(LARGEST[target], x))
    return g.cast(x, target)
