"""The kernels of odd_sizes.py, with the rule by which extents that were drawn fill a level of memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

from cpu_workloads import (
    SIZES,
    biased_gelu,
    biased_gelu_tanh,
    chain,
    norm_residual,
    rms_norm,
    softmax_of_rows,
    transposed_sum,
)
from gpu_workloads import Shape, Workload, adam, broadcasts, lstm, moments, residual_norm, swiglu

Shapes = tuple[Shape, ...]


@dataclass(frozen=True)
class Draw:
    """Numbers from a seed for a level of memory: even, odd or prime ones, by `kind`."""

    drawer: random.Random
    kind: int
    budget: int
    """Bytes of all inputs and results."""

    def extent(self, least: int, most: int) -> int:
        """Log-uniformly."""
        while True:
            drawn = int(exp(self.drawer.uniform(log(least), log(most))))
            drawn = max(drawn // 2 * 2 + int(self.kind != 0), 2)
            if self.kind < 2 or all(drawn % k for k in range(2, int(drawn**0.5) + 1)):
                return drawn

    def count(self, bytes_each: int) -> int:
        """So many of them fill the level, or half of it."""
        most = max(self.budget // bytes_each, 8)
        return self.extent(most // 2, most)

    def rows(self, bytes_of_row: int) -> int:
        return max(self.budget // bytes_of_row - self.kind, 3)


def erfc_gelu(f: Any, x: Any, bias: Any) -> Any:
    """As jax writes it."""
    v = x + bias
    return v * f.erfc(v * -(0.5**0.5)) * 0.5


def layer_norm(f: Any, x: Any, scale: Any, bias: Any) -> Any:
    return f.layer_norm(x, scale, bias)


def permuted(f: Any, x: Any, y: Any) -> Any:
    return f.permute(x, (1, 0, 2)) * 1.5 + y


def repeated(f: Any, x: Any, y: Any) -> Any:
    return f.tile(x, y.shape[0] // x.shape[0]) * 1.5 + y


def rotated(f: Any, x: Any, sines: Any, cosines: Any) -> Any:
    half = sines.shape[1]
    one, other = f.last(x, 0, half), f.last(x, half, 2 * half)
    return f.concat(one * cosines - other * sines, other * cosines + one * sines)


def waves(f: Any, x: Any) -> Any:
    return f.sin(x * 30.0) * f.cos(x)


def row_sums(f: Any, x: Any, y: Any) -> Any:
    return f.sum(x * y, 1)


def column_sums(f: Any, x: Any) -> Any:
    return f.sum(x, 0)


class KernelPrecision(Workload):
    """Of a program whose narrow floats are rounded at the results of kernels alone, as other compilers do."""

    def text(self) -> str:
        head, rest = super().text().split(" {\n", 1)
        return f'{head} attributes {{graph.precision = "kernel"}} {{\n{rest}'


@dataclass(frozen=True)
class Kernel:
    workload: Workload
    shapes: Callable[[Draw], Shapes]

    def sized(self, draw: Draw) -> Workload:
        return replace(self.workload, shapes=self.shapes(draw))


def _flat(bytes_each: int, inputs: int = 1) -> Callable[[Draw], Shapes]:
    return lambda draw: ((draw.count(bytes_each),),) * inputs


def _rows(wide: int, bytes_each: int, vectors: int = 0, least: int = 64, most: int = 1600) -> Callable[[Draw], Shapes]:
    """So many inputs of rows, and then vectors of a row's length; `bytes_each` of an element in all."""

    def shapes(draw: Draw) -> Shapes:
        row = draw.extent(least, most)
        return ((draw.rows(bytes_each * row), row),) * wide + ((row,),) * vectors

    return shapes


def _broadcasts(draw: Draw) -> Shapes:
    row = draw.extent(64, 1600)
    rows = draw.rows(9 * row)
    return (rows, row), (row,), (rows, 1), (rows, row)


def _lstm(draw: Draw) -> Shapes:
    width = draw.extent(64, 800)
    rows = draw.rows(28 * width)
    return (rows, 4 * width), (rows, width)


def _sides(draw: Draw) -> Shapes:
    side = int((draw.budget / 12) ** 0.5)
    one, other = (draw.extent(side * 9 // 10, side) for _ in range(2))
    return (one, other), (other, one)


def _images(draw: Draw) -> Shapes:
    side, channels = draw.extent(13, 57), draw.extent(16, 64)
    image = (max(draw.budget // (12 * channels * side * side), 1), channels, side, side)
    return image, image, *((channels,),) * 4


def _permuted(draw: Draw) -> Shapes:
    one = draw.extent(9, 64)
    other = max(draw.budget // (12 * 16 * one), 3)
    return (one, other, 16), (other, one, 16)


def _repeated(draw: Draw) -> Shapes:
    row = draw.extent(64, 1600)
    return (row,), (draw.rows(8 * row) * row,)


def _rotated(draw: Draw) -> Shapes:
    half = draw.extent(32, 160)
    rows = draw.rows(24 * half)
    return (rows, 2 * half), (rows, half), (rows, half)


_CHAIN = Workload("W1", "chain with exp, tanh, sigmoid, sqrt", (), chain)
_KEEP = ("f32", "f32", "f32", "i1")
KERNELS: dict[str, Kernel] = {
    workload.name: Kernel(workload, shapes)
    for workload, shapes in (
        (_CHAIN, _flat(8)),
        (replace(_CHAIN, name="W1b", dtypes="bf16"), _flat(4)),
        (KernelPrecision("W1bk", "the same, rounded at results", (), chain, "bf16"), _flat(4)),
        (replace(_CHAIN, name="W1h", dtypes="f16"), _flat(4)),
        (KernelPrecision("W1hk", "the same, rounded at results", (), chain, "f16"), _flat(4)),
        (Workload("W2", "bias + GELU (erf)", (), biased_gelu), _rows(1, 8, 1)),
        (Workload("W2c", "bias + GELU (erfc)", (), erfc_gelu), _rows(1, 8, 1)),
        (Workload("W2t", "bias + GELU (tanh)", (), biased_gelu_tanh), _rows(1, 8, 1)),
        (Workload("W3", "broadcasts, clip, where", (), broadcasts, _KEEP), _broadcasts),
        (Workload("W4", "softmax", (), softmax_of_rows), _rows(1, 8)),
        (Workload("W4n", "softmax of short rows", (), softmax_of_rows), _rows(1, 8, least=9, most=64)),
        (Workload("W4l", "softmax of long rows", (), softmax_of_rows), _rows(1, 8, least=4000, most=60000)),
        (Workload("W5", "dropout, residual, layer norm", (), residual_norm, ("f32", "f32", "i1", "f32", "f32")),
         _rows(3, 17, 2)),
        (Workload("W6", "RMS norm", (), rms_norm), _rows(1, 8, 1)),
        (Workload("W6l", "layer norm", (), layer_norm), _rows(1, 8, 2)),
        (Workload("W6s", "SwiGLU", (), swiglu), _rows(2, 12)),
        (Workload("W7", "Adam, last: the variance", (), adam, donated=(0, 2, 3)), _flat(28, 4)),
        (Workload("W8", "LSTM cell", (), lstm), _lstm),
        (Workload("W9", "mean and variance over axis 0", (), moments), _rows(1, 4)),
        (Workload("W10", "transpose, add, relu", (), transposed_sum), _sides),
        (Workload("W11", "batch norm, relu, residual, last: variance", (), norm_residual), _images),
        (Workload("P16", "rows of 16, permuted", (), permuted), _permuted),
        (Workload("MOD", "x[i % n]", (), repeated), _repeated),
        (Workload("ROPE", "rotated pairs", (), rotated), _rotated),
        (Workload("SIN", "sin and cos", (), waves), _flat(8)),
        (Workload("SUM1", "sums of products along rows", (), row_sums), _rows(2, 8)),
        (Workload("SUM0", "sums over axis 0", (), column_sums), _rows(1, 4)),
    )
}  # fmt: skip
"""By name."""


def workload(name: str, level: str, seed: int, number: int) -> Workload:
    """The kernel at its `number`th extents: even, odd and prime ones in turns."""
    drawer = random.Random(f"{seed} {name} {level} {number}")
    return KERNELS[name].sized(Draw(drawer, (number + seed) % 3, SIZES[level]))
