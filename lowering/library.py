"""Implementations of opaque ops on the CPU, over NumPy and so over the BLAS that it carries.

An implementation fills given output arrays: the planner owns the memory. Registering one is a decorated function; the
reference evaluator uses the same, so opaque ops agree on every CPU target by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from ..dialects.graph_op import IntArray, OpaqueOp

Array = npt.NDArray[Any]
ConfigValue = int | float | str | tuple[int, ...]
Config = Mapping[str, ConfigValue]
Run = Callable[[Sequence[Array], Sequence[Array], Config], None]


@dataclass(frozen=True)
class Implementation:
    """A way to run an opaque op: `run(inputs, outputs, config)` writes every element of each output."""

    name: str
    op: str
    run: Run


_REGISTRY: dict[str, Implementation] = {}
_DEFAULT: dict[str, str] = {}


def implementation(name: str, op: str) -> Callable[[Run], Run]:
    """Registers a function as the implementation `name` of op `op`; the first one of an op is its default."""

    def register(run: Run) -> Run:
        _REGISTRY[name] = Implementation(name, op, run)
        _DEFAULT.setdefault(op, name)
        return run

    return register


def find_implementation(op: str, name: str | None = None) -> Implementation | None:
    """The implementation called `name` of an op, or its default one; None when there is none."""
    found = _REGISTRY.get(name if name is not None else _DEFAULT.get(op, ""))
    return found if found is not None and found.op == op else None


def library_config(op: OpaqueOp) -> dict[str, ConfigValue]:
    """The op's properties as plain Python values. Raises TypeError for a property of another kind."""
    return {name: plain_value(name, value) for name, value in op.properties.items()}


def plain_value(name: str, value: Attribute) -> ConfigValue:
    match value:
        case DenseArrayBase():
            return tuple(int(v) for v in cast(IntArray, value).get_values())
        case IntegerAttr() | FloatAttr():
            return value.value.data
        case StringAttr():
            return value.data
        case _:
            raise TypeError(f"property '{name}' of kind {type(value).__name__} cannot be given to a library")


@implementation("numpy.matmul", "graph.matmul")
def matmul(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.matmul; half precision is computed in single and rounded once."""
    a, b = inputs
    (out,) = outputs
    if a.dtype == np.float16:
        out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32))
    elif out.ndim == 0:
        out[...] = np.matmul(a, b)
    elif _is_one_product(a, b):
        # A stack times one matrix is one large product: BLAS sees all rows at once.
        np.matmul(a.reshape(-1, a.shape[-1]), b, out=out.reshape(-1, out.shape[-1]))
    else:
        np.matmul(a, b, out=out)


def _is_one_product(a: Array, b: Array) -> bool:
    return a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and 0 not in (*a.shape, *b.shape)


@implementation("numpy.conv", "graph.conv")
def conv(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Convolution as matrix products of unfolded windows (im2col), one sample and group at a time."""
    x, weight = inputs
    (out,) = outputs
    spatial = x.ndim - 2
    groups = _integer(config, "groups", 1)
    pads = _integers(config, "pads", (0,) * 2 * spatial)
    work = np.float32 if x.dtype == np.float16 else x.dtype
    pairs = [(0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)]
    channels, positions = weight.shape[0] // groups, prod(out.shape[2:])
    kernel = weight.astype(work, copy=False).reshape(groups, channels, prod(weight.shape[1:]))
    for sample, target in zip(x, out, strict=True):
        padded = np.pad(sample.astype(work, copy=False), pairs)
        columns = _unfold(padded, weight.shape[2:], out.shape[2:], config)
        columns = columns.reshape(groups, kernel.shape[2], positions)
        if target.dtype == work:
            np.matmul(kernel, columns, out=target.reshape(groups, channels, positions))
        else:
            target[...] = np.matmul(kernel, columns).reshape(target.shape)


def _unfold(padded: Array, window: Sequence[int], result: Sequence[int], config: Config) -> Array:
    """Windows of a sample [C, spatial...] as [C, window..., result...], contiguous."""
    strides = _integers(config, "strides", (1,) * len(window))
    dilations = _integers(config, "dilations", (1,) * len(window))
    steps = padded.strides[1:]
    view = np.lib.stride_tricks.as_strided(
        padded,
        (padded.shape[0], *window, *result),
        (
            padded.strides[0],
            *(s * d for s, d in zip(steps, dilations, strict=True)),
            *(s * t for s, t in zip(steps, strides, strict=True)),
        ),
        writeable=False,
    )
    return np.ascontiguousarray(view)


def _integers(config: Config, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = config.get(name, default)
    return value if isinstance(value, tuple) else default


def _integer(config: Config, name: str, default: int) -> int:
    value = config.get(name, default)
    return value if isinstance(value, int) else default
