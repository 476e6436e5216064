"""Convolutions on the CPU, as products of the filters with windows that are unfolded piece by piece, on the shared pool."""

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
from fuse_opt.runtime.thread_pool import num_threads

_UNFOLDED_BYTES = 256 << 10
"""What a task unfolds at a time: part of a core's second cache, with room for what the BLAS copies of it."""
_POSITIONS = 256
"""Output positions of a task, about, where there are that many; fewer make more of its time copies of the filters."""
_FILTERS = 128
"""The least filters of a task where there are more: each task unfolds its windows anew."""

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
    x, weight = (_packed(array, out) for array in (x, weight))
    target = out if out.flags.c_contiguous and out.flags.aligned else np.empty(out.shape, out.dtype)
    if not tasks.library.fuse_convolve(plan, address_of(x), address_of(weight), address_of(target)):
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
    pointwise = result == x[2:] and (*weight[2:], *strides, *pads) == (1,) * 2 * spatial + (0,) * 2 * spatial
    parts = x[0] * group_count
    some, each = _blocks(filters, positions, window, parts, threads, pointwise)
    depth = min(window, max(1, _UNFOLDED_BYTES // (each * item)))
    tasks = parts * -(-filters // some) * -(-positions // each)
    missing = 3 - spatial

    def to_three(values: _Shape, filling: int) -> _Shape:
        return (filling,) * missing + values

    return int64_table(
        item,
        group_count,
        weight[1],
        filters,
        *to_three(x[2:], 1),
        *to_three(result, 1),
        *to_three(weight[2:], 1),
        *to_three(strides, 1),
        *to_three(pads[:spatial], 0),
        *to_three(dilations, 1),
        each,
        some,
        depth,
        pointwise,
        tasks,
        choose_grain(2 * some * each * window),
    )


def _blocks(filters: int, positions: int, window: int, parts: int, threads: int, pointwise: bool) -> tuple[int, int]:
    """Filters and output positions of one task."""
    if pointwise:
        return choose_blocks(filters, positions, window, parts, threads)
    pieces = max(1, round(positions / _POSITIONS))
    each = -(-positions // pieces)
    each = min(positions, -(-each // 16) * 16)
    some, _ = choose_blocks(filters, 1, window * each, parts * pieces, threads)
    return min(filters, max(some, _FILTERS)), each
