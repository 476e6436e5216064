"""Positions of JAX's indexing that are known, or the same for whole slices: no element is moved by itself."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

pytest.importorskip("jax", reason="needs jax")

from jax_programs import jax, jnp, lax

import fuse_opt
from fuse_opt.frontends import stablehlo

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((7, 9, 5), np.float32) for _ in range(2))
AT = np.int32(3)


def ids(low: int, high: int, *shape: int) -> Any:
    return RNG.integers(low, high, shape).astype(np.int32)


CASES: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "slice": (lambda x, y: x.at[2:5, 1:-3].set(y[2:5, 1:-3]), "graph.slice_scatter", (X, Y)),
    "row": (lambda x, y: x.at[4].set(y[0]), "graph.slice_scatter", (X, Y)),
    "element": (lambda x: x.at[1, 2, 3].set(7.0), "graph.slice_scatter", (X,)),
    "steps": (lambda x, y: x.at[::2].set(y[::2]), "", (X, Y)),
    "outside": (lambda x, y: x.at[9].set(y[0]), "", (X, Y)),
    "added": (lambda x, y: x.at[2:5].add(y[2:5]), "", (X, Y)),
    "update": (lambda x, y: lax.dynamic_update_slice(x, y[:2, :3], (1, 6, 0)), "graph.slice_scatter", (X, Y)),
    "clipped": (lambda x, y: lax.dynamic_update_slice(x, y[:2, :3], (6, 8, 4)), "graph.slice_scatter", (X, Y)),
    "rows": (lambda x, y, i: lax.dynamic_update_slice(x, y[:1], (i, 0, 0)), "graph.dynamic_update_slice", (X, Y, AT)),
    "middle": (lambda x, y, i: lax.dynamic_update_slice(x, y[:, :2], (0, i, 0)), "axes = array<i64: 1>", (X, Y, AT)),
    "behind": (
        lambda x, y, i: lax.dynamic_update_slice(x, y[:3], (i + 9, 0, 0)),
        "graph.dynamic_update_slice",
        (X, Y, AT),
    ),
    "corner": (
        lambda x, y, i: lax.dynamic_update_slice(x, y[:3, 2:], (i, 1, 0)),
        "graph.dynamic_update_slice",
        (X, Y, AT),
    ),
    "box": (lambda x, i: lax.dynamic_slice(x, (i, 1, -i), (3, 8, 2)), "graph.dynamic_slice", (X, AT)),
    "unsigned": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 3, 1), "graph.dynamic_slice", (X, np.uint8(200))),
    "along": (lambda x, i: jnp.take_along_axis(x, i, 1), "graph.take_along_axis", (X, ids(0, 9, 7, 4, 5))),
    "largest": (lambda x: jnp.argmax(x, 1), "graph.argmax", (X,)),
    "smallest of all": (lambda x: jnp.argmin(x), "graph.argmin", (np.where(np.abs(X) < 0.01, np.nan, X),)),
    "nothing but nan": (lambda x: jnp.argmax(x, 0), "graph.argmax", (X * np.float32(np.nan),)),
    "halves": (lambda x: jnp.argmin(x, -1), "graph.argmin", (X.astype(np.float16),)),
    "integers": (lambda i: jnp.argmax(i, 0), "graph.argmax", (ids(0, 9, 7, 4),)),
    "truth": (lambda x: jnp.argmax(x > 0.5, 1), "graph.argmax", (X,)),
    "falsehood": (lambda x: jnp.argmin(x > 0.5, 0), "graph.argmin", (X,)),
    "choice": (lambda x, y: jnp.select([x > 1, x < -1, y > 0], [x, y, x + y], 7.0), "graph.argmax", (X, Y)),
    "elements": (lambda x, i: x[i, i[::-1]], "graph.read_at", (X[0], ids(-5, 5, 9, 8))),
    "elements of wide positions": (
        lambda x, i, j: x[i.astype("int8"), j, 2],
        "graph.read_at",
        (X, ids(-9, 9, 4), ids(-20, 20, 3, 1)),
    ),
    "matrix": (lambda x, i: jnp.take_along_axis(x, i, 1), "graph.read_at", (X[0], ids(-5, 5, 9, 8))),
    "columns": (lambda x, i: jnp.take_along_axis(x, i, 0), "graph.take_along_axis", (X[0], ids(0, 9, 3, 5))),
}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_positions(name: str) -> None:
    function, op, arguments = CASES[name]
    lowered = jax.jit(function, keep_unused=True)
    module = stablehlo.load(lowered.lower(*arguments))
    assert op in str(module)
    wanted = np.asarray(lowered(*arguments))
    for found in (fuse_opt.evaluate(module, *arguments), fuse_opt.compile(module)(*arguments)):
        np.testing.assert_array_equal(np.asarray(found), wanted)
