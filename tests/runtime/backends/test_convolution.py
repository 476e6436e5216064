"""Convolutions by NumPy's BLAS on the shared pool against NumPy's function, whatever the shapes and the threads are."""

from __future__ import annotations

from typing import Any

import blas_testing
import numpy as np
import pytest
from blas_testing import Array, assert_close
from blas_testing import tasks as tasks
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_opt.lowering.reference.kernels import convolution as numpy_convolution
from fuse_opt.runtime.backends.blas import convolution
from fuse_opt.runtime.backends.blas import direct_convolution as convolution_copies
from fuse_opt.runtime.host import thread_pool

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """Shapes of x and weight, and the configuration."""
    axes = draw(st.integers(1, 3))
    several = st.lists(st.integers(1, 3), min_size=axes, max_size=axes).map(tuple)
    groups, channels, filters = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    config: dict[str, Any] = {"groups": groups} if groups > 1 else {}
    window, strides, dilations = draw(several), draw(several), draw(several)
    pads = draw(st.lists(st.integers(0, 3), min_size=2 * axes, max_size=2 * axes).map(tuple))
    if draw(st.booleans()):
        config |= {"strides": strides, "dilations": dilations, "pads": pads}
    else:
        dilations, pads = (1,) * axes, (0,) * 2 * axes
    least = [
        max(1, d * (w - 1) + 1 - pads[k] - pads[axes + k])
        for k, (d, w) in enumerate(zip(dilations, window, strict=True))
    ]
    extents = [low + draw(st.integers(0, (0, 600, 25, 8)[axes])) for low in least]
    return (draw(st.integers(0, 3)), groups * channels, *extents), (groups * filters, channels, *window), config


def result_shape(x: Array, weight: Array, config: dict[str, Any]) -> tuple[int, ...]:
    axes = x.ndim - 2
    strides, dilations = (config.get(name, (1,) * axes) for name in ("strides", "dilations"))
    pads = config.get("pads", (0,) * 2 * axes)
    extents = [
        (x.shape[2 + k] + pads[k] + pads[axes + k] - dilations[k] * (weight.shape[2 + k] - 1) - 1) // strides[k] + 1
        for k in range(axes)
    ]
    return (x.shape[0], weight.shape[0], *extents)


def assert_convolves(x: Array, weight: Array, config: dict[str, Any]) -> Array:
    shape = result_shape(x, weight, config)
    expected = np.full(shape, 7.0)
    numpy_convolution.conv([x.astype(float), weight.astype(float)], [expected], config)
    found = blas_testing.run("conv", (x, weight), shape, config)
    assert_close(found, expected, weight[:1].size)
    return found


@settings(deadline=None, max_examples=100)
@given(case=convolutions(), dtype=st.sampled_from("fd"), seed=st.integers(0, 2**32))
def test_convolutions_are_those_of_numpy(case: Case, dtype: str, seed: int):
    shape, window, config = case
    rng = np.random.default_rng(seed)
    assert_convolves(random_array(rng, shape, dtype), random_array(rng, window, dtype), config)


@settings(deadline=None, max_examples=80)
@given(
    case=convolutions(),
    dtype=st.sampled_from("fd"),
    seed=st.integers(0, 2**32),
    share=st.sampled_from((0.0, 0.0, float("inf"))),
    copied=st.sampled_from((600, 3000, 256 << 10)),
    widest=st.sampled_from((3, 512)),
)
def test_windows_are_unfolded_or_not(case: Case, dtype: str, seed: int, share: float, copied: int, widest: int):
    shape, window, config = case
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution_copies, "LEAST_SHARE", share)
        patch.setattr(convolution_copies, "COPIED_BYTES", copied)
        patch.setattr(convolution_copies, "WIDEST", widest)
        convolution.planned.cache_clear()
        assert_convolves(random_array(rng, shape, dtype), random_array(rng, window, dtype), config)
    convolution.planned.cache_clear()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("shape", "window", "config"),
    [
        ((1, 300, 7, 7), (300, 300, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((3, 40, 20, 21), (36, 40, 3, 5), {"pads": (1, 2, 0, 1), "strides": (1, 2)}),
        ((2, 40, 31, 33), (24, 20, 3, 3), {"groups": 2, "strides": (2, 1)}),
        ((2, 64, 40, 40), (130, 64, 1, 1), {}),
        ((2, 64, 40, 40), (16, 64, 1, 1), {"strides": (2, 2)}),
        ((2, 32, 50, 50), (32, 1, 3, 3), {"groups": 32, "pads": (1, 1, 1, 1)}),
        ((1, 8, 5000), (16, 8, 9), {"pads": (4, 4)}),
        ((1, 4, 12, 20, 20), (8, 4, 3, 3, 3), {"dilations": (2, 1, 2)}),
    ],
)
def test_any_number_of_threads(shape: tuple[int, ...], window: tuple[int, ...], config: dict[str, Any]):
    rng = np.random.default_rng(4)
    x, weight = random_array(rng, shape, "f"), random_array(rng, window, "f")
    before, found = thread_pool.num_threads(), list[Array]()
    try:
        for count in (1, 2, 4, 7):
            thread_pool.set_num_threads(count)
            found.append(assert_convolves(x, weight, config))
    finally:
        thread_pool.set_num_threads(before)
    if max(window[2:]) > 1:  # those of one element are plain products, which are cut by the number of threads
        assert all(np.array_equal(one, found[0]) for one in found)
