"""The functions that workloads call, by package: NumPy, jax.numpy, torch, numexpr (as text)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import gpu_workloads
import numpy as np

_exact_erf = np.frompyfunc(math.erf, 1, 1)
_exact_erfc = np.frompyfunc(math.erfc, 1, 1)


class Arrays:
    """Functions that are written with others; `self.xp` has those of the array API."""

    xp: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.xp, name)

    def relu(self, x: Any) -> Any:
        return self.xp.maximum(x, 0.0)

    def sigmoid(self, x: Any) -> Any:
        return 1.0 / (1.0 + self.xp.exp(-x))

    def silu(self, x: Any) -> Any:
        return x * self.sigmoid(x)

    def gelu(self, x: Any, approximate: str) -> Any:
        if approximate == "tanh":
            return 0.5 * x * (1.0 + self.xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))))
        return 0.5 * x * (1.0 + self.erf(x * math.sqrt(0.5)))

    def erf(self, x: Any) -> Any:
        raise NotImplementedError

    def erfc(self, x: Any) -> Any:
        raise NotImplementedError

    def softmax(self, x: Any) -> Any:
        e = self.xp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layer_norm(self, x: Any, scale: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred / self.xp.sqrt(variance + 1e-5) * scale + bias

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return x / self.xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale

    def batch_norm(self, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        scale, bias, mean, variance = (v[:, None, None] for v in (scale, bias, mean, variance))
        return (x - mean) / self.xp.sqrt(variance + 1e-5) * scale + bias

    def mean(self, x: Any, axis: int) -> Any:
        return x.mean(axis)

    def var(self, x: Any, axis: int) -> Any:
        return x.var(axis)

    def sum(self, x: Any, axis: int) -> Any:
        return x.sum(axis)

    def concat(self, x: Any, y: Any) -> Any:
        return self.xp.concatenate((x, y), 1)

    def transpose(self, x: Any) -> Any:
        return x.T

    def part(self, x: Any, start: int, stop: int) -> Any:
        return x[:, start:stop]

    def last(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return self.xp.transpose(x, axes)


class Numpy(Arrays):
    """NumPy's; in float64 they are the reference."""

    xp = np

    def erf(self, x: Any) -> Any:
        if x.dtype == np.float64:
            return np.asarray(_exact_erf(x), np.float64)
        from scipy.special import erf  # pyright: ignore

        return erf(x)  # pyright: ignore

    def erfc(self, x: Any) -> Any:
        return np.asarray(_exact_erfc(x.astype(np.float64)), x.dtype)

    def conv(self, x: Any, w: Any) -> Any:
        """A 3x3 convolution that keeps height and width."""
        height, width = x.shape[2:]
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        shifted = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        weights = w.reshape(*w.shape[:2], 9)
        parts = [np.einsum("oc,nchw->nohw", weights[..., k], part, optimize=True) for k, part in enumerate(shifted)]
        return np.add.reduce(parts)


class Jax(Arrays):
    """jax.numpy's, and jax.nn's where it has one."""

    def __init__(self, jax: Any) -> None:
        self.jax, self.xp, nn = jax, jax.numpy, jax.nn
        self.sigmoid, self.silu, self.relu = nn.sigmoid, nn.silu, nn.relu
        self.softmax = nn.softmax

    def gelu(self, x: Any, approximate: str) -> Any:
        return self.jax.nn.gelu(x, approximate=approximate == "tanh")

    def erfc(self, x: Any) -> Any:
        return self.jax.scipy.special.erfc(x)

    def conv(self, x: Any, w: Any) -> Any:
        return self.jax.lax.conv(x, w, (1, 1), "SAME")


class Torch(gpu_workloads.Torch):
    """torch's."""

    def maximum(self, x: Any, y: Any) -> Any:
        return self.torch.maximum(x, y) if hasattr(y, "shape") else self.torch.clamp_min(x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        return self.torch.minimum(x, y) if hasattr(y, "shape") else self.torch.clamp_max(x, y)

    def erfc(self, x: Any) -> Any:
        return self.torch.special.erfc(x)

    def matmul(self, x: Any, y: Any) -> Any:
        return x @ y

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    def last(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def conv(self, x: Any, w: Any) -> Any:
        return self.functional.conv2d(x, w, padding=1)


@dataclass(frozen=True)
class Expression:
    """A text that numexpr evaluates."""

    owner: NumExpr
    text: str

    def __add__(self, other: Any) -> Expression:
        return self.owner.infix("+", self, other)

    def __sub__(self, other: Any) -> Expression:
        return self.owner.infix("-", self, other)

    def __mul__(self, other: Any) -> Expression:
        return self.owner.infix("*", self, other)

    def __truediv__(self, other: Any) -> Expression:
        return self.owner.infix("/", self, other)


@dataclass
class NumExpr:
    """numexpr's; what it has no word for is an AttributeError."""

    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    """By name: a number written out would make f64 of its expression."""

    def text(self, value: Any) -> str:
        if isinstance(value, Expression):
            return value.text
        number = np.float32(value)
        name = next((n for n, known in self.constants.items() if known == number), f"k{len(self.constants)}")
        self.constants[name] = number
        return name

    def infix(self, sign: str, x: Any, y: Any) -> Expression:
        return Expression(self, f"({self.text(x)} {sign} {self.text(y)})")

    def _call(self, name: str, *operands: Any) -> Expression:
        return Expression(self, f"{name}({', '.join(map(self.text, operands))})")

    def exp(self, x: Any) -> Expression:
        return self._call("exp", x)

    def tanh(self, x: Any) -> Expression:
        return self._call("tanh", x)

    def sqrt(self, x: Any) -> Expression:
        return self._call("sqrt", x)

    def sin(self, x: Any) -> Expression:
        return self._call("sin", x)

    def cos(self, x: Any) -> Expression:
        return self._call("cos", x)

    def abs(self, x: Any) -> Expression:
        return self._call("abs", x)

    def maximum(self, x: Any, y: Any) -> Expression:
        return self.where(self.infix("<", x, y), y, x)

    def minimum(self, x: Any, y: Any) -> Expression:
        return self.where(self.infix(">", x, y), y, x)

    def where(self, condition: Any, x: Any, y: Any) -> Expression:
        return self._call("where", condition, x, y)

    def clip(self, x: Any, least: float, most: float) -> Expression:
        low = self.where(self.infix("<", x, least), least, x)
        return self.where(self.infix(">", low, most), most, low)

    def relu(self, x: Any) -> Expression:
        return self.where(self.infix("<", x, 0.0), 0.0, x)

    def sigmoid(self, x: Any) -> Expression:
        return self.infix("/", 1.0, self.infix("+", 1.0, self.exp(self.infix("-", 0.0, x))))

    def silu(self, x: Any) -> Expression:
        return x * self.sigmoid(x)

    def gelu(self, x: Any, approximate: str) -> Expression:
        if approximate != "tanh":
            raise AttributeError("numexpr has no erf")
        inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
        return x * 0.5 * (self.tanh(inner) + 1.0)
