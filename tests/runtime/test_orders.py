"""Arguments and results that lie in another order: logical shapes, strides by their types, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fuse_opt

Array = NDArray[Any]

NHWC = "#graph.order<0, 2, 3, 1>"
TEXT = f"""
func.func @main(%x: tensor<2x8x5x6xf32, {NHWC}>, %y: tensor<2x8x5x6xf32>) -> (tensor<2x8x5x6xf32, {NHWC}>, tensor<2x8x5x6xf32>) {{
  %0 = graph.to_layout %y : (tensor<2x8x5x6xf32>) -> tensor<2x8x5x6xf32, {NHWC}>
  %1 = graph.subtract %x, %0 : (tensor<2x8x5x6xf32, {NHWC}>, tensor<2x8x5x6xf32, {NHWC}>) -> tensor<2x8x5x6xf32, {NHWC}>
  %2 = graph.to_layout %1 : (tensor<2x8x5x6xf32, {NHWC}>) -> tensor<2x8x5x6xf32>
  func.return %1, %2 : tensor<2x8x5x6xf32, {NHWC}>, tensor<2x8x5x6xf32>
}}
"""
SHAPE = (2, 8, 5, 6)
RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(2))


def nhwc(array: Array) -> Array:
    """The same elements with channels innermost in memory."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("lies", [nhwc, np.ascontiguousarray])
def test_results_have_the_strides_of_their_types(target: str, lies: Callable[[Array], Array]) -> None:
    program = fuse_opt.compile(TEXT, target=target)
    first, second = program(lies(X), Y)
    for result in (first, second):
        np.testing.assert_array_equal(result, X - Y)
    assert first.shape == SHAPE and first.strides == (8 * 30 * 4, 4, 6 * 8 * 4, 8 * 4)
    assert second.flags.c_contiguous


@pytest.mark.parametrize("lies", [nhwc, np.ascontiguousarray])
def test_out_is_written_whatever_its_strides(lies: Callable[[Array], Array]) -> None:
    program = fuse_opt.compile(TEXT)
    out = [lies(np.zeros_like(X)), lies(np.zeros_like(X))]
    strides = [array.strides for array in out]
    results = program(X, Y, out=out)
    for result, array, step in zip(results, out, strides, strict=True):
        np.testing.assert_array_equal(array, X - Y)
        assert np.shares_memory(result, array) and result.strides == array.strides == step


def test_other_shapes_are_refused_by_the_logical_one() -> None:
    program = fuse_opt.compile(TEXT)
    with pytest.raises(ValueError, match=r"argument 0 \('x'\): expected float32 \[2, 8, 5, 6\], got .*\[2, 5, 6, 8\]"):
        program(X.transpose(0, 2, 3, 1), Y)
    with pytest.raises(TypeError, match=r"argument 0 \('x'\): expected float32 \[2, 8, 5, 6\]"):
        program(X.astype(np.float64), Y)
    with pytest.raises(ValueError, match=r"out\[0\]: expected .*\[2, 8, 5, 6\]"):
        program(X, Y, out=[np.zeros((2, 5, 6, 8), np.float32), np.zeros_like(X)])


def test_a_donated_argument_lies_as_its_type_says() -> None:
    text = TEXT.replace(f"%x: tensor<2x8x5x6xf32, {NHWC}>", f"%x: tensor<2x8x5x6xf32, {NHWC}> {{graph.donated}}")
    program = fuse_opt.compile(text)
    given = nhwc(X)
    first, _ = program(given, Y)
    np.testing.assert_array_equal(first, X - Y)
    assert np.shares_memory(first, given)
    with pytest.raises(ValueError, match=r"argument 0 \('x'\) is donated: expected a writeable array"):
        program(X, Y)


def test_panels_are_no_layout_of_an_argument() -> None:
    text = """
func.func @main(%x: tensor<4x8xf32, #graph.panel<axis = 1, width = 4>>) -> tensor<4x8xf32> {
  %0 = graph.to_layout %x : (tensor<4x8xf32, #graph.panel<axis = 1, width = 4>>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
"""
    with pytest.raises(Exception, match="expected an order for what a caller gives or gets"):
        fuse_opt.compile(text)
