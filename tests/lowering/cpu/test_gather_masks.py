"""Gathers with masks, of lanes that do nothing, in loops that compilers take apart, where they know places as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_opt

_TEXT = """
func.func @main(%x: tensor<1x3x5x5xf32>, %b: tensor<1x3x1x7xf32>) -> tensor<1x3x2x7xf32> {
  %p = graph.avg_pool %x {count_include_pad = false, kernel_shape = array<i64: 2, 4>, ceil_mode = false,
    strides = array<i64: 3, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 3, 0, 2>}
    : (tensor<1x3x5x5xf32>) -> tensor<1x3x2x7xf32>
  %y = graph.subtract %b, %p : (tensor<1x3x1x7xf32>, tensor<1x3x2x7xf32>) -> tensor<1x3x2x7xf32>
  func.return %y : tensor<1x3x2x7xf32>
}
"""


@pytest.mark.optimised
def test_rows_of_windows_within_a_masked_vector():
    """onnx_fuzz.py, seed 5148: with masks that are vectors (AVX2), gcc 12 wrote the places of one gather over its mask."""
    rng = np.random.default_rng(0)
    x = (rng.integers(-9, 9, (1, 3, 5, 5)) / 8).astype(np.float32)
    b = np.zeros((1, 3, 1, 7), np.float32)
    found: Any = fuse_opt.compile(_TEXT)(x, b)
    padded, there = (np.pad(a, ((0, 0), (0, 0), (1, 0), (3, 2))) for a in (x, np.ones_like(x)))
    sums, counts = (sum(a[:, :, i : i + 4 : 3, j : j + 7] for i in range(2) for j in range(4)) for a in (padded, there))
    np.testing.assert_allclose(found, -sums / counts, rtol=1e-6, atol=1e-6)
