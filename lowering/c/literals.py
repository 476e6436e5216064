"""Constants as C literals that read back to the same value, bit for bit."""

from __future__ import annotations

import math
import struct
from functools import partial

import numpy as np

from fuse_opt.lowering.c.language import CLanguage
from fuse_opt.lowering.program.float_formats import NARROW, bit_patterns, narrow, widen

_LARGEST_INT = 2**31 - 1


def integer_literal(value: int, bits: int, type_name: str, language: CLanguage) -> str:
    """The value as a signed number of that width (an i1 as 0 or 1); suffixed where an int is too small."""
    if bits == 1:
        return str(value & 1)
    half = 1 << (bits - 1)
    value = (value + half) % (2 * half) - half
    template = "{text}" if abs(value) <= _LARGEST_INT else language.literals.get(type_name, "{text}")
    if value == -half and bits >= 32:  # C has no negative literals, and the positive one does not fit
        return f"({template.format(text=value + 1)} - 1)"
    return template.format(text=value)


def _as_f32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _as_f16(value: float) -> float:
    try:
        return struct.unpack("<e", struct.pack("<e", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _as(type_name: str, value: float) -> float:
    return float(widen(narrow(np.float64(value), type_name)))


_ROUND = {"f16": _as_f16, "f32": _as_f32, "f64": float, **{name: partial(_as, name) for name in NARROW}}


def _bits(value: float, type_name: str) -> int:
    """The bit pattern of a float of 16 or 8 bits."""
    if type_name == "f16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    return int(bit_patterns(narrow(np.float64(value), type_name))) if type_name in NARROW else 0


def _number(value: float, suffix: str) -> str:
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = repr(value)
    if suffix:
        texts = (f"{value:.{digits}g}" for digits in range(6, 10))
        text = next(text for text in texts if _as_f32(float(text)) == value)
    return f"{text if set(text) & set('.e') else text + '.0'}{suffix}"


def float_literal(value: float, type_name: str, language: CLanguage) -> str:
    """The value rounded to the type."""
    value = _ROUND[type_name](value)
    text = _number(value, "" if type_name == "f64" else "f")
    if type_name not in language.literals:
        return text
    return language.literals[type_name].format(text=text, bits=_bits(value, type_name))
