"""Transposed convolutions and gradients of convolutions on the CPU: tasks of convolution_gradients.c, on the shared pool."""

from __future__ import annotations

import ctypes
import functools
from math import prod

from fuse_opt.runtime.backends.blas.direct_convolution import Attributes, Config, Shape, Windows, attributes_of
from fuse_opt.runtime.backends.blas.task_sizes import choose_grain

COLUMNS_BYTES = 256 << 10
"""What a task has of products or windows at a time: part of a core's second cache."""
_ROWS = 64
"""Of a task's products, about: fewer make more of its time copies of the other operand."""
_WINDOW = 32
"""Elements of the window of a task, where the weight's gradient is made."""


def transposed_table(
    wide: bool, item: int, x: Shape, weight: Shape, out: Shape, config: Config
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution` for fuse_run_fold; None where shapes do not fit together or are too large."""
    return planned(wide, item, out, weight, x, attributes_of(config, len(x) - 2), False)


def weight_gradient_table(
    wide: bool, item: int, grad: Shape, x: Shape, out: Shape, config: Config
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution` for fuse_run_weight_gradient; None where shapes do not fit together or are too large."""
    return planned(wide, item, x, out, grad, attributes_of(config, len(x) - 2), True)


@functools.lru_cache(maxsize=1024)
def planned(
    wide: bool, item: int, x: Shape, weight: Shape, result: Shape, attributes: Attributes, of_weight: bool
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record of a convolution of x to the result, for one of its gradients; no extent is zero."""
    windows = Windows.of(item, x, weight, result, attributes)
    if windows is None:
        return None
    groups = attributes[3]
    channels, filters, places, positions = windows.channels, windows.filters, prod(weight[2:]), prod(result[2:])
    if not wide and max(positions, channels * places) >= 2**31:
        return None
    if of_weight:
        depth = min(channels * places, _WINDOW)
        each = min(positions, max(1, COLUMNS_BYTES // (depth * item)))
        tasks = groups * -(-channels * places // depth)
        grain = choose_grain(2 * filters * depth * positions * x[0])
        return windows.record(x[0], groups, (each, filters, depth, 0), tasks, grain, (0,) * 7)
    block = min(channels, -(-_ROWS // places))
    each = min(positions, max(1, COLUMNS_BYTES // (block * places * item)))
    tasks = x[0] * groups * -(-channels // block)
    grain = choose_grain(2 * block * places * positions * filters)
    return windows.record(x[0], groups, (each, 0, 0, 0), tasks, grain, (0, 0, block, 0, 0, 0, 0))
