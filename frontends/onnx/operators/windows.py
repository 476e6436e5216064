"""ONNX operators over windows: convolutions, pooling, and what undoes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fuse_opt.dialects.graph.windows.pool_geometry import PoolAxis
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.movement import sliced
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler


def geometry(n: Node, sizes: Sequence[int], kernel: Sequence[int]) -> dict[str, list[int]]:
    """Strides, dilations and pads of a window of extents `kernel` over axes of extents `sizes`."""
    count = len(sizes)
    strides, dilations = n.integers("strides", [1] * count), n.integers("dilations", [1] * count)
    pads, mode = n.integers("pads", [0] * 2 * count), n.text("auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        before: list[int] = []
        after: list[int] = []
        for size, window, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
            total = max((-(-size // stride) - 1) * stride + dilation * (window - 1) + 1 - size, 0)
            before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
            after.append(total - before[-1])
        pads = before + after
    elif mode == "VALID":
        pads = [0] * 2 * count
    return {"strides": strides, "dilations": dilations, "pads": pads}


def window_axes(n: Node, sizes: Sequence[int], kernel: Sequence[int]) -> list[PoolAxis]:
    """Where the windows of a pool lie along axes of extents `sizes`."""
    at, count = geometry(n, sizes, kernel), len(kernel)
    along = zip(sizes, kernel, at["strides"], at["pads"][:count], at["pads"][count:], at["dilations"], strict=True)
    return [PoolAxis(*axis, ceil=n.flag("ceil_mode")) for axis in along]


def _without_windows(n: Node, g: Emitter) -> list[Value]:
    """The results of a pool whose window is one element too long for an axis, or within a stride of that; else none."""
    x, kernel = n.operand(0), n.integers("kernel_shape")
    windows = [axis.windows for axis in window_axes(n, extents(x)[2:], kernel)]
    numbers = [count for count in windows if is_number(count)]
    if min(numbers, default=1) != 0:
        return []
    return [g.number(0, element, [*extents(x)[:2], *windows]) for element in (dtype(x), I64)]


@handler("AveragePool")
def average_pool(n: Node, g: Emitter) -> Results:
    if none := _without_windows(n, g):
        return none[0]
    return g.avg_pool(n.operand(0), count_include_pad=n.flag("count_include_pad"), **_pool(n))


@handler("MaxPool")
def max_pool(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    if none := _without_windows(n, g):
        return none
    if not n.wants(1):
        return g.max_pool(x, **_pool(n))
    y, indices = g.all("max_pool_with_indices", x, over_tensor=True, **_pool(n))
    return [y, _column_major(g, indices, extents(x)) if n.flag("storage_order") else indices]


def _pool(n: Node) -> dict[str, Any]:
    kernel = n.integers("kernel_shape")
    return {
        "kernel_shape": kernel,
        "ceil_mode": n.flag("ceil_mode"),
        **geometry(n, extents(n.operand(0))[2:], kernel),
    }


def _column_major(g: Emitter, indices: Value, shape: Sequence[int]) -> Value:
    """Row-major positions as those of an order in which the first spatial axis runs fastest."""

    def number(value: int) -> Value:
        return g.like(value, indices)

    rest = g.remainder(indices, number(math.prod(shape[2:])))
    result, weight = g.subtract(indices, rest), 1
    for axis in range(2, len(shape)):
        place = g.floor_divide(rest, number(math.prod(shape[axis + 1 :])))
        place = g.remainder(place, number(shape[axis]))
        result, weight = g.add(result, g.multiply(place, number(weight))), weight * shape[axis]
    return result


@handler("LpPool")
def lp_pool(n: Node, g: Emitter) -> Results:
    x, kernel, p = n.operand(0), n.integers("kernel_shape"), n.integer("p", 2)
    if none := _without_windows(n, g):
        return none[0]
    window, count = geometry(n, extents(x)[2:], kernel), len(kernel)
    behind = [axis.behind for axis in window_axes(n, extents(x)[2:], kernel)]
    y = g.pow(g.abs(x), g.like(p, x))
    y = g.pad(y, pads=[0, 0, *window["pads"][:count], 0, 0, *behind])
    y = g.window_sum(y, window=kernel, strides=window["strides"], dilations=window["dilations"])
    return g.pow(y, g.like(1 / p, x))


@handler("GlobalAveragePool")
def global_average_pool(n: Node, g: Emitter) -> Results:
    return g.global_avg_pool(n.operand(0))


@handler("GlobalMaxPool")
def global_max_pool(n: Node, g: Emitter) -> Results:
    return g.global_max_pool(n.operand(0))


@handler("GlobalLpPool")
def global_lp_pool(n: Node, g: Emitter) -> Results:
    x, p = n.operand(0), n.integer("p", 2)
    axes = list(range(2, rank(x)))
    if p == 2:
        return g.norm2(x, axes=axes, keepdims=True)
    return g.pow(g.sum(g.pow(g.abs(x), g.like(p, x)), axes=axes, keepdims=True), g.like(1 / p, x))


@handler("MaxUnpool")
def max_unpool(n: Node, g: Emitter) -> Results:
    x, indices, kernel = n.operand(0), n.operand(1), n.integers("kernel_shape")
    shape, count = extents(x), len(kernel)
    strides, pads = n.integers("strides", [1] * count), n.integers("pads", [0] * 2 * count)
    spatial = [
        (size - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + count]
        for axis, size in enumerate(shape[2:])
    ]
    inner = [*shape[:2], *spatial]
    outer = n.known_integers(2) if n.has(2) else inner
    flat = g.number(0, dtype(x), [math.prod(inner)])
    written = math.prod(shape)
    y = g.scatter(flat, g.reshape(indices, shape=[written]), g.reshape(x, shape=[written]), axis=0)
    y = g.reshape(y, shape=inner)
    return g.pad(y, pads=[0] * len(inner) + [a - b for a, b in zip(outer or inner, inner, strict=True)])


def convolution(n: Node, g: Emitter, x: Value, weight: Value, bias: Sequence[Value] = ()) -> Value:
    """A convolution with the node's attributes and, where one is given, a bias for each channel."""
    window = geometry(n, extents(x)[2:], extents(weight)[2:])
    y = g.conv(x, weight, groups=n.integer("group", 1), **window)
    return _with_bias(g, y, bias)


def _with_bias(g: Emitter, y: Value, bias: Sequence[Value]) -> Value:
    for value in bias:
        y = g.add(y, g.reshape(value, shape=[extents(value)[0]] + [1] * (rank(y) - 2)))
    return y


@handler("Conv")
def conv(n: Node, g: Emitter) -> Results:
    return convolution(n, g, n.operand(0), n.operand(1), n.optional(2))


@handler("ConvTranspose")
def conv_transpose(n: Node, g: Emitter) -> Results:
    x, weight = n.operand(0), n.operand(1)
    kernel, sizes, count = extents(weight)[2:], extents(x)[2:], rank(x) - 2
    strides, dilations = n.integers("strides", [1] * count), n.integers("dilations", [1] * count)
    padding, pads = n.integers("output_padding", [0] * count), n.integers("pads", [0] * 2 * count)
    wanted, mode = n.integers("output_shape"), n.text("auto_pad", "NOTSET")
    if mode.startswith("SAME") and not wanted:
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    for axis, size in enumerate(wanted[-count:] if wanted else ()):
        whole = strides[axis] * (sizes[axis] - 1) + padding[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = whole - size
        if total < 0:
            padding[axis] -= total
            total = 0
        less, more = total // 2, total - total // 2
        pads[axis], pads[axis + count] = (less, more) if mode == "SAME_UPPER" else (more, less)
    window = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": padding}
    y = g.conv_transpose(x, weight, groups=n.integer("group", 1), **window)
    return _with_bias(g, y, n.optional(2))


@handler("Col2Im")
def col2im(n: Node, g: Emitter) -> Results:
    """The transposed convolution whose weights put each row of a column at its place in the window."""
    x, image, block = n.operand(0), n.known_integers(1) or [], n.known_integers(2) or []
    count, area = len(image), math.prod(block)
    batch, rows, _ = extents(x)
    channels = rows // area
    strides, dilations = n.integers("strides", [1] * count), n.integers("dilations", [1] * count)
    pads = n.integers("pads", [0] * 2 * count)
    reach = [dilations[axis] * (block[axis] - 1) + 1 for axis in range(count)]
    room = [image[axis] + pads[axis] + pads[axis + count] - reach[axis] for axis in range(count)]
    places = [room[axis] // strides[axis] + 1 for axis in range(count)]
    rest = [room[axis] % strides[axis] for axis in range(count)]
    weight = g.reshape(g.eye(n=area, dtype=dtype(x)), shape=[area, 1, *block])
    weight = g.tile(weight, repeats=[channels, 1] + [1] * count)
    window = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": rest}
    return g.conv_transpose(g.reshape(x, shape=[batch, rows, *places]), weight, groups=channels, **window)


@handler("CausalConvWithState")
def causal_conv_with_state(n: Node, g: Emitter) -> Results:
    x, weight = n.operand(0), n.operand(1)
    channels, width = extents(x)[1], extents(weight)[2]
    whole = g.concat(n.operand(3), x, axis=2) if n.has(3) else g.pad(x, pads=[0, 0, width - 1, 0, 0, 0])
    y = g.conv(whole, weight, groups=channels)
    if n.has(2):
        y = g.add(y, g.reshape(n.operand(2), shape=[channels, 1]))
    if n.text("activation", "none") != "none":
        y = g.silu(y)
    length = extents(whole)[2]
    return [y, sliced(g, whole, [length - width + 1], [length], [2], [1])]
