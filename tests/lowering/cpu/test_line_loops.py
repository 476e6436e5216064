"""Windows along rows of any number of lanes: loops over planes, lines and lanes, whatever part of them a thread has."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
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


@pytest.mark.sampled(5)
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
def test_few_lanes_go_alone_or_by_groups_and_no_task_divides() -> None:
    """Fewer than four lanes, fours, eights, and blocks of long rows; no vector has several groups."""
    program = fuse_opt.compile(POOL)
    program(np.zeros((1, 3, 4, 4), np.float32))
    text = program.source
    assert re.findall(r"#pragma omp simd(?: simdlen\((\d)\))?", text) == ["4", "8", "8"]
    assert text.count('__asm__("");') == 3
    assert "% " not in text[text.index("static void kernel") : text.index("typedef void")]


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("element", ["f32", "f64", "f16"])
def test_nothing_is_touched_beyond_rows_of_any_length(element: str) -> None:
    """What is no word of 32 bits in memory has no groups."""
    program, rng = fuse_opt.compile(POOL.replace("f32", element)), np.random.default_rng(3)
    kind = np.dtype({"f32": np.float32, "f64": np.float64, "f16": np.float16}[element])
    for lanes in (*range(1, 36), 1021, 1023, 1024, 1025, 1031, 2049):
        x = rng.integers(-9, 9, (2, 3, 5, 2 * lanes + lanes % 2)).astype(kind)
        wanted = x[:, :, :4, : 2 * lanes].astype(np.float64).reshape(2, 3, 2, 2, lanes, 2).mean((3, 5))
        with guarded() as allocate:
            for at_end in (False, True):
                np.testing.assert_array_equal(program(allocate(x, at_end=at_end)), wanted)
    assert ("group" in program.source) == (element == "f32")
