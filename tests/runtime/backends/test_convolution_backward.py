"""Transposed convolutions and gradients of convolutions on the shared pool against NumPy's, whatever the shapes are."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from blas_testing import TOLERANCE
from blas_testing import tasks as tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fuse_opt.lowering.reference.kernels.convolution import conv_backward_weight, conv_transpose
from fuse_opt.runtime.backends.blas import convolution_backward
from fuse_opt.runtime.backends.blas.convolution_backward import try_conv_backward_weight, try_conv_transpose

Array = NDArray[Any]


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


def assert_close(actual: Array, expected: Array, terms: int) -> None:
    tolerance = TOLERANCE[actual.dtype.char] * max(1, terms) ** 0.5
    np.testing.assert_allclose(actual.astype(float), expected, rtol=tolerance, atol=tolerance)


@settings(deadline=None, max_examples=200)
@given(convolutions(), st.sampled_from("efd"), st.integers(0, 2**32))
def test_transposed(case: Convolution, dtype: str, seed: int):
    x, window, result, config = case
    rng = np.random.default_rng(seed)
    grad, weight = random_array(rng, result, dtype), random_array(rng, window, dtype)
    expected, out = np.full(x, 7.0), np.full(x, 7, dtype)
    conv_transpose([grad.astype(float), weight.astype(float)], [expected], config)
    assert try_conv_transpose([grad, weight], [out], config)
    assert_close(out, expected, prod(window))


@settings(deadline=None, max_examples=200)
@given(convolutions(), st.sampled_from("efd"), st.integers(0, 2**32))
def test_backward_weight(case: Convolution, dtype: str, seed: int):
    x, window, result, config = case
    rng = np.random.default_rng(seed)
    grad, given = random_array(rng, result, dtype), random_array(rng, x, dtype)
    expected, out = np.full(window, 7.0), np.full(window, 7, dtype)
    conv_backward_weight([grad.astype(float), given.astype(float)], [expected], config)
    assert try_conv_backward_weight([grad, given], [out], config)
    assert_close(out, expected, result[0] * prod(result[2:]))


@settings(deadline=None, max_examples=60)
@given(convolutions(), st.integers(0, 2**32))
def test_positions_by_parts(case: Convolution, seed: int):
    x, window, result, config = case
    rng = np.random.default_rng(seed)
    grad, weight, given = (random_array(rng, shape, "f") for shape in (result, window, x))
    outs = np.full(x, 7, "f"), np.full(window, 7, "f")
    expected = np.full(x, 7.0), np.full(window, 7.0)
    conv_transpose([grad.astype(float), weight.astype(float)], [expected[0]], config)
    conv_backward_weight([grad.astype(float), given.astype(float)], [expected[1]], config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution_backward, "COLUMNS_BYTES", 500)
        convolution_backward.planned.cache_clear()
        assert try_conv_transpose([grad, weight], [outs[0]], config)
        assert try_conv_backward_weight([grad, given], [outs[1]], config)
    convolution_backward.planned.cache_clear()
    for out, wanted, terms in zip(outs, expected, (prod(window), result[0] * prod(result[2:])), strict=True):
        assert_close(out, wanted, terms)


def test_others_are_left_to_others() -> None:
    x, weight, out = np.ones((1, 2, 3), "i4"), np.ones((2, 2, 1), "i4"), np.ones((1, 2, 3), "i4")
    assert not try_conv_transpose([x, weight], [out], {})
    assert not try_conv_backward_weight([x, x], [weight], {})
    assert (out == 1).all() and (weight == 1).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_reaches_only_what_it_is_multiplied_with(bad: float) -> None:
    """No zero around x is multiplied by it: results that its element of the window does not reach stay finite."""
    x, weight = np.ones((1, 2, 5), np.float32), np.ones((2, 1, 3), np.float32)
    weight[0, 0, 1] = bad
    out = np.empty((1, 1, 7), np.float32)
    assert try_conv_transpose([x, weight], [out], {})
    assert np.isfinite(out[0, 0]).tolist() == [True, *[False] * 5, True]
