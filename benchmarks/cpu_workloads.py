"""The workloads of cpu_peers.py: those of gpu_workloads.py at sizes of a CPU's caches, and two with library calls.

Each is a function `body(f, *arrays)`, called with the functions of a package (cpu_functions.py) and its arrays; with those
of `gpu_workloads.Program` it writes the program in the graph dialect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np
from gpu_workloads import (
    BLOCK,
    BLOCK_SHAPES,
    Workload,
    adam,
    array_bytes,
    broadcasts,
    lstm,
    many_chains,
    moments,
    residual_norm,
    swiglu,
)
from gpu_workloads import chain as repeated_chain

SIZES = {"L2": 2 << 20, "L3": 12 << 20, "DRAM": 128 << 20}
"""Bytes of all inputs and results together. W12 and W13 count as L2; W14 and W15 have one size, called `fixed`."""
SIZE_NAMES = (*SIZES, "fixed")
SHORT = {"W1": ("L2", "DRAM"), "W4": ("L2", "DRAM"), "W12": ("L2",), "W13": ("L2",)}
"""What a quick run measures, where nothing else is asked for."""
RESNET = BLOCK.with_name("resnet_block.mlir")
_IMAGES, _FILTERS = (8, 64, 56, 56), (64, 64, 3, 3)
_TOLERANCES = {"f32": 1e-4, "f16": 1e-2, "bf16": 8e-2}


@dataclass(frozen=True)
class Case:
    """A workload at a size."""

    workload: Workload
    size: str
    positive: tuple[int, ...] = ()
    """Inputs without negative elements."""

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def dtype(self) -> str:
        return self.workload.dtype(0)

    @property
    def tolerance(self) -> float:
        """The largest |got - wanted| / (1 + |wanted|): peers round f16 and bf16 after every op."""
        return _TOLERANCES[self.dtype]

    @property
    def is_bound_by_memory(self) -> bool:
        """Whether a limit of moved bytes says something about it."""
        return self.size != "fixed"

    def inputs(self) -> list[Any]:
        """Random arrays, the same for all peers: f32 (to be rounded for narrower types) and bool."""
        made = self.workload.inputs(0)
        for number, (values, shape) in enumerate(zip(made, self.workload.shapes, strict=True)):
            if number in self.positive:
                made[number] = np.abs(values) + np.float32(0.5)
            elif shape == _FILTERS:
                made[number] = values * np.float32(prod(shape[1:]) ** -0.5)
        return made

    def bytes_moved(self, results: list[Any]) -> int:
        """Of all inputs and results, each once."""
        numbered = enumerate(self.workload.shapes)
        read = sum(array_bytes(shape, self.workload.dtype(number)) for number, shape in numbered)
        return read + sum(array_bytes(result.shape, self.dtype) for result in results)


def chain(f: Any, x: Any) -> Any:
    t = x * 0.5 + 0.1
    s = f.sigmoid(t)
    a = f.minimum(f.maximum(f.tanh(t), s) * f.exp(t * -1.0) + x, 4.0)
    return f.sqrt(f.abs(a) + 1e-3) - s


def biased_gelu(f: Any, x: Any, bias: Any) -> Any:
    return f.gelu(x + bias, "none")


def biased_gelu_tanh(f: Any, x: Any, bias: Any) -> Any:
    return f.gelu(x + bias, "tanh")


def softmax_of_rows(f: Any, x: Any) -> Any:
    return f.softmax(x)


def rms_norm(f: Any, x: Any, scale: Any) -> Any:
    return f.rms_norm(x, scale)


def transposed_sum(f: Any, x: Any, y: Any) -> Any:
    return f.relu(f.transpose(x) + y)


def norm_residual(f: Any, x: Any, residual: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return f.relu(f.batch_norm(x, scale, bias, mean, variance)) + residual


def transformer_block(
    f: Any, x: Any, mask: Any, s1: Any, b1: Any, w_qkv: Any, b_qkv: Any, w_proj: Any, b_proj: Any, s2: Any, b2: Any,
    w_up: Any, b_up: Any, w_down: Any, b_down: Any,
) -> Any:  # fmt: skip
    """What examples/transformer_block.mlir computes."""
    batch, length, width = x.shape
    qkv = f.matmul(f.layer_norm(x, s1, b1), w_qkv) + b_qkv

    def heads(number: int) -> Any:
        part = f.last(qkv, number * width, (number + 1) * width)
        return f.permute(f.reshape(part, (batch, length, 8, width // 8)), (0, 2, 1, 3))

    scores = f.matmul(heads(0), f.permute(heads(1), (0, 1, 3, 2))) * 0.125
    context = f.matmul(f.softmax(f.where(mask, scores, -1.0e9)), heads(2))
    context = f.reshape(f.permute(context, (0, 2, 1, 3)), (batch, length, width))
    x = x + (f.matmul(context, w_proj) + b_proj)
    return x + (f.matmul(f.gelu(f.matmul(f.layer_norm(x, s2, b2), w_up) + b_up, "none"), w_down) + b_down)


def residual_block(
    f: Any, x: Any, w1: Any, s1: Any, b1: Any, m1: Any, v1: Any, w2: Any, s2: Any, b2: Any, m2: Any, v2: Any
) -> Any:
    """What examples/resnet_block.mlir computes."""
    inner = f.relu(f.batch_norm(f.conv(x, w1), s1, b1, m1, v1))
    return f.relu(f.batch_norm(f.conv(inner, w2), s2, b2, m2, v2) + x)


def _rows(budget: int, bytes_per_row: int) -> int:
    """As many as fit; a multiple of 8, or all of them where there are few."""
    count = max(budget // bytes_per_row, 2)
    return count if count < 16 else count & ~7


def _sized(size: str, budget: int) -> list[Workload]:
    """The workloads that have all sizes."""
    n, wide = _rows(budget, 8), _rows(budget, 8 * 1024)
    norm, masked = (wide, 1024), (_rows(budget, 9 * 1024), 1024)
    side = {"L2": (384, 448), "L3": (1024, 1024)}.get(size, (4096, 3072))
    pair, residual = (_rows(budget, 12 * 1024), 1024), (_rows(budget, 17 * 1024), 1024)
    image, cell = (_rows(budget, 12 * 64 * 784), 64, 28, 28), _rows(budget, 7 * 1024)
    chained = Workload("W1", "pointwise chain with exp, tanh, sigmoid, sqrt", ((n,),), chain)
    gelu = Workload("W2", "bias + GELU (erf)", (norm, (1024,)), biased_gelu)
    softmax = Workload("W4", "softmax of rows", (norm,), softmax_of_rows)
    return [
        chained,
        Workload("W1m", "pointwise chain of 7 transcendental functions", ((n,),), repeated_chain),
        replace(chained, name="W1b", shapes=((2 * n,),), dtypes="bf16"),
        gelu,
        replace(gelu, name="W2t", about="bias + GELU (tanh)", body=biased_gelu_tanh),
        Workload("W3", "row and column broadcasts, clip, where", (masked, (1024,), (masked[0], 1), masked), broadcasts,
                 ("f32", "f32", "f32", "i1")),
        softmax,
        replace(softmax, name="W4b", shapes=((2 * wide, 1024),), dtypes="bf16"),
        replace(softmax, name="W4h", shapes=((2 * wide, 1024),), dtypes="f16"),
        Workload("W5", "dropout mask, residual, layer norm", (residual, residual, residual, (1024,), (1024,)),
                 residual_norm, ("f32", "f32", "i1", "f32", "f32")),
        Workload("W6", "RMS norm", (norm, (1024,)), rms_norm),
        Workload("W6s", "SwiGLU", (pair, pair), swiglu),
        Workload("W7", "Adam step in place, last: the variance", ((_rows(budget, 28),),) * 4, adam, donated=(0, 2, 3)),
        Workload("W8", "LSTM cell, pointwise part", ((cell, 1024), (cell, 256)), lstm),
        Workload("W9", "mean and variance over axis 0", ((_rows(budget, 2048), 512),), moments),
        Workload("W10", "transpose, add, relu", (side, side[::-1]), transposed_sum),
        Workload("W11", "batch norm, relu, residual, last: variance", (image, image, (64,), (64,), (64,), (64,)),
                 norm_residual),
    ]  # fmt: skip


def _single() -> list[Case]:
    """The workloads that have one size."""
    small = Workload("W12", "the chain of W1 on 1k elements", ((1024,),), chain)
    many = Workload("W13", "32 independent chains of 1k elements", ((1024,),) * 32, many_chains)
    types = ("f32", "i1", *("f32",) * 12)
    block = Workload("W14", "transformer block, B4 T256 D512 H8", BLOCK_SHAPES, transformer_block, types)
    channels = ((64,),) * 4
    shapes = (_IMAGES, _FILTERS, *channels, _FILTERS, *channels)
    residual = Workload("W15", "ResNet basic block, 8x64x56x56", shapes, residual_block)
    return [
        Case(small, "L2"),
        Case(many, "L2"),
        Case(replace(block, source=BLOCK.read_text()), "fixed"),
        Case(replace(residual, source=RESNET.read_text()), "fixed", positive=(5, 10)),
    ]


def cases(budgets: dict[str, int] | None = None) -> list[Case]:
    """All of them, by workload; `budgets` are bytes by size, in the place of `SIZES`."""
    sized = [[Case(w, size) for w in _sized(size, budget)] for size, budget in (budgets or SIZES).items()]
    return [case for row in zip(*sized, strict=True) for case in row] + _single()


def choose(names: str, sizes: str, quick: bool = False) -> list[Case]:
    """The cases that a person asked for, with commas between names. Raises ValueError for a name that there is not."""
    found = cases()
    check("workload", names, list(dict.fromkeys(case.name for case in found)))
    check("size", sizes, SIZE_NAMES)
    wanted, asked = (text.split(",") if text else [] for text in (names, sizes))
    if quick and not wanted:
        found = [c for c in found if c.size in (asked or SHORT.get(c.name, ())) and c.name in SHORT]
    return [c for c in found if (not wanted or c.name in wanted) and (not asked or c.size in asked)]


def check(what: str, chosen: str, known: Any) -> None:
    """That all of the names, with commas between them, are known. Raises ValueError."""
    for name in filter(None, chosen.split(",")):
        if name not in known:
            raise ValueError(f"unknown {what} '{name}'; expected one of {', '.join(known)}")


def find(name: str, size: str) -> Case:
    """The case of this name and size."""
    return next(case for case in cases() if case.name == name and case.size == size)


def as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(cast("list[Any]", results)) if isinstance(results, (tuple, list)) else (results,)
