"""Kernels written by hand in Triton, for the workloads of gpu_workloads.py where that is natural; needs torch and triton.

The softmax and the norm hold a row in registers, as Triton's own tutorials do it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

_BLOCK = 1024


@triton.jit  # pyright: ignore
def _bias_gelu(x, bias, out, columns: tl.constexpr, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    value = tl.load(x + at, mask=inside) + tl.load(bias + at % columns, mask=inside)
    tl.store(out + at, 0.5 * value * (1.0 + tl.math.erf(value * 0.7071067811865476)), mask=inside)


@triton.jit  # pyright: ignore
def _softmax(x, out, columns: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, block)
    row = tl.program_id(0).to(tl.int64) * columns
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + at, (power / tl.sum(power, axis=0)).to(out.dtype.element_ty), mask=at < columns)


@triton.jit  # pyright: ignore
def _rms_norm(x, scale, out, columns: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, block)
    row = tl.program_id(0).to(tl.int64) * columns
    value = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / columns + 1e-5)
    weight = tl.load(scale + at, mask=at < columns)
    tl.store(out + row + at, (value * factor * weight).to(out.dtype.element_ty), mask=at < columns)


def bias_gelu(x: Any, bias: Any) -> Any:
    out, count = import_module("torch").empty_like(x), x.numel()
    _bias_gelu[(triton.cdiv(count, _BLOCK),)](x, bias, out, bias.numel(), count, _BLOCK, num_warps=4)
    return out


def softmax(x: Any) -> Any:
    return _of_rows(_softmax, x)


def rms_norm(x: Any, scale: Any) -> Any:
    return _of_rows(_rms_norm, x, scale)


def _of_rows(kernel: Any, x: Any, *others: Any) -> Any:
    out, (rows, columns) = import_module("torch").empty_like(x), x.shape
    block = triton.next_power_of_2(columns)
    kernel[(rows,)](x, *others, out, columns, block, num_warps=min(max(block // 256, 1), 16))
    return out


BY_WORKLOAD: dict[str, Callable[..., Any]] = {"W2": bias_gelu, "W4": softmax, "W4h": softmax, "W6": rms_norm}
