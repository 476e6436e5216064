"""Transposed convolutions and gradients of convolutions on the CPU: tasks of convolution_gradients.c, on the shared pool."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.blas import Array, Tasks, choose_grain, load_tasks
from fuse_opt.runtime.convolution import floats_of_one_type, integers, run_tasks
from fuse_opt.runtime.convolution_copies import Shape, Windows

COLUMNS_BYTES = 256 << 10
"""What a task has of products or windows at a time: part of a core's second cache."""
_ROWS = 64
"""Of a task's products, about: fewer make more of its time copies of the other operand."""
_WINDOW = 32
"""Elements of the window of a task, where the weight's gradient is made."""

Table = Callable[
    [Tasks, int, Shape, Shape, Shape, Mapping[str, ConfigValue]],
    "ctypes.Array[ctypes.c_int64] | None",
]
"""Makes the record of a call, from the shapes of its operands and its result."""


def try_conv_transpose(inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]) -> bool:
    """
    Transposed convolution as `graph.conv_transpose` means it, and the gradient of a convolution's input, which is the
    same: x is [N, C, spatial...], weight [C, O/groups, spatial...]. Answers False as `try_conv` does.
    """
    x, weight = inputs
    return _attempt(x, weight, outputs[0], config, transposed_table, "fuse_run_fold")


def try_conv_backward_weight(
    inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]
) -> bool:
    """The gradient of a convolution's weight as `graph.conv_backward_weight` means it. Answers False as `try_conv` does."""
    grad, x = inputs
    return _attempt(grad, x, outputs[0], config, weight_gradient_table, "fuse_run_weight_gradient")


def _attempt(a: Array, b: Array, out: Array, config: Mapping[str, ConfigValue], make: Table, task: str) -> bool:
    tasks = load_tasks()
    if tasks is None or not floats_of_one_type(a, b, out):
        return False
    if a.dtype == np.float16:
        single = np.empty(out.shape, np.float32)
        done = _attempt(a.astype(np.float32), b.astype(np.float32), single, config, make, task)
        if done:
            out[...] = single
        return done
    if 0 in (*a.shape, *b.shape, *out.shape):
        out.fill(0)
        return True
    plan = make(tasks, a.itemsize, a.shape, b.shape, out.shape, config)
    return plan is not None and run_tasks(tasks, task, plan, (a, b), out)


def transposed_table(
    tasks: Tasks, item: int, x: Shape, weight: Shape, out: Shape, config: Mapping[str, ConfigValue]
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution` for fuse_run_fold; None where shapes do not fit together or are too large."""
    return _plan(tasks.wide, item, out, weight, x, _attributes(config, len(x) - 2), False)


def weight_gradient_table(
    tasks: Tasks, item: int, grad: Shape, x: Shape, out: Shape, config: Mapping[str, ConfigValue]
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record `convolution` for fuse_run_weight_gradient; None where shapes do not fit together or are too large."""
    return _plan(tasks.wide, item, x, out, grad, _attributes(config, len(x) - 2), True)


def _attributes(config: Mapping[str, ConfigValue], axes: int) -> tuple[Shape, Shape, Shape, int]:
    """Strides, pads, dilations and groups."""
    strides, dilations = (integers(config, name, (1,) * axes) for name in ("strides", "dilations"))
    return strides, integers(config, "pads", (0,) * 2 * axes), dilations, integers(config, "groups", (1,))[0]


@functools.lru_cache(maxsize=1024)
def _plan(
    wide: bool,
    item: int,
    x: Shape,
    weight: Shape,
    result: Shape,
    attributes: tuple[Shape, Shape, Shape, int],
    of_weight: bool,
) -> ctypes.Array[ctypes.c_int64] | None:
    """The record of a convolution of x to the result, for one of its gradients; no extent is zero."""
    axes, (strides, pads, dilations, groups) = len(x) - 2, attributes
    if axes not in (1, 2, 3) or not len(x) == len(weight) == len(result) or groups < 1:
        return None
    if (len(strides), len(pads), len(dilations)) != (axes, 2 * axes, axes) or min((*strides, *dilations)) < 1:
        return None
    if (x[0], x[1], result[1]) != (result[0], weight[1] * groups, weight[0]) or weight[0] % groups or min(pads) < 0:
        return None
    channels, filters, places, positions = weight[1], weight[0] // groups, prod(weight[2:]), prod(result[2:])
    if not wide and max(positions, channels * places) >= 2**31:
        return None
    windows = Windows.of(item, channels, filters, x[2:], result[2:], weight[2:], strides, pads, dilations)
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


def forget_plans() -> None:
    """For who changes what they rest on."""
    _plan.cache_clear()
