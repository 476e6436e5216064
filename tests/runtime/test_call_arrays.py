"""Arrays that no program takes: results whose elements overlap, and masks that would be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler
from numpy.lib.stride_tricks import as_strided

import fuse_opt
from fuse_opt.runtime.call_arrays import overlaps_itself

PROGRAM = """\
func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = graph.exp %x : (tensor<3x4xf32>) -> tensor<3x4xf32>
  func.return %0 : tensor<3x4xf32>
}
"""
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 12

targets = pytest.mark.parametrize("target", ["reference", pytest.param("cpu", marks=needs_compiler)])


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return as_strided(np.zeros(256, np.float32), shape, strides)


@targets
@pytest.mark.parametrize("strides", [(4, 4), (8, 4), (4, 8), (12, 4), (0, 4), (2, 24)])
def test_out_must_not_overlap_itself(target: str, strides: tuple[int, int]) -> None:
    program = fuse_opt.compile(PROGRAM, target)
    with pytest.raises(ValueError, match=r"out\[0\]: expected an array whose elements have memory each, got"):
        program(X, out=strided((3, 4), strides))


@targets
@pytest.mark.parametrize("strides", [(16, 4), (4, 12), (20, 4), (64, 8), (8, 24), (28, 8), (4, 16), (6, 24)])
def test_out_may_have_any_strides_without_overlap(target: str, strides: tuple[int, int]) -> None:
    out = strided((3, 4), strides)
    fuse_opt.compile(PROGRAM, target)(X, out=out)
    np.testing.assert_allclose(out, np.exp(X), rtol=1e-6)


def test_overlap_is_what_numpy_finds() -> None:
    rng = np.random.default_rng(0)
    found = set[bool]()
    for _ in range(2000):
        shape = tuple(rng.integers(0, 5, rng.integers(0, 4)).tolist())
        strides = tuple((rng.integers(-12, 13, len(shape)) * rng.choice([1, 2, 4])).tolist())
        itemsize = int(rng.choice([1, 2, 4]))
        places = {sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(*shape)}
        size = int(np.prod(shape, dtype=int))
        taken = {place + byte for place in places for byte in range(itemsize)}
        overlaps = len(taken) < size * itemsize
        assert overlaps_itself(shape, strides, itemsize) == overlaps, (shape, strides, itemsize)
        found.add(overlaps)
    assert found == {True, False}


def test_overlap_of_more_elements_than_there_is_room_for_is_found_at_once() -> None:
    assert overlaps_itself((10**9, 10**9), (4, 4), 4)
    assert not overlaps_itself((0, 10**9, 10**9), (0, 4, 4), 4)


@targets
@pytest.mark.parametrize("mask", [False, True, [[True] * 4] * 3])
def test_masks_are_refused(target: str, mask: Any) -> None:
    program = fuse_opt.compile(PROGRAM, target)
    masked = np.ma.masked_array(X, mask)
    with pytest.raises(TypeError, match="got a masked array, whose mask would be lost; fill it by .filled"):
        program(masked)
    with pytest.raises(ValueError, match=r"out\[0\] is a masked array, whose mask would be lost"):
        program(X, out=masked.copy())
    np.testing.assert_allclose(program(masked.filled(0)), np.exp(masked.filled(0)), rtol=1e-6)


def test_masks_are_refused_by_evaluate() -> None:
    with pytest.raises(TypeError, match="got a masked array"):
        fuse_opt.evaluate(PROGRAM, np.ma.masked_array(X, X > 0.5))
