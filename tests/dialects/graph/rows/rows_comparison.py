"""Rows of comparisons, tests, logic and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_op_table import (
    Row,
    binary,
    comparison,
    unary,
)


def _false(x: Any) -> bool:
    return False


def _true(x: Any) -> bool:
    return True


def _shifted_left(x: int, count: int) -> int:
    return x << count if 0 <= count < 64 else 0


def _shifted_right(x: int, count: int) -> int:
    return x >> (count if 0 <= count < 64 else 64)


ROWS: list[Row] = [
    comparison("equal", lambda x, y: x == y),
    comparison("not_equal", lambda x, y: x != y),
    comparison("less", lambda x, y: x < y),
    comparison("less_equal", lambda x, y: x <= y),
    comparison("greater", lambda x, y: x > y),
    comparison("greater_equal", lambda x, y: x >= y),
    unary("isnan", floats=np.isnan, ints=_false, bools=_false, gives_bool=True),
    unary("isinf", floats=np.isinf, ints=_false, bools=_false, gives_bool=True),
    unary("isfinite", floats=np.isfinite, ints=_true, bools=_true, gives_bool=True),
    binary("logical_and", bools=lambda x, y: x and y),
    binary("logical_or", bools=lambda x, y: x or y),
    binary("logical_xor", bools=lambda x, y: x != y),
    unary("logical_not", bools=lambda x: not x),
    binary("bitwise_and", ints=lambda x, y: x & y, bools=lambda x, y: x and y),
    binary("bitwise_or", ints=lambda x, y: x | y, bools=lambda x, y: x or y),
    binary("bitwise_xor", ints=lambda x, y: x ^ y, bools=lambda x, y: x != y),
    unary("bitwise_not", ints=lambda x: -x - 1, bools=lambda x: not x),
    binary("bitwise_left_shift", ints=_shifted_left),
    binary("bitwise_right_shift", ints=_shifted_right),
]
