"""Implementations of opaque ops on the CPU, over NumPy and so over the BLAS that it carries.

An implementation fills given output arrays: the planner owns the memory. Registering one is a decorated function; those
of the modules `library_*.py` beside this one register themselves when it is imported. The reference evaluator uses the
same, so opaque ops agree on every CPU target by construction.

What an implementation raises reaches the caller of the program as it is: `IndexError` for an index out of range.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute

from ..dialects.dtypes import dtype_of
from ..dialects.graph_op import IntArray, OpaqueOp
from ..dialects.implementation import Offer, PointwiseOffer, default_offer, register_offer
from .narrow_floats import by_values
from .program import Array, Config, ConfigValue, Run


@dataclass(frozen=True)
class Implementation:
    """A way to run an opaque op: `run(inputs, outputs, config)` writes every element of each output."""

    name: str
    op: str
    run: Run
    """For arrays of every element type that the op accepts."""


_REGISTRY: dict[tuple[str, str], Implementation] = {}


def implementation(
    name: str,
    op: str,
    moves: bool = False,
    *,
    inplace: tuple[tuple[int, int], ...] = (),
    epilogue: PointwiseOffer | None = None,
    prologue: PointwiseOffer | None = None,
    priority: int = 0,
    workspace: int = 0,
) -> Callable[[Run], Run]:
    """Registers a function as the implementation `name` of op `op`, and what it offers to passes.

    It gets floats that NumPy has no type for as f32, and its results are rounded to them; one that `moves` elements, and
    looks at them with nothing but what `narrow_floats` has for it, gets them as they are. NumPy warns of nothing in it.

    `inplace` lists the pairs (result, operand) that may be one array when it is called. An `epilogue` or a `prologue`
    says that pointwise ops run well next to it; they are code of their own, which a runtime may run by parts.
    """
    offer = Offer(op, name, inplace, epilogue, prologue, priority, workspace)

    def register(run: Run) -> Run:
        quiet = np.errstate(all="ignore")(run)
        register_offer(offer)
        _REGISTRY[op, name] = Implementation(name, op, quiet if moves else by_values(quiet))
        return run

    return register


def find_implementation(op: str, name: str | None = None) -> Implementation | None:
    """The implementation called `name` of an op, or its default one; None when there is none."""
    if name is None:
        name = "" if (offer := default_offer(op)) is None else offer.name
    return _REGISTRY.get((op, name))


def library_config(op: OpaqueOp) -> dict[str, ConfigValue]:
    """The op's properties as plain Python values. Raises TypeError for a property of another kind."""
    return {name: plain_value(name, value) for name, value in op.properties.items()}


def plain_value(name: str, value: Attribute) -> ConfigValue:
    """A number, a truth value, a text, the name of an element type, or a tuple of such."""
    match value:
        case DenseArrayBase():
            values = cast(IntArray, value).get_values()  # floats are read by the same method
            return tuple(v != 0 for v in values) if value.elt_type == i1 else tuple(values)
        case ArrayAttr():
            return tuple(_plain_scalar(name, element) for element in value.data)
        case _:
            return _plain_scalar(name, value)


def _plain_scalar(name: str, value: Attribute) -> bool | int | float | str:
    match value:
        case IntegerAttr():
            return value.value.data != 0 if value.type == i1 else value.value.data
        case FloatAttr():
            return value.value.data
        case StringAttr():
            return value.data
        case _ if (element := dtype_of(value)) is not None:
            return element.name
        case _:
            raise TypeError(f"property '{name}' of kind {type(value).__name__} cannot be given to a library")


def integer(config: Config, name: str, default: int = 0) -> int:
    """An integer of the config; a truth value is 0 or 1."""
    value = config.get(name, default)
    return int(value) if isinstance(value, int) else default


def integers(config: Config, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Integers of the config."""
    value = config.get(name, default)
    return tuple(int(v) for v in value) if isinstance(value, tuple) else default


def text(config: Config, name: str, default: str) -> str:
    value = config.get(name, default)
    return value if isinstance(value, str) else default


def in_single(run: Run) -> Run:
    """The routine with f16 given to it as f32, and its results rounded once."""
    half, single = np.dtype(np.float16), np.dtype(np.float32)

    @wraps(run)
    def wide(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
        outs = [np.empty(out.shape, single) if out.dtype == half else out for out in outputs]
        run([array.astype(single) if array.dtype == half else array for array in inputs], outs, config)
        for out, value in zip(outputs, outs, strict=True):
            if value is not out:
                out[...] = value

    return wide


@implementation("numpy.matmul_epilogue", "graph.matmul", epilogue=PointwiseOffer(), priority=-1)
@implementation("numpy.matmul", "graph.matmul")
@in_single
def matmul(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.matmul; half precision is computed in single and rounded once. Transposed operands are views."""
    a, b = inputs
    (out,) = outputs
    a = a.swapaxes(-1, -2) if integer(config, "transpose_lhs") else a
    b = b.swapaxes(-1, -2) if integer(config, "transpose_rhs") else b
    if out.ndim == 0:
        out[...] = np.matmul(a, b)
    elif _is_one_product(a, b):
        # A stack times one matrix is one large product: BLAS sees all rows at once.
        np.matmul(a.reshape(-1, a.shape[-1]), b, out=out.reshape(-1, out.shape[-1]))
    else:
        np.matmul(a, b, out=out)


def _is_one_product(a: Array, b: Array) -> bool:
    return a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and 0 not in (*a.shape, *b.shape)


def _load_families() -> None:
    """Imports the modules that register the other implementations."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("library_"):
            import_module(f".{module.name}", __package__)


_load_families()
