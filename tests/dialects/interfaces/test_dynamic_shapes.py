"""Unknown extents: carried by every op, told apart by name, and run for whatever shapes a call brings."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ir_testing import parse
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.dialects.analysis.symbolic_shapes import symbolic_shapes
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.compiler.specialization import Shapes, SpecializedPrograms

MLP = """func.func @main(%x: tensor<?x8xf32> {graph.dims = ["batch", ""]}, %y: tensor<?x8xf32> {graph.dims = ["batch", ""]},
                 %w: tensor<8x4xf32>) -> (tensor<?x4xf32>, tensor<?xf32>) {
  %s = graph.add %x, %y : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %n = graph.softmax %s : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %h = graph.matmul %n, %w : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %r = graph.sum %h {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?xf32>
  %d = graph.concat %r, %r {axis = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  func.return %h, %d : tensor<?x4xf32>, tensor<?xf32>
}"""


def arguments(batch: int, other: int | None = None) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(batch)
    shapes = [(batch, 8), (batch if other is None else other, 8), (8, 4)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def expected(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    weights = np.exp(x.astype(np.float64) + y)
    h = (weights / weights.sum(1, keepdims=True)) @ w
    return [h, np.concatenate([h.sum(1)] * 2)]


@needs_compiler
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_every_batch_runs(target: str) -> None:
    program = fuse_opt.compile(MLP, target)
    for batch in (3, 1, 7, 3, 0):
        given = arguments(batch)
        for actual, wanted in zip(program(*given), expected(*given), strict=True):
            assert actual.shape == wanted.shape
            np.testing.assert_allclose(actual, wanted, 1e-5, 1e-6)


@needs_compiler
def test_a_set_of_shapes_is_compiled_once() -> None:
    program = fuse_opt.compile(MLP)
    with pytest.raises(RuntimeError, match="compiled at its first call"):
        _ = program.stats
    program(*arguments(5))
    first = program.stats
    assert first.kernels > 0 and "void" in program.source
    program(*arguments(6))
    program(*arguments(5))
    assert program.stats is first


@needs_compiler
def test_programs_that_are_called_directly_are_kept() -> None:
    text = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  func.return %x : tensor<?xf32>\n}"
    made: list[Shapes] = []

    class Made:
        def __init__(self, shapes: Shapes) -> None:
            made.append(shapes)

        def __call__(self, *arrays: Any, out: Any = None) -> str:
            return "checked"

        def direct(self, arrays: Sequence[Any], out: Any) -> str:
            return "direct"

    programs = SpecializedPrograms(
        entry_function(parse(text)), Made, lambda shapes: pytest.fail(f"{shapes} were traced")
    )
    first, out = np.zeros(1, np.float32), None
    assert programs.direct((first,), out) is NotImplemented and programs(first) == "checked"
    for extent in range(2, SpecializedPrograms.KEPT + 10):
        assert programs(np.zeros(extent, np.float32)) == "checked"
        assert programs.direct((first,), out) == "direct"
    assert (
        len(made) == SpecializedPrograms.KEPT + 9 and programs.direct((np.zeros(2, np.float32),), out) is NotImplemented
    )
    assert programs.direct((1.0,), out) is NotImplemented and programs.direct((), out) is NotImplemented


@needs_compiler
def test_calls_from_several_threads() -> None:
    program = fuse_opt.compile(MLP)
    wrong: list[int] = []

    def call(batch: int) -> None:
        for _ in range(5):
            given = arguments(batch)
            if not np.allclose(program(*given)[1], expected(*given)[1], 1e-5, 1e-6):
                wrong.append(batch)

    threads = [threading.Thread(target=call, args=(batch,)) for batch in (2, 3, 2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_compiler
def test_shapes_that_do_not_fit_are_one_clear_line() -> None:
    program = fuse_opt.compile(MLP)
    with pytest.raises(ValueError, match=r"extent 'batch': argument 0, axis 0 has 3, argument 1, axis 0 has 2"):
        program(*arguments(3, other=2))
    with pytest.raises(ValueError, match=r"argument 1 .*expected float32 \[\?, 8\], got shape \[3, 9\]"):
        program(arguments(3)[0], np.zeros((3, 9), np.float32), arguments(3)[2])
    unnamed = MLP.replace('{graph.dims = ["batch", ""]}', "")
    with pytest.raises(Exception, match=r"graph.add.*3x8, 2x8"):
        fuse_opt.compile(unnamed)(*arguments(3, other=2))


def shapes_of(text: str) -> dict[str, str | None]:
    function = entry_function(parse(text))
    shapes = symbolic_shapes(function)
    return {r.name_hint or "": shapes.text(r) for op in function.body.block.ops for r in op.results}


def test_extents_by_name() -> None:
    assert shapes_of(MLP) == {
        "s": "[batch, 8]",
        "n": "[batch, 8]",
        "h": "[batch, 4]",
        "r": "[batch]",
        "d": "[2*batch]",
    }


def test_extents_that_may_differ_are_not_the_same() -> None:
    text = """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %a = graph.concat %x, %y {axis = 0 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
      %b = graph.reshape %x {shape = array<i64: -1>} : (tensor<?x4xf32>) -> tensor<?xf32>
      %c = graph.add %x, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
      %d = graph.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
      func.return %a : tensor<?x4xf32>
    }"""
    function = entry_function(parse(text))
    shapes = symbolic_shapes(function)
    x, y = function.body.block.args
    a, b, c, d = (op.results[0] for op in list(function.body.block.ops)[:-1])
    assert shapes.same((x, 0), (d, 0)) and shapes.same((x, 1), (y, 1))
    assert not shapes.same((x, 0), (y, 0)) and not shapes.same((x, 0), (a, 0))
    assert shapes.text(b) == "[4*x.0]" and shapes.text(c) is None
    assert shapes.known(b) is not None and shapes.known(c) is None


def test_very_large_tensors_are_legal_types() -> None:
    text = """func.func @main(%x: tensor<65536x65536x4xi8>) -> tensor<65536x65536xi8> {
      %y = graph.negative %x : (tensor<65536x65536x4xi8>) -> tensor<65536x65536x4xi8>
      %z = graph.max %y {axes = array<i64: 2>} : (tensor<65536x65536x4xi8>) -> tensor<65536x65536xi8>
      func.return %z : tensor<65536x65536xi8>
    }"""
    assert "memref<17179869184xi8>" in str(fuse_opt.optimize(text, "fuse-row,schedule-kernels,convert-fused-to-loops"))


@needs_compiler
def test_an_argument_of_unknown_extent_may_be_a_result() -> None:
    text = """
func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %0 = graph.exp %x : (tensor<?xf32>) -> tensor<?xf32>
  func.return %x, %0 : tensor<?xf32>, tensor<?xf32>
}"""
    program = fuse_opt.compile(text, "cpu")
    for extent in (3, 5):
        x = np.linspace(-1, 1, extent, dtype=np.float32)
        same, found = program(x)
        np.testing.assert_array_equal(same, x)
        np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)
