"""bf16 and the 8-bit floats in tests: values by enumeration of all bit patterns, by nothing of the project's.

Arrays of these types have the dtype of ml_dtypes where that is installed, else a structured one. A `Narrow` array of the
latter decodes itself to float64 where it is computed with, so that rows of the op table need not tell types apart.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LAYOUTS: dict[str, tuple[int, int, int]] = {"bf16": (16, 7, 127), "f8E4M3FN": (8, 3, 7), "f8E5M2": (8, 2, 15)}
"""By name: bits, bits of the mantissa, bias of the exponent."""
_ML_DTYPES = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}


def _dtype(name: str) -> np.dtype[Any]:
    if find_spec("ml_dtypes"):
        return np.dtype(getattr(import_module("ml_dtypes"), _ML_DTYPES[name]))
    return np.dtype([(name, f"V{LAYOUTS[name][0] // 8}")])


DTYPES: dict[str, np.dtype[Any]] = {name: _dtype(name) for name in LAYOUTS}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Narrow(np.ndarray[Any, Any]):
    """An array of a structured dtype; arithmetic and `astype` see its values as float64."""

    __array_priority__: Any = 10.0  # pyright: ignore  # concatenations are of this class, too

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        if np.dtype(dtype) == self.dtype or self.dtype not in _NAMES:
            return super().astype(dtype, *args, **kwargs)
        return decode(self).astype(dtype, *args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(decode(x)) if isinstance(x, Narrow) else decode(x) for x in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __eq__(self, other: Any) -> Any:
        return np.equal(decode(self), decode(other))

    def __ne__(self, other: Any) -> Any:
        return np.not_equal(decode(self), decode(other))


def name_of(dtype: np.dtype[Any]) -> str:
    """The element type of a narrow dtype, else NumPy's name."""
    return _NAMES.get(dtype, dtype.name)


def is_narrow(array: Any) -> bool:
    """Whether it is an array of bf16 or an 8-bit float."""
    return getattr(array, "dtype", None) in _NAMES


def bits_of(array: Array) -> Array:
    """The bit patterns, as unsigned integers."""
    plain = np.array(np.asarray(array), order="C")
    return plain.view(np.uint16 if plain.dtype.itemsize == 2 else np.uint8)


def from_bits(bits: Any, name: str) -> Array:
    """The array of these bit patterns."""
    unsigned = np.array(bits, np.uint16 if LAYOUTS[name][0] == 16 else np.uint8, order="C")
    array = unsigned.view(DTYPES[name])
    return array.view(Narrow) if array.dtype.names else array


def value_of(pattern: int, name: str) -> float:
    """The value of one bit pattern, by the definition of the format."""
    bits, mantissa, bias = LAYOUTS[name]
    sign = -1.0 if pattern >> (bits - 1) else 1.0
    exponent, fraction = pattern >> mantissa & (1 << (bits - 1 - mantissa)) - 1, pattern & (1 << mantissa) - 1
    last = (1 << (bits - 1 - mantissa)) - 1
    if name == "f8E4M3FN":
        if exponent == last and fraction == (1 << mantissa) - 1:
            return float("nan")
    elif exponent == last:
        return float("nan") if fraction else sign * float("inf")
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * ((1 << mantissa) + fraction) * 2.0 ** (exponent - bias - mantissa)


@cache
def _values(name: str) -> Array:
    return np.array([value_of(pattern, name) for pattern in range(1 << LAYOUTS[name][0])])


@cache
def _midpoints(name: str) -> tuple[Array, int]:
    """Halves between neighbouring magnitudes, by the pattern below; and the pattern of a quiet NaN.

    The last is between the largest finite value and the next that the format would have, whose pattern is that of
    infinity, or of NaN in f8E4M3FN.
    """
    values = _values(name)[: 1 << (LAYOUTS[name][0] - 1)]
    finite = values[np.isfinite(values)]
    following = np.append(finite[1:], 2 * finite[-1] - finite[-2])
    return (finite + following) / 2, len(values) - 1


def decode(array: Any) -> Any:
    """The values as float64; other than narrow arrays stay as they are."""
    if not is_narrow(array):
        return array
    return _values(_NAMES[array.dtype])[bits_of(np.asarray(array))]


def encode(value: Any, name: str) -> Array:
    """The nearest values of the type, halves to the even pattern, rounded once from float64."""
    with np.errstate(invalid="ignore"):
        wide = np.asarray(value, np.float64)
    middle, nan = _midpoints(name)
    magnitude = np.where(np.isnan(wide), 0, np.abs(wide))
    pattern = np.searchsorted(middle, magnitude, side="left")
    tie = np.append(middle, np.nan)[pattern] == magnitude
    pattern = pattern + (tie & (pattern % 2 == 1))
    pattern = np.where(np.isnan(wide), nan, pattern) | np.signbit(wide).astype(np.int64) << (LAYOUTS[name][0] - 1)
    return from_bits(pattern, name)


def spacing(value: Any, name: str) -> Any:
    """The unit in the last place at finite float64 values."""
    _, mantissa, bias = LAYOUTS[name]
    exponent = np.frexp(np.abs(value))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, 1 - bias) - mantissa)
