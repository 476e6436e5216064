"""Records of pooling: the largest of the elements of a window, one axis after the other, as strided slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue

from fuse_opt.dialects.graph.windows.pool_geometry import PoolAxis
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, F32, I8, I16, I32, I64, DType
from fuse_opt.dialects.types.extents import is_number, largest, most
from fuse_opt.dialects.types.size import Extent
from fuse_opt.frontends.builder import Array, numpy_name
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

POOLING, handler = handlers()
_WIDEST = 16
"""Windows that are wider have too many slices."""


@dataclass(frozen=True)
class _Window:
    """What pooling takes together along an axis."""

    axis: int
    size: int
    step: int
    before: int
    """Positions of padding in front."""
    apart: int
    count: int
    """Of windows."""


@handler("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def _max_pool(call: Call) -> Sequence[SSAValue]:
    windows = _windows(call)
    if call.exported:
        return _library_max_pool(call)
    x = call.tensor("self")
    if not dtype(x).is_float or any(w.size > _WIDEST for w in windows) or 0 in call.extents(call.out[0]):
        raise NotCoveredError("is of integers, empty, or has wide windows")
    if not call.is_used(1) and not all(map(is_number, shape(x))):
        x = call.emit.max_pool(_with_batch(call, "self"), **_pool_options(call), dilations=_each(call, "dilation"))
        return call.reshaped(x, call.extents(call.out[0])), call.number(0, I64, call.extents(call.out[1]))
    if not call.is_used(1):
        for window in reversed(windows):
            first, *others = _slices(call, x, window, -math.inf)
            for other in others:
                first = call.emit.maximum(first, other)
            x = first
        return x, call.number(0, I64, call.extents(call.out[1]))
    return _largest_and_places(call, x, windows)


def _largest_and_places(call: Call, x: SSAValue, windows: Sequence[_Window]) -> tuple[SSAValue, SSAValue]:
    """
    Of each window the largest element, and its index. From axis to axis the distance to the window's first element is kept, in
    as few bytes as it takes, which are read and stored for each axis.
    """
    extents = shape(x)
    steps = [prod(extents[window.axis + 1 :]) for window in windows]  # between positions of an axis
    furthest = sum((w.size - 1) * w.apart * step for w, step in zip(windows, steps, strict=True))
    element = next(each for each in (I8, I16, I32, I64) if each is I64 or most(furthest) < 2 ** (each.bits - 1))
    distance: SSAValue | None = None
    for window, step in reversed(list(zip(windows, steps, strict=True))):
        x, distance = _largest(call, x, distance, window, step, element)
    assert distance is not None, "a pooling has a window"
    index = call.cast(distance, I64)
    for window, step in zip(windows, steps, strict=True):
        along = [window.count, *[1] * (len(extents) - 1 - window.axis)]
        first = call.emit.iota(shape=along, dtype=I64, axis=0, start=-window.before, step=window.step)
        index = call.emit.add(index, call.emit.multiply(first, call.number(step, I64)))
    return x, index


def _windows(call: Call) -> list[_Window]:
    """Those of the spatial axes, from the outermost."""
    size, padding, dilation = (_each(call, name) for name in ("kernel_size", "padding", "dilation"))
    step = _each(call, "stride") or size
    out = call.extents(call.out[0])
    first = len(out) - len(size)
    return [_Window(first + k, size[k], step[k], padding[k], dilation[k], out[first + k]) for k in range(len(size))]


def _slices(call: Call, x: SSAValue, window: _Window, outside: float) -> list[SSAValue]:
    """By position in the window, the elements there of all windows along the axis."""
    extents, axis = list(shape(x)), window.axis
    last = (window.count - 1) * window.step + (window.size - 1) * window.apart + 1
    pads: list[Extent] = [0] * (2 * len(extents))
    pads[axis], pads[len(extents) + axis] = window.before, largest(last - window.before - extents[axis], 0)
    if any(pads):
        value = FloatAttr(outside, 64) if dtype(x).is_float else int(outside)
        x = call.emit.pad(x, pads=pads, value=value)
        extents = list(shape(x))
    found: list[SSAValue] = []
    for number in range(window.size):
        starts, stops, steps = [0] * len(extents), list(extents), [1] * len(extents)
        starts[axis], steps[axis] = number * window.apart, window.step
        stops[axis] = starts[axis] + (window.count - 1) * window.step + 1
        found.append(call.emit.slice(x, starts=starts, stops=stops, steps=steps))
    return found


def _largest(
    call: Call, x: SSAValue, distance: SSAValue | None, window: _Window, step: int, element: DType
) -> tuple[SSAValue, SSAValue]:
    """
    The largest element of each window along an axis and its distance to the window's first: the first of equal ones, the last
    NaN. The elements have a `distance` already, or none, and are `step` apart.
    """
    emit = call.emit
    values = _slices(call, x, window, -math.inf)
    places = [call.number(number * window.apart * step, element) for number in range(window.size)]
    if distance is not None:
        first, *others = _slices(call, distance, window, 0)
        places = [first, *(emit.add(other, place) for other, place in zip(others, places[1:], strict=True))]
    if window.before:
        inside = emit.full(shape=list(shape(x)), dtype=BOOL, value=1)
        valid = _slices(call, inside, window, 0)
    else:
        valid = []
    best, place = values[0], places[0]
    known = valid[0] if valid else None
    for number in range(1, len(values)):
        value = values[number]
        better = emit.logical_or(emit.greater(value, best), emit.isnan(value))
        if known is not None:
            better = emit.logical_or(better, emit.logical_and(valid[number], emit.logical_not(known)))
            known = emit.logical_or(known, valid[number])
        best, place = emit.where(better, value, best), emit.where(better, places[number], place)
    if not shape(place):
        place = emit.full(shape=list(shape(best)), dtype=element, value=0)  # a window of one element
    return best, place


def _library_max_pool(call: Call) -> Sequence[SSAValue]:
    options = {**_pool_options(call), "dilations": _each(call, "dilation")}
    y, indices = call.emit.all("max_pool_with_indices", _with_batch(call, "self"), **options)
    return call.reshaped(y, call.extents(call.out[0])), call.reshaped(indices, call.extents(call.out[1]))


def _pool_options(call: Call) -> dict[str, Any]:
    """The attributes of the graph dialect's pooling ops that a call of PyTorch's gives."""
    size = _each(call, "kernel_size")
    return {
        "kernel_shape": size,
        "strides": _each(call, "stride") or size,
        "pads": _each(call, "padding") * 2,
        "ceil_mode": bool(call["ceil_mode"]),
    }


def _with_batch(call: Call, name: str) -> SSAValue:
    """An operand as [N, C, spatial...]."""
    x = call.tensor(name)
    spatial = _spatial(call)
    return x if len(shape(x)) == spatial + 2 else call.reshaped(x, [1, *shape(x)])


def _spatial(call: Call) -> int:
    return 3 if "3d" in str(call.node.target) else 2


def _each(call: Call, name: str) -> list[int]:
    """A number for each spatial axis; none where none is given."""
    given, spatial = list(call[name]), _spatial(call)
    return given * (spatial // len(given)) if given else []


@handler("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _avg_pool(call: Call) -> SSAValue:
    x = _with_batch(call, "self")
    options, divisor = _pool_options(call), call["divisor_override"]
    if not dtype(x).is_float or not prod(call.shape):
        raise NotCoveredError("is of integers or empty")
    if divisor and options["ceil_mode"]:  # whatever the windows are of that reach beyond the end
        return call.reshaped(_window_sums(call, x, options, 1 / divisor), call.shape)
    if divisor:
        x = call.emit.multiply(x, call.number(prod(options["kernel_shape"]) / divisor, dtype(x)))
    whole = bool(divisor) or bool(call["count_include_pad"])
    return call.reshaped(call.emit.avg_pool(x, **options, count_include_pad=whole), call.shape)


def _window_sums(call: Call, x: SSAValue, options: dict[str, Any], factor: float) -> SSAValue:
    """The sums of windows times a factor, of narrow floats in f32."""
    size, strides, count = options["kernel_shape"], options["strides"], len(options["kernel_shape"])
    pads = options["pads"]
    along = zip(shape(x)[-count:], size, strides, pads[:count], pads[count:], strict=True)
    behind = [PoolAxis(*axis, dilation=1, ceil=True).behind for axis in along]
    wide = call.cast(x, F32) if dtype(x).bits < 32 else x
    wide = call.emit.pad(wide, pads=[0, 0, *pads[:count], 0, 0, *behind])
    total = call.emit.window_sum(wide, window=size, strides=strides)
    return call.cast(call.emit.multiply(total, call.number(factor, dtype(total))), dtype(x))


@handler("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def _avg_pool_backward(call: Call) -> SSAValue:
    if call.has("divisor_override") or not call.dtype.is_float or not prod(call.shape):
        raise NotCoveredError("is of integers, empty, or has a divisor of its own")
    options = {**_pool_options(call), "count_include_pad": bool(call["count_include_pad"])}
    grad = _with_batch(call, "grad_output")
    found = call.emit.avg_pool_backward(grad, extents=call.shape[-_spatial(call) :], **options)
    return call.reshaped(found, call.shape)


@handler("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def _adaptive_avg_pool(call: Call) -> SSAValue:
    """Axis by axis, the means of parts, which overlap where they are not equal."""
    x = call.tensor("self")
    if not dtype(x).is_float or not prod(call.shape) or not prod(shape(x)):
        raise NotCoveredError("is of integers or empty")
    wide = call.cast(x, F32) if dtype(x).bits < 32 else x
    for axis in range(len(call.shape) - _spatial(call), len(call.shape)):
        wide = _part_means(call, wide, axis, call.shape[axis])
    return call.cast(wide, dtype(x))


def _part_means(call: Call, x: SSAValue, axis: int, count: int) -> SSAValue:
    extents, extent = list(shape(x)), shape(x)[axis]
    if extent % count == 0:
        parts = call.reshaped(x, [*extents[:axis], count, extent // count, *extents[axis + 1 :]])
        return call.emit.mean(parts, axes=[axis + 1])
    places, inside = _parts(extent, count)
    read = call.emit.take(x, call.emit.dense(np.minimum(places, extent - 1)), axis=axis)
    shares = (inside / inside.sum(1, keepdims=True)).astype(numpy_name(dtype(x)))
    weights = call.emit.dense(shares.reshape(*shares.shape, *[1] * (len(extents) - 1 - axis)))
    return call.emit.sum(call.emit.multiply(read, weights), axes=[axis + 1])


def _parts(extent: int, count: int) -> tuple[Array, Array]:
    """By part of an axis its positions, as many as the largest part has, and which of them are in it."""
    numbers = np.arange(count)
    starts, ends = numbers * extent // count, -(-(numbers + 1) * extent // count)
    places = starts[:, None] + np.arange(int((ends - starts).max()))
    return places, places < ends[:, None]


@handler("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def _adaptive_max_pool(call: Call) -> Sequence[SSAValue]:
    """The largest element of each part, and where in its plane it is: the parts of all axes side by side, then a maximum."""
    x, emit, out = call.tensor("self"), call.emit, call.extents(call.out[0])
    if not dtype(x).is_float or not prod(out) or not prod(shape(x)):
        raise NotCoveredError("is of integers or empty")
    spatial = _spatial(call)
    lead, extents = len(out) - spatial, shape(x)[len(out) - spatial :]
    tables = [_parts(extent, count) for extent, count in zip(extents, out[lead:], strict=True)]
    for axis, (places, _) in enumerate(tables):
        x = emit.take(x, emit.dense(np.minimum(places, extents[axis] - 1)), axis=lead + 2 * axis)
    order = [*range(lead), *range(lead, lead + 2 * spatial, 2), *range(lead + 1, lead + 2 * spatial, 2)]
    inside, flat = np.ones([1] * (2 * spatial), bool), np.zeros([1] * (2 * spatial), np.int64)
    for axis, (places, valid) in enumerate(tables):
        along = [1] * (2 * spatial)
        along[axis], along[spatial + axis] = places.shape
        inside = inside & valid.reshape(along)
        flat = flat + places.reshape(along) * prod(extents[axis + 1 :])
    size = prod(places.shape[1] for places, _ in tables)
    parts = emit.reshape(emit.permute_dims(x, axes=order), shape=[*out, size])
    kept = emit.dense(inside.reshape(*out[lead:], size))
    parts = emit.where(kept, parts, call.number(-math.inf, dtype(parts)))
    at = emit.argmax(parts, axis=len(out))
    chosen = emit.equal(emit.iota(shape=[size], dtype=I64, axis=0), emit.expand_dims(at, axes=[len(out)]))
    place = emit.where(chosen, emit.dense(flat.reshape(*out[lead:], size)), call.number(0, I64))
    return emit.max(parts, axes=[len(out)]), emit.sum(place, axes=[len(out)])
