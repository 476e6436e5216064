"""Equal lines have equal sums, wherever they lie in a block and whoever computes them: what docs/c.md says of C kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from graph_op_table import Array, type_text
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

RNG = np.random.default_rng(11)
REDUCTIONS = ("sum", "mean", "prod", "var", "max")


@pytest.fixture(params=(1, 2, 3, 4))
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


def reduced(x: Array, axes: str) -> list[Array]:
    """All reductions of the array over axes, in one program."""
    kept = [n for axis, n in enumerate(x.shape) if str(axis) not in axes]
    result = type_text(np.empty(kept, x.dtype))
    lines = [
        f"  %{op} = graph.{op} %x {{axes = array<i64: {axes}>}} : ({type_text(x)}) -> {result}" for op in REDUCTIONS
    ]
    types, names = ", ".join([result] * len(REDUCTIONS)), ", ".join(f"%{op}" for op in REDUCTIONS)
    head = f"func.func @main(%x: {type_text(x)}) -> ({types})"
    text = "\n".join([f"{head} {{", *lines, f"  func.return {names} : {types}", "}\n"])
    return as_list(fuse_opt.compile(text, target="cpu")(x))


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize(("lines", "length"), [(1000, 7), (37, 33), (130, 100), (17, 1001), (1000, 64), (33, 5)])
def test_sums_of_rows_and_columns(lines: int, length: int, threads: int) -> None:
    line = RNG.standard_normal(length).astype(np.float32)
    rows = np.repeat(line[None], lines, 0)
    for x, axes in ((rows, "1"), (np.ascontiguousarray(rows.T), "0"), (np.stack([rows] * 3), "0, 2")):
        for op, found in zip(REDUCTIONS, reduced(x, axes), strict=True):
            assert len(np.unique(found)) == 1, (op, axes)


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize(
    ("inner", "channels", "extent", "window"), [(3, 1000, 8, 3), (8, 37, 9, 3), (5, 100, 7, 3), (4, 33, 6, 2)]
)
def test_channels_of_a_convolution_and_their_means(
    inner: int, channels: int, extent: int, window: int, threads: int
) -> None:
    """Windows of more than one element are summed by kernels of our own; products of matrices are the BLAS's."""
    one = RNG.standard_normal((1, inner, window, window)).astype(np.float32)
    weight, x = np.repeat(one, channels, 0), RNG.standard_normal((2, inner, extent, extent)).astype(np.float32)
    size = extent - window + 1
    y, m = f"tensor<2x{channels}x{size}x{size}xf32>", f"tensor<2x{channels}xf32>"
    text = (
        f"func.func @main(%x: {type_text(x)}, %w: {type_text(weight)}) -> ({y}, {m}) {{\n"
        f"  %y = graph.conv %x, %w : ({type_text(x)}, {type_text(weight)}) -> {y}\n"
        f"  %m = graph.mean %y {{axes = array<i64: 2, 3>}} : ({y}) -> {m}\n"
        f"  func.return %y, %m : {y}, {m}\n}}\n"
    )
    found, means = as_list(fuse_opt.compile(text, target="cpu")(x, weight))
    np.testing.assert_array_equal(found, np.repeat(found[:, :1], channels, 1))
    np.testing.assert_array_equal(means, np.repeat(means[:, :1], channels, 1))
