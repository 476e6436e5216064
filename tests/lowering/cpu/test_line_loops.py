"""Windows along rows of any number of lanes: loops over planes, lines and lanes, whatever part of them a thread has."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt

X = "tensor<?x3x?x?xf32>"
POOL = f"""func.func @main(%x: {X} {{graph.dims = ["b", "", "h", "w"]}}) -> {X} {{
  %0 = graph.avg_pool %x {{kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 2>}} : ({X}) -> {X}
  func.return %0 : {X}
}}"""
SHAPES = (
    (1, 2, 2),
    (2, 9, 3),
    (7, 5, 7),
    (40, 58, 15),
    (3, 4, 16),
    (5, 31, 17),
    (2, 3, 200),
    (2, 6, 2049),
    (1, 5, 9001),
)


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_all_lengths_are_pooled_whole_by_any_number_of_threads(shape: tuple[int, int, int]) -> None:
    """Of less than eight lanes, of some, and of more blocks than one."""
    batch, height, width = shape
    program = fuse_opt.compile(POOL)
    x = np.random.default_rng(1).integers(-99, 99, (batch, 3, height, width)).astype(np.float32)
    wanted = x[:, :, : height // 2 * 2, : width // 2 * 2].reshape(batch, 3, height // 2, 2, width // 2, 2).mean((3, 5))
    for result in by_threads(lambda: program(x).copy()):
        np.testing.assert_array_equal(result, wanted)


@needs_compiler
def test_short_rows_have_no_vectors_and_others_short_ones_and_no_division_each() -> None:
    program = fuse_opt.compile(POOL)
    program(np.zeros((1, 3, 4, 4), np.float32))
    text = program.source
    assert (
        text.count("#pragma omp simd simdlen(8)") == text.count("#pragma omp simd") == 1
        and text.count('__asm__("");') == 1
    )
    assert "% " not in text[text.index("static void kernel") : text.index("typedef void")]
