"""Transposed convolutions and gradients of convolutions on the CPU, as convolutions and products on the shared pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.blas import Array, Tasks, load_tasks, multiply
from fuse_opt.runtime.convolution import convolve, floats_of_one_type, integers

_UNFOLDED_BYTES = 8 << 20
"""What is unfolded at a time of several samples together."""


@dataclass(frozen=True)
class _Phase:
    """Every `stride`-th position of the result along an axis: a convolution of stride 1 with some of the window's elements."""

    start: int
    taps: slice
    dilation: int
    begin: int
    """Zeros in front of the operand; what is to be left out of it when negative."""
    end: int


def _phases(extent: int, given: int, window: int, stride: int, pad: int, dilation: int) -> list[_Phase]:
    """The phases of an axis: of element t of the window, operand element i goes to `i * stride + t * dilation - pad`.

    One that nothing is added to has no taps.
    """
    common = gcd(stride, dilation)
    step, gap = stride // common, dilation // common
    found: list[_Phase] = []
    for start in range(min(stride, extent)):
        taps = [t for t in range(min(step, window)) if (start + pad - t * dilation) % stride == 0]
        if not taps:
            found.append(_Phase(start, slice(0, 0), 1, 0, 0))
            continue
        count = len(range(taps[0], window, step))
        results = -(-(extent - start) // stride)
        begin = (count - 1) * gap - (start + pad - taps[0] * dilation) // stride
        end = results - given - begin + (count - 1) * gap
        found.append(_Phase(start, slice(taps[0], None, step), gap, begin, end))
    return found


def try_conv_transpose(inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]) -> bool:
    """
    Transposed convolution as `graph.conv_transpose` means it, and the gradient of a convolution's input, which is the
    same: x is [N, C, spatial...], weight [C, O/groups, spatial...]. Answers False as `try_conv` does, and where the
    weight has a NaN or an infinity: zeros around x that are multiplied by it would be seen.
    """
    x, weight = inputs
    (out,) = outputs
    tasks = load_tasks()
    if tasks is None or not floats_of_one_type(x, weight, out) or not _finite(weight):
        return False
    if x.dtype == np.float16:
        single = np.empty(out.shape, np.float32)
        done = _transpose(tasks, x.astype(np.float32), weight.astype(np.float32), single, config)
        if done:
            out[...] = single
        return done
    return _transpose(tasks, x, weight, out, config)


def _finite(array: Array) -> bool:
    """Whether there is no NaN and no infinity; False also where the sum overflows."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum(dtype=np.float32 if array.dtype == np.float16 else None)))


def _transpose(tasks: Tasks, x: Array, weight: Array, out: Array, config: Mapping[str, ConfigValue]) -> bool:
    axes = x.ndim - 2
    groups = integers(config, "groups", (1,))[0]
    strides, dilations = (integers(config, name, (1,) * axes) for name in ("strides", "dilations"))
    pads = integers(config, "pads", (0,) * 2 * axes)
    filters = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).swapaxes(1, 2)
    filters = filters.reshape(out.shape[1], weight.shape[0] // groups, *weight.shape[2:])
    along = zip(out.shape[2:], x.shape[2:], weight.shape[2:], strides, pads[:axes], dilations, strict=True)
    for phases in product(*(_phases(*axis) for axis in along)):
        target = out[(..., *(slice(phase.start, None, s) for phase, s in zip(phases, strides, strict=True)))]
        some = np.flip(filters[(..., *(phase.taps for phase in phases))], tuple(range(2, 2 + axes)))
        if 0 in some.shape:
            target.fill(0)
        elif not _convolve_phase(tasks, x, some, target, phases, groups):
            return False
    return True


def _convolve_phase(
    tasks: Tasks, x: Array, filters: Array, target: Array, phases: Sequence[_Phase], groups: int
) -> bool:
    kept = (slice(max(-p.begin, 0), max(n + min(p.end, 0), 0)) for p, n in zip(phases, x.shape[2:], strict=True))
    x = x[(..., *kept)]
    if not x.size:
        target.fill(0)
        return True
    config = {
        "pads": (*(max(p.begin, 0) for p in phases), *(max(p.end, 0) for p in phases)),
        "dilations": tuple(p.dilation for p in phases),
        "groups": groups,
    }
    return convolve(tasks, x, filters, target, config)


def try_conv_backward_weight(
    inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]
) -> bool:
    """
    The gradient of a convolution's weight as `graph.conv_backward_weight` means it: products of the gradient with
    windows of x, of as many samples at a time as are unfolded together. Answers False as `try_conv` does.
    """
    grad, x = inputs
    (out,) = outputs
    tasks = load_tasks()
    if tasks is None or not floats_of_one_type(x, grad, out):
        return False
    work = np.dtype(np.float32) if x.dtype == np.float16 else x.dtype
    groups = integers(config, "groups", (1,))[0]
    filters, channels = out.shape[0] // groups, out.shape[1]
    window, positions = prod(out.shape[2:]), prod(grad.shape[2:])
    total = np.zeros((groups, filters, channels * window), work)
    term = np.empty_like(total)
    for some, columns in _unfolded(x, out.shape[2:], grad.shape[2:], work, config):
        given = grad[some].astype(work, copy=False)
        given = given.reshape(-1, groups, filters, positions).transpose(1, 2, 0, 3).reshape(groups, filters, -1)
        if not multiply(tasks, given, columns.reshape(groups, channels * window, -1).swapaxes(1, 2), term):
            return False
        total += term
    out[...] = total.reshape(out.shape)
    return True


def _unfolded(
    x: Array,
    window: Sequence[int],
    result: Sequence[int],
    work: np.dtype[np.generic],
    config: Mapping[str, ConfigValue],
) -> Iterator[tuple[slice, Array]]:
    """Some samples, and their windows as [C, window..., samples, result...]."""
    axes = len(window)
    strides, dilations = (integers(config, name, (1,) * axes) for name in ("strides", "dilations"))
    pads = integers(config, "pads", (0,) * 2 * axes)
    extents = [n + a + b for n, a, b in zip(x.shape[2:], pads[:axes], pads[axes:], strict=True)]
    inner = (..., *(slice(a, a + n) for n, a in zip(x.shape[2:], pads[:axes], strict=True)))
    each = max(1, prod([x.shape[1], *window, *result]) * work.itemsize)
    step = min(max(1, _UNFOLDED_BYTES // each), max(1, x.shape[0]))
    padded = np.zeros((step, x.shape[1], *extents), work)
    columns = np.empty((x.shape[1], *window, step, *result), work)
    for first in range(0, x.shape[0], step):
        some = slice(first, first + step)
        count = x[some].shape[0]
        padded[:count][inner] = x[some]
        chosen = columns if count == step else np.empty((x.shape[1], *window, count, *result), work)
        for offset in np.ndindex(*window):
            along = zip(offset, dilations, strides, result, strict=True)
            places = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in along)
            chosen[(slice(None), *offset)] = padded[:count][(..., *places)].swapaxes(0, 1)
        yield some, chosen
