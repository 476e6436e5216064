"""What StableHLO ops give of element types that are not alike, against jax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_opt
from fuse_opt.frontends.stablehlo import load

jax: Any = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy


def check(function: Any, *arguments: Any) -> None:
    jitted = jax.jit(function)
    wanted = np.asarray(jitted(*arguments))
    found: Any = fuse_opt.compile(load(jitted.lower(*arguments)), "reference")(*map(np.asarray, arguments))
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", (np.uint8, np.int8, np.uint32, np.int32))
@pytest.mark.parametrize("name", ("left", "right_arithmetic", "right_logical"))
def test_shifts(kind: Any, name: str):
    """seed 50228: an arithmetic shift of unsigned integers was a logical one."""
    x = np.array([0, 1, 127, 128, 255, 200, 251, 3], np.int64).astype(kind)
    by = np.array([0, 1, 3, 7, 8, 9, 200, 31], np.int64).astype(kind)
    check(getattr(lax, f"shift_{name}"), x, by)


@pytest.mark.parametrize("source", ("float32", "bfloat16"))
@pytest.mark.parametrize("target", ("int32", "int8"))
def test_integers_of_products_of_floats(source: str, target: str):
    """seed 50213: the operands were integers before they were multiplied."""
    x = jnp.asarray(np.array([[1.5, 4.5, 6.75], [3.75, -1.5, 11.25]], np.float32)).astype(source)

    def product(a: Any) -> Any:
        return lax.dot_general(a, a, (((1,), (1,)), ((), ())), preferred_element_type=target)

    check(product, x)
