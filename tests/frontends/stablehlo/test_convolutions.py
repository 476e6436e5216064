"""Convolutions of jax that are grouped by the batch, or of integers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="needs jax")

from jax_programs import floats, jax, lax

import fuse_opt
from fuse_opt.frontends.stablehlo import StableHLOError, load

RNG = np.random.default_rng(0)


def check(function: Any, *arguments: Any, tolerance: float = 1e-5) -> None:
    """On the reference, against jax."""
    compiled = fuse_opt.compile(load(jax.jit(function).lower(*arguments)), "reference")
    results: Any = compiled(*arguments)
    for found, wanted in zip(jax.tree.leaves(results), jax.tree.leaves(function(*arguments)), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("order", (("NCHW", "OIHW", "NCHW"), ("HNWC", "IHWO", "CHNW")))
def test_groups_of_the_batch_have_filters_of_their_own(order: tuple[str, ...]):
    sizes = {"N": 6, "C": 2, "H": 7, "W": 6}, {"O": 9, "I": 2, "H": 3, "W": 2}
    x, w = (floats(*(extents[c] for c in names)) for names, extents in zip(order, sizes, strict=False))
    more: dict[str, Any] = {"rhs_dilation": (1, 2), "dimension_numbers": order, "batch_group_count": 3}
    check(partial(lax.conv_general_dilated, window_strides=(2, 1), padding=[(1, 0), (0, 2)], **more), x, w)


def test_gradients_of_convolutions_of_channels_by_themselves():
    """The filters' gradient is a convolution in groups of the batch."""

    def loss(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
        )
        return (y * y).sum()

    check(jax.grad(loss, argnums=(0, 1)), floats(2, 5, 6, 4), floats(3, 3, 1, 8), tolerance=1e-4)


@pytest.mark.parametrize("element", ("int8", "uint8", "int16"))
def test_integers(element: str):
    low = 0 if element == "uint8" else -100
    x = RNG.integers(low, 100, (2, 3, 9)).astype(element)
    w = RNG.integers(low, 100, (4, 3, 3)).astype(element)
    more: dict[str, Any] = {"window_strides": (2,), "padding": "SAME", "preferred_element_type": "int32"}
    check(partial(lax.conv_general_dilated, **more), x, w)


def test_sums_of_wide_integers_are_refused():
    x, w = np.ones((1, 1, 5), np.int32), np.ones((1, 1, 2), np.int32)
    with pytest.raises(StableHLOError, match="'stablehlo.convolution': of integers, .* got 2 products of i32 and i32"):
        load(jax.jit(partial(lax.conv_general_dilated, window_strides=(1,), padding="VALID")).lower(x, w))


def test_windows_that_do_not_fit_give_nothing():
    def pooled(x: Any, w: Any) -> Any:
        most = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 6), (1, 1, 1), "VALID")
        return most, lax.conv_general_dilated(x, w, (1,), "VALID"), most.sum(0)

    check(pooled, floats(2, 3, 4), floats(5, 3, 7))
