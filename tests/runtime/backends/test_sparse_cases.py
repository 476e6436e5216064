"""Random csr matrices and row-sparse tensors against dense NumPy, and SciPy where it is: `$FUSE_OPT_FUZZ_CASES` times as many.

Empty rows, no entries at all, full rows, NaN and infinity stored, zeros stored, a capacity that is met or has room, positions
of 32 and 64 bits; and what is refused before anything is written: a column out of range, twice, out of order, one entry too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import pytest
from draws import draws
from lowered_programs import as_list, needs_compiler
from sparse_programs import Array, dense_of

import fuse_opt

CASES = draws(6)
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf], np.float32)


@dataclass(frozen=True)
class Case:
    """Two csr matrices, rows of a third tensor, dense operands, and how much room there is for entries."""

    a: tuple[Array, Array, Array]
    b: tuple[Array, Array, Array]
    some: tuple[Array, Array]
    x: Array
    y: Array
    shape: tuple[int, int]
    room: int

    @classmethod
    def of(cls, seed: int) -> Case:
        rng = np.random.default_rng([seed, 22])
        rows, columns, n = int(rng.integers(1, 12)), int(rng.integers(1, 12)), int(rng.choice([1, 3, 8, 17, 40]))
        a, b = (_csr(rng, rows, columns) for _ in range(2))
        room = min(rows * columns, max(a[1].size, b[1].size) + int(rng.integers(0, 3)))
        at = np.sort(rng.permutation(rows)[: int(rng.integers(0, rows + 1))]).astype(np.int32)
        some = at, rng.standard_normal((at.size, n)).astype(np.float32)
        x, y = (rng.standard_normal((count, n)).astype(np.float32) for count in (columns, rows))
        return cls(a, b, some, x, y, (rows, columns), room)

    @property
    def text(self) -> str:
        (rows, columns), n = self.shape, self.x.shape[1]
        csr = f"tensor<{rows}x{columns}xf32, #graph.csr<capacity = {self.room}>>"
        both = f"tensor<{rows}x{columns}xf32, #graph.csr<capacity = {min(2 * self.room, rows * columns)}>>"
        some = f"tensor<{rows}x{n}xf32, #graph.row_sparse<capacity = {rows}>>"
        x, y = f"tensor<{columns}x{n}xf32>", f"tensor<{rows}x{n}xf32>"
        turned = f"tensor<{n}x{columns}xf32>"
        results = f"{y}, {x}, {both}, {csr}, {csr}, tensor<{rows}xf32>, {y}, tensor<{columns}x{rows}xf32>"
        return f"""func.func @main(%a: {csr}, %b: {csr}, %s: {some}, %x: {x}, %y: {y}) -> ({results}) {{
  %0 = graph.matmul %a, %x : ({csr}, {x}) -> {y}
  %1 = graph.matmul %a, %y {{transpose_lhs = true}} : ({csr}, {y}) -> {x}
  %2 = graph.add %a, %b : ({csr}, {csr}) -> {both}
  %3 = graph.relu %b : ({csr}) -> {csr}
  %u = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({x}) -> {turned}
  %4 = graph.sampled_matmul %a, %y, %u : ({csr}, {y}, {turned}) -> {csr}
  %5 = graph.sum %a {{axes = array<i64: 1>, keepdims = false}} : ({csr}) -> tensor<{rows}xf32>
  %6 = graph.subtract %y, %s : ({y}, {some}) -> {y}
  %t = graph.permute_dims %b {{axes = array<i64: 1, 0>}} : ({csr}) -> tensor<{columns}x{rows}xf32, {csr.split(", ")[1]}
  %7 = graph.to_storage %t : (tensor<{columns}x{rows}xf32, {csr.split(", ")[1]}) -> tensor<{columns}x{rows}xf32>
  func.return %0, %1, %2, %3, %4, %5, %6, %7 : {results}
}}"""

    def expected(self) -> list[Array]:
        a, b, some = (
            dense_of(shape, parts)
            for shape, parts in ((self.shape, self.a), (self.shape, self.b), (self.y.shape, self.some))
        )
        with np.errstate(all="ignore"):
            there = dense_of(self.shape, (*self.a[:2], np.ones(self.a[1].size, np.float32)))
            sampled = np.where(there != 0, self.y @ self.x.T, 0)
            return [
                _product(a, there, self.x),
                _product(a.T, there.T, self.y),
                a + b,
                np.maximum(b, 0),
                sampled,
                a.sum(1),
                self.y - some,
                b.T,
            ]


def _csr(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
    density = float(rng.choice([0.0, 0.1, 0.4, 0.9]))
    chance = np.where(rng.random(rows) < 0.2, 0.0, np.where(rng.random(rows) < 0.15, 1.0, density))
    there = rng.random((rows, columns)) < chance[:, None]
    positions = np.int64 if rng.random() < 0.3 else np.int32
    indptr = np.concatenate([[0], np.cumsum(there.sum(1))]).astype(positions)
    indices = np.nonzero(there)[1].astype(positions)
    values = rng.standard_normal(indices.size).astype(np.float32)
    special = rng.random(indices.size) < (0.15 if rng.random() < 0.4 else 0.0)
    values[special] = rng.choice(SPECIAL, int(special.sum()))
    return indptr, indices, values


def _product(a: Array, there: Array, x: Array) -> Array:
    """Sums over what is stored: what is absent takes no part, whatever it would be multiplied with."""
    terms = np.where(there[:, :, None] != 0, a[:, :, None].astype(np.float64) * x[None], 0)
    return terms.sum(1)


def _dense(given: Any, shape: tuple[int, ...]) -> Array:
    return dense_of(shape, cast("tuple[Array, ...]", given)) if isinstance(given, tuple) else np.asarray(given)


@needs_compiler
def test_against_numpy_and_scipy() -> None:
    for seed in CASES:
        case = Case.of(seed)
        target = "reference" if seed % 3 else "cpu"
        program = fuse_opt.compile(case.text, target=target)
        given = [*case.a, *case.b, *case.some, case.x, case.y]
        before = [array.tobytes() for array in given]
        results = as_list(program(case.a, case.b, case.some, case.x, case.y))
        assert [array.tobytes() for array in given] == before, "arguments are as they were"
        _check_arrays(results, given)
        for number, (found, expected) in enumerate(zip(results, case.expected(), strict=True)):
            np.testing.assert_allclose(_dense(found, expected.shape), expected, 1e-4, 1e-4, err_msg=f"{seed}: {number}")
        assert results[3][1].tolist() == case.b[1].tolist(), "zeros that are stored stay"
        _compare_with_scipy(case, program, results)


def _check_arrays(results: list[Any], given: list[Array]) -> None:
    """Of parts: element types, lengths, that they lie in C order, and that no two share memory, nor one with an argument."""
    parts = [cast("tuple[Array, ...]", value) if isinstance(value, tuple) else (value,) for value in results]
    for value in parts:
        assert [part.dtype for part in value] == [np.int32] * (len(value) - 1) + [np.float32]
        assert all(part.flags.c_contiguous for part in value)
        if len(value) == 3:
            assert value[1].shape == value[2].shape == (value[0][-1],)
    every = [part for value in parts for part in value if part.size]
    for number, part in enumerate(every):
        assert not any(np.shares_memory(part, other) for other in [*given, *every[number + 1 :]])


def _spoilt(rng: np.random.Generator, case: Case) -> tuple[tuple[Array, Array, Array], str]:
    """The case's first matrix with one defect, and what is said of it; positions are of 64 bits, or of 32."""
    rows, columns = case.shape
    indptr, indices, values = (array.copy() for array in case.a)
    kind = int(rng.integers(5))
    if kind == 4 and case.room < rows * columns:  # one more than there is room for
        there = np.sort(rng.permutation(rows * columns)[: case.room + 1])
        starts = np.searchsorted(there, np.arange(rows + 1) * columns).astype(indptr.dtype)
        wrong = starts, (there % columns).astype(indices.dtype), np.ones(case.room + 1, np.float32)
        return wrong, f"{case.room + 1} entries, but a capacity of {case.room}"
    counts = np.diff(indptr)
    if kind in (1, 2) and (counts > 1).any():
        first = int(indptr[rng.choice(np.flatnonzero(counts > 1))])
        if kind == 1:
            indices[first + 1] = indices[first]
            return (indptr, indices, values), "occurs twice"
        indices[[first, first + 1]] = indices[[first + 1, first]]
        return (indptr, indices, values), "sort_indices"
    if kind == 3 or not indices.size:
        indptr[int(rng.integers(rows + 1))] += -indptr[-1] - 1 if rng.random() < 0.5 else indptr[-1] + 1
        return (indptr, indices, values), "that do not fall"
    indices[int(rng.integers(indices.size))] = rng.choice([-1, columns, columns + 1, -columns, 2**31 - 1])
    return (indptr, indices, values), "out of range"


@needs_compiler
def test_a_defect_is_refused_before_anything_is_written() -> None:
    """By tuples and by SciPy, in results that a caller gave, too; a call without it is as before."""
    for seed in CASES:
        case, rng = Case.of(seed), np.random.default_rng([seed, 23])
        (rows, columns), n = case.shape, case.x.shape[1]
        a, y = f"tensor<{rows}x{columns}xf32, #graph.csr<capacity = {case.room}>>", f"tensor<{rows}x{n}xf32>"
        text = f"""func.func @main(%a: {a}, %x: tensor<{columns}x{n}xf32>, %y: {y} {{graph.donated}}) -> {y} {{
  %0 = graph.matmul %a, %x : ({a}, tensor<{columns}x{n}xf32>) -> {y}
  %1 = graph.add %y, %0 : ({y}, {y}) -> {y}
  func.return %1 : {y}
}}"""
        program = fuse_opt.compile(text, target="reference" if seed % 3 else "cpu")
        (wrong, message), y_given, out = _spoilt(rng, case), case.y.copy(), np.full_like(case.y, 7)
        forms: list[Any] = [wrong]
        if find_spec("scipy") is not None:
            forms.append(import_module("scipy.sparse").csr_array(case.shape, dtype=np.float32))
            forms[1].indptr, forms[1].indices, forms[1].data = wrong
        for given in forms:
            for more in ({}, {"out": out}):
                with pytest.raises(ValueError, match=message):
                    program(given, case.x, y_given, **more)
                assert (out == 7).all() and y_given.tobytes() == case.y.tobytes(), seed
        program(case.a, case.x, y_given, out=out)
        expected = case.y + case.expected()[0]
        np.testing.assert_allclose(out, expected, 1e-4, 1e-4, err_msg=str(seed))


def _compare_with_scipy(case: Case, program: Any, results: list[Any]) -> None:
    if find_spec("scipy") is None:
        return
    sparse: Any = import_module("scipy.sparse")
    a, b = (sparse.csr_array((v, i, p), shape=case.shape) for p, i, v in (case.a, case.b))
    found: list[Any] = as_list(program(a, b, case.some, case.x, case.y))
    assert found[2].format == "csr"
    for ours, given in zip(found, results, strict=True):
        parts = (ours.indptr, ours.indices, ours.data) if hasattr(ours, "format") else (ours,)
        last = cast("tuple[Array, ...]", given)[-1] if isinstance(given, tuple) else given
        np.testing.assert_array_equal(parts[-1], last)
    np.testing.assert_allclose(found[0], a @ case.x, 1e-3, 1e-3)
    np.testing.assert_allclose(found[2].toarray(), (a + b).toarray(), 1e-5)


@needs_compiler
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_what_is_refused_leaves_arguments_as_they_are(target: str) -> None:
    """A dense argument that the program overwrites is as it was after each refusal."""
    kind = "tensor<4x2xf32, #graph.row_sparse<capacity = 2>>"
    text = f"""func.func @main(%w: tensor<4x2xf32> {{graph.donated}}, %g: {kind}) -> tensor<4x2xf32> {{
  %0 = graph.subtract %w, %g : (tensor<4x2xf32>, {kind}) -> tensor<4x2xf32>
  func.return %0 : tensor<4x2xf32>
}}"""
    program = fuse_opt.compile(text, target=target)
    w, good = np.ones((4, 2), np.float32), np.full((2, 2), 3, np.float32)
    for indices, message in (
        ([0, 4], "out of range"),
        ([-1, 0], "out of range"),
        ([1, 1], "occurs twice"),
        ([2, 1], "sort_indices"),
    ):
        with pytest.raises(ValueError, match=message):
            program(w, (np.array(indices), good))
        assert (w == 1).all()
    with pytest.raises(ValueError, match="3 entries, but a capacity of 2"):
        program(w, (np.arange(3), np.ones((3, 2), np.float32)))
    assert (w == 1).all()
    np.testing.assert_array_equal(program(w, (np.array([0, 3]), good))[:, 0], [-2, 1, 1, -2])
