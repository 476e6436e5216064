"""`//` and `%` of JAX on integers are one op, not the quotient of C and what becomes of it."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

pytest.importorskip("jax", reason="needs jax")

from jax_programs import jax, jnp

import fuse_opt
from fuse_opt.frontends import stablehlo

FUNCTIONS: dict[str, tuple[Any, str]] = {
    "quotient by a number": (lambda x, y: x // 7, "graph.floor_divide"),
    "quotient by a negative number": (lambda x, y: x // -3, "graph.floor_divide"),
    "quotient": (lambda x, y: x // y, "graph.floor_divide"),
    "remainder by a number": (lambda x, y: x % 7, "graph.remainder"),
    "remainder": (lambda x, y: x % y, "graph.remainder"),
    "quotient by a row": (lambda x, y: x // y[0], ""),
    "another sign": (
        lambda x, y: jnp.where((jnp.sign(y) != jnp.sign(x)) & (jax.lax.rem(x, y) != 0), x - 1, x),
        "graph.where",
    ),
    "another remainder": (lambda x, y: _corrected(jax.lax.rem(x, y), x), "graph.where"),
    "two less": (lambda x, y: _two_less(x, y), "graph.where"),
}


def _corrected(rest: Any, y: Any) -> Any:
    """With the sign of another number than the divisor."""
    return jnp.where(((rest < 0) != (y < 0)) & (rest != 0), rest + y, rest)


def _two_less(x: Any, y: Any) -> Any:
    quotient = jax.lax.div(x, y)
    return jnp.where((jnp.sign(x) != jnp.sign(y)) & (jax.lax.rem(x, y) != 0), quotient - 2, quotient)


@needs_compiler
@pytest.mark.parametrize("kind", ["int8", "int32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_integers(name: str, kind: str) -> None:
    function, op = FUNCTIONS[name]
    rng = np.random.default_rng(3)
    x = rng.integers(-100, 100, (9, 12)).astype(kind)
    y = np.where((drawn := rng.integers(-9, 9, x.shape)) == 0, 3, drawn).astype(kind)
    lowered = jax.jit(function, keep_unused=True)
    module = stablehlo.load(lowered.lower(x, y))
    assert op in str(module) and ("graph.where" in op or "truncate_divide" not in str(module) or not op)
    for found in (fuse_opt.evaluate(module, x, y), fuse_opt.compile(module)(x, y)):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(lowered(x, y)))
