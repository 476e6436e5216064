"""Ops that mean something about what is stored: zeros among it count, whatever else is stored or decided; and full capacities."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import as_list, needs_compiler
from sparse_programs import Array, dense_of

import fuse_opt
from fuse_opt.passes.decisions import replay_decisions

TARGETS = ["reference", pytest.param("cpu", marks=needs_compiler)]
CSR, DENSE = "tensor<4x5xf32, #graph.csr<capacity = 9>>", "tensor<4x5xf32>"
INDPTR, COLUMNS = np.array([0, 3, 3, 5, 8], np.int32), np.array([0, 2, 4, 1, 3, 0, 1, 2], np.int32)
VALUES = np.array([0, 2, -1, -np.inf, 0.5, 0, 0, 3], np.float32)
A = INDPTR, COLUMNS, VALUES


def softmax() -> Array:
    """Of the rows of A, over what is stored."""
    found = np.zeros((4, 5))
    for row, (first, last) in enumerate(pairwise(INDPTR)):
        weights = np.exp(VALUES[first:last].astype(np.float64))
        found[row, COLUMNS[first:last]] = weights / weights.sum() if last > first else 0
    return found


SOFTMAX = f"""func.func @main(%a: {CSR}) -> {DENSE} {{
  %0 = graph.stored_softmax %a : ({CSR}) -> {DENSE}
  func.return %0 : {DENSE}
}}"""


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_over_what_is_stored(target: str) -> None:
    """Empty rows, zeros that are stored, and one that is minus infinity; a row with NaN is NaN where it has entries."""
    program = fuse_opt.compile(SOFTMAX, target=target)
    assert program.fallbacks == (0, 0)
    np.testing.assert_allclose(program(A), softmax(), rtol=1e-6)
    with_nan = VALUES.copy()
    with_nan[6] = np.nan
    found = program((INDPTR, COLUMNS, with_nan))
    np.testing.assert_allclose(found[:3], softmax()[:3], rtol=1e-6)
    assert np.isnan(found[3]).tolist() == [True, True, True, False, False]


def test_no_decision_makes_it_dense() -> None:
    """A file of decisions that names nothing leaves pointwise ops to dense copies, which change no value; this would."""
    module = parse(SOFTMAX)
    with replay_decisions([]):
        text = text_of(apply(module, "assign-storage"))
    assert "graph.to_storage %a" not in text
    np.testing.assert_allclose(fuse_opt.evaluate(text, A), softmax(), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_samples_of_a_product_of_stored_operands(target: str) -> None:
    """The pattern is that of the first operand, zeros among it; the others are made dense, with remarks, and no product is."""
    x, y = "tensor<4x3xf32, #graph.csr<capacity = 12>>", "tensor<3x5xf32, #graph.row_sparse<capacity = 3>>"
    program = fuse_opt.compile(
        f"""func.func @main(%a: {CSR}, %x: {x}, %y: {y}) -> {CSR} {{
          %d = graph.to_storage %x : ({x}) -> tensor<4x3xf32>
          %0 = graph.sampled_matmul %a, %d, %y : ({CSR}, tensor<4x3xf32>, {y}) -> {DENSE}
          %1 = graph.sampled_matmul %a, %x, %y : ({CSR}, {x}, {y}) -> {DENSE}
          %2 = graph.add %0, %1 : ({DENSE}, {DENSE}) -> {DENSE}
          %3 = graph.to_storage %2 : ({DENSE}) -> {CSR}
          func.return %3 : {CSR}
        }}""",
        target=target,
    )
    assert target == "reference" or program.fallbacks == (2, 4 * (3 * 5 + 4 * 3))
    left = np.array([0, 1, 1, 2, 4], np.int32), np.array([0, 2, 0, 1], np.int32), np.arange(1, 5, dtype=np.float32)
    right = np.array([0, 2], np.int32), np.arange(10, dtype=np.float32).reshape(2, 5)
    product = dense_of((4, 3), left) @ dense_of((3, 5), right)
    there = dense_of((4, 5), (INDPTR, COLUMNS, np.ones(8)))
    np.testing.assert_allclose(dense_of((4, 5), program(A, left, right)), 2 * product * there, rtol=1e-6)


def momentum(weight: Array, gradient: Array, velocity: Array) -> tuple[Array, ...]:
    velocity = 0.75 * velocity + gradient
    return weight - 0.5 * velocity, velocity


def adam(weight: Array, gradient: Array, mean: Array, square: Array) -> tuple[Array, ...]:
    mean, square = 0.5 * (mean + gradient), square + 0.25 * (gradient**2 - square)
    return weight - 0.5 * mean / (np.sqrt(square) + 0.125), mean, square


STEPS: dict[str, tuple[Any, str]] = {
    "lazy_momentum": (momentum, "momentum = 0.75 : f64"),
    "lazy_adam": (adam, "beta1 = 0.5 : f64, beta2 = 0.75 : f64, epsilon = 0.125 : f64"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stored", ["", "weight", "weight and velocity"])
def test_lazy_steps_are_those_of_the_rows_of_a_gradient(step: str, stored: str, target: str) -> None:
    """A row of zeros is one of them, and its state decays; so it is where other operands are stored, which are made dense."""
    formula, attributes = STEPS[step]
    rng, states = np.random.default_rng(3), formula.__code__.co_argcount - 2
    rows, gradient = np.array([1, 2, 5], np.int32), rng.standard_normal((3, 4)).astype(np.float32)
    gradient[1] = 0
    dense, kind = "tensor<6x4xf32>", "tensor<6x4xf32, #graph.row_sparse<capacity = 3>>"
    every = "tensor<6x4xf32, #graph.row_sparse<capacity = 6>>"
    types = [every if "weight" in stored else dense, kind, "tensor<f32>", *[dense] * states]
    if "velocity" in stored:
        types[3] = every
    names = [f"%a{number}" for number in range(len(types))]
    results = ", ".join([dense] * (1 + states))
    program = fuse_opt.compile(
        f"""func.func @main({", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))}) -> ({results}) {{
          %0:{1 + states} = graph.{step} {", ".join(names)} {{{attributes}}} : ({", ".join(types)}) -> ({results})
          func.return {", ".join(f"%0#{k}" for k in range(1 + states))} : {results}
        }}""",
        target=target,
    )
    assert target == "reference" or program.fallbacks[0] == types.count(every)
    before = [np.abs(rng.standard_normal((6, 4))).astype(np.float32) for _ in range(1 + states)]
    whole = [
        (np.arange(6, dtype=np.int32), a) if t == every else a
        for a, t in zip(before, types[:1] + types[3:], strict=True)
    ]
    found = as_list(program(whole[0], (rows, gradient), np.float32(0.5), *whole[1:]))
    some = formula(before[0][rows], gradient, *(array[rows] for array in before[1:]))
    for result, array, after in zip(found, before, some, strict=True):
        wanted = array.copy()
        wanted[rows] = after
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
        others = np.setdiff1d(np.arange(6), rows)
        assert result[others].tobytes() == array[others].tobytes(), "rows without a gradient keep their bits"


@pytest.mark.parametrize("target", TARGETS)
def test_a_gradient_that_is_the_weight_is_dense_as_that_alone(target: str) -> None:
    """Found by the random programs: one value is read dense by one operand, as stored by another."""
    dense, kind = "tensor<3x2xf32>", "tensor<3x2xf32, #graph.row_sparse<capacity = 3>>"
    program = fuse_opt.compile(
        f"""func.func @main(%g: {kind}, %r: tensor<f32>, %v: {dense}) -> ({dense}, {dense}) {{
          %0:2 = graph.lazy_momentum %g, %g, %r, %v {{momentum = 0.75 : f64}}
            : ({kind}, {kind}, tensor<f32>, {dense}) -> ({dense}, {dense})
          func.return %0#0, %0#1 : {dense}, {dense}
        }}""",
        target=target,
    )
    assert target == "reference" or program.fallbacks == (1, 24)
    rows = np.array([0, 2]), np.array([[0, 0], [1, 2]], np.float32)
    weight, velocity = program(rows, np.float32(0.5), np.ones((3, 2), np.float32))
    assert weight.tolist() == [[-0.375, -0.375], [0, 0], [0.125, 0.625]]
    assert velocity.tolist() == [[0.75, 0.75], [1, 1], [1.75, 2.75]]


@pytest.mark.parametrize("target", TARGETS)
def test_csr_times_dense_has_the_pattern_of_the_csr(target: str) -> None:
    """Rows, columns, scalars and whole matrices; what is absent stays, whatever it would be multiplied with."""
    shapes = ["tensor<4x5xf32>", "tensor<5xf32>", "tensor<4x1xf32>", "tensor<f32>"]
    names = ", ".join(f"%x{k}: {shape}" for k, shape in enumerate(shapes))
    lines = [f"%{k} = graph.multiply %a, %x{k} : ({CSR}, {shape}) -> {CSR}" for k, shape in enumerate(shapes)]
    results = ", ".join([CSR] * 4)
    program = fuse_opt.compile(
        f"func.func @main(%a: {CSR}, {names}) -> ({results}) {{\n"
        + "\n".join(lines)
        + f"\nfunc.return %0, %1, %2, %3 : {results}\n}}",
        target=target,
    )
    assert program.fallbacks == (0, 0)
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 5), 5, (4, 1), ())]
    given[0][1] = np.nan  # of a row without entries
    given[0][0, 1] = np.inf  # where nothing is stored
    rows = np.repeat(np.arange(4), np.diff(INDPTR))
    for (indptr, columns, values), x in zip(program(A, *given), given, strict=True):
        assert (indptr.tolist(), columns.tolist()) == (INDPTR.tolist(), COLUMNS.tolist())
        np.testing.assert_array_equal(values, VALUES * np.broadcast_to(x, (4, 5))[rows, COLUMNS])


FULL: dict[str, tuple[str, str, Any, Any]] = {
    # what is computed, its result, an argument that gives as much as there is room for, and one with one entry more
    "csr_union": (
        "graph.add %a, %b : (tensor<2x3xf32, #graph.csr<capacity = 3>>, tensor<2x3xf32, #graph.csr<capacity = 3>>)",
        "tensor<2x3xf32, #graph.csr<capacity = 4>>",
        ([0, 2, 2], [0, 1]),
        ([0, 2, 3], [0, 1, 2]),
    ),
    "csr_take": (
        "graph.take %b, %i {axis = 0 : i64} : (tensor<2x3xf32, #graph.csr<capacity = 3>>, tensor<2xi32>)",
        "tensor<2x3xf32, #graph.csr<capacity = 4>>",
        ([0, 2, 2], [0, 1]),
        ([0, 3, 3], [0, 1, 2]),
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FULL)
def test_a_result_with_more_entries_than_its_capacity_is_refused_with_both_numbers(name: str, target: str) -> None:
    """As many as there is room for are all right, and a run after one that was refused is as it would have been."""
    call, result, fits, exceeds = FULL[name]
    kind = "tensor<2x3xf32, #graph.csr<capacity = 3>>"
    program = fuse_opt.compile(
        f"""func.func @main(%a: {kind}, %b: {kind}, %i: tensor<2xi32>) -> {result} {{
          %0 = {call} -> {result}
          func.return %0 : {result}
        }}""",
        target=target,
    )
    ids = np.zeros(2, np.int32)
    first = np.array([0, 0, 2], np.int32), np.array([0, 1], np.int32), np.ones(2, np.float32)
    given = [
        (np.array(ends, np.int32), np.array(columns, np.int32), np.full(len(columns), 2, np.float32))
        for ends, columns in (fits, exceeds)
    ]
    wanted = program(first, given[0], ids)
    assert wanted[1].size == 4
    with pytest.raises(
        ValueError, match=f"'graph.{name}': [56] entries, but a capacity of 4; give the type a larger one"
    ):
        program(first, given[1], ids)
    for part, other in zip(program(first, given[0], ids), wanted, strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("target", TARGETS)
def test_more_rows_than_a_row_sparse_result_has_room_for_are_refused(target: str) -> None:
    kind, table = "tensor<9x2xf32, #graph.row_sparse<capacity = 2>>", "tensor<9x2xf32>"
    program = fuse_opt.compile(
        f"""func.func @main(%w: {table} {{graph.donated}}, %dy: tensor<4x2xf32>, %ids: tensor<4xi64>) -> {table} {{
          %0 = graph.embedding_backward %dy, %ids {{rows = 9 : i64}} : (tensor<4x2xf32>, tensor<4xi64>) -> {kind}
          %1 = graph.subtract %w, %0 : ({table}, {kind}) -> {table}
          func.return %1 : {table}
        }}""",
        target=target,
    )
    w, dy = np.ones((9, 2), np.float32), np.ones((4, 2), np.float32)
    with pytest.raises(ValueError, match="'graph.embedding_rows_backward': 3 entries, but a capacity of 2"):
        program(w, dy, np.array([8, 1, 4, 8]))
    assert (w == 1).all()
    assert program(w, dy, np.array([8, 1, 8, 8]))[:, 0].tolist() == [1, 0, 1, 1, 1, 1, 1, 1, -2]
    stored = fuse_opt.compile(
        f"""func.func @main(%w: {table}) -> {kind} {{
          %0 = graph.to_storage %w : ({table}) -> {kind}
          func.return %0 : {kind}
        }}""",
        target=target,
    )
    with pytest.raises(ValueError, match="3 entries, but a capacity of 2"):
        stored(np.eye(9, 2, dtype=np.float32) + np.eye(9, 2, -1, dtype=np.float32))
    assert stored(np.eye(9, 2, dtype=np.float32))[0].tolist() == [0, 1]
