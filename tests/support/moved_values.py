"""Elements of results that the last bits of values inside decide: compiled programs may have others there.

Functions such as tanh are right within a bound and sums are in any order, so `equal(tanh(y), y)` or a floor behind a product has
more than one right answer. The reference runs again with every float value moved by a little, at random, arguments among them, as
terms of a sum may cancel each other: what changes then by more than values are compared by is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ir_testing import Array, function
from narrow_floats import decode
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp

from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.lowering.reference import interpreter

RUNS = 24
FAR = 1e-3
"""What floats of results change by, where something inside decided otherwise."""
_run_op: Any = interpreter._run_op  # pyright: ignore[reportPrivateUsage]
_at_numbers: Any = interpreter._at_numbers  # pyright: ignore[reportPrivateUsage]


BY = 4e-6
"""How far values are moved at most, as a part of themselves; some of them by their last bit."""


def open_elements(module: ModuleOp, arguments: Sequence[Array], values: Sequence[Array]) -> list[Array]:
    """By result, which elements have other bits (of floats: others by FAR) where values inside are moved."""
    found = [np.zeros(value.shape, bool) for value in values]
    for seed in range(RUNS):
        moved = _moved_values(module, arguments, BY, np.random.default_rng(seed))
        for mask, other, value in zip(found, moved, values, strict=True):
            other, value = decode(other), decode(value)
            with np.errstate(all="ignore"):
                near = np.isclose(other, value, FAR, FAR, equal_nan=True) if value.dtype.kind == "f" else other == value
            mask |= ~near
    return found


def _moved_values(module: ModuleOp, arguments: Sequence[Array], by: float, rng: np.random.Generator) -> list[Array]:
    block = _at_numbers(function(module), arguments).body.block
    known: dict[Any, Any] = {value: _moved(a, by, rng) for value, a in zip(block.args, arguments, strict=True)}
    for op in block.ops:
        operands = [known[value] for value in op.operands]
        if isinstance(op, ReturnOp):
            return operands
        results = _run_op(op, operands)
        computes = isinstance(op, GraphOp) and op.operands and op.stored_value() is None
        known.update(zip(op.results, [_moved(a, by, rng) if computes else a for a in results], strict=True))
    raise AssertionError("the block returns nothing")


def _moved(array: Any, by: float, rng: np.random.Generator) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    values: Array = array  # pyright: ignore[reportUnknownVariableType]
    if values.dtype.type not in (np.float32, np.float64):
        return values
    last = np.finfo(values.dtype.type).eps
    factors = np.array([1 - by, 1 - last, 1, 1 + last, 1 + by], values.dtype)
    with np.errstate(all="ignore"):
        return values * rng.choice(factors, values.shape)
