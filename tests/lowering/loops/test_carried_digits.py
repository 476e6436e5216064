"""Short rows in an order of their own: their numbers are taken apart once for many, wherever a task begins."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

PASSES = ["decompose", "fuse-elementwise", "fuse-row", "wrap-kernels", "schedule-kernels", "convert-fused-to-loops"]


def permuted(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    x, y = ("x".join(map(str, extents)) for extents in (shape, [shape[axis] for axis in axes]))
    return f"""func.func @main(%x: tensor<{x}xf32>, %y: tensor<{y}xf32>) -> tensor<{y}xf32> {{
  %t = graph.permute_dims %x {{axes = array<i64: {", ".join(map(str, axes))}>}} : (tensor<{x}xf32>) -> tensor<{y}xf32>
  %r = graph.add %t, %y : (tensor<{y}xf32>, tensor<{y}xf32>) -> tensor<{y}xf32>
  func.return %r : tensor<{y}xf32>
}}"""


@pytest.mark.parametrize(
    ("shape", "axes", "carried"),
    [
        ((55, 198, 16), (1, 0, 2), True),
        ((9, 31, 19), (1, 0, 2), True),
        ((5, 31, 19), (1, 0, 2), False),
        ((55, 198, 99), (1, 0, 2), False),
        ((13, 7, 11, 16), (2, 1, 0, 3), True),
        ((13, 8, 9, 16), (1, 2, 0, 3), True),
    ],
)
def test_digits_are_carried_from_row_to_row(shape: tuple[int, ...], axes: tuple[int, ...], carried: bool) -> None:
    """Where rows are short, and many of them follow each other before a digit begins anew."""
    assert ("%digit" in text_of(apply(parse(permuted(shape, axes)), PASSES))) == carried


@needs_compiler
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((55, 198, 16), (1, 0, 2)),
        ((9, 331, 19), (1, 0, 2)),
        ((13, 57, 11, 16), (2, 1, 0, 3)),
        ((13, 48, 9, 16), (1, 2, 0, 3)),
        ((12, 5, 9, 8, 17), (3, 1, 2, 0, 4)),
    ],
)
def test_rows_are_moved_to_their_places(shape: tuple[int, ...], axes: tuple[int, ...], threads: int) -> None:
    """With several threads tasks begin anywhere."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    y = np.ones([shape[axis] for axis in axes], np.float32)
    before = num_threads()
    set_num_threads(threads)
    try:
        found = as_list(fuse_opt.compile(permuted(shape, axes))(x, y))
    finally:
        set_num_threads(before)
    np.testing.assert_array_equal(found[0], x.transpose(axes) + 1)
