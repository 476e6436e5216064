"""Graphs of the shapes that models have, for memory planning: each function builds a module of one function `main`.

They hold what planning depends on: branches, skips, saved activations, sizes that shrink and grow. Weights are arguments.
Extents of batches, tokens and images may be sizes, while these are asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import int_array, int_value, shape_attribute
from fuse_opt.dialects.interfaces.shapes import shape, tensor_type
from fuse_opt.dialects.types.size import Extent

_OPS: dict[str, type[GraphOp]] = {
    op.name.removeprefix("graph."): op for op in GRAPH.operations if issubclass(op, GraphOp)
}


_END = 2**63 - 1
"""A stop of all that follows."""


class Net:
    """A function under construction."""

    def __init__(self) -> None:
        self.block = Block()

    def argument(self, *extents: Extent) -> SSAValue:
        return self.block.insert_arg(tensor_type(f32, cast("tuple[int, ...]", extents)), len(self.block.args))

    def __call__(self, name: str, *operands: SSAValue, **properties: Attribute) -> SSAValue:
        """The first result of a new op `graph.<name>`."""
        return self.all(name, *operands, **properties)[0]

    def all(self, name: str, *operands: SSAValue, **properties: Attribute) -> Sequence[SSAValue]:
        op = _OPS[name].build_op(*operands, **properties)
        self.block.add_op(op)
        return op.results

    def finish(self, *results: SSAValue) -> ModuleOp:
        self.block.add_op(ReturnOp(*results))
        types = FunctionType.from_lists([a.type for a in self.block.args], [r.type for r in results])
        return ModuleOp([FuncOp("main", types, Region(self.block))])

    def linear(self, x: SSAValue, width: int) -> SSAValue:
        product = self("matmul", x, self.argument(shape(x)[-1], width))
        return self("add", product, self.argument(width))

    def conv(self, x: SSAValue, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> SSAValue:
        weight = self.argument(channels, shape(x)[1] // groups, kernel, kernel)
        steps, pads = int_array([stride] * 2), int_array([kernel // 2] * 4)
        return self("conv", x, weight, strides=steps, pads=pads, groups=int_value(groups))

    def conv_relu(self, x: SSAValue, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> SSAValue:
        """Convolution, batch normalisation folded into a scale and a bias, and relu."""
        y = self.conv(x, channels, kernel, stride, groups)
        return self("relu", self.scaled(y))

    def scaled(self, x: SSAValue) -> SSAValue:
        channels = shape(x)[1]
        scaled = self("multiply", x, self.argument(channels, 1, 1))
        return self("add", scaled, self.argument(channels, 1, 1))

    def pool(self, x: SSAValue, kind: str = "max_pool", kernel: int = 2, stride: int = 2) -> SSAValue:
        pads = int_array([(kernel - 1) // 2] * 4) if kernel % 2 else int_array([0] * 4)
        sizes = {"kernel_shape": int_array([kernel] * 2), "strides": int_array([stride] * 2)}
        return self(kind, x, pads=pads, **sizes)

    def joined(self, values: Sequence[SSAValue]) -> SSAValue:
        return values[0] if len(values) == 1 else self("concat", *values, axis=int_value(1))

    def classified(self, x: SSAValue, classes: int = 100) -> SSAValue:
        pooled = self("mean", x, axes=int_array([2, 3]))
        return self("softmax", self.linear(pooled, classes), axis=int_value(-1))

    def flattened(self, x: SSAValue, *extents: Extent) -> SSAValue:
        return self("reshape", x, shape=shape_attribute(extents))

    def swapped(self, x: SSAValue, *axes: int) -> SSAValue:
        return self("permute_dims", x, axes=int_array(axes))


def transformer(layers: int = 6, batch: Extent = 2, tokens: Extent = 128, width: int = 256, heads: int = 8) -> ModuleOp:
    """The forward pass of pre-norm encoder blocks (Vaswani et al. 2017)."""
    net = Net()
    x = net.argument(batch, tokens, width)
    for _ in range(layers):
        normal = net("layer_norm", x, net.argument(width), net.argument(width))
        q, k, v = (_split_heads(net, net.linear(normal, width), heads) for _ in range(3))
        scores = net("matmul", q, net.swapped(k, 0, 1, 3, 2))
        mixed = net("matmul", net("softmax", scores, axis=int_value(-1)), v)
        merged = net.flattened(net.swapped(mixed, 0, 2, 1, 3), batch, tokens, width)
        x = net("add", x, net.linear(merged, width))
        normal = net("layer_norm", x, net.argument(width), net.argument(width))
        x = net("add", x, net.linear(net("gelu", net.linear(normal, 4 * width)), width))
    return net.finish(x)


def _split_heads(net: Net, x: SSAValue, heads: int) -> SSAValue:
    batch, tokens, width = shape(x)
    return net.swapped(net.flattened(x, batch, tokens, heads, width // heads), 0, 2, 1, 3)


def training_step(depth: int = 8, batch: Extent = 64, width: int = 256) -> ModuleOp:
    """Forward, backward with saved activations, and the new weights of a residual perceptron, by gradient descent."""
    net = Net()
    x, target, rate = net.argument(batch, width), net.argument(batch, width), net.argument()
    weights = [(net.argument(width, 2 * width), net.argument(2 * width, width)) for _ in range(depth)]
    saved: list[tuple[SSAValue, SSAValue, SSAValue]] = []
    for first, second in weights:
        hidden = net("matmul", x, first)
        active = net("relu", hidden)
        saved.append((x, hidden, active))
        x = net("add", x, net("matmul", active, second))
    gradient = net("subtract", x, target)
    loss = net("mean", net("square", gradient))
    zero = net("subtract", rate, rate)
    steps: list[tuple[SSAValue, SSAValue]] = []
    for (first, second), (before, hidden, active) in zip(reversed(weights), reversed(saved), strict=True):
        to_second = net("matmul", net.swapped(active, 1, 0), gradient)
        to_active = net("matmul", gradient, net.swapped(second, 1, 0))
        to_hidden = net("where", net("greater", hidden, zero), to_active, zero)
        to_first = net("matmul", net.swapped(before, 1, 0), to_hidden)
        gradient = net("add", gradient, net("matmul", to_hidden, net.swapped(first, 1, 0)))
        steps += [(first, to_first), (second, to_second)]
    return net.finish(loss, *(net("subtract", w, net("multiply", rate, g)) for w, g in steps))


def convolution_training(depth: int = 4, images: Extent = 32, size: int = 16, channels: int = 16) -> ModuleOp:
    """The same of residual blocks of two convolutions."""
    net = Net()
    pads = int_array([1] * 4)
    x, target = (net.argument(images, channels, size, size) for _ in range(2))
    rate = net.argument()
    weights = [tuple(net.argument(channels, channels, 3, 3) for _ in range(2)) for _ in range(depth)]
    saved: list[tuple[SSAValue, SSAValue, SSAValue]] = []
    for first, second in weights:
        hidden = net("conv", x, first, pads=pads)
        active = net("relu", hidden)
        saved.append((x, hidden, active))
        x = net("add", x, net("conv", active, second, pads=pads))
    gradient, zero = net("subtract", x, target), net("subtract", rate, rate)
    loss = net("mean", net("square", gradient))
    steps: list[tuple[SSAValue, SSAValue]] = []
    window, extents = int_array([3, 3]), int_array([size, size])
    for (first, second), (before, hidden, active) in zip(reversed(weights), reversed(saved), strict=True):
        to_second = net("conv_backward_weight", gradient, active, pads=pads, kernel_shape=window)
        to_active = net("conv_backward_data", gradient, second, pads=pads, shape=extents)
        to_hidden = net("where", net("greater", hidden, zero), to_active, zero)
        to_first = net("conv_backward_weight", to_hidden, before, pads=pads, kernel_shape=window)
        gradient = net("add", gradient, net("conv_backward_data", to_hidden, first, pads=pads, shape=extents))
        steps += [(first, to_first), (second, to_second)]
    return net.finish(loss, *(net("subtract", w, net("multiply", rate, g)) for w, g in steps))


def unet(levels: int = 4, size: Extent = 64, channels: int = 16) -> ModuleOp:
    """Contracting and expanding path with skips (Ronneberger et al. 2015)."""
    net = Net()
    x = net.argument(1, 3, size, size)
    skips: list[SSAValue] = []
    for level in range(levels):
        x = net.conv_relu(net.conv_relu(x, channels << level), channels << level)
        skips.append(x)
        x = net.pool(x)
    x = net.conv_relu(net.conv_relu(x, channels << levels), channels << levels)
    for level in reversed(range(levels)):
        weight = net.argument(shape(x)[1], channels << level, 2, 2)
        up = net("conv_transpose", x, weight, strides=int_array([2, 2]))
        x = net.joined([skips[level], up])
        x = net.conv_relu(net.conv_relu(x, channels << level), channels << level)
    return net.finish(net.conv(x, 2, 1))


def densenet(blocks: int = 3, layers: int = 6, growth: int = 12, size: Extent = 32) -> ModuleOp:
    """Each layer reads all before it in its block (Huang et al. 2017)."""
    net = Net()
    x = net.conv_relu(net.argument(1, 3, size, size), 2 * growth)
    for block in range(blocks):
        values = [x]
        for _ in range(layers):
            bottleneck = net.conv_relu(net.joined(values), 4 * growth, 1)
            values.append(net.conv_relu(bottleneck, growth))
        x = net.joined(values)
        if block + 1 < blocks:
            x = net.pool(net.conv_relu(x, shape(x)[1] // 2, 1), "avg_pool")
    return net.finish(net.classified(x))


def nas_cells(cells: int = 4, size: int = 32, channels: int = 24, images: Extent = 1) -> ModuleOp:
    """Cells of five pairwise sums of separable convolutions and pools of two inputs, as in NASNet-A (Zoph et al. 2018)."""
    net = Net()
    before = last = net.conv_relu(net.argument(images, 3, size, size), channels)
    for _ in range(cells):
        a, b = net.conv_relu(before, channels, 1), net.conv_relu(last, channels, 1)
        sums = [
            net("add", _separable(net, b, 3), b),
            net("add", _separable(net, a, 3), _separable(net, b, 5)),
            net("add", net.pool(b, "avg_pool", 3, 1), a),
            net("add", net.pool(a, "avg_pool", 3, 1), net.pool(a, "max_pool", 3, 1)),
            net("add", _separable(net, a, 5), _separable(net, a, 3)),
        ]
        before, last = last, net.joined([a, *sums])
    return net.finish(net.classified(last))


def _separable(net: Net, x: SSAValue, kernel: int) -> SSAValue:
    channels = shape(x)[1]
    for _ in range(2):
        x = net.conv_relu(net.conv(x, channels, kernel, groups=channels), channels, 1)
    return x


def randomly_wired(nodes: int = 32, size: Extent = 16, channels: int = 32, seed: int = 1) -> ModuleOp:
    """A Watts-Strogatz graph (k = 4, p = 0.75) made acyclic by its numbers (Xie et al. 2019)."""
    rng, net = random.Random(seed), Net()
    edges: set[tuple[int, int]] = set()
    for a in range(nodes):
        for step in (1, 2):
            b = (a + step) % nodes
            if rng.random() < 0.75:
                b = rng.choice([n for n in range(nodes) if n != a and (min(a, n), max(a, n)) not in edges])
            edges.add((min(a, b), max(a, b)))
    x = net.conv_relu(net.argument(1, 3, size, size), channels)
    made: list[SSAValue] = []
    for node in range(nodes):
        inputs = [made[a] for a, b in sorted(edges) if b == node] or [x]
        total = inputs[0]
        for value in inputs[1:]:
            total = net("add", total, value)
        made.append(net.scaled(_separable_once(net, net("relu", total))))
    ends = [made[node] for node in range(nodes) if all(a != node for a, _ in edges)]
    total = ends[0]
    for value in ends[1:]:
        total = net("add", total, value)
    return net.finish(net.classified(total))


def _separable_once(net: Net, x: SSAValue) -> SSAValue:
    return net.conv(net.conv(x, shape(x)[1], groups=shape(x)[1]), shape(x)[1], 1)


def mobilenet(size: Extent = 64, width: int = 8) -> ModuleOp:
    """Inverted residual blocks (Sandler et al. 2018)."""
    net = Net()
    x = net.conv_relu(net.argument(1, 3, size, size), width, stride=2)
    for channels, count, stride in ((width, 1, 1), (2 * width, 2, 2), (3 * width, 3, 2), (6 * width, 3, 2)):
        for number in range(count):
            inner = net.conv_relu(x, 6 * shape(x)[1], 1)
            inner = net.conv_relu(inner, shape(inner)[1], 3, stride if number == 0 else 1, shape(inner)[1])
            projected = net.scaled(net.conv(inner, channels, 1))
            x = net("add", x, projected) if shape(x) == shape(projected) else projected
    return net.finish(net.classified(x))


def inception(blocks: int = 4, size: Extent = 32) -> ModuleOp:
    """Blocks of four branches that are joined (Szegedy et al. 2015)."""
    net = Net()
    x = net.conv_relu(net.argument(1, 3, size, size), 32)
    for number in range(blocks):
        branches = [
            net.conv_relu(x, 32, 1),
            net.conv_relu(net.conv_relu(x, 24, 1), 48),
            net.conv_relu(net.conv_relu(x, 8, 1), 16, 5),
            net.conv_relu(net.pool(x, "max_pool", 3, 1), 16, 1),
        ]
        x = net.joined(branches)
        if number % 2:
            x = net.pool(x)
    return net.finish(net.classified(x))


def lstm(steps: int = 16, batch: Extent = 16, width: int = 128) -> ModuleOp:
    """A layer of long short-term memory, unrolled; all hidden states are returned joined."""
    net = Net()
    inputs = net.argument(batch, steps, width)
    h, c = net.argument(batch, width), net.argument(batch, width)
    w, u, bias = net.argument(width, 4 * width), net.argument(width, 4 * width), net.argument(4 * width)
    hidden: list[SSAValue] = []
    for step in range(steps):
        x = _part(net, inputs, [0, step, 0], [_END, step + 1, width])
        x = net.flattened(x, batch, width)
        gates = net("add", net("add", net("matmul", x, w), net("matmul", h, u)), bias)
        i, f, g, o = (_part(net, gates, [0, n * width], [_END, (n + 1) * width]) for n in range(4))
        kept = net("multiply", net("sigmoid", f), c)
        c = net("add", kept, net("multiply", net("sigmoid", i), net("tanh", g)))
        h = net("multiply", net("sigmoid", o), net("tanh", c))
        hidden.append(h)
    return net.finish(net.joined(hidden), c)


def _part(net: Net, x: SSAValue, starts: Sequence[int], stops: Sequence[int]) -> SSAValue:
    return net("slice", x, starts=int_array(starts), stops=int_array(stops))


def resnet(blocks: Sequence[int] = (2, 2, 2, 2), size: Extent = 64, width: int = 16) -> ModuleOp:
    """Residual blocks of two convolutions (He et al. 2016)."""
    net = Net()
    x = net.pool(net.conv_relu(net.argument(1, 3, size, size), width, 7, 2), "max_pool", 3, 2)
    for stage, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if stage and not number else 1
            y = net.conv_relu(x, width << stage, 3, stride)
            y = net.scaled(net.conv(y, width << stage))
            skip = x if shape(x) == shape(y) else net.scaled(net.conv(x, width << stage, 1, stride))
            x = net("relu", net("add", y, skip))
    return net.finish(net.classified(x))


def wide_and_deep(batch: Extent = 256, fields: int = 12, width: int = 64) -> ModuleOp:
    """A linear model beside a perceptron over many embedded fields (Cheng et al. 2016)."""
    net = Net()
    embedded = [net("relu", net.linear(net.argument(batch, 32), width)) for _ in range(fields)]
    crossed = [net("multiply", a, b) for a, b in pairwise(embedded)]
    x = net.joined(embedded)
    for size in (512, 256, 128):
        x = net("relu", net.linear(x, size))
    total = net("add", net.linear(x, 1), net.linear(net.joined(crossed), 1))
    return net.finish(net("sigmoid", total))


def multi_tower(towers: int = 6, batch: Extent = 64, width: int = 128) -> ModuleOp:
    """Towers that widen each on its own, all begun before any is finished, and are joined at last."""
    net = Net()
    x = net.argument(batch, width)
    wide = [net("tanh", net.linear(x, (n + 2) * 2 * width)) for n in range(towers)]
    middle = [net("tanh", net.linear(value, 4 * width)) for value in wide]
    narrow = [net("tanh", net.linear(value, width // 4)) for value in middle]
    return net.finish(net("relu", net.linear(net.joined(narrow), width)))


GRAPHS: dict[str, Callable[[], ModuleOp]] = {
    "transformer": transformer,
    "training_step": training_step,
    "convolution_training": convolution_training,
    "unet": unet,
    "densenet": densenet,
    "nas_cells": nas_cells,
    "randomly_wired": randomly_wired,
    "mobilenet": mobilenet,
    "inception": inception,
    "lstm": lstm,
    "resnet": resnet,
    "wide_and_deep": wide_and_deep,
    "multi_tower": multi_tower,
}
"""By name."""
