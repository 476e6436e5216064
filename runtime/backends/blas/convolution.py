"""Convolutions on the CPU, as products of the filters with windows of blocks that are copied, or else unfolded, on the pool."""

from __future__ import annotations

import ctypes
import functools
from math import prod

from fuse_opt.runtime.backends.blas.direct_convolution import (
    Attributes,
    Config,
    Shape,
    Windows,
    attributes_of,
    choose_copies,
)
from fuse_opt.runtime.backends.blas.task_sizes import choose_blocks, choose_grain
from fuse_opt.runtime.host.c_records import fields_of, int64_table

_UNFOLDED_BYTES = 256 << 10
"""What a task unfolds at a time: part of a core's second cache, with room for what the BLAS copies of it."""
_POSITIONS = 256
"""Output positions of a task, about, where there are that many; fewer make more of its time copies of the filters."""
_FILTERS = 128
"""The least filters of a task where there are more: each task unfolds its windows anew."""


class Convolution(ctypes.Structure):
    """The record `convolution` of convolution_tasks.c, without the table at its end."""

    _fields_ = fields_of("backends/blas/convolution_tasks.c", "convolution")


def convolution_table(
    wide: bool, threads: int, item: int, x: Shape, weight: Shape, out: Shape, config: Config
) -> ctypes.Array[ctypes.c_int64] | None:
    """
    The record `convolution` of convolution_tasks.c; None where shapes do not fit together, are empty or too large for a BLAS.
    x is [N, C, spatial...], weight [O, C/groups, spatial...]; `config` holds `strides`, `pads`, `dilations` and `groups`.
    """
    plan = planned(wide, threads, item, x, weight, out, attributes_of(config, len(x) - 2))
    return plan if plan is not None and len(plan) else None


@functools.lru_cache(maxsize=1024)
def planned(
    wide: bool, threads: int, item: int, x: Shape, weight: Shape, out: Shape, attributes: Attributes
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution`, an empty one where an array is; None where shapes do not fit together or are too large."""
    windows = Windows.of(item, x, weight, out, attributes)
    strides, pads, dilations, group_count = attributes
    if windows is None:
        return None
    spatial = len(x) - 2
    result = tuple(
        (extent + pads[k] + pads[spatial + k] - dilations[k] * (weight[2 + k] - 1) - 1) // strides[k] + 1
        for k, extent in enumerate(x[2:])
    )
    if out[2:] != result:
        return None
    filters, positions, window = windows.filters, prod(result), prod(weight[1:])
    if not wide and max(positions, window) >= 2**31:
        return None
    if 0 in (*out, window):
        return int64_table()
    parts = x[0] * group_count
    pointwise = result == x[2:] and (*weight[2:], *strides, *pads) == (1,) * 2 * spatial + (0,) * 2 * spatial
    direct = None if pointwise else choose_copies(windows, parts, threads)
    if direct is None:
        some, each = _blocks(filters, positions, window, parts, threads, pointwise)
        blocks = (each, some, min(window, max(1, _UNFOLDED_BYTES // (each * item))), pointwise)
        tasks, work, rest = parts * -(-filters // some) * -(-positions // each), some * each, (0,) * 7
    else:
        blocks, rest = (0, direct.filters, 0, False), direct.fields
        tasks, work = parts * direct.tasks, direct.filters * direct.positions
    return windows.record(x[0], group_count, blocks, tasks, choose_grain(2 * work * window), rest)


def _blocks(filters: int, positions: int, window: int, parts: int, threads: int, pointwise: bool) -> tuple[int, int]:
    """Filters and output positions of one task."""
    if pointwise:
        return choose_blocks(filters, positions, window, parts, threads)
    pieces = max(1, round(positions / _POSITIONS))
    each = -(-positions // pieces)
    each = min(positions, -(-each // 16) * 16)
    some, _ = choose_blocks(filters, 1, window * each, parts * pieces, threads)
    return min(filters, max(some, _FILTERS)), each
