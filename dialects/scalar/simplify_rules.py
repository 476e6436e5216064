"""The rules of the algebra on scalar bodies: each gives something simpler for a node, its operands being simple, or None."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from fuse_opt.dialects.scalar.evaluate import NotKnown, Number, holds, known, primitive
from fuse_opt.dialects.scalar.expr import PRIMITIVES, Scalar, apply, constant
from fuse_opt.dialects.types.dtypes import BOOL, F32, DType, Kind

Rule: TypeAlias = Callable[[Scalar], Scalar | None]

ROUNDINGS = ("floor", "ceil", "trunc", "round")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def converts_alike(source: DType, middle: DType, target: DType) -> bool:
    """Whether a conversion by way of `middle` is the one from `source` to `target`, bit for bit."""
    if holds(middle, source):
        # Integers wrap where floats saturate.
        direct = source.is_float or not middle.is_float or target.is_float or target is BOOL
        return direct or holds(target, source)
    whole = all(dtype.kind in (Kind.INT, Kind.UINT) for dtype in (source, middle, target))
    return whole and target.bits <= middle.bits


def _number(node: Scalar) -> Number | None:
    return node.value if node.function == "constant" else None


def _is(node: Scalar, value: Number) -> bool:
    """Whether the node is that constant, of zeros the one with that sign."""
    if node.function != "constant" or node.value != value:
        return False
    return not node.dtype.is_float or math.copysign(1.0, node.value) == math.copysign(1.0, value)


def _inner(node: Scalar, name: str) -> Scalar | None:
    """What the primitive `name` is applied to, when the node is that."""
    return node.args[0] if node.function == name else None


def _folded(node: Scalar) -> Scalar | None:
    """A primitive on constants, where all backends give the same."""
    if any(arg.function != "constant" for arg in node.args):
        return None
    if node.dtype.is_float and PRIMITIVES[node.function].ulps > 0.5:
        return None
    try:
        value = primitive(node.function, [known(arg) for arg in node.args], node.args[0].dtype, node.dtype)
    except NotKnown:
        return None
    return constant(value, node.dtype)


def _limit(dtype: DType, largest: bool) -> Number:
    if dtype is BOOL:
        return largest
    if dtype.is_float:
        return math.inf if largest else -math.inf
    low = -(1 << dtype.bits - 1) if dtype.kind is Kind.INT else 0
    return low + (1 << dtype.bits) - 1 if largest else low


def _all_bits(dtype: DType) -> Number:
    return True if dtype is BOOL else -1 if dtype.kind is Kind.INT else (1 << dtype.bits) - 1


def _neutral(node: Scalar) -> Scalar | None:
    """An operand that the other one does not change, or the constant that it makes of everything."""
    if len(node.args) != 2:
        return None
    x, y = node.args
    dtype, real = x.dtype, x.dtype.is_float
    if x.function == "constant" and (
        (node.function in PRIMITIVES and PRIMITIVES[node.function].commutative) or node.function in ("max", "min")
    ):
        x, y = y, x
    match node.function:
        case "add" if _is(y, -0.0 if real else 0):
            return x
        case "sub" | "shl" | "shr" if _is(y, 0):
            return x
        case "mul" | "div" | "pow" if _is(y, 1):
            return x
        case "mul" | "div" if _is(y, -1):
            return apply("neg", x)
        case "mul" if not real and _is(y, 0):
            return y
        case "floordiv" | "truncdiv" if not real and _is(y, 1):
            return x
        case "rem" if not real and _is(y, 1):
            return constant(0, dtype)
        case "and" if _is(y, _all_bits(dtype)):
            return x
        case "or" | "xor" if _is(y, 0):
            return x
        case "xor" if _is(y, _all_bits(dtype)):
            return apply("not", x)
        case ("and" | "or") as name if _is(y, 0 if name == "and" else _all_bits(dtype)):
            return y
        case ("max" | "min") as name if _is(y, _limit(dtype, name == "min")):
            return x
        case ("max" | "min") as name if not real and _is(y, _limit(dtype, name == "max")):
            return y
        case _:
            return None


def _with_itself(node: Scalar) -> Scalar | None:
    """A primitive on one value twice; of floats NaN is not equal to itself."""
    if len(node.args) != 2 or node.args[0] is not node.args[1]:
        return None
    x, name = node.args[0], node.function
    if PRIMITIVES[name].idempotent:
        return x
    if name in ("lt", "gt"):
        return constant(False, BOOL)
    if x.dtype.is_float:
        return None
    if name in ("eq", "le", "ge", "ne"):
        return constant(name != "ne", BOOL)
    return constant(0, x.dtype) if name in ("sub", "xor") else None


def _negated(node: Scalar) -> Scalar | None:
    """Signs and truth values that are negated twice."""
    args = node.args
    if node.function in ("neg", "not") and (x := _inner(args[0], node.function)) is not None:
        return x
    match node.function:
        case "not" if args[0].function in _OPPOSITE:
            compared, name = args[0].args, args[0].function
            exact = name in ("eq", "ne") or not compared[0].dtype.is_float
            return apply(_OPPOSITE[name], *compared) if exact else None
        case "neg" if args[0].function == "sub" and not node.dtype.is_float:
            return apply("sub", *reversed(args[0].args))
        case "abs" if args[0].function == "abs" or node.dtype.kind is Kind.UINT:
            return args[0]
        case "abs" if (x := _inner(args[0], "neg")) is not None:
            return apply("abs", x)
        case "sub" if _is(args[0], -0.0 if node.dtype.is_float else 0):
            return apply("neg", args[1])
        case "sub" if (y := _inner(args[1], "neg")) is not None:
            return apply("add", args[0], y)
        case "add" if (y := _inner(args[1], "neg")) is not None:
            return apply("sub", args[0], y)
        case "add" if (x := _inner(args[0], "neg")) is not None:
            return apply("sub", args[1], x)
        case _:
            return None


def _chosen(node: Scalar) -> Scalar | None:
    """A choice that is known, or that is the condition itself."""
    if node.function != "select":
        return None
    condition, x, y = node.args
    if condition.function == "constant":
        return x if condition.value else y
    if x is y:
        return x
    if (inverse := _inner(condition, "not")) is not None:
        return Scalar("select", (inverse, y, x), node.dtype)
    if node.dtype is BOOL and _is(x, True) and _is(y, False):
        return condition
    return apply("not", condition) if node.dtype is BOOL and _is(x, False) and _is(y, True) else None


def _cast(node: Scalar) -> Scalar | None:
    """Conversions to the same type, and by way of a type that changes nothing."""
    if node.function != "cast":
        return None
    (x,) = node.args
    if x.dtype is node.dtype:
        return x
    if (source := _inner(x, "cast")) is not None and converts_alike(source.dtype, x.dtype, node.dtype):
        return Scalar("cast", (source,), node.dtype)
    return None


def _bitcast(node: Scalar) -> Scalar | None:
    """Bits read as they are, or by way of another type; narrow floats know one NaN only."""
    if node.function != "bitcast" or (source := _inner(node.args[0], "bitcast")) is None:
        return None
    middle = node.args[0].dtype
    if middle.compute is not middle or middle.storage_only:
        return None
    return source if source.dtype is node.dtype else Scalar("bitcast", (source,), node.dtype)


def _rounded_twice(node: Scalar) -> Scalar | None:
    """Rounding of what is whole already."""
    if node.function not in ROUNDINGS:
        return None
    source = _inner(node.args[0], "cast")
    whole = node.args[0].function in ROUNDINGS or (source is not None and not source.dtype.is_float)
    return node.args[0] if whole else None


def _power(node: Scalar) -> Scalar | None:
    """Powers that are rounded once: of exponents 0, 2 and -1, and of 1."""
    if node.function != "pow":
        return None
    x, y = node.args
    if _number(y) == 0 or _is(x, 1):
        return constant(1, node.dtype)
    if _is(y, 2):
        return apply("mul", x, x)
    return apply("div", 1, x) if _is(y, -1) else None


def _divided(node: Scalar) -> Scalar | None:
    """Division by a power of two, whose reciprocal is exact."""
    if node.function != "div" or (value := _number(node.args[1])) is None or not math.isfinite(value) or value == 0:
        return None
    fraction, exponent = math.frexp(value)
    if abs(fraction) != 0.5 or abs(exponent) > (120 if node.dtype is F32 else 1000):
        return None
    return apply("mul", node.args[0], 1.0 / value)


def _fused(node: Scalar) -> Scalar | None:
    """x * y + z where a step is none."""
    if node.function != "fma":
        return None
    x, y, z = node.args
    if _is(x, 1) or _is(y, 1):
        return apply("add", y if _is(x, 1) else x, z)
    return apply("mul", x, y) if _is(z, -0.0) else None


def _reassociated(node: Scalar) -> Scalar | None:
    """(x + c) + d = x + (c + d) and the like, of integers."""
    whole = ("add", "mul", "and", "or", "xor")
    return None if node.dtype.is_float or node.function not in whole else _joined_constants(node)


def _joined_constants(node: Scalar) -> Scalar | None:
    name = node.function
    first, second = node.args if node.args[1].function == "constant" else reversed(node.args)
    if second.function != "constant" or first.function != name:
        return None
    x, c = first.args if first.args[1].function == "constant" else reversed(first.args)
    if c.function != "constant" or x.function == "constant":
        return None
    return apply(name, x, apply(name, c, second))


def _fast_neutral(node: Scalar) -> Scalar | None:
    """As if there were no NaN, no infinity and one zero."""
    if not node.dtype.is_float or len(node.args) != 2:
        return None
    x, y = node.args
    match node.function:
        case "add" | "sub" if _number(y) == 0:
            return x
        case "add" if _number(x) == 0:
            return y
        case "sub" if _number(x) == 0:
            return apply("neg", y)
        case "sub" if x is y:
            return constant(0, node.dtype)
        case "mul" if 0 in (_number(x), _number(y)):
            return constant(0, node.dtype)
        case "div" if x is y:
            return constant(1, node.dtype)
        case _:
            return None


def _fast_division(node: Scalar) -> Scalar | None:
    """Products in place of quotients."""
    if node.function != "div":
        return None
    x, y = node.args
    if (root := _inner(y, "sqrt")) is not None:
        return apply("rsqrt", root) if _is(x, 1) else apply("mul", x, apply("rsqrt", root))
    value = _number(y)
    if value is None or value == 0 or not math.isfinite(value):
        return None
    limit = 126 if node.dtype is F32 else 1020
    return apply("mul", x, 1.0 / value) if abs(math.frexp(value)[1]) < limit else None


def _fast_power(node: Scalar) -> Scalar | None:
    if node.function != "pow" or node.args[1].function != "constant":
        return None
    name = {0.5: "sqrt", -0.5: "rsqrt"}.get(float(node.args[1].value))
    return None if name is None else apply(name, node.args[0])


def _fast_reassociated(node: Scalar) -> Scalar | None:
    """(x * c) * d and (x + c) + d, with `sub` read as the sum that it is."""
    if not node.dtype.is_float or node.function not in ("add", "sub", "mul"):
        return None
    if node.function == "sub" and node.args[1].function == "constant":
        inner = node.args[0]
        sums = inner.function in ("add", "sub") and any(arg.function == "constant" for arg in inner.args)
        return apply("add", inner, apply("neg", node.args[1])) if sums else None
    if node.function == "add" and node.args[0].function == "sub" and node.args[1].function == "constant":
        x, c = node.args[0].args
        if c.function == "constant":
            return apply("add", x, apply("sub", node.args[1], c))
        return apply("sub", apply("add", x, node.args[1]), c) if x.function == "constant" else None
    return _joined_constants(node) if node.function != "sub" else None


EXACT: tuple[Rule, ...] = (
    _folded,
    _neutral,
    _with_itself,
    _negated,
    _chosen,
    _cast,
    _bitcast,
    _rounded_twice,
    _power,
    _divided,
    _fused,
    _reassociated,
)
FAST: tuple[Rule, ...] = (_fast_neutral, _fast_division, _fast_power, _fast_reassociated)
