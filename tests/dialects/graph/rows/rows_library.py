"""Rows of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import (
    FLOATS,
    INTEGERS,
    Case,
    Row,
    noise,
    ramp,
    rounded,
    wide,
    wrapped,
)

MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (6, 4, 2)),
    ((1, 1), (1, 1)),
    ((3, 0), (0, 2)),
    ((0, 4), (4, 2)),
    ((2, 0, 4), (4, 3)),
]


TRANSPOSED = [
    ((4, 3), (4, 5), True, False),
    ((3, 4), (5, 4), False, True),
    ((2, 4, 3), (5, 4), True, True),
    ((2, 1, 3, 4), (6, 2, 4), False, True),
    ((4, 3), (4,), True, False),
    ((4,), (2, 5, 4), False, True),
    ((1, 1), (1, 1), True, True),
    ((0, 3), (2, 0), True, True),
    ((4, 0), (4, 2), True, False),
]


def _transposed_cases() -> Iterator[Case]:
    """The products of the operands with their last axes swapped by hand."""
    for name, (a, b, left, right) in product([*FLOATS, *INTEGERS], TRANSPOSED):
        x, y = (noise(name, *a), noise(name, *b)) if name in FLOATS else (ramp(name, *a), ramp(name, *b))
        given = [wide(z) if name in FLOATS else z.astype(np.int64) for z in (x, y)]
        first, second = (np.moveaxis(z, -1, -2) if t else z for z, t in zip(given, (left, right), strict=True))
        value = np.matmul(first, second)
        text = ", ".join([*(["transpose_lhs = true"] if left else []), *(["transpose_rhs = true"] if right else [])])
        yield Case("graph.matmul", text, (x, y), rounded(value, name) if name in FLOATS else wrapped(value, name))


def _matmul_cases() -> Iterator[Case]:
    yield from _transposed_cases()
    yield from _wider_cases()
    for name, (a, b) in product([*FLOATS, *INTEGERS], MATMULS):
        x, y = (noise(name, *a), noise(name, *b)) if name in FLOATS else (ramp(name, *a), ramp(name, *b))
        letters = ("" if len(a) == 1 else "i") + "k", "k" + ("" if len(b) == 1 else "j")
        result = ("" if len(a) == 1 else "i") + ("" if len(b) == 1 else "j")
        if name in FLOATS:
            value = np.einsum(f"...{letters[0]},...{letters[1]}->...{result}", wide(x), wide(y))
            yield Case("graph.matmul", "", (x, y), rounded(value, name))
        else:
            whole = np.einsum(f"...{letters[0]},...{letters[1]}->...{result}", x.astype(np.int64), y.astype(np.int64))
            yield Case("graph.matmul", "", (x, y), wrapped(whole, name))


def _wider_cases() -> Iterator[Case]:
    """The products of narrow elements in a wider type, which the result has."""
    for left, right, to in (("i8", "i8", "i32"), ("ui8", "i8", "i32"), ("ui8", "ui8", "ui32"), ("i16", "i8", "i64")):
        for (a, b), flag in (((((3, 5), (5, 20))), ""), (((2, 3, 4), (7, 4)), "transpose_rhs = true, ")):
            x, y = ramp(left, *a), ramp(right, *b)
            second = y.astype(np.int64).T if flag else y.astype(np.int64)
            yield Case("graph.matmul", f"{flag}dtype = {to}", (x, y), wrapped(x.astype(np.int64) @ second, to))
    for name in ("f16", "bf16"):
        x, y = noise(name, 3, 4), noise(name, 4, 18)
        yield Case("graph.matmul", "dtype = f32", (x, y), rounded(wide(x) @ wide(y), "f32"))


ROWS: list[Row] = [
    Row("matmul", [*FLOATS, *INTEGERS], _matmul_cases),
]
