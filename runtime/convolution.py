"""Convolutions on the CPU, as products of the filters with windows of blocks that are copied, or else unfolded, on the pool."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.blas import (
    FLOAT_TYPES,
    Array,
    Tasks,
    address_of,
    choose_blocks,
    choose_grain,
    int64_table,
    load_tasks,
)
from fuse_opt.runtime.convolution_copies import Windows, choose_copies
from fuse_opt.runtime.thread_pool import num_threads

_UNFOLDED_BYTES = 256 << 10
"""What a task unfolds at a time: part of a core's second cache, with room for what the BLAS copies of it."""
_POSITIONS = 256
"""Output positions of a task, about, where there are that many; fewer make more of its time copies of the filters."""
_FILTERS = 128
"""The least filters of a task where there are more: each task unfolds its windows anew."""

TASKS = 27
"""The place of their number in the record `convolution`; how many are worth a thread is behind it."""

_Shape = tuple[int, ...]


def try_conv(inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]) -> bool:
    """
    Convolution as `graph.conv` means it: x is [N, C, spatial...], weight [O, C/groups, spatial...], over 1 to 3 axes;
    `config` holds `strides`, `pads`, `dilations` and `groups`. Does nothing and answers False for element types other
    than floats of 16 (computed in 32 and rounded once), 32 and 64 bits, and where there is no BLAS to call.
    """
    x, weight = inputs
    (out,) = outputs
    tasks = load_tasks()
    if tasks is None or not floats_of_one_type(x, weight, out):
        return False
    if x.dtype == np.float16:
        single = np.empty(out.shape, np.float32)
        done = convolve(tasks, x.astype(np.float32), weight.astype(np.float32), single, config)
        if done:
            out[...] = single
        return done
    return convolve(tasks, x, weight, out, config)


def floats_of_one_type(x: Array, weight: Array, out: Array) -> bool:
    """Whether these are floats of 16, 32 or 64 bits, and the last can be written to."""
    return x.dtype == weight.dtype == out.dtype in (np.dtype(np.float16), *FLOAT_TYPES) and out.flags.writeable


def convolution_table(
    tasks: Tasks, threads: int, item: int, x: _Shape, weight: _Shape, out: _Shape, config: Mapping[str, ConfigValue]
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution` of convolution_tasks.c; None where shapes do not fit together, are empty or too large."""
    plan = _planned(tasks, threads, item, x, weight, out, config)
    return plan if plan is not None and len(plan) else None


def _planned(
    tasks: Tasks, threads: int, item: int, x: _Shape, weight: _Shape, out: _Shape, config: Mapping[str, ConfigValue]
) -> ctypes.Array[ctypes.c_int64] | None:
    spatial = len(x) - 2
    strides, dilations = (integers(config, name, (1,) * spatial) for name in ("strides", "dilations"))
    pads, groups = integers(config, "pads", (0,) * 2 * spatial), integers(config, "groups", (1,))
    return _plan(tasks.wide, threads, item, x, weight, out, strides, pads, dilations, groups)


def convolve(tasks: Tasks, x: Array, weight: Array, out: Array, config: Mapping[str, ConfigValue]) -> bool:
    """As `try_conv`, of floats of 32 or 64 bits."""
    plan = _planned(tasks, num_threads(), x.itemsize, x.shape, weight.shape, out.shape, config)
    if plan is None:
        return False
    if out.size == 0:
        return True
    if weight.size == 0:
        out.fill(0)
        return True
    return run_tasks(tasks, "fuse_run_convolution", plan, (x, weight), out)


def run_tasks(
    tasks: Tasks, task: str, plan: ctypes.Array[ctypes.c_int64], inputs: tuple[Array, Array], out: Array
) -> bool:
    """Runs the tasks of a record `convolution` on arrays without an extent of zero; False where there was no memory."""
    a, b = (_packed(array, out) for array in inputs)
    target = out if out.flags.c_contiguous and out.flags.aligned else np.empty(out.shape, out.dtype)
    function = tasks.function(task)
    if not tasks.library.fuse_convolve(function, plan, address_of(a), address_of(b), address_of(target)):
        return False
    if target is not out:
        np.copyto(out, target)
    return True


def _packed(array: Array, out: Array) -> Array:
    """The array in C order, a copy where it shares memory with the result."""
    if not array.flags.c_contiguous or not array.flags.aligned or np.may_share_memory(array, out):
        return array.copy(order="C")
    return array


def integers(config: Mapping[str, ConfigValue], name: str, default: _Shape) -> _Shape:
    """Integers of the config; a number is one of them."""
    value = config.get(name, default)
    if isinstance(value, int):
        return (value,)
    return tuple(int(v) for v in value) if isinstance(value, tuple) else default


@functools.lru_cache(maxsize=1024)
def _plan(
    wide: bool,
    threads: int,
    item: int,
    x: _Shape,
    weight: _Shape,
    out: _Shape,
    strides: _Shape,
    pads: _Shape,
    dilations: _Shape,
    groups: _Shape,
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution` of convolution_tasks.c; None where shapes do not fit together or are too large."""
    spatial, group_count = len(x) - 2, groups[0]
    if spatial not in (1, 2, 3) or len(weight) != len(x) or group_count < 1:
        return None
    if (len(strides), len(pads), len(dilations)) != (spatial, 2 * spatial, spatial):
        return None
    if x[1] != weight[1] * group_count or weight[0] % group_count or min((*strides, *dilations)) < 1 or min(pads) < 0:
        return None
    result = tuple(
        (extent + pads[k] + pads[spatial + k] - dilations[k] * (weight[2 + k] - 1) - 1) // strides[k] + 1
        for k, extent in enumerate(x[2:])
    )
    if out != (x[0], weight[0], *result):
        return None
    filters, positions, window = weight[0] // group_count, prod(result), prod(weight[1:])
    if not wide and max(positions, window) >= 2**31:
        return None
    if 0 in (*out, window):
        return int64_table()
    windows = Windows.of(item, weight[1], filters, x[2:], result, weight[2:], strides, pads, dilations)
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


def forget_plans() -> None:
    """For who changes what they rest on."""
    _plan.cache_clear()
