"""Calls of libraries inside of a program's one foreign call: products and convolutions by a BLAS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fuse_opt
from fuse_opt.runtime.backends import sparse
from fuse_opt.runtime.backends.blas import matmul as blas
from fuse_opt.runtime.backends.positions import calls
from fuse_opt.runtime.host import thread_pool

# Of products of standard normal numbers; the kernels of a BLAS (OPENBLAS_CORETYPE) add in orders of their own.
EPSILON = {"f32": 2.0**-19, "f64": 2.0**-48}
CASES = {
    "matmul": ("", "3x40x65", "65x70", "3x40x70"),
    "matmul, transposed": ("{transpose_lhs = true, transpose_rhs = true}", "65x40", "70x65", "40x70"),
    "conv": ("{pads = array<i64: 1, 1, 1, 1>}", "2x24x19x18", "40x24x3x3", "2x40x19x18"),
    "conv_transpose": ("{strides = array<i64: 2, 2>}", "2x16x9x8", "16x4x3x3", "2x4x19x17"),
    "conv_backward_data": (
        "{shape = array<i64: 20, 17>, strides = array<i64: 2, 2>}",
        "2x16x9x8",
        "16x4x3x3",
        "2x4x20x17",
    ),
    "conv_backward_weight": (
        "{kernel_shape = array<i64: 3, 3>, groups = 2 : i64}",
        "3x16x9x8",
        "3x6x11x10",
        "16x3x3x3",
    ),
}


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    if blas.load_tasks() is None:
        pytest.skip("no OpenBLAS in NumPy, or no C compiler")
    before = thread_pool.num_threads()
    thread_pool.set_num_threads(4)
    yield
    thread_pool.set_num_threads(before)


def program_text(case: str, dtype: str) -> str:
    """The op on one argument and on what another op makes of one, and an op behind it."""
    attributes, *shapes = CASES[case]
    a, b, out = (f"tensor<{shape}x{dtype}>" for shape in shapes)
    return f"""
func.func @main(%a: {a}, %b: {b}) -> {out} {{
  %0 = graph.abs %a : ({a}) -> {a}
  %1 = graph.{case.partition(",")[0]} %0, %b {attributes} : ({a}, {b}) -> {out}
  %2 = graph.negative %1 : ({out}) -> {out}
  func.return %2 : {out}
}}
"""


def random_array(rng: np.random.Generator, shape: str, dtype: str) -> NDArray[Any]:
    values = rng.standard_normal([int(n) for n in shape.split("x")])
    return values.astype(f"f{int(dtype[1:]) // 8}")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("case", CASES)
def test_a_program_is_one_call(case: str, dtype: str):
    rng = np.random.default_rng(7)
    text = program_text(case, dtype)
    a, b = (random_array(rng, shape, dtype) for shape in CASES[case][1:3])
    program = fuse_opt.compile(text, pipeline="wrap-kernels,select-implementation{prefer=blas}")
    assert (program.stats.library_calls, program.stats.foreign_calls) == (1, 1)
    results = [program(a, b), fuse_opt.evaluate(text, a, b)]
    found, expected = (r.astype(float) for r in results)
    assert np.max(abs(found - expected) / (8 + abs(expected))) < EPSILON[dtype]


@pytest.mark.parametrize("module, library", [(calls, "task_library"), (sparse, "_library")])
def test_what_a_program_does_not_call_is_not_compiled(
    module: Any, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of indices and those of sparse values take a compiler seconds each."""
    asked: list[object] = []
    monkeypatch.setattr(module, library, lambda *task: asked.append(task))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    program = fuse_opt.compile(program_text("matmul", "f32"), backend="numpy,-fuse")
    a, b = np.ones((3, 40, 65), np.float32), np.ones((65, 70), np.float32)
    np.testing.assert_array_equal(program(a, b), np.full((3, 40, 70), -65, np.float32))
    assert program.stats.library_calls == 1
    assert not asked
