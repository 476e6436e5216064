"""Launches of gpu_near.cuh: reads at few places, along few axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fuse_opt.lowering.program import BufferRef
from fuse_opt.runtime.backends.gpu_calls import THREADS, itemsize
from fuse_opt.runtime.backends.gpu_places import Places

NEAR_OPERANDS = 2
_NEAR_AXES, _PIECES = 3, 4
_SMALL = 1 << 31
_ROW_UNITS, _WIDE_ROW, _ROW_PIECES = (2, 4, 8), 64, 8
"""Bytes of elements, and elements of a row from which on `gpu_rows_` reads it, and of those each thread so many."""
_BESIDE = {2: 4, 4: 4, 8: 2}
"""By bytes of an element: how many a thread of `gpu_near_` takes side by side."""


def divisor(n: int) -> tuple[int, int]:
    """What divides numbers below 2**31 by n, as `quotient` of the text wants it: n and a multiplier, and a shift."""
    shift = (n - 1).bit_length()
    return n | -(-(1 << 31 + shift) // n) << 32, shift


@dataclass(frozen=True, slots=True)
class Near:
    """A kernel `gpu_near_`, its arguments behind the addresses, and its blocks."""

    name: str
    numbers: Sequence[int]
    blocks: int
    operands: int = NEAR_OPERANDS
    """Addresses of indices among them."""


def near_kernel(record: Any, places: Places, x: BufferRef, unit: int, aligned: int) -> Near | None:
    """How `gpu_near_` reads the places of a record; None where these are too many, or along too many axes."""
    axes, operands, most = int(record.axes), int(record.operands), len(record.extents)
    sizes = [prod(each.ref.shape) for each in places.named]
    kinds = {each.ref.dtype for each in places.named}
    if not record.small or axes > _NEAR_AXES or operands > NEAR_OPERANDS or max(sizes) >= _SMALL:
        return None
    if len(kinds) > 1 or not kinds <= {"i32", "i64"} or any(each.shift for each in places.named):
        return None
    missing = _NEAR_AXES - axes
    middle, last = ([1] * missing + list(record.extents[:axes]))[1:]
    x_steps = [0] * missing + list(record.x_steps[:axes])
    steps: list[int] = []
    for number in range(NEAR_OPERANDS):
        own = record.steps[number * most : number * most + axes]
        first, second, third = [0] * missing + list(own)
        steps += [first | second << 32, third]
    size, beside = itemsize(x), _BESIDE.get(unit, 1)
    shares = unit == size and any(not third for third in steps[1 : 2 * operands : 2])
    if last % beside or aligned % (beside * size) or not shares:
        beside = 1
    by_last, by_middle = divisor(last), divisor(middle)
    if beside == 1 and operands == 1 and unit in _ROW_UNITS and last >= _WIDE_ROW and not steps[1] and x_steps[2] == 1:
        rows, groups = record.count // last, -(-last // (32 * _ROW_PIECES))
        share = 32 * -(-last // (32 * groups))
        numbers = [rows, groups | share << 32, last | by_middle[1] << 32, by_middle[0], *x_steps[:2], steps[0]]
        return Near(f"gpu_rows_{unit}", numbers, -(-rows * groups * 32 // THREADS), 1)
    count = record.count // beside
    numbers = [count, by_middle[0], by_last[0], by_last[1] | by_middle[1] << 32, *x_steps, *steps]
    return Near(f"gpu_near_{unit}_{beside}", numbers, -(-count // (THREADS * _PIECES // min(beside, 2))))
