"""The workloads of benchmarks/gpu_run.py, each written once: as a program of this package's, and as functions of torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, ...]

BLOCK = Path(__file__).resolve().parent.parent / "examples" / "transformer_block.mlir"
BLOCK_SHAPES: tuple[Shape, ...] = (
    (4, 256, 512), (256, 256), (512,), (512,), (512, 1536), (1536,), (512, 512), (512,), (512,), (512,), (512, 2048),
    (2048,), (2048, 512), (512,),
)  # fmt: skip


@dataclass
class Program:
    """MLIR text under construction, with the functions that workloads call."""

    lines: list[str] = field(default_factory=list[str])
    constants: dict[str, Value] = field(default_factory=dict[str, "Value"])

    def op(
        self, name: str, operands: Sequence[Value | float], shape: Shape | None = None, attributes: str = ""
    ) -> Value:
        """An op of the graph dialect; its shape is that of broadcasting where none is given."""
        first = next(value for value in operands if isinstance(value, Value))
        values = [self.constant(v, first.dtype) if not isinstance(v, Value) else v for v in operands]
        if shape is None:
            shape = np.broadcast_shapes(*(value.shape for value in values))
        result = Value(self, f"%v{len(self.lines)}", shape, next(v.dtype for v in reversed(values)))
        names, types = (", ".join(texts) for texts in zip(*((v.name, v.type) for v in values), strict=True))
        self.lines.append(f"  {result.name} = graph.{name} {names} {attributes}: ({types}) -> {result.type}")
        return result

    def constant(self, value: float, dtype: str) -> Value:
        text = f"graph.constant dense<{value:.17e}> : tensor<{dtype}>"
        if text not in self.constants:
            made = Value(self, f"%v{len(self.lines)}", (), dtype)
            self.lines.append(f"  {made.name} = {text}")
            self.constants[text] = made
        return self.constants[text]

    def __getattr__(self, name: str) -> Callable[..., Value]:
        """Ops that need nothing but their operands are called by their names."""
        return lambda *operands: self.op(name, operands)

    def sigmoid(self, x: Value) -> Value:
        return self.op("sigmoid", [x])

    def gelu(self, x: Value, approximate: str) -> Value:
        return self.op("gelu", [x], attributes=f'{{approximate = "{approximate}"}} ')

    def softmax(self, x: Value) -> Value:
        return self.op("softmax", [x], attributes="{axis = -1 : i64} ")

    def layer_norm(self, x: Value, scale: Value, bias: Value) -> Value:
        return self.op("layer_norm", [x, scale, bias], x.shape, "{axis = -1 : i64, epsilon = 1.0e-05 : f64} ")

    def rms_norm(self, x: Value, scale: Value) -> Value:
        return self.op("rms_norm", [x, scale], x.shape, "{axis = -1 : i64, epsilon = 1.0e-05 : f64} ")

    def batch_norm(self, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
        return self.op("batch_norm", [x, scale, bias, mean, variance], x.shape, "{epsilon = 1.0e-05 : f64} ")

    def mean(self, x: Value, axis: int) -> Value:
        return self._reduced("mean", x, axis)

    def var(self, x: Value, axis: int) -> Value:
        return self._reduced("var", x, axis)

    def _reduced(self, name: str, x: Value, axis: int) -> Value:
        shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
        return self.op(name, [x], shape, f"{{axes = array<i64: {axis}>}} ")

    def sum(self, x: Value, axis: int) -> Value:
        return self._reduced("sum", x, axis)

    def transpose(self, x: Value) -> Value:
        return self.permute(x, (1, 0))

    def permute(self, x: Value, axes: tuple[int, ...]) -> Value:
        numbers = ", ".join(map(str, axes))
        return self.op("permute_dims", [x], tuple(x.shape[k] for k in axes), f"{{axes = array<i64: {numbers}>}} ")

    def tile(self, x: Value, times: int) -> Value:
        return self.op("tile", [x], (x.shape[0] * times,), f"{{repeats = array<i64: {times}>}} ")

    def concat(self, x: Value, y: Value) -> Value:
        """Columns beside columns."""
        return self.op("concat", [x, y], (x.shape[0], x.shape[1] + y.shape[1]), "{axis = 1 : i64} ")

    def part(self, x: Value, start: int, stop: int) -> Value:
        """Columns."""
        rows = x.shape[0]
        bounds = f"{{starts = array<i64: 0, {start}>, stops = array<i64: {rows}, {stop}>}} "
        return self.op("slice", [x], (rows, stop - start), bounds)

    def last(self, x: Value, start: int, stop: int) -> Value:
        return self.part(x, start, stop)


@dataclass(frozen=True)
class Value:
    """A tensor of a program under construction."""

    program: Program
    name: str
    shape: Shape
    dtype: str

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.dtype}>"

    def __add__(self, other: Value | float) -> Value:
        return self.program.op("add", [self, other])

    def __sub__(self, other: Value | float) -> Value:
        return self.program.op("subtract", [self, other])

    def __mul__(self, other: Value | float) -> Value:
        return self.program.op("multiply", [self, other])

    def __truediv__(self, other: Value | float) -> Value:
        return self.program.op("divide", [self, other])


class Torch:
    """The functions that workloads call, by torch."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.functional = torch, torch.nn.functional
        for name in ("exp", "tanh", "sigmoid", "sqrt", "relu", "where", "square", "abs", "sin", "cos"):
            setattr(self, name, getattr(torch, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functional, name)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return self.torch.where(condition, x, y)

    def clip(self, x: Any, least: float, most: float) -> Any:
        return self.torch.clamp(x, least, most)

    def gelu(self, x: Any, approximate: str) -> Any:
        return self.functional.gelu(x, approximate=approximate)

    def softmax(self, x: Any) -> Any:
        return self.torch.softmax(x, -1)

    def layer_norm(self, x: Any, scale: Any, bias: Any) -> Any:
        return self.functional.layer_norm(x, scale.shape, scale, bias, 1e-5)

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return self.functional.rms_norm(x, scale.shape, scale, 1e-5)

    def batch_norm(self, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return self.functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, 1e-5)

    def mean(self, x: Any, axis: int) -> Any:
        return x.mean(axis)

    def var(self, x: Any, axis: int) -> Any:
        return x.var(axis, correction=0)

    def sum(self, x: Any, axis: int) -> Any:
        return x.sum(axis)

    def tile(self, x: Any, times: int) -> Any:
        return self.torch.tile(x, (times,))

    def concat(self, x: Any, y: Any) -> Any:
        return self.torch.cat((x, y), 1)

    def transpose(self, x: Any) -> Any:
        return x.t()

    def part(self, x: Any, start: int, stop: int) -> Any:
        return x[:, start:stop]


@dataclass(frozen=True)
class Workload:
    """A function on arrays of these shapes; donated ones are updated in place."""

    name: str
    about: str
    shapes: tuple[Shape, ...]
    body: Callable[..., Any]
    """Called with the functions and the arrays; gives one result or a tuple."""
    dtypes: str | tuple[str, ...] = "f32"
    donated: tuple[int, ...] = ()
    target: float | None = None
    """The part of the copy rate that it is to reach."""
    source: str | None = None
    """The program, where it is not written by `body`."""

    def dtype(self, number: int) -> str:
        return self.dtypes if isinstance(self.dtypes, str) else self.dtypes[number]

    def text(self) -> str:
        """The program."""
        if self.source is not None:
            return self.source
        program = Program()
        arguments = [Value(program, f"%a{k}", shape, self.dtype(k)) for k, shape in enumerate(self.shapes)]
        results = self.body(program, *arguments)
        results = results if isinstance(results, tuple) else (results,)
        heads = [
            f"{a.name}: {a.type}{' {graph.donated}' if k in self.donated else ''}" for k, a in enumerate(arguments)
        ]
        types, names = ", ".join(r.type for r in results), ", ".join(r.name for r in results)
        body = "\n".join(program.lines)
        return f"func.func @main({', '.join(heads)}) -> ({types}) {{\n{body}\n  func.return {names} : {types}\n}}\n"

    def inputs(self, seed: int) -> list[Any]:
        """NumPy arrays; those of bf16 are f32 to be rounded."""
        random = np.random.default_rng(seed)
        made: list[Any] = []
        for number, shape in enumerate(self.shapes):
            dtype = self.dtype(number)
            if dtype == "i1":
                made.append(random.random(shape) < 0.9)
                continue
            values = random.standard_normal(shape, np.float32)
            if self.source is not None and len(shape) == 2:
                values *= shape[0] ** -0.5  # weights, about 1/sqrt(fan-in)
            made.append(
                np.abs(values) if "variance" in self.about.split() and number == len(self.shapes) - 1 else values
            )
        return made

    def tensors(self, torch: Any, seed: int) -> list[Any]:
        """As `inputs`, of torch, made on the device in the types they have."""
        generator = torch.Generator("cuda").manual_seed(seed)
        made: list[Any] = []
        for number, shape in enumerate(self.shapes):
            dtype = self.dtype(number)
            if dtype == "i1":
                made.append(torch.rand(shape, generator=generator, device="cuda") < 0.9)
                continue
            values = torch.randn(shape, generator=generator, device="cuda")
            if self.source is not None and len(shape) == 2:
                values *= shape[0] ** -0.5  # weights, about 1/sqrt(fan-in)
            if "variance" in self.about.split() and number == len(self.shapes) - 1:
                values.abs_()
            made.append(values.bfloat16() if dtype == "bf16" else values)
        return made


def chain(f: Any, x: Any) -> Any:
    for _ in range(3):
        x = f.sigmoid(f.tanh(x * 1.5) + 0.25)
    return f.exp(x * -0.5) + x


def broadcasts(f: Any, x: Any, row: Any, column: Any, keep: Any) -> Any:
    return f.where(keep, f.clip(x * row + column, -1.0, 1.0), x)


def residual_norm(f: Any, x: Any, residual: Any, keep: Any, scale: Any, bias: Any) -> Any:
    total = f.where(keep, x * 1.1111111, x * 0.0) + residual
    return total, f.layer_norm(total, scale, bias)


def adam(f: Any, p: Any, g: Any, m: Any, v: Any) -> Any:
    m_new = m * 0.9 + g * 0.1
    v_new = v * 0.999 + g * g * 0.001
    step = m_new / 0.6513215599 / (f.sqrt(v_new / 0.009955119790251765) + 1e-8)
    return p - step * 0.001, m_new, v_new


def lstm(f: Any, gates: Any, c: Any) -> Any:
    width = c.shape[1]
    i, k, g, o = (f.part(gates, n * width, (n + 1) * width) for n in range(4))
    c_new = f.sigmoid(k) * c + f.sigmoid(i) * f.tanh(g)
    return f.sigmoid(o) * f.tanh(c_new), c_new


def many_chains(f: Any, *xs: Any) -> Any:
    return tuple(f.tanh(x * 1.5) + 0.25 for x in xs)


def transformer_block(
    f: Any, x: Any, mask: Any, s1: Any, b1: Any, w_qkv: Any, b_qkv: Any, w_proj: Any, b_proj: Any, s2: Any, b2: Any,
    w_up: Any, b_up: Any, w_down: Any, b_down: Any,
) -> Any:  # fmt: skip
    """What examples/transformer_block.mlir computes; by torch alone."""
    batch, length, width = x.shape
    qkv = f.layer_norm(x, s1, b1) @ w_qkv + b_qkv
    q, k, v = (part.view(batch, length, 8, width // 8).transpose(1, 2) for part in qkv.split(width, -1))
    scores = (q @ k.transpose(-1, -2)) * 0.125
    context = f.softmax(scores.masked_fill(~mask, -1.0e9)) @ v
    x = x + (context.transpose(1, 2).reshape(batch, length, width) @ w_proj + b_proj)
    return x + (f.gelu(f.layer_norm(x, s2, b2) @ w_up + b_up, "none") @ w_down + b_down)


def moments(f: Any, x: Any) -> Any:
    return f.mean(x, 0), f.var(x, 0)


def swiglu(f: Any, gate: Any, up: Any) -> Any:
    return f.silu(gate) * up


def workloads(scale: int = 1) -> list[Workload]:
    """All of them, 256 MB of inputs and outputs or more each but for the small ones; `scale` divides their rows."""

    def rows(n: int) -> int:
        return max(n // scale, 4)

    wide, n = (rows(16384), 2048), rows(32 << 20)
    image = (rows(32), 64, rows(112), 112)
    norm = (rows(32768), 1024)
    return [
        Workload("W1", "12-op pointwise chain", ((n,),), chain, target=0.9),
        Workload("W1h", "12-op pointwise chain", ((2 * n,),), chain, "bf16"),
        Workload("W2", "bias + GELU (erf)", (wide, (2048,)), lambda f, x, b: f.gelu(x + b, "none"), target=0.9),
        Workload("W2h", "bias + GELU (tanh)", ((2 * wide[0], 2048), (2048,)), lambda f, x, b: f.gelu(x + b, "tanh"), "bf16"),
        Workload("W3", "row and column broadcasts, clip, where", (wide, (2048,), (wide[0], 1), wide), broadcasts,
                 ("f32", "f32", "f32", "i1"), target=0.9),
        Workload("W4", "softmax of rows", (norm,), lambda f, x: f.softmax(x), target=0.8),
        Workload("W4h", "softmax of rows", ((rows(16384), 4096),), lambda f, x: f.softmax(x), "bf16"),
        *(Workload(f"N{width}", f"layer norm of {width}", ((rows((1 << 26) // width), width), (width,), (width,)),
                   lambda f, x, s, b: f.layer_norm(x, s, b), "bf16") for width in (768, 1024, 1280, 1536, 2560, 5120, 771)),
        Workload("S16", "softmax of short rows", ((rows(1 << 22), 16),), lambda f, x: f.softmax(x)),
        Workload("S771", "softmax of odd rows", ((rows(65536), 771),), lambda f, x: f.softmax(x)),
        Workload("S32k", "softmax of long rows", ((rows(1024), 32768),), lambda f, x: f.softmax(x)),
        Workload("S50k", "softmax of long odd rows", ((rows(1024), 50257),), lambda f, x: f.softmax(x)),
        Workload("S128k", "softmax of the longest rows", ((rows(256), 131072),), lambda f, x: f.softmax(x), "bf16"),
        Workload("W5", "dropout mask, residual, layer norm", (norm, norm, norm, (1024,), (1024,)), residual_norm,
                 ("f32", "f32", "i1", "f32", "f32"), target=0.9),
        Workload("W6", "RMS norm", (norm, (1024,)), lambda f, x, s: f.rms_norm(x, s), target=0.9),
        Workload("W6s", "SwiGLU", (wide, wide), swiglu, target=0.9),
        Workload("W7", "Adam step in place, last: the variance", ((rows(16 << 20),),) * 4, adam, donated=(0, 2, 3), target=0.9),
        Workload("W8", "LSTM cell, pointwise part", ((rows(16384), 4096), (rows(16384), 1024)), lstm),
        Workload("W9", "mean and variance over axis 0", ((rows(131072), 512),), moments, target=0.8),
        Workload("W10", "transpose, add, relu", ((rows(8192), 4096), (4096, rows(8192))),
                 lambda f, x, y: f.relu(f.transpose(x) + y), target=0.8),
        Workload("W11", "batch norm, relu, residual, last: variance", (image, image, (64,), (64,), (64,), (64,)),
                 lambda f, x, r, s, b, m, v: f.relu(f.batch_norm(x, s, b, m, v)) + r, target=0.9),
        Workload("W12", "12-op pointwise chain of 1k elements", ((1024,),), chain),
        Workload("W13", "32 independent chains of 1k elements", ((1024,),) * 32, many_chains),
        Workload("W14", "transformer block, B4 T256 D512 H8", BLOCK_SHAPES, transformer_block,
                 ("f32", "i1", *("f32",) * 12), source=BLOCK.read_text()),
    ]  # fmt: skip


def array_bytes(shape: Shape, dtype: str) -> int:
    return prod(shape) * {"i1": 1, "bf16": 2, "f16": 2, "f32": 4}[dtype]
