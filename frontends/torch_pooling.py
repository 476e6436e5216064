"""Records of pooling: the largest of the elements of a window, one axis after the other, as strided slices."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue

from fuse_opt.dialects.dtypes import BOOL, I64
from fuse_opt.dialects.graph_op import dtype, shape
from fuse_opt.frontends.torch_records import Call, NotCoveredError, records

POOLING, record = records()
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


@record("aten.max_pool2d_with_indices.default")
def _max_pool(call: Call) -> Sequence[SSAValue]:
    windows = _windows(call)
    if call.exported:
        return _library_max_pool(call)
    x = call.tensor("self")
    if not dtype(x).is_float or any(w.size > _WIDEST for w in windows) or 0 in call.extents(call.out[0]):
        raise NotCoveredError("is of integers, empty, or has wide windows")
    if not _takes_indices(call):
        for window in reversed(windows):
            first, *others = _slices(call, x, window, -math.inf)
            for other in others:
                first = call.emit.maximum(first, other)
            x = first
        return x, call.number(0, I64, call.extents(call.out[1]))
    extents = shape(x)
    position = call.emit.iota(shape=[extents[-1]], dtype=I64, axis=0)
    where = call.emit.broadcast_to(position, shape=list(extents))
    x, where = _largest(call, x, where, windows[1])
    rows = call.emit.iota(shape=[extents[-2], 1], dtype=I64, axis=0)
    where = call.emit.add(where, call.emit.multiply(rows, call.number(extents[-1], I64)))
    return _largest(call, x, where, windows[0])


def _takes_indices(call: Call) -> bool:
    return any(user.target is not operator.getitem or user.args[1] == 1 for user in call.node.users)


def _windows(call: Call) -> tuple[_Window, _Window]:
    size, padding, dilation = _pair(call, "kernel_size"), _pair(call, "padding"), _pair(call, "dilation")
    step = _pair(call, "stride") or size
    out = call.extents(call.out[0])
    rank = len(out)
    rows, columns = (
        _Window(rank - 2 + k, size[k], step[k], padding[k], dilation[k], out[rank - 2 + k]) for k in (0, 1)
    )
    return rows, columns


def _slices(call: Call, x: SSAValue, window: _Window, outside: float) -> list[SSAValue]:
    """By position in the window, the elements there of all windows along the axis."""
    extents, axis = list(shape(x)), window.axis
    last = (window.count - 1) * window.step + (window.size - 1) * window.apart + 1
    pads = [0] * (2 * len(extents))
    pads[axis], pads[len(extents) + axis] = window.before, max(last - window.before - extents[axis], 0)
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


def _largest(call: Call, x: SSAValue, where: SSAValue, window: _Window) -> tuple[SSAValue, SSAValue]:
    """The largest element of each window along an axis and its index: the first of equal ones, the last NaN."""
    emit = call.emit
    values, places = _slices(call, x, window, -math.inf), _slices(call, where, window, 0)
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
    return best, place


def _library_max_pool(call: Call) -> Sequence[SSAValue]:
    size = _pair(call, "kernel_size")
    options = {
        "kernel_shape": size,
        "strides": _pair(call, "stride") or size,
        "pads": _pair(call, "padding") * 2,
        "dilations": _pair(call, "dilation"),
        "ceil_mode": bool(call["ceil_mode"]),
    }
    x = call.tensor("self")
    x = x if len(shape(x)) == 4 else call.reshaped(x, [1, *shape(x)])
    y, indices = call.emit.all("max_pool_with_indices", x, **options)
    return call.reshaped(y, call.extents(call.out[0])), call.reshaped(indices, call.extents(call.out[1]))


def _pair(call: Call, name: str) -> list[int]:
    given = list(call[name])
    return given * (2 // len(given)) if given else []
