"""Scalar bodies on Python numbers, with the bits that every backend gives.

Floats are Python's, rounded to the type after every primitive: f64 has more than twice the digits of f32, so that sums,
products, quotients and roots of f32 are rounded correctly by way of it; `fma` and integers go by way of fractions.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from fuse_opt.dialects.scalar.bits import Number, packed, unpacked
from fuse_opt.dialects.scalar.expr import PRIMITIVES, Scalar, topological
from fuse_opt.dialects.scalar.special_functions import approximation
from fuse_opt.dialects.types.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, DType, Kind


class NotKnown(Exception):
    """The value is not the same on every backend, or not worth its time: it stays to be computed."""


# The digits of the significand with the hidden one, the least exponent of a digit, and the largest number.
_FORMATS: dict[DType, tuple[int, int, float]] = {
    F64: (53, -1074, math.ldexp(2.0 - 2.0**-52, 1023)),
    F32: (24, -149, math.ldexp(2.0 - 2.0**-23, 127)),
    F16: (11, -24, 65504.0),
    BF16: (8, -133, math.ldexp(2.0 - 2.0**-7, 127)),
    F8E4M3: (4, -9, 448.0),
    F8E5M2: (3, -16, 57344.0),
}


def rounded(value: float, dtype: DType) -> float:
    """The nearest number of a float type, halves to even; infinity, or NaN where there is none, for what is too large."""
    digits, least, largest = _FORMATS[dtype]
    if dtype is F64 or value != value or value == 0:
        return value
    if abs(value) < 2 * largest:
        unit = max(math.frexp(value)[1] - digits, least)
        nearest = math.copysign(math.ldexp(round(math.ldexp(value, -unit)), unit), value)
        if abs(nearest) <= largest:
            return nearest
    return math.nan if dtype is F8E4M3 else math.copysign(math.inf, value)


def holds(outer: DType, inner: DType) -> bool:
    """Whether every value of `inner` is one of `outer`."""
    if outer is inner or inner is BOOL:
        return True
    if outer is BOOL:
        return False
    if inner.is_float != outer.is_float:
        return outer.is_float and inner.bits - (inner.kind is Kind.INT) <= _FORMATS[outer][0] and outer is not F8E4M3
    if inner.is_float:
        (digits, least, largest), (d, low, high) = _FORMATS[outer], _FORMATS[inner]
        return digits >= d and least <= low and largest >= high
    if inner.kind is Kind.INT:
        return outer.kind is Kind.INT and outer.bits >= inner.bits
    return outer.bits > inner.bits or (outer.kind is Kind.UINT and outer.bits == inner.bits)


def wrapped(value: int, dtype: DType) -> int:
    """An integer modulo the type's width."""
    span = 1 << dtype.bits
    value %= span
    return value - span if dtype.kind is Kind.INT and value >= span // 2 else value


def converted(value: Number, dtype: DType) -> Number:
    """A number as one of another type, as `cast` means it; of a float type, rounded once."""
    if dtype is BOOL:
        return value != 0
    if dtype.is_float:
        return rounded(value, dtype) if isinstance(value, float) else _rounded_exactly(Fraction(value), dtype)
    if not isinstance(value, float):
        return wrapped(int(value), dtype)
    low = -(1 << dtype.bits - 1) if dtype.kind is Kind.INT else 0
    high = low + (1 << dtype.bits) - 1
    if math.isfinite(value):
        return min(max(math.trunc(value), low), high)
    return 0 if value != value else high if value > 0 else low


def _rounded_exactly(value: Fraction, dtype: DType) -> float:
    """By way of f64 rounded to odd, which hides nothing from the second rounding."""
    try:
        near = float(value)
    except OverflowError:
        return rounded(math.inf if value > 0 else -math.inf, dtype)
    exact = Fraction(near)
    if dtype is not F64 and exact != value and not struct.unpack("<Q", struct.pack("<d", near))[0] & 1:
        near = math.nextafter(near, math.inf if value > exact else -math.inf)
    return rounded(near, dtype)


def _fma(x: float, y: float, z: float, dtype: DType) -> float:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact:
        return _rounded_exactly(exact, dtype)
    return 0.0 if x and y else x * y + z


def _divided(x: float, y: float) -> float:
    if y:
        return x / y
    return math.nan if x != x or x == 0 else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _fmod(x: float, y: float) -> float:
    return math.nan if x != x or y != y or math.isinf(x) or y == 0 else math.fmod(x, y)


def _remainder(x: float, y: float) -> float:
    rest = _fmod(x, y)
    if rest == 0:
        return math.copysign(0.0, y)
    return rest + y if (y < 0) != (rest < 0) else rest


def _extreme(chosen: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def call(x: float, y: float) -> float:
        if x != x or y != y:
            return math.nan
        if x == y == 0 and math.copysign(1.0, x) != math.copysign(1.0, y):
            raise NotKnown("of two zeros either is the larger")
        return chosen(x, y)

    return call


def _copysign(x: float, y: float) -> float:
    if y != y:
        raise NotKnown("the sign of a NaN")
    return math.copysign(x, y)


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function of rounding: what has no fraction stays, and so does the sign of zero."""
    return lambda x: x if not math.isfinite(x) else math.copysign(float(function(x)), x)


def _root(x: float) -> float:
    return math.sqrt(x) if x >= 0 else x if x == 0 else math.nan


_ONE_FLOAT: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": _root,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
}
_TWO_FLOATS: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divided,
    "rem": _remainder,
    "max": _extreme(max),
    "min": _extreme(min),
    "fmod": _fmod,
    "copysign": _copysign,
}


def _shifted_left(x: int, count: int, bits: int) -> int:
    return x << count if 0 <= count < bits else 0


def _shifted_right(x: int, count: int, bits: int) -> int:
    return x >> count if 0 <= count < bits else -(x < 0)


_ONE_WHOLE: dict[str, Callable[[int], int]] = {"neg": operator.neg, "abs": abs, "not": operator.invert}
_TWO_WHOLES: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda x, y: x // y if y else 0,
    "truncdiv": lambda x, y: (abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)) if y else 0,
    "rem": lambda x, y: x % y if y else 0,
    "max": max,
    "min": min,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}

_COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def primitive(name: str, args: Sequence[Number], operand: DType, dtype: DType, approximate: bool = False) -> Number:
    """A scalar primitive on numbers of type `operand`; raises NotKnown where backends may differ."""
    if name == "select":
        return args[1] if args[0] else args[2]
    if name == "cast":
        return converted(args[0], dtype)
    if name == "bitcast":
        return _bitcast(args[0], operand, dtype)
    if name in _COMPARISONS:
        return _COMPARISONS[name](args[0], args[1])
    if dtype.is_float:
        return _float_word(name, [float(a) for a in args], dtype, approximate)
    if operand is BOOL and name == "not":
        return not args[0]
    value = _whole_word(name, [int(a) for a in args], dtype.bits)
    return bool(value) if operand is BOOL else wrapped(value, dtype)


def _bitcast(value: Number, source: DType, target: DType) -> Number:
    (found,) = unpacked(packed([value], source), target)
    if value != value or found != found:
        raise NotKnown("the bits of a NaN")
    return found


def _whole_word(name: str, args: Sequence[int], bits: int) -> int:
    if name in ("shl", "shr"):
        shift = _shifted_left if name == "shl" else _shifted_right
        return shift(args[0], args[1], bits)
    return _ONE_WHOLE[name](args[0]) if len(args) == 1 else _TWO_WHOLES[name](args[0], args[1])


def _float_word(name: str, args: Sequence[float], dtype: DType, approximate: bool) -> float:
    if name == "fma":
        return _fma(args[0], args[1], args[2], dtype)
    if (one := _ONE_FLOAT.get(name)) is not None:
        return rounded(one(args[0]), dtype)
    if (two := _TWO_FLOATS.get(name)) is not None:
        return rounded(two(args[0], args[1]), dtype)
    if not approximate:
        raise NotKnown(f"'{name}' is not rounded alike everywhere")
    return rounded(approximation(name, args), dtype)


@cache
def is_exact(body: Scalar) -> bool:
    """Whether every primitive of a body gives the same bits on every backend, but for what `NotKnown` says."""
    primitives = [node for node in topological(body) if node.args]
    return all(not node.dtype.is_float or PRIMITIVES[node.function].ulps <= 0.5 for node in primitives)


def known(node: Scalar) -> Number:
    """The number that a constant is in its type."""
    value = node.value
    return value if node.dtype is F64 and isinstance(value, float) else converted(value, node.dtype)


class Evaluator:
    """A body, ready to be evaluated at many elements."""

    def __init__(self, body: Scalar, approximate: bool = False) -> None:
        if not approximate and not is_exact(body):
            raise NotKnown("a word is not rounded alike everywhere")
        self._nodes = topological(body)
        self._places = {id(node): place for place, node in enumerate(self._nodes)}
        self._approximate = approximate

    def __call__(self, operands: Sequence[Number], axes: Sequence[int] = ()) -> Number:
        """The value for operands, in their compute types, at a position; raises NotKnown."""
        values: list[Number] = []
        for node in self._nodes:
            match node.function:
                case "operand":
                    values.append(operands[int(node.value)])
                case "constant":
                    values.append(known(node))
                case "size":
                    raise NotKnown("a size")
                case "index":
                    values.append(converted(axes[int(node.value)], node.dtype))
                case name:
                    args = [values[self._places[id(arg)]] for arg in node.args]
                    values.append(primitive(name, args, node.args[0].dtype, node.dtype, self._approximate))
        return values[-1]
