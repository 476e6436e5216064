"""Rows of comparisons, logic and bits."""

from __future__ import annotations

from graph_op_table import (
    Row,
    binary,
    comparison,
    unary,
)

ROWS: list[Row] = [
    comparison("equal", lambda x, y: x == y),
    comparison("not_equal", lambda x, y: x != y),
    comparison("less", lambda x, y: x < y),
    comparison("less_equal", lambda x, y: x <= y),
    comparison("greater", lambda x, y: x > y),
    comparison("greater_equal", lambda x, y: x >= y),
    binary("logical_and", ints=lambda x, y: x & y, bools=lambda x, y: x and y),
    binary("logical_or", ints=lambda x, y: x | y, bools=lambda x, y: x or y),
    binary("logical_xor", ints=lambda x, y: x ^ y, bools=lambda x, y: x != y),
    unary("logical_not", ints=lambda x: -x - 1, bools=lambda x: not x),
]
