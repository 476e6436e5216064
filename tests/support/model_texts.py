"""Models as text: ResNet-50 as it is for inference, a quantised network of two layers, and what reads values again later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Of ResNet-50: channels inside of a block, and blocks."""


def tensor(*extents: int, element: str = "f32") -> str:
    return f"tensor<{'x'.join((*map(str, extents), element))}>"


@dataclass
class Text:
    """A function under construction; weights are frozen arguments."""

    arguments: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])

    def weight(self, *extents: int, element: str = "f32") -> tuple[str, str]:
        name, type_ = f"%w{len(self.arguments)}", tensor(*extents, element=element)
        self.arguments.append(f"{name}: {type_} {{graph.frozen}}")
        return name, type_

    def op(self, name: str, operands: Sequence[tuple[str, str]], type_: str, attributes: str = "") -> tuple[str, str]:
        values, types = ", ".join(v for v, _ in operands), ", ".join(t for _, t in operands)
        result = f"%v{len(self.lines)}"
        attributes = attributes and f" {{{attributes}}}"
        self.lines.append(f"  {result} = graph.{name} {values}{attributes} : ({types}) -> {type_}")
        return result, type_

    def function(self, x: str, result: tuple[str, str]) -> str:
        arguments = ", ".join((f"%x: {x}", *self.arguments))
        body = "\n".join(self.lines)
        return f"func.func @main({arguments}) -> {result[1]} {{\n{body}\n  func.return {result[0]} : {result[1]}\n}}\n"


class _ResNet(Text):
    size = 224

    def conv(self, x: tuple[str, str], ins: int, outs: int, window: int, stride: int = 1) -> tuple[str, str]:
        """A convolution and its bias: the normalisation behind it is in its weights."""
        self.size = -(-self.size // stride)
        pads = ", ".join([str(window // 2)] * 4)
        attributes = f"strides = array<i64: {stride}, {stride}>, pads = array<i64: {pads}>"
        type_ = tensor(1, outs, self.size, self.size)
        found = self.op("conv", [x, self.weight(outs, ins, window, window)], type_, attributes)
        return self.op("add", [found, self.weight(outs, 1, 1)], type_)

    def relu(self, x: tuple[str, str]) -> tuple[str, str]:
        return self.op("relu", [x], x[1])

    def block(self, x: tuple[str, str], ins: int, inner: int, stride: int) -> tuple[str, str]:
        before = self.size
        y = self.relu(self.conv(x, ins, inner, 1))
        y = self.relu(self.conv(y, inner, inner, 3, stride))
        y = self.conv(y, inner, 4 * inner, 1)
        if ins != 4 * inner or stride > 1:
            self.size = before
            x = self.conv(x, ins, 4 * inner, 1, stride)
        return self.relu(self.op("add", [y, x], y[1]))


def resnet50() -> str:
    """Of one image, from [1, 3, 224, 224] to 1000 numbers; 53 convolutions and a product."""
    net, image = _ResNet(), tensor(1, 3, 224, 224)
    x = net.relu(net.conv(("%x", image), 3, 64, 7, 2))
    net.size = 56
    attributes = "kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>"
    x, ins = net.op("max_pool", [x], tensor(1, 64, 56, 56), attributes), 64
    for number, (inner, blocks) in enumerate(STAGES):
        for block in range(blocks):
            x = net.block(x, ins, inner, 2 if number and not block else 1)
            ins = 4 * inner
    x = net.op("mean", [x], tensor(1, ins), "axes = array<i64: 2, 3>")
    x = net.op("matmul", [x, net.weight(ins, 1000)], tensor(1, 1000))
    return net.function(image, net.op("add", [x, net.weight(1000)], tensor(1, 1000)))


def quantized_mlp(rows: int = 32, widths: Sequence[int] = (256, 512, 64)) -> str:
    """Products of ui8 by i8 in i32, scaled and quantised again, with a ReLU between."""
    net, source = Text(), tensor(rows, widths[0], element="ui8")
    x = "%x", source
    for number, (ins, outs) in enumerate(pairwise(widths)):
        wide, real = tensor(rows, outs, element="i32"), tensor(rows, outs)
        x = net.op("matmul", [x, net.weight(ins, outs, element="i8")], wide, "dtype = i32")
        x = net.op("add", [x, net.weight(outs, element="i32")], wide)
        x = net.op("multiply", [net.op("astype", [x], real, "dtype = f32"), net.weight(outs)], real)
        if number + 2 < len(widths):
            scale, zero = net.weight(), net.weight(element="ui8")
            x = net.op("quantize_linear", [net.op("relu", [x], real), scale, zero], tensor(rows, outs, element="ui8"))
    return net.function(source, x)


def quantized_convolutions(size: int = 14, widths: Sequence[int] = (32, 64, 64)) -> str:
    """Convolutions of ui8 by i8 in i32, channels last, 3x3 and then 1x1, scaled and quantised again."""
    net, x = Text(), ("%x", tensor(1, size, size, widths[0], element="ui8"))
    for number, (ins, outs) in enumerate(pairwise(widths)):
        window, extents = (1, 1) if number else (3, 3), (1, size, size, outs)
        pads = ", ".join([str(window[0] // 2)] * 4)
        operands = [x, net.weight(*window, ins, outs, element="i8")]
        x = net.op("conv_integer", operands, tensor(*extents, element="i32"), f"pads = array<i64: {pads}>")
        x = net.op("add", [x, net.weight(outs, element="i32")], x[1])
        x = net.op("astype", [x], tensor(*extents), "dtype = f32")
        x = net.op("multiply", [x, net.weight(outs)], x[1])
        x = net.op("quantize_linear", [x, net.weight(), net.weight(element="ui8")], tensor(*extents, element="ui8"))
    return net.function(tensor(1, size, size, widths[0], element="ui8"), x)


def gradient_text(layers: int, row: str = "tanh $", mark: str = " {graph.frozen}") -> str:
    """A chain of products and ops, `$` is what these read, and what reads its values again in the other order."""
    type_ = tensor(128, 128)

    def op(result: str, text: str, *operands: str) -> str:
        types = ", ".join([type_] * len(operands))
        return f"%{result} = graph.{text} : ({types}) -> {type_}".replace("$", ", ".join(operands))

    lines: list[str] = []
    for k in range(layers):
        lines += [op(f"p{k}", "matmul $", f"%x{k}", "%w"), op(f"x{k + 1}", row, f"%p{k}")]
    last = f"%x{layers}"
    for k in reversed(range(layers)):
        lines += [op(f"a{k}", "multiply $", last, f"%x{k + 1}"), op(f"d{k}", "matmul $", f"%a{k}", "%w")]
        last = f"%d{k}"
    body = "\n  ".join([*lines, f"func.return {last} : {type_}"])
    return f"func.func @main(%x0: {type_}, %w: {type_}{mark}) -> {type_} {{\n  {body}\n}}\n"
