"""Products of any number of rows or matrices in one program: right at each size, and never a byte beside their arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
Shapes = Callable[[int], Sequence[tuple[int, ...]]]
LENGTHS = (1, 2, 7, 24, 25, 97, 511, 512, 673)

MLP = """func.func @main(%x: tensor<?x33xf32> {graph.dims = ["n", ""]}, %w: tensor<33x130xf32>, %b: tensor<130xf32>,
                     %v: tensor<130x40xf32>) -> tensor<?x40xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x33xf32>, tensor<33x130xf32>) -> tensor<?x130xf32>
  %1 = graph.add %0, %b : (tensor<?x130xf32>, tensor<130xf32>) -> tensor<?x130xf32>
  %2 = graph.gelu %1 : (tensor<?x130xf32>) -> tensor<?x130xf32>
  %3 = graph.matmul %2, %v : (tensor<?x130xf32>, tensor<130x40xf32>) -> tensor<?x40xf32>
  func.return %3 : tensor<?x40xf32>
}"""
FAR = """func.func @main(%x: tensor<?x420xf32> {graph.dims = ["n", ""]}, %w: tensor<420x72xf32>) -> tensor<?x72xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x420xf32>, tensor<420x72xf32>) -> tensor<?x72xf32>
  %1 = graph.relu %0 : (tensor<?x72xf32>) -> tensor<?x72xf32>
  func.return %1 : tensor<?x72xf32>
}"""
TURNED = """func.func @main(%x: tensor<40x?xf32> {graph.dims = ["", "n"]}, %w: tensor<21x40xf32>) -> tensor<?x21xf32> {
  %0 = graph.matmul %x, %w {transpose_lhs = true, transpose_rhs = true}
    : (tensor<40x?xf32>, tensor<21x40xf32>) -> tensor<?x21xf32>
  func.return %0 : tensor<?x21xf32>
}"""
BATCHES = """func.func @main(%x: tensor<?x3x?x16xf32> {graph.dims = ["b", "", "n", ""]}, %w: tensor<3x16x20xf32>,
                     %u: tensor<?x3x1x20xf32> {graph.dims = ["b", "", "", ""]}) -> tensor<?x?x3x20xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x3x?x16xf32>, tensor<3x16x20xf32>) -> tensor<?x3x?x20xf32>
  %1 = graph.multiply %0, %u : (tensor<?x3x?x20xf32>, tensor<?x3x1x20xf32>) -> tensor<?x3x?x20xf32>
  %2 = graph.permute_dims %1 {axes = array<i64: 0, 2, 1, 3>} : (tensor<?x3x?x20xf32>) -> tensor<?x?x3x20xf32>
  func.return %2 : tensor<?x?x3x20xf32>
}"""
NARROW = """func.func @main(%x: tensor<?x9xf16> {graph.dims = ["n", ""]}, %w: tensor<9x1xf16>) -> tensor<?x1xf16> {
  %0 = graph.negative %x : (tensor<?x9xf16>) -> tensor<?x9xf16>
  %1 = graph.matmul %0, %w : (tensor<?x9xf16>, tensor<9x1xf16>) -> tensor<?x1xf16>
  func.return %1 : tensor<?x1xf16>
}"""
CASES: dict[str, tuple[str, Shapes]] = {
    "mlp": (MLP, lambda n: [(n, 33), (33, 130), (130,), (130, 40)]),
    "far": (FAR, lambda n: [(n, 420), (420, 72)]),
    "turned": (TURNED, lambda n: [(40, n), (21, 40)]),
    "batches": (BATCHES, lambda n: [(n % 3 + 1, 3, n, 16), (3, 16, 20), (n % 3 + 1, 3, 1, 20)]),
    "narrow": (NARROW, lambda n: [(n, 9), (9, 1)]),
}


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_one_program_runs_at_every_size(name: str) -> None:
    text, shapes = CASES[name]
    element = np.float16 if name == "narrow" else np.float32
    program, rng = fuse_opt.compile(text), np.random.default_rng(3)
    for number, length in enumerate(LENGTHS):
        given = [rng.standard_normal(shape).astype(element) for shape in shapes(length)]
        wanted = cast("Array", fuse_opt.evaluate(text, *given))
        with guarded() as allocate:
            arrays = [allocate(array, at_end=number % 2 == 0) for array in given]
            out = allocate(np.full_like(wanted, np.nan), at_end=number % 2 == 0)
            program(*arrays, out=out)
            np.testing.assert_allclose(out, wanted, 1e-5 if element is np.float32 else 4e-3, 1e-4)
    assert isinstance(program.native, SpecializedPrograms)
    assert program.native.made == 0 and program.stats.library_calls == 0
