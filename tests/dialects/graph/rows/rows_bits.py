"""Rows of bits: shifts, counts, other readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from graph_op_table import BROADCASTS, FLOATS, INTEGERS, STORAGE, TYPES, Array, Case, Row, each, pairs, ramp, samples
from narrow_floats import decode, is_narrow

QUIET = {"f16": 0x7E00, "bf16": 0x7FC0, "f8E4M3FN": 0x7F, "f8E5M2": 0x7E}


def _bits_of(x: int, name: str) -> str:
    """All digits, the highest first."""
    width = 8 * TYPES[name].itemsize
    return format(x % 2**width, f"0{width}b")


def _counts(op: str, count: Callable[[str], int]) -> Row:
    def cases() -> Iterator[Case]:
        for name in INTEGERS:
            for x in (samples(name), ramp(name, 2, 3), ramp(name, 67)):
                expected = [count(_bits_of(int(value), name)) for value in x.reshape(-1)]
                yield Case(f"graph.{op}", "", (x,), np.array(expected, TYPES[name]).reshape(x.shape))

    return Row(op, INTEGERS, cases)


def _shift_cases() -> Iterator[Case]:
    for name in INTEGERS:
        width = 8 * TYPES[name].itemsize
        span = 2**width

        def shifted(x: int, y: int, width: int = width, span: int = span, name: str = name) -> int:
            found = (x % span) >> y if 0 <= y < width else 0
            return found - span if name[0] == "i" and found >= span // 2 else found

        counts = np.arange(width + 2).astype(TYPES[name])
        some = samples(name)
        operands = [pairs(name), (some[:, None], counts[None, :])]
        operands += [(ramp(name, *left), ramp(name, *right)) for left, right in BROADCASTS]
        for x, y in operands:
            yield Case("graph.shift_right_logical", "", (x, y), np.array(each(shifted, x, y), TYPES[name]))


def _patterns(array: Array) -> Array:
    """The bits as unsigned integers; of narrow floats with one NaN."""
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    return bits


def _with_one_nan(array: Array, name: str) -> Array:
    if name not in QUIET:
        return array
    values = decode(array)
    bits = _patterns(array)
    return np.where(np.isnan(values), bits.dtype.type(QUIET[name]), bits).view(TYPES[name])


def _bitcast_cases() -> Iterator[Case]:
    for source, target in product((*FLOATS, *INTEGERS, *STORAGE), repeat=2):
        if TYPES[source].itemsize != TYPES[target].itemsize:
            continue
        for x in (samples(source), ramp(source, 3, 5), ramp(source)):
            kept = _with_one_nan(x, source)
            again = _with_one_nan(np.ascontiguousarray(_patterns(kept)).view(TYPES[target]).reshape(x.shape), target)
            given = again if not is_narrow(TYPES[target]) else again.view(type(ramp(target)))
            yield Case("graph.bitcast", f"dtype = {target}", (x,), given, signed_zeros=True)


ROWS: list[Row] = [
    Row("shift_right_logical", INTEGERS, _shift_cases),
    _counts("bitwise_count", lambda bits: bits.count("1")),
    _counts("count_leading_zeros", lambda bits: len(bits) - len(bits.lstrip("0"))),
    Row("bitcast", (*FLOATS, *INTEGERS, *STORAGE), _bitcast_cases),
]
