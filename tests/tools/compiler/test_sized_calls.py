"""Calls of one program for any sizes by compiled code: new extents ask nothing of Python, and what is not for them is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler
from sized_texts import SOFTMAXES

import fuse_opt
from fuse_opt.runtime.cpu import sized_calls
from fuse_opt.runtime.cpu.sized_frames import SizedFrame
from fuse_opt.runtime.host.program_call import Loop
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
DONATED = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"], graph.donated}) -> tensor<?x?xf32> {
  %1 = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}"""
LIMITED = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %y: tensor<?x?xf32> {graph.dims = ["k", "n"]})
    -> tensor<?x?xf32> attributes {graph.symbols = {n = {least = 4, most = 64, multiple = 4}}, graph.equal = [["m", "k"]]} {
  %0 = graph.add %x, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %0 : tensor<?x?xf32>
}"""


def drawn(shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def compiled_call(program: fuse_opt.CompiledProgram, *arrays: Array, out: Array | None = None) -> Any:
    assert isinstance(program.native, SpecializedPrograms)
    return program.native.direct(arrays, out)


@needs_compiler
def test_new_extents_ask_nothing_of_python() -> None:
    program, rng = fuse_opt.compile(SOFTMAXES), np.random.default_rng(7)
    program(*drawn([(2, 3), (3, 2)]))
    kept: list[tuple[Array, Array]] = []
    sizes = [(int(m), int(n)) for m, n in rng.integers(1, 70, (12, 2))]
    for m, n in [*sizes, (1, 1), *sizes[:3], *sizes[:3], sizes[0], sizes[0], (211, 190), sizes[-1]]:
        given = drawn([(m, n), (n, m)])
        wanted, out = fuse_opt.evaluate(SOFTMAXES, *given), np.full((n, m), np.nan, np.float32)
        found = compiled_call(program, *given)
        assert found is not NotImplemented and compiled_call(program, *given, out=out) is not NotImplemented
        np.testing.assert_array_equal(found, out)
        kept.append((found, wanted))
        assert program.stats.arena_bytes == program.stats.lower_bound_bytes
    for found, wanted in kept:  # no later call wrote to a result that somebody has
        np.testing.assert_allclose(found, wanted, 2e-6, 2e-6)
    assert isinstance(program.native, SpecializedPrograms) and program.native.made == 0


@needs_compiler
def test_what_is_not_for_a_program_is_refused_by_name() -> None:
    program = fuse_opt.compile(LIMITED)
    program(*drawn([(3, 8), (3, 8)]))
    assert compiled_call(program, *drawn([(5, 64), (5, 64)])).shape == (5, 64)
    for x, y, said in (
        ((3, 68), (3, 68), "'n'.* 68; expected 4 to 64"),
        ((3, 6), (3, 6), "'n'.* 6; expected a multiple of 4"),
        ((3, 8), (2, 8), "'m' and 'k'.* 3, .* 2; they must be equal"),
        ((3, 8), (3, 12), "'n'.* 8, .* 12; they must be equal"),
    ):
        given = drawn([x, y])
        assert compiled_call(program, *given) is NotImplemented
        with pytest.raises(ValueError, match=said):
            program(*given)
    wrong = drawn([(3, 8), (3, 8)])
    for other in (wrong[0].astype(np.float64), wrong[0][0], wrong[0].T, 3.0):
        assert compiled_call(program, wrong[0], other) is NotImplemented  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(compiled_call(program, *wrong), wrong[0] + wrong[1], 1e-6)


@needs_compiler
def test_donated_arguments_are_written_in_place() -> None:
    program = fuse_opt.compile(DONATED)
    program(*drawn([(2, 3)]))
    for shape in ((4, 9), (1, 30), (4, 9), (4, 9)):
        (given,) = drawn([shape])
        wanted = fuse_opt.evaluate(DONATED, given.copy())
        found = compiled_call(program, given)
        assert np.shares_memory(found, given)
        np.testing.assert_allclose(given, wanted, 2e-6)


PREPARED = """func.func @main(%x: tensor<?x9xf32> {graph.dims = ["n", ""]}, %w: tensor<9x8xf32> {graph.frozen})
    -> tensor<?x8xf32> {
  %0 = graph.square %w : (tensor<9x8xf32>) -> tensor<9x8xf32>
  %1 = graph.matmul %x, %0 : (tensor<?x9xf32>, tensor<9x8xf32>) -> tensor<?x8xf32>
  func.return %1 : tensor<?x8xf32>
}"""
TURNED = """func.func @main(%x: T {graph.dims = ["n", ""]}, %y: T {graph.dims = ["n", ""]}) -> T {
  %0 = graph.subtract %x, %y : (T, T) -> T
  func.return %0 : T
}""".replace("T", "tensor<?x5xf32, #graph.order<1, 0>>")


def only_compiled(program: fuse_opt.CompiledProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    """No later call may ask for a program for its extents."""

    def refused(*given: object) -> None:
        pytest.fail("Python made a program for extents of its own")

    native = program.native
    assert isinstance(native, SpecializedPrograms) and native.sized is not None and native.sized.ways
    monkeypatch.setattr(type(native.sized), "__call__", refused)


@needs_compiler
@pytest.mark.parametrize("frozen", [True, False])
def test_prepared_arguments_are_those_of_all_extents(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program, (first, weights) = fuse_opt.compile(PREPARED), drawn([(3, 9), (9, 8)])
    others = () if frozen else (weights,)
    if frozen:
        program.freeze({1: weights})
    program(first, *others)
    only_compiled(program, monkeypatch)
    for length in (1, 17, 40, 3, 17):
        (given,) = drawn([(length, 9)])
        wanted, out = given @ weights**2, np.full((length, 8), np.nan, np.float32)
        np.testing.assert_allclose(program(given, *others), wanted, 1e-4, 1e-4)
        np.testing.assert_array_equal(program(given, *others, out=out), program(given, *others))
        assert np.isfinite(out).all() and program.stats.prepared_bytes
    with pytest.raises((TypeError, ValueError), match="expected float32"):
        program(first.astype(np.float64), *others)
    if frozen:
        program.freeze({1: weights * 2})
        np.testing.assert_allclose(program(first), first @ (weights * 2) ** 2, 1e-4, 1e-4)


@needs_compiler
def test_axes_in_another_order_ask_nothing_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    program, (x, y) = fuse_opt.compile(TURNED), drawn([(3, 5)] * 2)
    np.testing.assert_array_equal(program(x, y), x - y)
    turned = [np.asfortranarray(each) for each in drawn([(7, 5)] * 2)]
    with monkeypatch.context() as patched:
        only_compiled(program, patched)
        found, out = program(*turned), np.zeros((7, 5), np.float32, order="F")
        assert found.strides == turned[0].strides and np.shares_memory(program(*turned, out=out), out)
        for each in (found, out):
            np.testing.assert_array_equal(each, turned[0] - turned[1])
    assert program.stats.kernels == 1
    np.testing.assert_array_equal(program(*drawn([(4, 5)] * 2)), np.subtract(*drawn([(4, 5)] * 2)))  # copied first
    with pytest.raises(ValueError, match="'n'.* 3, .* 7; they must be equal"):
        program(x, turned[0])


UNNAMED_NORM = """func.func @main(%x: tensor<?x?xf32>, %s: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %r = graph.layer_norm %x, %s, %b : (tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  func.return %r : tensor<?x?xf32>
}"""
UNNAMED_ATTENTION = """func.func @main(%q: tensor<?x2x?x8xf32>, %k: tensor<?x2x?x8xf32>, %v: tensor<?x2x?x8xf32>)
    -> tensor<?x2x?x8xf32> {
  %r = graph.scaled_dot_product_attention %q, %k, %v
    : (tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) -> tensor<?x2x?x8xf32>
  func.return %r : tensor<?x2x?x8xf32>
}"""


@needs_compiler
@pytest.mark.parametrize(
    ("text", "shapes", "wrong"),
    [
        (UNNAMED_NORM, [(5, 12), (12,), (12,)], [(5, 12), (12,), (11,)]),
        (UNNAMED_ATTENTION, [(3, 2, 5, 8), (3, 2, 7, 8), (3, 2, 7, 8)], [(3, 2, 5, 8), (3, 2, 7, 8), (3, 2, 6, 8)]),
    ],
    ids=["norm", "attention"],
)
def test_extents_of_three_arguments_that_have_to_be_equal(
    text: str, shapes: list[tuple[int, ...]], wrong: list[tuple[int, ...]]
) -> None:
    """Named or not: they become one symbol in turn, and a call that breaks it is refused."""
    program, arrays = fuse_opt.compile(text), drawn(shapes)
    np.testing.assert_allclose(program(*arrays), fuse_opt.evaluate(text, *arrays), 1e-5, 1e-6)
    native = program.native
    assert isinstance(native, SpecializedPrograms) and native.made == 0, native.sized and native.sized.problem
    with pytest.raises(ValueError, match=r"shape \[12\], got \[11\]|k and v \[3, 2, 6, 8\]"):
        program(*drawn(wrong))


@needs_compiler
def test_how_many_rows_are_worth_a_thread_follows_from_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of short rows a chunk has many, and a call of few chunks keeps the interpreter to itself."""
    made: list[SizedFrame] = []

    class Seen(SizedFrame):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(sized_calls, "SizedFrame", Seen)
    program = fuse_opt.compile(DONATED.replace(", graph.donated", ""))
    grains: list[int] = []
    for n in (4, 64, 4000, 5):
        for _ in range(3):
            program(*drawn([(256, n)]))
        record = made[-1].bound.record
        grains.append(Loop.from_address(record.loops).grain)
        assert bool(record.release) == (256 // grains[-1] >= 2)
    assert grains[0] > grains[3] > 256 > grains[1] > grains[2] == 1
