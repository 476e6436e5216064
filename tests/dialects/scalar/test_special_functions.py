"""Special functions against mpmath, where it is installed: within what each op documents, those of f32 that are computed in f64
rounded correctly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_op_table import TYPES, Array
from lowered_programs import as_list, needs_compiler

import fuse_opt

RNG = np.random.default_rng(3)
BOUNDS = {"digamma": 8.0, "erfinv": 7.0, "i0e": 8.0, "i1e": 8.0}
"""In units in the last place of f64."""
BOUNDS_OF_F32 = {"digamma": 4.0, "erfinv": 3.0}
"""Of those that are computed in f32."""


def operands(op: str, name: str) -> Array:
    """Ordinary numbers of both signs, and ones of all sizes; digamma above 0 and about its zero."""
    sizes = 10.0 ** RNG.uniform(-30, 30, 100)
    found = {
        "digamma": [RNG.uniform(0, 20, 300), sizes, 1.4616321449683623 + RNG.uniform(-1e-3, 1e-3, 50)],
        "erfinv": [RNG.uniform(-1, 1, 300), 1 - 10.0 ** -RNG.uniform(0, 7, 100), sizes[sizes < 1]],
        "i0e": [RNG.uniform(-30, 30, 300), sizes],
        "i1e": [RNG.uniform(-30, 30, 300), sizes],
    }[op]
    x: Array = np.concatenate(found).astype(TYPES[name])
    return x[np.abs(x) < 1] if op == "erfinv" else x


def exact(mp: Any, op: str, x: Any) -> Any:
    if op == "digamma":
        return mp.psi(0, x)
    if op == "erfinv":
        return mp.erfinv(x)
    # Of large numbers the first terms of the asymptotic series are the product, which would overflow.
    order = int(op == "i1e")
    if abs(x) < 1e6:
        return mp.besseli(order, x) * mp.exp(-abs(x))
    squares = [1 - (4 * order - 1) / (8 * abs(x)), (4 * order - 1) * (4 * order - 9) / (2 * (8 * abs(x)) ** 2)]
    third = (4 * order - 1) * (4 * order - 9) * (4 * order - 25) / (6 * (8 * abs(x)) ** 3)
    value = (sum(squares) - third) / mp.sqrt(2 * mp.pi * abs(x))
    return value if order == 0 or x > 0 else -value


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", BOUNDS)
@pytest.mark.parametrize("target", ["reference", pytest.param("cpu", marks=needs_compiler)])
def test_errors_are_within_the_bounds(target: str, op: str, name: str) -> None:
    mp: Any = pytest.importorskip("mpmath").mp
    x = operands(op, name)
    t = f"tensor<{len(x)}x{name}>"
    text = f"func.func @main(%x: {t}) -> {t} {{\n  %r = graph.{op} %x : ({t}) -> {t}\n  func.return %r : {t}\n}}\n"
    (got,) = as_list(fuse_opt.compile(text, target=target)(x))
    allowed = BOUNDS_OF_F32.get(op, 0.501) if name == "f32" else BOUNDS[op]
    with mp.workdps(40):
        for given, value in zip(x.tolist(), got, strict=True):
            error = abs(mp.mpf(float(value)) - exact(mp, op, mp.mpf(given)))
            unit = float(np.spacing(np.abs(value)))
            assert error <= allowed * unit + (2e-20 * float(abs(value)) if abs(given) >= 1e6 else 0), (given, value)
