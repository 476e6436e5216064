"""The primitives that are not rounded alike everywhere, on Python floats, within their documented bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

_ODD = ("sinh",)
"""What is too large for f64 has the sign of the operand."""


def _beyond(name: str, x: float, *rest: float) -> float:
    """What is too large for f64."""
    if name == "pow":
        return -math.inf if x < 0 and abs(math.fmod(rest[0], 2.0)) == 1 else math.inf
    return math.copysign(math.inf, x) if name in _ODD else math.inf


def _undefined(name: str, x: float, *rest: float) -> float:
    """The infinities where Python's functions raise; elsewhere it is NaN."""
    match name:
        case "log" | "log2" | "log10" if x == 0:
            return -math.inf
        case "log1p" if x == -1:
            return -math.inf
        case "atanh" if abs(x) == 1:
            return math.copysign(math.inf, x)
        case "lgamma":
            return math.inf
        case "pow" if x == 0:
            return _power_of_zero(x, *rest)
        case _:
            return math.nan


def _power_of_zero(x: float, y: float) -> float:
    return math.copysign(math.inf, x) if abs(math.fmod(y, 2.0)) == 1 else math.inf


def _reciprocal_root(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return 1.0 / math.sqrt(x)


def _floor_divided(x: float, y: float) -> float:
    """As NumPy does: (x - x % y) / y, made whole."""
    if y == 0:
        return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)
    rest = math.fmod(x, y)
    quotient = (x - rest) / y
    if rest and (y < 0) != (rest < 0):
        quotient -= 1.0
    if not quotient:
        return math.copysign(0.0, x / y)
    whole = math.floor(quotient) if math.isfinite(quotient) else quotient
    return float(whole + 1 if quotient - whole > 0.5 else whole)


_OWN: dict[str, Callable[..., float]] = {"rsqrt": _reciprocal_root, "floordiv": _floor_divided}


def approximation(name: str, args: Sequence[float]) -> float:
    """The value in f64; NaN of NaN, but where C says otherwise."""
    function = cast(Callable[..., float], _OWN.get(name) or getattr(math, name))
    try:
        return function(*args)
    except OverflowError:
        return _beyond(name, *args)
    except ValueError:
        return _undefined(name, *args)
