"""Gradients of formulas by complex steps (Squire & Trapp 1998): exact to rounding, without a formula of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from graph_op_table import Array, wide

STEP = 1e-100


def gradient(formula: Callable[..., Any], arrays: Sequence[Array], number: int, grad: Any = 1.0) -> Array:
    """The gradient of sum(formula(*arrays) * grad) by array `number`; the formula is analytic NumPy, in float64."""
    values = [wide(array).astype(np.complex128) for array in arrays]
    result = np.zeros(values[number].shape)
    for at in np.ndindex(*result.shape):
        moved = [value.copy() for value in values]
        moved[number][at] += 1j * STEP
        result[at] = np.sum(np.imag(formula(*moved)) * grad) / STEP
    return result


def gradients(formula: Callable[..., Any], arrays: Sequence[Array], grad: Any = 1.0) -> list[Array]:
    """The gradients by all arrays."""
    return [gradient(formula, arrays, number, grad) for number in range(len(arrays))]


def where(condition: Any, x: Any, y: Any) -> Any:
    """NumPy's where, of values whose types are not known to the type checker."""
    found, a, b = np.asarray(condition), np.asarray(x), np.asarray(y)
    return np.where(found, a, b)


def size(x: Any) -> Any:
    """|x| of complex numbers that are real but for a step: analytic off 0."""
    return where(x.real < 0, -x, x)
