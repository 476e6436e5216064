"""Scalar bodies on NumPy arrays: the reference meaning of every scalar primitive."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fuse_opt.dialects.scalar import Scalar, topological
from fuse_opt.dialects.types.dtypes import BOOL, DTYPES, DType
from fuse_opt.lowering.program.float_formats import NARROW, converted, is_narrow
from fuse_opt.lowering.reference.special_functions import erfc, fma, lgamma

Array = npt.NDArray[Any]

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    dtype: NARROW[dtype.name] if dtype.name in NARROW else np.dtype(dtype.numpy_name) for dtype in DTYPES
}
"""Arrays of each element type; those of `narrow_floats` are read and made by its functions only."""


@cache
def most_axes() -> int:
    """How many axes an array of NumPy may have: 64, or 32 before NumPy 2."""
    for count in itertools.count(32):
        try:
            np.empty((1,) * (count + 1))
        except ValueError:
            return count
    raise AssertionError


def convert(x: Array, target: DType) -> Array:
    """Conversion with one defined result: floats to integers truncate, saturate, and take NaN to 0."""
    dtype = NUMPY_DTYPES[target]
    if target is BOOL:
        return x != 0
    if is_narrow(dtype) or is_narrow(x.dtype):
        return converted(x, dtype)
    if target.is_float or x.dtype.kind != "f":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    whole = np.trunc(x.astype(np.float64))
    above, below = whole >= float(limits.max) + 1.0, whole < limits.min
    inside = np.where(np.isnan(whole) | above | below, 0, whole).astype(dtype)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(dtype)


@cache
def _erf_table() -> tuple[Array, float]:
    """Taylor coefficients of erf about the points k / 64 of [0, 6]; order 7 leaves less than one unit in the last place."""
    step = 1.0 / 64.0
    nodes = np.arange(0, 6 * 64 + 1) * step
    rows = [np.array([math.erf(node) for node in nodes])]
    # The derivatives of exp(-x^2) follow h(n+1) = -2 x h(n) - 2 n h(n-1).
    previous, current = np.zeros_like(nodes), 2.0 / math.sqrt(math.pi) * np.exp(-nodes * nodes)
    for order in range(1, 8):
        rows.append(current / math.factorial(order))
        previous, current = current, -2.0 * nodes * current - 2.0 * (order - 1) * previous
    return np.stack(rows), step


def erf(x: Array) -> Array:
    """The error function, within 2 units in the last place of float64."""
    table, step = _erf_table()
    magnitude = np.minimum(np.abs(x.astype(np.float64)), 6.0)
    node = np.where(np.isnan(magnitude), 0, np.rint(magnitude / step)).astype(np.int64)
    distance = magnitude - node * step
    value = table[-1][node]
    for row in table[-2::-1]:
        value = value * distance + row[node]
    return np.copysign(value, x).astype(x.dtype)


def _reciprocal_sqrt(x: Array) -> Array:
    return (1.0 / np.sqrt(x)).astype(x.dtype)


def power(x: Array, y: Array) -> Array:
    """x ** y, rounded correctly where y is 2, 1 or -1."""
    value = np.power(x, y)
    if np.ndim(y) == 0 and abs(y) not in (1, 2):
        return value
    value = np.where(y == 2, x * x, np.where(y == 1, x, value))
    return np.where(y == -1, np.true_divide(x.dtype.type(1), x), value)


def truncated_quotient(x: Array, y: Array) -> Array:
    """x / y, rounded towards zero: the floored quotient, and 1 more where that lies below."""
    floored = np.floor_divide(x, y)
    is_below = (np.not_equal(np.remainder(x, y), 0)) & (np.less(x, 0) != np.less(y, 0))
    return floored + np.asarray(is_below).astype(floored.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "truncdiv": truncated_quotient,
    "rem": np.remainder,
    "max": np.maximum,
    "min": np.minimum,
    "fmod": np.fmod,
    "pow": power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "fma": fma,
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "lgamma": lgamma,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_sqrt,
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "erfc": erfc,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "select": np.where,
}


def evaluate_body(body: Scalar, operands: Sequence[Array], axes: Sequence[Array]) -> Array:
    """The value of a scalar body over arrays of one shape up to broadcasting; `axes` are the result's positions."""
    values: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for node in topological(body):
            dtype = NUMPY_DTYPES[node.dtype]
            match node.function:
                case "operand":
                    value = operands[int(node.value)]
                case "constant":
                    value = np.asarray(node.value).astype(dtype)
                case "size":
                    raise ValueError(f"size '{node.value}' has no number; give the function arguments of known extents")
                case "index":
                    value = axes[int(node.value)].astype(dtype)
                case "cast":
                    value = convert(values[id(node.args[0])], node.dtype)
                case "bitcast":
                    value = values[id(node.args[0])].view(dtype)
                case name:
                    value = np.asarray(FUNCTIONS[name](*(values[id(arg)] for arg in node.args)))
            values[id(node)] = value
    return values[id(body)]


REDUCERS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def reduce(combine: str, x: Array, axes: tuple[int, ...], initial: int | float | bool) -> Array:
    """Joins `x` over trailing axes; sums and products of floats accumulate in float64, then round once."""
    wide = combine in ("add", "mul") and x.dtype.kind == "f"
    accumulator = np.dtype(np.float64) if wide else x.dtype
    with np.errstate(all="ignore"):
        start = np.asarray(initial).astype(accumulator)
        joined = REDUCERS[combine].reduce(x, axis=axes, dtype=accumulator, initial=start[()])
        return np.asarray(joined).astype(x.dtype)
