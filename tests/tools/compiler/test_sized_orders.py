"""Programs for all sizes that go along columns, short rows, windows and blocks: right at each size, never beside an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, parse
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
SIZES = ((1, 1), (2, 17), (17, 2), (40, 33), (7, 300), (150, 64), (131, 16))


def program(op: str, operands: Sequence[str], result: str, dims: Sequence[str]) -> str:
    """A program of one op on arguments whose `?` have these names."""
    heads = (
        f"%a{k}: tensor<{kind}> {{graph.dims = [{names}]}}"
        for k, (kind, names) in enumerate(zip(operands, dims, strict=True))
    )
    name, _, attributes = op.partition(" ")
    given, types = ", ".join(f"%a{k}" for k in range(len(operands))), ", ".join(f"tensor<{kind}>" for kind in operands)
    return f"""func.func @main({", ".join(heads)}) -> tensor<{result}> {{
      %r = graph.{name} {given} {attributes} : ({types}) -> tensor<{result}>
      func.return %r : tensor<{result}>
    }}"""


BOTH = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %y: tensor<?x?xf32> {graph.dims = ["n", "m"]})
    -> (tensor<?x?xf32>, tensor<?xf32>) {
  %t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = graph.add %t, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %b = graph.tanh %a : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = graph.mean %x {axes = array<i64: 0>} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %b, %s : tensor<?x?xf32>, tensor<?xf32>
}"""
POOLED = """func.func @main(%x: tensor<2x3x?x?xf32> {graph.dims = ["", "", "m", "n"]})
    -> (tensor<2x3x?x?xf32>, tensor<2x3x?x?xf32>) {
  %0 = graph.max_pool %x {kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>}
    : (tensor<2x3x?x?xf32>) -> tensor<2x3x?x?xf32>
  %1 = graph.avg_pool %x {kernel_shape = array<i64: 2, 5>, strides = array<i64: 1, 3>, pads = array<i64: 1, 2, 0, 3>}
    : (tensor<2x3x?x?xf32>) -> tensor<2x3x?x?xf32>
  func.return %0, %1 : tensor<2x3x?x?xf32>, tensor<2x3x?x?xf32>
}"""
CASES: dict[str, tuple[str, Callable[[int, int], Sequence[tuple[int, ...]]], str]] = {
    "columns": (
        program("sum {axes = array<i64: 0>}", ["?x?xf32"], "?xf32", ['"m", "n"']), lambda m, n: [(m, n)], "column",
    ),
    "columns between": (
        program("max {axes = array<i64: 1>}", ["?x?x24xf32"], "?x24xf32", ['"m", "n", ""']),
        lambda m, n: [(m, n, 24)],
        "column",
    ),
    "columns of doubles": (
        program("sum {axes = array<i64: 0>}", ["?x?xf64"], "?xf64", ['"m", "n"']), lambda m, n: [(m, n)], "column",
    ),
    "columns of halves": (
        program("sum {axes = array<i64: 0>}", ["?x?xf16"], "?xf16", ['"m", "n"']), lambda m, n: [(m, n)], "column",
    ),
    "columns in several steps": (
        program("softmax {axis = 0 : i64}", ["?x?xf32"], "?x?xf32", ['"m", "n"']), lambda m, n: [(m, n)], "column",
    ),
    "short rows": (
        program("softmax {axis = 2 : i64}", ["?x?x5xf32"], "?x?x5xf32", ['"m", "n", ""']),
        lambda m, n: [(m, n, 5)],
        "column",
    ),
    "columns of numbers": (
        program("layer_norm", ["?x6xf32"], "?x6xf32", ['"m", ""']), lambda m, n: [(m * n, 6)], "column",
    ),
    "a transpose": (
        program("permute_dims {axes = array<i64: 1, 0>}", ["?x?xf32"], "?x?xf32", ['"m", "n"']),
        lambda m, n: [(m, n)],
        "tile",
    ),
    "a transpose of halves, of rows that are known": (
        program("permute_dims {axes = array<i64: 0, 2, 1>}", ["?x?x40xf16"], "?x40x?xf16", ['"m", "n", ""']),
        lambda m, n: [(m, n, 40)],
        "tile",
    ),
    "a transpose with others": (BOTH, lambda m, n: [(m, n), (n, m)], "column"),
    "windows": (POOLED, lambda m, n: [(2, 3, m + 1, n + 2)], "column"),
}  # fmt: skip


@pytest.mark.sampled(7)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_one_program_is_right_at_every_size(name: str) -> None:
    text, shapes, kind = CASES[name]
    element = np.float64 if "xf64>" in text else np.float16 if "xf16>" in text else np.float32
    with sizes_asked_for():
        assert f'kind = "{kind}"' in str(apply(parse(text), ["infer-shapes{symbols=true}", "default"]))
    rng, compiled = np.random.default_rng(7), fuse_opt.compile(text)
    for number, size in enumerate(SIZES):
        given = [rng.standard_normal(shape).astype(element) for shape in shapes(*size)]
        wanted = fuse_opt.evaluate(text, *given)
        results = cast("tuple[Array, ...]", wanted if isinstance(wanted, tuple) else (wanted,))
        with guarded() as allocate:
            arrays = [allocate(array, at_end=number % 2 == 0) for array in given]
            out = [allocate(np.full_like(one, np.nan), at_end=number % 2 == 0) for one in results]
            compiled(*arrays, out=out)
            for found, one in zip(out, results, strict=True):
                bound = 1e-2 if element is np.float16 else 1e-5
                np.testing.assert_allclose(found, one, bound, bound * max(1.0, float(np.abs(one).max())))
    assert isinstance(compiled.native, SpecializedPrograms) and compiled.native.made == 0
