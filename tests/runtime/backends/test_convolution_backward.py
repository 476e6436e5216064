"""Transposed convolutions and gradients of convolutions on the shared pool against NumPy's, whatever the shapes are."""

from __future__ import annotations

from math import prod
from typing import Any

import blas_testing
import numpy as np
import pytest
from blas_testing import Array, assert_close
from blas_testing import tasks as tasks
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_opt.lowering.reference.kernels.convolution import conv_backward_weight, conv_transpose
from fuse_opt.runtime.backends.blas import convolution_backward

Convolution = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]
"""Shapes of a convolution's input, weight and result, and its attributes."""


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    count, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    most = {1: 40, 2: 12, 3: 5}[count]
    axes: list[tuple[int, ...]] = []
    for _ in range(count):
        window, dilation, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
        begin, end = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        reach = dilation * (window - 1) + 1
        extent = draw(st.integers(max(1, reach - begin - end), reach + most))
        axes.append((extent, window, (extent + begin + end - reach) // stride + 1, stride, dilation, begin, end))
    x, windows, result, strides, dilations, begins, ends = zip(*axes, strict=True)
    batch, channels, filters = draw(st.integers(0, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    config = {"strides": strides, "dilations": dilations, "pads": (*begins, *ends), "groups": groups}
    return (
        (batch, groups * channels, *x),
        (groups * filters, channels, *windows),
        (batch, groups * filters, *result),
        config,
    )


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def transposed(grad: Array, weight: Array, x: tuple[int, ...], config: dict[str, Any]) -> Array:
    """The gradient of a convolution's input, which is of that shape."""
    return blas_testing.run("conv_backward_data", (grad, weight), x, {**config, "shape": x[2:]})


def weight_gradient(grad: Array, given: Array, window: tuple[int, ...], config: dict[str, Any]) -> Array:
    return blas_testing.run("conv_backward_weight", (grad, given), window, {**config, "kernel_shape": window[2:]})


@settings(deadline=None, max_examples=80)
@given(convolutions(), st.sampled_from("fd"), st.integers(0, 2**32))
def test_transposed(case: Convolution, dtype: str, seed: int):
    x, window, result, config = case
    rng = np.random.default_rng(seed)
    grad, weight = random_array(rng, result, dtype), random_array(rng, window, dtype)
    expected = np.full(x, 7.0)
    conv_transpose([grad.astype(float), weight.astype(float)], [expected], config)
    assert_close(transposed(grad, weight, x, config), expected, prod(window))


@settings(deadline=None, max_examples=80)
@given(convolutions(), st.sampled_from("fd"), st.integers(0, 2**32))
def test_backward_weight(case: Convolution, dtype: str, seed: int):
    x, window, result, config = case
    rng = np.random.default_rng(seed)
    grad, given = random_array(rng, result, dtype), random_array(rng, x, dtype)
    expected = np.full(window, 7.0)
    conv_backward_weight([grad.astype(float), given.astype(float)], [expected], config)
    assert_close(weight_gradient(grad, given, window, config), expected, result[0] * prod(result[2:]))


@settings(deadline=None, max_examples=40)
@given(convolutions(), st.integers(0, 2**32))
def test_positions_by_parts(case: Convolution, seed: int):
    x, window, result, config = case
    rng = np.random.default_rng(seed)
    grad, weight, given = (random_array(rng, shape, "f") for shape in (result, window, x))
    expected = np.full(x, 7.0), np.full(window, 7.0)
    conv_transpose([grad.astype(float), weight.astype(float)], [expected[0]], config)
    conv_backward_weight([grad.astype(float), given.astype(float)], [expected[1]], config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution_backward, "COLUMNS_BYTES", 500)
        convolution_backward.planned.cache_clear()
        outs = transposed(grad, weight, x, config), weight_gradient(grad, given, window, config)
    convolution_backward.planned.cache_clear()
    for out, wanted, terms in zip(outs, expected, (prod(window), result[0] * prod(result[2:])), strict=True):
        assert_close(out, wanted, terms)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_reaches_only_what_it_is_multiplied_with(bad: float) -> None:
    """No zero around x is multiplied by it: results that its element of the window does not reach stay finite."""
    x, weight = np.ones((1, 2, 5), np.float32), np.ones((2, 1, 3), np.float32)
    weight[0, 0, 1] = bad
    out = blas_testing.run("conv_transpose", (x, weight), (1, 1, 7))
    assert np.isfinite(out[0, 0]).tolist() == [True, *[False] * 5, True]
