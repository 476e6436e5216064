"""Extrema of boxes are those along one axis after the other, where that is less work."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt


def boxes(op: str, shape: tuple[int, ...], window: dict[int, tuple[int, int, int]]) -> str:
    """`window` has sizes, strides and dilations, by axis."""
    result = list(shape)
    for axis, (size, stride, dilation) in window.items():
        result[axis] = (shape[axis] - dilation * (size - 1) - 1) // stride + 1
    x, y = (f"tensor<{''.join(f'{n}x' for n in extents)}f32>" for extents in (shape, result))
    names = {
        "axes": list(window),
        **dict(zip(("window", "strides", "dilations"), zip(*window.values(), strict=True), strict=True)),
    }
    attributes = ", ".join(f"{name} = array<i64: {', '.join(map(str, numbers))}>" for name, numbers in names.items())
    return f"""func.func @f(%x: {x}) -> {y} {{
  %r = graph.window_{op} %x {{{attributes}}} : ({x}) -> {y}
  func.return %r : {y}
}}"""


@pytest.mark.sampled(11)
@needs_compiler
@pytest.mark.parametrize("op", ("max", "min"))
@pytest.mark.parametrize(
    ("shape", "window", "count"),
    [
        ((2, 3, 20, 31), {2: (5, 1, 1), 3: (5, 1, 1)}, 2),
        ((2, 3, 20, 31), {3: (7, 2, 1), 2: (7, 2, 1)}, 2),
        ((2, 25, 21, 8), {1: (5, 1, 2), 2: (4, 1, 3)}, 2),
        ((2, 9, 10, 11), {1: (3, 1, 1), 2: (3, 1, 1), 3: (3, 1, 1)}, 3),
        ((2, 3, 20, 31), {2: (3, 1, 1), 3: (3, 1, 1)}, 1),
        ((2, 3, 20, 31), {2: (4, 4, 1), 3: (4, 4, 1)}, 1),
        ((2, 3, 20, 31), {2: (1, 1, 1), 3: (9, 1, 1)}, 1),
        ((3, 400), {1: (201, 1, 1)}, 3),
        ((400, 3), {0: (47, 1, 5)}, 2),
        ((3, 400), {1: (64, 3, 1)}, 1),
        ((2, 90, 100), {1: (37, 1, 1), 2: (33, 1, 1)}, 4),
    ],
)
def test_boxes(op: str, shape: tuple[int, ...], window: dict[int, tuple[int, int, int]], count: int) -> None:
    text, rng = boxes(op, shape, window), np.random.default_rng(0)
    assert str(fuse_opt.optimize(text, "canonicalize")).count(f"graph.window_{op}") == count
    x = rng.standard_normal(shape, np.float32)
    x[rng.random(shape) < 0.01] = np.nan
    np.testing.assert_array_equal(fuse_opt.compile(text)(x), fuse_opt.evaluate(text, x))


@pytest.mark.parametrize(("extent", "size"), [(13, 5), (35, 5), (60, 5), (60, 13), (200, 31)])
def test_short_windows_along_rows_go_side_by_side(extent: int, size: int) -> None:
    """They were reduced one after the other, as rows of a few elements are of which none overlap."""
    text = boxes("max", (8, 31, 9, extent), {3: (size, 1, 1)})
    assert 'kind = "column"' in str(fuse_opt.optimize(text, "wrap-kernels,schedule-kernels"))
