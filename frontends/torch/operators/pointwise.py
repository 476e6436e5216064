"""Records of pointwise calls: arithmetic, functions, comparisons, choices, activations and conversions.

Operands are promoted as PyTorch does: to the result's type in arithmetic, to the common type in comparisons. Where that is
a narrow float, numbers stay f32, and the result is rounded once.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import BOOL, DType
from fuse_opt.frontends.torch.fx.handler import Call, ImpossibleCallError, NotCoveredError, handlers

POINTWISE, handler = handlers()


def _named(call: Call, name: str) -> Any:
    return getattr(call.emit, name)


_UNARY: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("abs", "floor", "ceil", "trunc", "relu", "sigmoid", "silu", "mish", "exp")},
    **{name: (name,) for name in ("exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos")},
    **{name: (name,) for name in ("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{name: (name,) for name in ("erf", "erfc", "lgamma", "reciprocal", "bitwise_not", "round", "sinc")},
    "negative": ("neg",),
    "hard_swish": ("hardswish",),
}
"""By graph op: overloads `default` of one operand, converted to the result's type before."""


def _unary(name: str) -> None:
    def build(call: Call) -> SSAValue:
        return call.result(_named(call, name)(call.tensor("self", call.dtype)))

    handler(*(f"aten.{torch_name}.default" for torch_name in _UNARY[name]))(build)


for _name in _UNARY:
    _unary(_name)


_BINARY: dict[str, tuple[str, ...]] = {
    "multiply": ("mul.Tensor", "mul.Scalar"),
    "divide": ("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar"),
    "remainder": ("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"),
    "fmod": ("fmod.Tensor", "fmod.Scalar"),
    "maximum": ("maximum.default",),
    "minimum": ("minimum.default",),
    "fmax": ("fmax.default",),
    "fmin": ("fmin.default",),
    "atan2": ("atan2.default",),
    "hypot": ("hypot.default",),
    "copysign": ("copysign.Tensor", "copysign.Scalar"),
    "bitwise_and": ("bitwise_and.Tensor", "bitwise_and.Scalar"),
    "bitwise_or": ("bitwise_or.Tensor", "bitwise_or.Scalar"),
    "bitwise_xor": ("bitwise_xor.Tensor", "bitwise_xor.Scalar"),
}
"""By graph op: overloads of `self` and `other`, both converted to the type in which the result is computed."""


_OF_TRUTH = {"multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}
"""By graph op: what it is of truth values."""


def _binary(name: str) -> None:
    def build(call: Call) -> SSAValue:
        element = call.compute()
        if element is BOOL and name in _OF_TRUTH:
            return _named(call, _OF_TRUTH[name])(call.operand("self", element), call.operand("other", element))
        if name in ("remainder", "fmod"):
            _refuse_whole_division(call, element)
        x, y = call.operand("self", element), call.operand("other", element)
        found = _named(call, name)(x, y)
        if name == "remainder" and element.is_float:  # a zero has the sign of x, not that of y as NumPy's
            zero = call.emit.equal(found, call.number(0, element))
            found = call.emit.where(zero, call.emit.copysign(found, x), found)
        return call.result(found)

    handler(*(f"aten.{torch_name}" for torch_name in _BINARY[name]))(build)


for _name in _BINARY:
    _binary(_name)


def _refuse_whole_division(call: Call, element: DType) -> None:
    if not element.is_float and not (isinstance(call["other"], int) and call["other"]):
        raise NotCoveredError("raises where an integer is divided by zero")


_COMPARISONS = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}


def _comparison(name: str, torch_name: str) -> None:
    def build(call: Call) -> SSAValue:
        element = call.common("self", "other")
        given = call["other"]
        if not element.is_float and isinstance(given, int) and not _fits(given, element):
            raise NotCoveredError(f"compares {element} with {given}, which it cannot hold")
        return _named(call, name)(call.operand("self", element), call.operand("other", element))

    handler(f"aten.{torch_name}.Tensor", f"aten.{torch_name}.Scalar")(build)


def _fits(value: int, element: DType) -> bool:
    low = 0 if element is BOOL or element.name.startswith("u") else -(2 ** (element.bits - 1))
    return low <= value < low + 2**element.bits


for _name, _torch_name in _COMPARISONS.items():
    _comparison(_name, _torch_name)


def _logical(name: str) -> None:
    def build(call: Call) -> SSAValue:
        names = ("self", "other") if "other" in call.arguments else ("self",)
        return _named(call, name)(*(call.tensor(n, BOOL) for n in names))

    handler(f"aten.{name}.default")(build)


for _name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
    _logical(_name)


@handler("aten.add.Tensor", "aten.add.Scalar")
def _add(call: Call) -> SSAValue:
    element = call.compute()
    a, b = call.operand("self", element), _scaled(call, element)
    return call.result(call.emit.logical_or(a, b) if element is BOOL else call.emit.add(a, b))


@handler("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(call: Call) -> SSAValue:
    element = call.compute()
    if element is BOOL:  # functionalisation writes it
        raise ImpossibleCallError("Subtraction of two tensors of truth values")
    return call.result(call.emit.subtract(call.operand("self", element), _scaled(call, element)))


@handler("aten.rsub.Tensor", "aten.rsub.Scalar")
def _rsub(call: Call) -> SSAValue:
    element = call.compute()
    scaled = call.operand("self", element)
    if (alpha := call["alpha"]) != 1:
        scaled = call.emit.multiply(scaled, call.number(alpha, element))
    return call.result(call.emit.subtract(call.operand("other", element), scaled))


def _scaled(call: Call, element: DType) -> SSAValue:
    """`other` times `alpha`."""
    other, alpha = call.operand("other", element), call["alpha"]
    if element is BOOL and alpha != 1:
        raise NotCoveredError("scales truth values")
    return other if alpha == 1 else call.emit.multiply(other, call.number(alpha, element))


@handler("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _divide_to_whole(call: Call) -> SSAValue:
    element, mode = call.compute(), call["rounding_mode"]
    a, b = call.operand("self", element), call.operand("other", element)
    if mode is None:
        return call.result(call.emit.divide(a, b))
    _refuse_whole_division(call, element)
    if mode == "floor":
        return call.result(call.emit.floor_divide(a, b))
    if element.is_float:
        return call.result(call.emit.trunc(call.emit.divide(a, b)))
    return call.result(call.emit.truncate_divide(a, b))


@handler("aten.pow.Tensor_Scalar")
def _pow_number(call: Call) -> SSAValue:
    element, exponent, emit = call.compute(), call["exponent"], call.emit
    x = call.operand("self", element)
    if exponent == 2:
        return call.result(emit.square(x))
    if exponent == 3:
        return call.result(emit.multiply(emit.square(x), x))
    if element.is_float and exponent in (0.5, -0.5, -1, -2):
        found = {0.5: emit.sqrt, -0.5: emit.rsqrt, -1: emit.reciprocal, -2: emit.reciprocal}[exponent]
        return call.result(found(emit.square(x) if exponent == -2 else x))
    if not element.is_float and exponent < 0:
        raise NotCoveredError("raises for a negative power of integers")
    return call.result(emit.pow(x, call.number(exponent, element)))


@handler("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(call: Call) -> SSAValue:
    element = call.compute()
    if not element.is_float:
        raise NotCoveredError("is a power of integers, which may raise")
    return call.result(call.emit.pow(call.operand("self", element), call.operand("exponent", element)))


@handler(
    "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar", "aten.__lshift__.Scalar",
    "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar", "aten.__rshift__.Scalar",
)  # fmt: skip
def _shift(call: Call) -> SSAValue:
    is_left = "left" in str(call.node.target) or "lshift" in str(call.node.target)
    shift = call.emit.bitwise_left_shift if is_left else call.emit.bitwise_right_shift
    return shift(call.operand("self", call.dtype), call.operand("other", call.dtype))


@handler("aten.sign.default")
def _sign(call: Call) -> SSAValue:
    """Of NaN it is 0, where NumPy's is NaN."""
    x = call.tensor("self", call.dtype)
    sign = call.emit.sign(x)
    if call.dtype.is_float:
        sign = call.emit.where(call.emit.isnan(x), call.number(0, call.dtype), sign)
    return call.result(sign)


@handler("aten.isnan.default", "aten.isinf.default")
def _test(call: Call) -> SSAValue:
    x = call.tensor("self")
    return call.emit.isnan(x) if "isnan" in str(call.node.target) else call.emit.isinf(x)


@handler("aten.round.decimals")
def _round_decimals(call: Call) -> SSAValue:
    element, decimals, emit = call.compute(), call["decimals"], call.emit
    x, scale = call.operand("self", element), call.number(10.0 ** abs(decimals), element)
    if not element.is_float:
        raise NotCoveredError("rounds integers")
    there, back = (emit.multiply, emit.divide) if decimals >= 0 else (emit.divide, emit.multiply)
    return call.result(back(emit.round(there(x, scale)), scale))


@handler("aten.where.self")
def _where(call: Call) -> SSAValue:
    x, y = call.operand("self", call.dtype), call.operand("other", call.dtype)
    return call.emit.where(call.tensor("condition", BOOL), x, y)


@handler("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(call: Call) -> SSAValue:
    x, value = call.tensor("self", call.dtype), call.operand("value", call.dtype)
    return call.emit.where(call.tensor("mask", BOOL), value, x)


@handler("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.clamp_max.default")
def _clamp(call: Call) -> SSAValue:
    element = call.compute()
    x = call.operand("self", element)
    if call.has("min"):
        x = call.emit.maximum(x, call.operand("min", element))
    if call.has("max"):
        x = call.emit.minimum(x, call.operand("max", element))
    return call.result(x)


@handler("aten.hardtanh.default")
def _hardtanh(call: Call) -> SSAValue:
    element = call.compute()
    low = call.emit.maximum(call.operand("self", element), call.operand("min_val", element))
    return call.result(call.emit.minimum(low, call.operand("max_val", element)))


@handler("aten.addcmul.default", "aten.addcdiv.default")
def _addc(call: Call) -> SSAValue:
    element, emit = call.compute(), call.emit
    x, a, b = (call.operand(name, element) for name in ("self", "tensor1", "tensor2"))
    scaled = a if call["value"] == 1 else emit.multiply(call.number(call["value"], element), a)
    joined = emit.multiply(scaled, b) if "mul" in str(call.node.target) else emit.divide(scaled, b)
    return call.result(emit.add(x, joined))


@handler("prims.fma.default")
def _fma(call: Call) -> SSAValue:
    """Which PyTorch's decompositions of optimisers call."""
    element = call.compute()
    if not element.is_float:
        raise NotCoveredError("rounds once only of floats")
    return call.result(call.emit.fma(*(call.operand(name, element) for name in ("a", "b", "c"))))


@handler("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(call: Call) -> SSAValue:
    element = call.compute()
    return call.result(call.emit.lerp(*(call.operand(name, element) for name in ("self", "end", "weight"))))


@handler("aten.gelu.default")
def _gelu(call: Call) -> SSAValue:
    return call.emit.gelu(call.tensor("self"), approximate=call["approximate"])


@handler("aten.gelu_backward.default")
def _gelu_backward(call: Call) -> SSAValue:
    element = call.compute()
    grad, x = call.tensor("grad_output", element), call.tensor("self", element)
    return call.result(call.emit.gelu_backward(grad, x, approximate=call["approximate"]))


@handler("aten.leaky_relu.default")
def _leaky_relu(call: Call) -> SSAValue:
    return call.emit.leaky_relu(call.tensor("self"), alpha=float(call["negative_slope"]))


@handler("aten.elu.default")
def _elu(call: Call) -> SSAValue:
    element, emit = call.compute(), call.emit
    x, scale = call.operand("self", element), call.number(call["scale"], element)
    exponent = emit.multiply(x, call.number(call["input_scale"], element))
    low = emit.multiply(emit.expm1(exponent), call.number(call["alpha"] * call["scale"], element))
    return call.result(emit.where(emit.greater(x, call.number(0, element)), emit.multiply(x, scale), low))


@handler("aten._to_copy.default", "prims.convert_element_type.default")
def _convert(call: Call) -> SSAValue:
    name = "self" if "self" in call.arguments else "a"
    if call.out.device != call.meta(name).device:
        raise NotCoveredError("moves to another device")
    return call.tensor(name, call.dtype)


@handler("aten.copy.default")
def _copy(call: Call) -> SSAValue:
    source = call.tensor("src", call.dtype)
    return call.emit.broadcast_to(source, shape=list(call.shape))
