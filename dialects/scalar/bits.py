"""Numbers as the bytes of an element type, and back."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache
from typing import cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr

from fuse_opt.dialects.types.dtypes import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    dtype_of,
)

Number = int | float | bool

_CODES = {
    **{I8: "b", I16: "h", I32: "i", I64: "q", U8: "B", U16: "H", U32: "I", U64: "Q", BOOL: "B"},
    **{F16: "e", F32: "f", F64: "d", BF16: "H"},
}
_TINY = {F8E4M3: (3, 7), F8E5M2: (2, 15)}
"""Digits of the mantissa, and the bias."""


@cache
def _tiny_values(dtype: DType) -> tuple[float, ...]:
    """The number of each pattern of an 8-bit float."""
    mantissa, bias = _TINY[dtype]
    found: list[float] = []
    for pattern in range(128):
        exponent, fraction = pattern >> mantissa, pattern & ((1 << mantissa) - 1)
        hidden = 1 << mantissa if exponent else 0
        found.append(math.ldexp(hidden | fraction, max(exponent, 1) - bias - mantissa))
    if dtype is F8E4M3:
        found[127] = math.nan
    else:
        found[124:] = [math.inf, math.nan, math.nan, math.nan]
    return (*found, *(-value for value in found))


@cache
def _tiny_patterns(dtype: DType) -> dict[float, int]:
    return {value: pattern for pattern, value in enumerate(_tiny_values(dtype)[:128]) if value == value}


def elements(attribute: DenseIntOrFPElementsAttr) -> list[Number]:
    """The elements of a constant in row-major order, exact."""
    element = dtype_of(attribute.get_element_type())
    assert element is not None
    return unpacked(attribute.data.data, element)


def unpacked(data: bytes, element: DType) -> list[Number]:
    """The numbers that a type's elements are."""
    if element in _TINY:
        values = _tiny_values(element)
        return [values[pattern] for pattern in data]
    found = struct.unpack(f"<{len(data) // element.itemsize}{_CODES[element]}", data)
    if element is BF16:
        return list(struct.unpack(f"<{len(found)}f", b"".join(struct.pack("<I", bits << 16) for bits in found)))
    return [value != 0 for value in found] if element is BOOL else cast(list[Number], list(found))


def packed(values: Sequence[Number], dtype: DType) -> bytes:
    """Numbers of a type as its elements; every NaN becomes the quiet one."""
    if dtype in _TINY:
        return bytes(_tiny_pattern(float(value), dtype) for value in values)
    if dtype is BF16:
        wide = struct.pack(f"<{len(values)}f", *(_quiet(value) for value in values))
        return b"".join(wide[at + 2 : at + 4] for at in range(0, len(wide), 4))
    if dtype.is_float:
        return struct.pack(f"<{len(values)}{_CODES[dtype]}", *(_quiet(value) for value in values))
    if dtype is BOOL:
        return bytes(255 if value else 0 for value in values)  # as xDSL writes them
    return struct.pack(f"<{len(values)}{_CODES[dtype]}", *(int(value) for value in values))


def _quiet(value: Number) -> float:
    return math.nan if value != value else float(value)


def _tiny_pattern(value: float, dtype: DType) -> int:
    if value != value:
        return 0x7F if dtype is F8E4M3 else 0x7E
    return _tiny_patterns(dtype)[abs(value)] | (128 if math.copysign(1.0, value) < 0 else 0)
