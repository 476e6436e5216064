"""Floats that NumPy has no type for: bf16 and the 8-bit floats as arrays of bit patterns, converted exactly.

Their dtypes are those of ml_dtypes where that is installed, else structured ones of one field of raw bytes: no arithmetic,
no comparison and no conversion of NumPy's own takes the bits for numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format of 8 or 16 bits: a sign, an exponent, a mantissa."""

    name: str
    foreign: str
    """The name of ml_dtypes."""
    bits: int
    mantissa: int
    bias: int
    infinite: bool = True
    """Whether the largest exponent is that of infinities and NaN; else all ones are the only NaN."""

    @property
    def unsigned(self) -> np.dtype[Any]:
        """The unsigned integers of its width."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def overflow(self) -> int:
        """The pattern behind the largest finite number: that of infinity, or of NaN where there is none."""
        last = 1 << (self.bits - 1)
        return last - (1 << self.mantissa) if self.infinite else last - 1

    @property
    def quiet(self) -> int:
        """What makes a pattern at or beyond `overflow` a quiet NaN."""
        return 1 << (self.mantissa - 1)


FORMATS = (
    Format("bf16", "bfloat16", 16, 7, 127),
    Format("f8E4M3FN", "float8_e4m3fn", 8, 3, 7, infinite=False),
    Format("f8E5M2", "float8_e5m2", 8, 2, 15),
)


def _dtype(narrow: Format) -> np.dtype[Any]:
    try:
        return np.dtype(getattr(import_module("ml_dtypes"), narrow.foreign))
    except (ImportError, AttributeError):
        return np.dtype([(narrow.name, f"V{narrow.bits // 8}")])


NARROW: dict[str, np.dtype[Any]] = {narrow.name: _dtype(narrow) for narrow in FORMATS}
"""By element type: the dtype of its arrays."""
_BY_DTYPE = {NARROW[narrow.name]: narrow for narrow in FORMATS}


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of it hold floats that only `widen` reads."""
    return dtype in _BY_DTYPE


def bit_patterns(array: Array) -> Array:
    """The same memory as unsigned integers."""
    return np.asarray(array).view(_BY_DTYPE[array.dtype].unsigned)


def widen(array: Array) -> Array:
    """The values as f32, exact; NaN are quiet ones of the same sign."""
    narrow = _BY_DTYPE[array.dtype]
    u = bit_patterns(array).astype(np.uint32)
    sign, u = (u >> np.uint32(narrow.bits - 1)) << np.uint32(31), u & np.uint32((1 << (narrow.bits - 1)) - 1)
    if narrow.bias == 127:
        wide = u << np.uint32(16)
        return (sign | np.where(wide > 0x7F800000, wide | np.uint32(0x400000), wide)).view(np.float32)
    # With the exponent's field zero the mantissa counts units of the smallest number.
    shifted = (u << np.uint32(23 - narrow.mantissa)) + np.uint32((127 - narrow.bias) << 23)
    tiny = (u * np.float32(2.0 ** (1 - narrow.bias - narrow.mantissa))).astype(np.float32).view(np.uint32)
    wide = np.where(u < (1 << narrow.mantissa), tiny, shifted)
    beyond = np.uint32(0x7FC00000) if not narrow.infinite else np.where(u > narrow.overflow, 0x7FC00000, 0x7F800000)
    return (sign | np.where(u >= narrow.overflow, beyond, wide).astype(np.uint32)).view(np.float32)


def narrow(array: npt.ArrayLike, name: str) -> Array:
    """Numbers in the format, rounded once to nearest, halves to even, from any type of NumPy's that f64 holds exactly.

    What is too large becomes infinite, and NaN in a format without infinities; NaN stay NaN, quiet, with their sign.
    """
    target = next(found for found in FORMATS if found.name == name)
    values = np.asarray(array)
    if values.dtype in (np.dtype(np.float32), np.dtype(np.float16)):
        pattern = _rounded(values.astype(np.float32).view(np.uint32), target, 23, 127)
    else:
        pattern = _rounded(values.astype(np.float64).view(np.uint64), target, 52, 1023)
    return pattern.astype(target.unsigned).view(NARROW[name]).reshape(values.shape)


def _rounded(u: Array, target: Format, mantissa: int, bias: int) -> Array:
    """The patterns for those of a wider format; all shifts are of the wider one's unsigned integers."""
    kind: Callable[[int], Any] = u.dtype.type
    width = 8 * u.dtype.itemsize
    sign, u = u >> kind(width - 1), u & kind((1 << (width - 1)) - 1)
    special = u > kind(((1 << (width - 1 - mantissa)) - 1) << mantissa)
    exponent, fraction = (u >> kind(mantissa)).astype(np.int64) - bias, u & kind((1 << mantissa) - 1)
    significand = cast(Array, np.where(u >> kind(mantissa), fraction | kind(1 << mantissa), fraction + fraction))
    least = 1 - target.bias
    # Below the least exponent there are fewer digits; behind all of them only the half and less is left.
    dropped = mantissa - target.mantissa + np.maximum(least - exponent, 0)
    dropped = np.minimum(dropped, mantissa + 2).astype(u.dtype)
    half = kind(1) << (dropped - kind(1))
    odd: Array = (significand >> dropped) & kind(1)
    kept: Array = ((significand + half - kind(1) + odd) >> dropped).astype(np.int64)
    # A kept hidden bit, and a carry, count in the exponent.
    steps = np.maximum(exponent, least) + target.bias - 1
    pattern = np.minimum((steps << target.mantissa) + kept, target.overflow)
    pattern = np.where(special, target.overflow | target.quiet, pattern)
    return pattern | sign.astype(np.int64) << (target.bits - 1)


def computed(array: Array) -> Array:
    """The array in a type that NumPy computes with: f32 for bf16 and the 8-bit floats, else its own."""
    return widen(array) if is_narrow(array.dtype) else array


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """`array.astype(dtype)` for all element types, the array itself where it is of that type."""
    if array.dtype == dtype:
        return array
    values = computed(array)
    return narrow(values, _BY_DTYPE[dtype].name) if is_narrow(dtype) else values.astype(dtype, copy=False)


def assign(out: Array, value: Array) -> None:
    """`out[...] = value`, rounded to the type of `out`."""
    out[...] = converted(np.asarray(value), out.dtype)


def recognized(array: Array, dtype: np.dtype[Any]) -> Array:
    """The array as one of `dtype` where it is that in another guise: ml_dtypes' type, a structured one, or raw bytes.

    Raw bytes (`V1`, `V2`) are what NumPy makes of ml_dtypes' types in files.
    """
    found = _BY_DTYPE.get(dtype)
    if found is None or array.dtype == dtype or array.dtype.itemsize != dtype.itemsize:
        return array
    given = array.dtype
    raw = given.kind == "V" and given.names is None and given.name.startswith("void")
    return array.view(dtype) if raw or given.name == found.foreign or given.names == (found.name,) else array


def type_name(dtype: np.dtype[Any]) -> str:
    """The dtype in messages."""
    found = _BY_DTYPE.get(dtype)
    return str(dtype) if found is None else found.foreign


def by_values(run: Any) -> Any:
    """A routine `run(inputs, outputs, config)` on arrays of all element types, from one on NumPy's own."""

    def wrapped(inputs: Sequence[Array], outputs: Sequence[Array], config: Any) -> None:
        if not any(is_narrow(array.dtype) for array in (*inputs, *outputs)):
            run(inputs, outputs, config)
            return
        outs = [np.empty(out.shape, np.float32) if is_narrow(out.dtype) else out for out in outputs]
        run([computed(array) for array in inputs], outs, config)
        for out, value in zip(outputs, outs, strict=True):
            if value is not out:
                assign(out, value)

    return wrapped
