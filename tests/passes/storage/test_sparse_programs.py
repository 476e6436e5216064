"""Random programs that mix storage kinds: the reference, passes in any order, and compiled, against dense NumPy."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from draws import draws
from ir_testing import apply, evaluate, parse, text_of
from laws import DECISIONS, OPTIMIZATIONS, Subject, pass_fault
from lowered_programs import needs_compiler
from sparse_programs import Array, SparseProgram, dense_of

import fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.source.verification import verify

SEEDS = draws(10)
COMPILED = draws(3)
ORDERS = draws(3)


def compare(program: SparseProgram, found: Any) -> None:
    results: Any = found if len(program.results) > 1 else [found]  # one that is stored is a tuple of its parts
    for given, expected in zip(results, program.results, strict=True):
        dense = dense_of(expected.shape, cast("tuple[Array, ...]", given)) if isinstance(given, tuple) else given
        np.testing.assert_allclose(
            dense, expected, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(expected).max(initial=0)))
        )


def test_reference() -> None:
    for seed in SEEDS:
        program = SparseProgram(seed)
        compare(program, fuse_opt.evaluate(program.text, *program.arguments))


@needs_compiler
def test_compiled() -> None:
    """Every temporary dense copy stands in the IR: none is left for the run to make."""
    for seed in COMPILED:
        program = SparseProgram(seed)
        compiled = fuse_opt.compile(program.text, pipeline="unfused" if seed % 2 else None)
        compare(program, compiled(*program.arguments))
        assert not _stored_left(compiled), seed


def _stored_left(compiled: Any) -> list[str]:
    """Lines with values of storage kinds, whose dense copies the run would have to make."""
    return [line for line in text_of(compiled.module).splitlines() if "#graph." in line and "graph.part" not in line]


def subject(seed: int, passes: str) -> Subject:
    """The program's text after passes, with its parts as arguments; from here on bits stay."""
    program = SparseProgram(seed)
    module = apply(parse(program.text), passes)
    signature = fuse_opt.compile(parse(program.text), target="reference").signature
    arrays = [
        a for value, given in zip(signature.arguments, program.arguments, strict=True) for a in value.arrays(given)
    ]
    return Subject(text_of(module), arrays, evaluate(module, arrays))


@pytest.mark.parametrize("before", ["assign-storage", "lower-storage"])
def test_passes_in_any_order_keep_the_laws(before: str) -> None:
    """Whether a zero is stored, and the sign of one that is not, is settled by `assign-storage`; values are, before it."""
    for seed in ORDERS:
        rng = np.random.default_rng(seed)
        names = [str(name) for name in rng.choice([n for n in OPTIMIZATIONS if n not in DECISIONS], 6)]
        passes = [*names[:3], "assign-storage", *names[3:]]
        assert not pass_fault(subject(seed, before), passes), (seed, passes)


@needs_compiler
def test_plans_after_passes_in_any_order_verify() -> None:
    """Compiled after such passes: the plan is verified, nothing is left as stored, and values are those of dense NumPy."""
    for seed in COMPILED:
        program, rng = SparseProgram(seed), np.random.default_rng([seed, 1])
        names = [n for n in OPTIMIZATIONS if n not in (*DECISIONS, "gpu-attach-device")]
        before = [str(name) for name in rng.choice(names, 4)]
        pipeline = f"assign-storage,{','.join(before)},{','.join(DEFAULT_PIPELINE)}"
        compiled = fuse_opt.compile(program.text, pipeline=pipeline)
        verify(compiled.module)
        compare(program, compiled(*program.arguments))
        assert not _stored_left(compiled), (seed, before)


def test_a_value_that_became_csr_is_stored_by_rows() -> None:
    """Found by the random programs: the conversion was refused within the pass."""
    csr, rows = "tensor<4x5xf32, #graph.csr<capacity = 7>>", "tensor<4x5xf32, #graph.row_sparse<capacity = 4>>"
    text = f"""func.func @main(%a: {csr}) -> {rows} {{
  %0 = graph.abs %a : ({csr}) -> tensor<4x5xf32>
  %1 = graph.to_storage %0 : (tensor<4x5xf32>) -> {rows}
  func.return %1 : {rows}
}}"""
    given = np.array([0, 1, 1, 3, 3], np.int32), np.array([2, 0, 4], np.int32), np.array([-1, 2, -3], np.float32)
    assert text_of(apply(parse(text), "assign-storage")).count("graph.fallback") == 1
    indices, values = fuse_opt.evaluate(text, given)
    assert indices.tolist() == [0, 2]
    assert values.tolist() == [[0, 0, 1, 0, 0], [2, 0, 0, 0, 3]]


FOUND = [
    (2189, "a lazy step of one row whose gradient has room for none"),
    (2238, "a product with what became csr has no room for the entries of both"),
    (5007, "a softmax of what became csr is over zeros that are stored"),
    (5069, "rows of a gradient that became row-sparse are zero"),
    (5092, "a csr result of what became row-sparse"),
    (5203, "a conversion to csr of what became csr stores zeros"),
    (81196, "a lazy step that has a way where others are dense"),
    (5355, "the decomposition of a composite op has results that nobody wrote"),
]


@pytest.mark.parametrize("seed", [seed for seed, _ in FOUND], ids=[name for _, name in FOUND])
def test_found_by_the_random_programs(seed: int) -> None:
    program = SparseProgram(seed)
    compare(program, fuse_opt.compile(program.text, "reference")(*program.arguments))
    module = apply(parse(program.text), "assign-storage,pack-operands,assign-storage")
    compare(program, fuse_opt.evaluate(text_of(module), *program.arguments))


@needs_compiler
@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_counted_of_a_step_on_a_table_are_its_rows(in_place: bool) -> None:
    table, rows = "tensor<500x4xf32>", "tensor<500x4xf32, #graph.row_sparse<capacity = 8>>"
    donated = " {graph.donated}" if in_place else ""
    program = fuse_opt.compile(f"""func.func @main(%w: {table}{donated}, %g: {rows}) -> {table} {{
  %0 = graph.subtract %w, %g : ({table}, {rows}) -> {table}
  func.return %0 : {table}
}}""")
    row, whole = 8 * 4 * 4, 500 * 4 * 4
    counted = [2 * row + 8 + 8 * 4, row] if in_place else [whole + row + 8 + 8 * 4, whole]
    assert [program.stats.bytes_read, program.stats.bytes_written] == counted


@needs_compiler
@pytest.mark.parametrize("in_place", [True, False])
def test_a_step_on_rows_has_the_bits_of_the_dense_step(in_place: bool) -> None:
    """Ids that occur again, -0 in rows of both sorts, an infinity; rows without a gradient keep theirs."""
    table, dy, ids = "tensor<50x20xf32>", "tensor<16x20xf32>", "tensor<16xi64>"
    rng = np.random.default_rng(4)
    start, grad = (rng.standard_normal((rows, 20)).astype(np.float32) for rows in (50, 16))
    numbers = rng.integers(0, 50, 16)
    numbers[[3, 5, 9]] = numbers[0]
    start[::3, 1], grad[:, 2], grad[4, 3] = -0.0, -0.0, np.inf
    found: list[Array] = []
    donated = " {graph.donated}" if in_place else ""
    for kind in (f"{table[:-1]}, #graph.row_sparse<capacity = 16>>", table):
        program = fuse_opt.compile(f"""func.func @main(%w: {table}{donated}, %dy: {dy}, %ids: {ids}) -> {table} {{
  %0 = graph.embedding_backward %dy, %ids {{rows = 50 : i64}} : ({dy}, {ids}) -> {kind}
  %rate = graph.constant dense<0.1> : tensor<f32>
  %1 = graph.multiply %0, %rate : ({kind}, tensor<f32>) -> {kind}
  %2 = graph.subtract %w, %1 : ({table}, {kind}) -> {table}
  func.return %2 : {table}
}}""")
        assert program.fallbacks == (0, 0)
        given = start.copy()
        found.append(program(given, grad, numbers))
        assert np.shares_memory(found[-1], given) == in_place
    assert found[0].tobytes() == found[1].tobytes()
    others = np.setdiff1d(np.arange(50), numbers)
    assert found[0][others].tobytes() == start[others].tobytes()
