"""Rows of the functions of one float."""

from __future__ import annotations

import math

import numpy as np
from graph_op_table import (
    Array,
    Row,
    unary,
)


def _rounded_to_even(x: Array) -> Array:
    even: Array = 2 * np.floor(x / 2 + 0.5)
    near: Array = np.floor(x + 0.5)
    return np.where(np.abs(x % 1) == 0.5, even, near)


_erf = np.vectorize(math.erf, otypes=[np.float64])


ROWS: list[Row] = [
    unary("sqrt", floats=np.sqrt, signed_zeros=True),
    unary("rsqrt", floats=lambda x: 1 / np.sqrt(x)),
    unary("exp", floats=np.exp),
    unary("expm1", floats=np.expm1),
    unary("log", floats=np.log),
    unary("log1p", floats=np.log1p),
    unary("sin", floats=np.sin),
    unary("cos", floats=np.cos),
    unary("tanh", floats=np.tanh),
    unary("erf", floats=_erf),
    unary("floor", floats=np.floor, signed_zeros=True),
    unary("ceil", floats=np.ceil, signed_zeros=True),
    unary("trunc", floats=np.trunc, signed_zeros=True),
    unary("round", floats=_rounded_to_even),
]
