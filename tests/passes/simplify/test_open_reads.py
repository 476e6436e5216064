"""Reads at positions that are data inside of kernels: values, memory that is theirs, errors, and what is not overwritten."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from cuda_matrix_programs import elements_at_data, rows_at_data
from guard_pages import guarded, needs_guard_pages
from ir_testing import Array, assert_same_bits, evaluate, kernels, optimized, parse, random_arguments
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.dialects.verify.kernel_reads import KernelReads
from fuse_opt.lowering.program import NUMPY_NAMES
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

TAKEN = """func.func @main(%x: tensor<6x33xf32>, %i: tensor<2x5xi32>) -> tensor<2x5xf32> {
  %r = graph.take %x, %i : (tensor<6x33xf32>, tensor<2x5xi32>) -> tensor<2x5x33xf32>
  %e = graph.exp %r : (tensor<2x5x33xf32>) -> tensor<2x5x33xf32>
  %s = graph.sum %e {axes = array<i64: 2>} : (tensor<2x5x33xf32>) -> tensor<2x5xf32>
  func.return %s : tensor<2x5xf32>
}"""
DONATED = """func.func @main(%x: tensor<64x8xf32> {graph.donated}, %i: tensor<64x1xi32>) -> tensor<64x8xf32> {
  %r = graph.read_at %x, %i {axis = 0 : i64} : (tensor<64x8xf32>, tensor<64x1xi32>) -> tensor<64x8xf32>
  %y = graph.add %x, %r : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  func.return %y : tensor<64x8xf32>
}"""


@needs_guard_pages
@pytest.mark.parametrize("at_end", [False, True])
def test_wild_positions_read_nothing_beside(at_end: bool) -> None:
    """Positions of any value, as a kernel sees them that is run before somebody looks whether they were in range."""
    for text in (rows_at_data(33, "f32"), elements_at_data(19, "bf16")):
        program, module = fuse_opt.compile(text), parse(text)
        given: list[Array] = random_arguments(module, 2)
        for array in given:
            if array.dtype.kind in "iu":
                array.reshape(-1)[::2] = np.iinfo(array.dtype).max
                array.reshape(-1)[1::3] = np.iinfo(array.dtype).min
        with guarded() as allocate:
            found = program(*(allocate(array, at_end=at_end) for array in given))
            results: list[Array] = list(found) if isinstance(found, tuple) else [found]  # pyright: ignore[reportUnknownArgumentType]
            assert_same_bits(results, evaluate(module, given))


def test_the_error_is_the_op_s() -> None:
    program = fuse_opt.compile(TAKEN)
    assert program.stats.kernels == 1 and program.stats.arena_bytes <= 64
    x, good = np.ones((6, 33), np.float32), np.arange(10, dtype=np.int32).reshape(2, 5) - 5
    good[good < -6] = 0
    before = program(x, good)
    for bad in (6, -7):
        wrong = good.copy()
        wrong[1, 2] = bad
        said = (
            rf"'graph.take': index {bad} at \[1, 2\] of the indices is out of range for axis 0 of extent 6; expected -6"
        )
        with pytest.raises(IndexError, match=said):
            program(x, wrong)
        with pytest.raises(IndexError, match=said):
            fuse_opt.evaluate(TAKEN, x, wrong)
    np.testing.assert_array_equal(program(x, good), before)


def test_a_table_is_not_overwritten() -> None:
    """Neither by the pass that decides, nor where a person asks for it: the verifier, which shares nothing with it, refuses."""
    (kernel,) = kernels(optimized(DONATED, DEFAULT_PIPELINE))
    assert kernel.inplace_pairs() == []
    clash = KernelReads(kernel).clash(0, frozenset({0}))
    assert clash is not None and "positions that are data" in clash


@pytest.mark.parametrize("text", [
    """func.func @main(%x: tensor<8xf32> {graph.donated}, %y: tensor<2x1x8xf32>, %i: tensor<1x1x8xi64>) -> tensor<1x1x8xf32> {
  %s = graph.add %x, %y : (tensor<8xf32>, tensor<2x1x8xf32>) -> tensor<2x1x8xf32>
  %t = graph.take_along_axis %s, %i {axis = 0 : i64} : (tensor<2x1x8xf32>, tensor<1x1x8xi64>) -> tensor<1x1x8xf32>
  func.return %t : tensor<1x1x8xf32>
}""",
    """func.func @main(%x: tensor<1x1xf32> {graph.donated}, %y: tensor<1x2xf32>, %i: tensor<1x1xi64>) -> tensor<1x1xf32> {
  %s = graph.divide %y, %x : (tensor<1x2xf32>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %t = graph.take_along_axis %s, %i {axis = 1 : i64} : (tensor<1x2xf32>, tensor<1x1xi64>) -> tensor<1x1xf32>
  func.return %t : tensor<1x1xf32>
}""",
])  # fmt: skip
def test_what_is_the_same_at_all_positions_is_overwritten(text: str) -> None:
    """Where data says one coordinate alone, and an operand is repeated along that one (fuzz --backends, 120398 and 120489)."""
    module = parse(text)
    given = [array * 0 + 1 if array.dtype.kind == "i" else array for array in random_arguments(module, 4)]
    wanted = evaluate(module, given)
    passes = ("open-reads", "fuse-injective", "wrap-kernels", "infer-inplace", "plan-memory")
    (*_, kernel) = kernels(optimized(text, passes))
    assert kernel.inplace_pairs()
    assert_same_bits([fuse_opt.compile(text, pipeline=passes)(*given)], wanted)


def indexed(shapes: str, axes: str, result: str) -> str:
    """Elements of [3, 7, 9] at index tensors of some shapes, and something computed of them."""
    types = [f"tensor<{shape}xi64>" for shape in shapes.split()]
    names = [f"%i{number}" for number in range(len(types))]
    arguments = "".join(f", {name}: {kind}" for name, kind in zip(names, types, strict=True))
    x, y = "tensor<3x7x9xf32>", f"tensor<{result}xf32>"
    return f"""func.func @main(%x: {x}{arguments}) -> {y} {{
  %r = graph.index %x, {", ".join(names)} {{axes = array<i64: {axes}>}} : ({x}, {", ".join(types)}) -> {y}
  %y = graph.exp %r : ({y}) -> {y}
  func.return %y : {y}
}}"""


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("shapes", "axes", "result", "opens"),
    [
        ("40x1 50", "1, 2", "3x40x50", True),
        ("40x1 1x50", "0, 1", "40x50x9", True),
        ("40x1x1 30x1 20", "0, 1, 2", "40x30x20", True),
        ("1x1 50", "1, 2", "3x1x50", True),
        ("3x4x1x1 5x6", "1, 2", "3x3x4x5x6", True),
        ("5x6 3x4x1x1", "1, 2", "3x3x4x5x6", False),
        ("3x4x1x1 1x1", "0, 2", "3x4x1x1x7", False),
        ("3x1x6 4x1", "1, 2", "3x3x4x6", False),
        ("50 40x1", "1, 2", "3x40x50", False),  # the first axis of the result is the second index's
        ("40x1 50", "2, 1", "3x40x50", False),
        ("40x1 50", "0, 2", "40x50x7", False),
        ("50 50", "1, 2", "3x50", False),
        ("40x50 50", "1, 2", "3x40x50", False),
    ],
)
def test_index_tensors_along_an_axis_each_are_reads_one_after_another(
    shapes: str, axes: str, result: str, opens: bool
) -> None:
    text = indexed(shapes, axes, result)
    ops = {op.name for kernel in kernels(optimized(text, DEFAULT_PIPELINE)) for op in kernel.block.ops}
    assert ("graph.read_at" in ops) == opens and ("graph.index" in ops) != opens
    rng = np.random.default_rng(4)
    extents = [(3, 7, 9)[int(axis)] for axis in axes.split(",")]
    sizes = [tuple(map(int, shape.split("x"))) for shape in shapes.split()]
    x = rng.standard_normal((3, 7, 9)).astype(np.float32)
    at = [rng.integers(-n, n, size) for n, size in zip(extents, sizes, strict=True)]
    program = fuse_opt.compile(text)
    np.testing.assert_allclose(program(x, *at), fuse_opt.evaluate(text, x, *at), rtol=1e-6)
    for number, extent in enumerate(extents):
        wrong = [each.copy() for each in at]
        wrong[number].reshape(-1)[-1] = extent
        for call in (program, partial(fuse_opt.evaluate, text)):
            with pytest.raises(IndexError, match=rf"'graph.index': index {extent} at .* of extent {extent}"):
                call(x, *wrong)


APART = """func.func @main(%x: tensor<?x?x?xf32> {graph.dims = ["b", "r", "c"]}, %i: tensor<?x1xi64> {graph.dims = ["m", ""]},
    %j: tensor<?xKIND> {graph.dims = ["n"]}) -> tensor<?x?x?xf32> {
  %r = graph.index %x, %i, %j {axes = array<i64: 1, 2>}
    : (tensor<?x?x?xf32>, tensor<?x1xi64>, tensor<?xKIND>) -> tensor<?x?x?xf32>
  %y = graph.multiply %r, %r : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  func.return %y : tensor<?x?x?xf32>
}"""


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("kind", ["i8", "i64", "ui16", "ui64"])
def test_reads_of_any_extents(kind: str) -> None:
    """One program for all of them, which is refused for the same indices as one for each, and reads nothing beside."""
    text = APART.replace("KIND", kind)
    program, module, rng = fuse_opt.compile(text), fuse_opt.load(text), np.random.default_rng(3)
    for b, r, c, m, n in ((1, 2, 3, 4, 5), (2, 7, 90, 5, 70), (3, 4, 33, 2, 31), (1, 2, 3, 4, 5)):
        x = rng.standard_normal((b, r, c)).astype(np.float32)
        i, j = rng.integers(-r, r, (m, 1)), rng.integers(0, c, n).astype(NUMPY_NAMES[kind])
        with guarded() as allocate:
            found = program(*(allocate(array, at_end=b == 2) for array in (x, i, j)))
        assert np.array_equal(found, fuse_opt.evaluate(module, x, i, j))
        j[-1] = c
        with pytest.raises(
            IndexError, match=f"'graph.index': index {c} at .* is out of range for axis 2 of extent {c}"
        ):
            program(x, i, j)
    assert isinstance(native := program.native, SpecializedPrograms) and not native.made
    assert "graph.read_at" in program.source
