"""Differences of arrays, in units of the last place of their own type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fuse_opt.lowering.program.float_formats import FORMATS, NARROW, computed

Array = npt.NDArray[Any]

_NARROW_DIGITS = {NARROW[f.name]: (f.mantissa, 1 - f.bias) for f in FORMATS}


def digits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Of a float type: bits behind the binary point, and the exponent of the smallest normal number."""
    if (found := _NARROW_DIGITS.get(dtype)) is not None:
        return found
    info = np.finfo(dtype)
    return int(info.nmant), int(info.minexp)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is a float type, those that NumPy does not know included."""
    return dtype in _NARROW_DIGITS or dtype.kind == "f"


def wide(array: Array) -> Array:
    """The numbers of any float type, in f64."""
    return np.asarray(computed(array), np.float64)


def units(values: Array, dtype: np.dtype[Any]) -> Array:
    """At each of these numbers, the distance of two neighbours of a type; 0 at infinities and NaN."""
    mantissa, least = digits(dtype)
    magnitude = np.abs(values)
    _, exponent = np.frexp(np.where(np.isfinite(magnitude) & (magnitude > 0), magnitude, 1.0))
    found = np.ldexp(1.0, np.maximum(np.where(magnitude > 0, exponent - 1, least), least) - mantissa)
    return np.where(np.isfinite(magnitude), found, 0.0)


def distances(got: Array, expected: Array) -> Array:
    """
    How far elements are apart, in f64: NaN from NaN and an infinity from itself 0, from anything else infinity; of other types
    than floats 0 where they are equal, else infinity.
    """
    if not is_float(expected.dtype):
        return np.where(got == expected, 0.0, np.inf)
    a, b = wide(got), wide(expected)
    with np.errstate(all="ignore"):
        gap = np.abs(a - b)
        if np.isfinite(gap).all():
            return np.asarray(gap)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))


def ulps(gap: Array, expected: Array) -> Array:
    """Distances in units of the last place of the type of what was expected; of other types than floats as they are."""
    if not is_float(expected.dtype):
        return gap
    at = units(wide(expected), expected.dtype)
    with np.errstate(all="ignore"):
        return np.where(gap == 0, 0.0, np.where(at > 0, gap / np.where(at > 0, at, 1.0), np.inf))
