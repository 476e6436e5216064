"""Ops over parts in C: the bits at any number of threads, packed operands, and patterns that are looked at before."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import parse
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.dialects.types.storage_kinds import PARTS
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import LibraryCall
from fuse_opt.runtime.backends import sparse
from fuse_opt.runtime.backends.csr_check import is_pattern
from fuse_opt.runtime.host import thread_pool
from fuse_opt.runtime.stored_arrays import StoredType
from fuse_opt.tools.compiler.api import optimize

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    before = thread_pool.num_threads()
    yield
    thread_pool.set_num_threads(before)


def csr(rng: np.random.Generator, rows: int, columns: int, density: float) -> tuple[Array, Array, Array]:
    there = rng.random((rows, columns)) < density
    indptr = np.concatenate([[0], np.cumsum(there.sum(1))]).astype(np.int32)
    indices = np.nonzero(there)[1].astype(np.int32)
    return indptr, indices, rng.standard_normal(indices.size).astype(np.float32)


def full(shape: tuple[int, int], parts: tuple[Array, Array, Array]) -> Array:
    found = np.zeros(shape, np.float32)
    found[np.repeat(np.arange(shape[0]), np.diff(parts[0])), parts[1]] = parts[2]
    return found


def all_ops(rows: int, columns: int, room: int, n: int) -> str:
    """
    A program with each op over parts: products, transposes, sums over either axis, unions, samples, softmax, products with a
    dense matrix, slices of rows, rows by ids, gradients of rows and steps on them.
    """
    a, other = (
        f"tensor<{rows}x{columns}xf32, #graph.csr<capacity = {c}>>" for c in (room, min(2 * room, rows * columns))
    )
    x, y, left = f"tensor<{columns}x{n}xf32>", f"tensor<{rows}x{n}xf32>", f"tensor<{rows}x{columns}xf32>"
    ids, rows_of = (
        f"tensor<{rows}xi32>",
        f"tensor<{columns}x{n}xf32, #graph.row_sparse<capacity = {min(rows, columns)}>>",
    )
    sums, half = (f"tensor<{rows}xf32>", f"tensor<{columns}xf32>"), f"tensor<{rows // 2}x{columns}xf32>"
    results = f"{y}, {x}, {a}, {sums[0]}, {x}, {left}, {a}, {a}, {sums[1]}, {half}, {left}, {x}, {x}"
    return f"""func.func @main(%a: {a}, %b: {a}, %x: {x}, %ids: {ids}) -> ({results}) {{
  %0 = graph.matmul %a, %x : ({a}, {x}) -> {y}
  %1 = graph.matmul %b, %0 {{transpose_lhs = true}} : ({a}, {y}) -> {x}
  %2 = graph.add %a, %b : ({a}, {a}) -> {other}
  %3 = graph.stored_softmax %a : ({a}) -> {a}
  %4 = graph.sum %2 {{axes = array<i64: 1>, keepdims = false}} : ({other}) -> tensor<{rows}xf32>
  %5 = graph.embedding_backward %0, %ids {{rows = {columns} : i64}} : ({y}, {ids}) -> {rows_of}
  %6 = graph.subtract %1, %5 : ({x}, {rows_of}) -> {x}
  %7 = graph.to_storage %2 : ({other}) -> {left}
  %t = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({x}) -> tensor<{n}x{columns}xf32>
  %8 = graph.sampled_matmul %b, %0, %t : ({a}, {y}, tensor<{n}x{columns}xf32>) -> {a}
  %9 = graph.multiply %a, %7 : ({a}, {left}) -> {a}
  %10 = graph.sum %b {{axes = array<i64: 0>, keepdims = false}} : ({a}) -> {sums[1]}
  %11 = graph.slice %b {{starts = array<i64: 3, 0>, stops = array<i64: {3 + rows // 2}, {columns}>}} : ({a}) -> {half}
  %12 = graph.take %a, %ids : ({a}, {ids}) -> {left}
  %rate = graph.constant dense<0.25> : tensor<f32>
  %13:2 = graph.lazy_momentum %x, %5, %rate, %1 : ({x}, {rows_of}, tensor<f32>, {x}) -> ({x}, {x})
  func.return %0, %1, %3, %4, %6, %7, %8, %9, %10, %11, %12, %13#0, %13#1 : {results}
}}"""


@needs_compiler
def test_same_bits_at_any_number_of_threads() -> None:
    rng = np.random.default_rng(3)
    rows, columns, n = 700, 300, 300
    a, b = csr(rng, rows, columns, 0.1), csr(rng, rows, columns, 0.05)
    room = max(a[1].size, b[1].size)
    x = rng.standard_normal((columns, n)).astype(np.float32)
    ids = rng.integers(0, columns, rows).astype(np.int32)
    assert fuse_opt.compile(all_ops(rows, columns, room, n)).fallbacks == (0, 0)
    found: list[list[bytes]] = []
    for threads in (1, 2, 4, 8):
        thread_pool.set_num_threads(threads)
        program = fuse_opt.compile(all_ops(rows, columns, room, n))
        results = as_list(program(a, b, x, ids))
        arrays = [part for value in results for part in (value if isinstance(value, tuple) else (value,))]
        found.append([np.ascontiguousarray(array).tobytes() for array in arrays])
    assert found[1:] == [found[0]] * 3
    np.testing.assert_allclose(results[0], full((rows, columns), a) @ x, rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize(
    ("n", "element"), [(256, np.float32), (301, np.float32), (129, np.float64), (4, np.float32), (1, np.float32)]
)
def test_packed_and_other_widths(n: int, element: Any) -> None:
    """Rows of x are packed in panels from two panels on; what is left over is read where it lies."""
    rng = np.random.default_rng(n)
    indptr, indices, values = csr(rng, 90, 40, 0.5)
    name = f"f{np.dtype(element).itemsize * 8}"
    a, x, y = (
        f"tensor<90x40x{name}, #graph.csr<capacity = {indices.size}>>",
        f"tensor<40x{n}x{name}>",
        f"tensor<90x{n}x{name}>",
    )
    body = f"  %0 = graph.matmul %a, %x : ({a}, {x}) -> {y}\n  func.return %0 : {y}"
    text = f"func.func @main(%a: {a}, %x: {x}) -> {y} {{\n{body}\n}}"
    dense = rng.standard_normal((40, n)).astype(element)
    program = fuse_opt.compile(text, pipeline="lower-storage,default")  # as stored, whatever it costs
    assert (program.stats.workspace_bytes > 0) == (n in (256, 301, 129))
    found = program((indptr, indices, values.astype(element)), dense)
    expected = full((90, 40), (indptr, indices, values)).astype(np.float64) @ dense
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("n", [320, 333])
def test_lines_that_packs_share_are_those_of_x(n: int) -> None:
    """Wherever x begins, with memory behind it that cannot be read, whoever packs which columns: the same bits."""
    rng = np.random.default_rng(n)
    indptr, indices, values = csr(rng, 60, 30, 0.6)
    a, x, y = f"tensor<60x30xf32, #graph.csr<capacity = {indices.size}>>", f"tensor<30x{n}xf32>", f"tensor<60x{n}xf32>"
    text = f"""func.func @main(%a: {a}, %x: {x}) -> {y} {{
      %0 = graph.matmul %a, %x : ({a}, {x}) -> {y}
      func.return %0 : {y}
    }}"""
    program = fuse_opt.compile(text, pipeline="lower-storage,default")
    assert program.stats.workspace_bytes > 0
    dense = rng.standard_normal((30, n)).astype(np.float32)
    wanted = program((indptr, indices, values), dense)
    np.testing.assert_allclose(wanted, full((60, 30), (indptr, indices, values)) @ dense, rtol=1e-4, atol=1e-4)
    room = np.empty(dense.size + 16, np.float32)
    for threads in (
        1,
        2,
        3,
        4,
        6,
    ):  # each has columns of its own to pack, but where they are more than processors of the device
        thread_pool.set_num_threads(threads)
        for offset in range(16):
            moved = room[offset : offset + dense.size].reshape(dense.shape)
            moved[:] = dense
            assert program((indptr, indices, values), moved).tobytes() == wanted.tobytes(), (threads, offset)
        for at_end in (True, False):
            with guarded() as allocate:
                assert program((indptr, indices, values), allocate(dense, at_end=at_end)).tobytes() == wanted.tobytes()


@needs_compiler
@pytest.mark.parametrize(
    ("element", "n"),
    [(np.float32, 1), (np.float64, 1), (np.int32, 1), (np.float32, 8), (np.float32, 12), (np.float64, 4)],
)
def test_rows_of_any_length(element: Any, n: int) -> None:
    """Sums of a row do not depend on the rows beside it: of one column short ones are computed together, long ones alone."""
    rng = np.random.default_rng(7)
    counts = rng.choice([0, 1, 2, 3, 15, 16, 17, 40, 63, 64, 65, 100], 150)
    columns = [np.sort(rng.permutation(130)[:count]) for count in counts]
    given: list[Array] = [rng.normal(0, 9, int(count)) for count in counts]
    x = (rng.standard_normal((130, n)) * 9).astype(element)
    x[::7] = 0 if element is np.int32 else np.inf
    name = np.dtype(element).str[1:].replace("4", "32").replace("8", "64")

    def product(rows: list[int]) -> Array:
        """Of some rows of them."""
        indptr = np.cumsum([0, *(counts[row] for row in rows)]).astype(np.int32)
        indices = np.concatenate([np.zeros(0, np.int64), *(columns[row] for row in rows)]).astype(np.int32)
        values = np.concatenate([np.zeros(0), *(given[row] for row in rows)]).astype(element)
        a, b, y = f"tensor<{len(rows)}x130x{name}, #graph.csr<capacity = {indices.size}>>", 130, len(rows)
        text = f"""func.func @main(%a: {a}, %x: tensor<{b}x{n}x{name}>) -> tensor<{y}x{n}x{name}> {{
          %0 = graph.matmul %a, %x : ({a}, tensor<{b}x{n}x{name}>) -> tensor<{y}x{n}x{name}>
          func.return %0 : tensor<{y}x{n}x{name}>
        }}"""
        return fuse_opt.compile(text, pipeline="lower-storage,default")((indptr, indices, values), x)

    every = list(range(len(counts)))
    wanted = product(every)
    for row in every:
        with np.errstate(invalid="ignore"):
            terms = given[row].astype(element).astype(np.float64)[:, None] * x[columns[row]]
            np.testing.assert_allclose(wanted[row], terms.sum(0), rtol=1e-4, atol=1e-3, err_msg=str(counts[row]))
    for some in (every[1:], every[5:40], [int(row) for row in rng.permutation(150)]):
        assert product(some).tobytes() == wanted[some].tobytes()


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86")
@pytest.mark.parametrize("flags", ["-mno-avx512f", "-mno-avx"])
def test_products_with_narrower_vectors(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are those of registers of 32 and of 16 bytes, in several passes, and what is left over."""
    monkeypatch.setenv("FUSE_OPT_CFLAGS", f"{os.environ.get('FUSE_OPT_CFLAGS', '')} {flags}")
    sparse._library.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        rng = np.random.default_rng(1)
        given = csr(rng, 60, 50, 0.5)
        a, indices = full((60, 50), given).astype(np.float64), given[1]
        rows = np.repeat(np.arange(60), np.diff(given[0]))
        for name, n in itertools.product(("f32", "f64", "i32"), (1, 3, 8, 31, 64, 129, 300)):
            element = np.dtype({"f32": np.float32, "f64": np.float64, "i32": np.int32}[name])
            x = (rng.standard_normal((50, n)) * 9).astype(element)
            values = (given[2] * 9).astype(element)
            y = (rng.standard_normal((60, n)) * 9).astype(element)
            a[rows, indices] = values
            found = products(name, n, (*given[:2], values), x, y)
            np.testing.assert_allclose(found[0], a @ x, rtol=1e-4, atol=1e-2, err_msg=f"{name} {n}")
            sampled = np.einsum("ek,ek->e", y[rows].astype(np.float64), x[indices])
            np.testing.assert_allclose(found[1][2], sampled, rtol=1e-4, atol=1e-2, err_msg=f"{name} {n}")
    finally:
        sparse._library.cache_clear()  # pyright: ignore[reportPrivateUsage]


def products(name: str, n: int, given: tuple[Array, Array, Array], x: Array, y: Array) -> list[Any]:
    """The product of a matrix of 60 rows with x, and that of y with x transposed at the matrix's places."""
    a = f"tensor<60x50x{name}, #graph.csr<capacity = {given[1].size}>>"
    b, c, t = f"tensor<50x{n}x{name}>", f"tensor<60x{n}x{name}>", f"tensor<{n}x50x{name}>"
    text = f"""func.func @main(%a: {a}, %x: {b}, %y: {c}) -> ({c}, {a}) {{
      %0 = graph.matmul %a, %x : ({a}, {b}) -> {c}
      %t = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({b}) -> {t}
      %1 = graph.sampled_matmul %a, %y, %t : ({a}, {c}, {t}) -> {a}
      func.return %0, %1 : {c}, {a}
    }}"""
    return as_list(fuse_opt.compile(text, pipeline="lower-storage,default")(given, x, y))


def mutated(rng: np.random.Generator, indptr: Array, indices: Array, columns: int) -> tuple[Array, Array]:
    """A pattern, or one that is none by a change of one place."""
    indptr, indices = indptr.copy(), indices.copy()
    match int(rng.integers(5)):
        case 0 if indices.size:
            indices[rng.integers(indices.size)] = rng.integers(-2, columns + 2)
        case 1:
            indptr[rng.integers(indptr.size)] = rng.integers(-2, indices.size + 2)
        case 2 if indices.size > 1:
            k = rng.integers(indices.size - 1)
            indices[k + 1] = indices[k]
        case 3 if indices.size > 1:
            indices = rng.permutation(indices)
        case _:
            pass
    return indptr, indices


@needs_compiler
def test_the_look_at_patterns_agrees_with_numpy() -> None:
    rng = np.random.default_rng(5)
    answers: list[bool] = []
    for case in range(600):
        rows, columns = (int(n) for n in rng.integers(1, 7 if case < 400 else 60, 2))
        indptr, indices, _ = csr(rng, rows, columns, float(rng.random()))
        indptr, indices = mutated(rng, indptr, indices, columns)
        kinds = [(np.int32, np.int32), (np.int32, np.int64), (np.int64, np.int64)][int(rng.integers(3))]
        given = indptr.astype(kinds[0]), indices.astype(kinds[1])
        slow = StoredType("a", "csr", (rows, columns), np.dtype(np.float32), rows * columns)
        try:
            slow.parts((*given, np.zeros(indices.size, np.float32)))
            expected = True
        except ValueError:
            expected = False
        answers.append(is_pattern(*given, columns))
        assert answers[-1] == expected, (given, columns)
    assert 50 < sum(answers) < 550


def test_patterns_of_arguments_are_known_where_they_go_together() -> None:
    csr_type = "tensor<3x4xf32, #graph.csr<capacity = 5>>"
    parts = [
        f'tensor<{n}> {{graph.part = ["{name}", {csr_type}]}}'
        for name, n in zip(PARTS, ("4xi32", "5xi32", "5xf32"), strict=True)
    ]
    given = ", ".join(f"%{a}{name}: {part}" for a in "ab" for name, part in zip(PARTS, parts, strict=True))
    for indices, wanted in (("%aindices", (0, 4, 0, 0)), ("%bindices", ())):
        product = "(tensor<4xi32>, tensor<5xi32>, tensor<5xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>"
        module = parse(f"""func.func @main({given}, %x: tensor<4x2xf32>) -> tensor<3x2xf32> {{
          %0 = graph.csr_matmul %aindptr, {indices}, %avalues, %x : {product}
          func.return %0 : tensor<3x2xf32>
        }}""")
        (call,) = (step for step in build_program(optimize(module)).steps if isinstance(step, LibraryCall))
        assert call.columns == wanted


def test_patterns_in_donated_memory_are_looked_at_when_they_are_read() -> None:
    csr_type = "tensor<3x4xf32, #graph.csr<capacity = 5>>"
    given = ", ".join(
        f'%{name}: tensor<{n}> {{graph.donated, graph.part = ["{name}", {csr_type}]}}'
        for name, n in zip(PARTS, ("4xi32", "5xi32", "5xf32"), strict=True)
    )
    module = parse(f"""func.func @main({given}, %x: tensor<4x2xf32>, %more: tensor<5xi32>) -> tensor<3x2xf32> {{
      %others = graph.add %indices, %more : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
      %0 = graph.csr_matmul %indptr, %others, %values, %x :
        (tensor<4xi32>, tensor<5xi32>, tensor<5xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
      func.return %0 : tensor<3x2xf32>
    }}""")
    (call,) = (step for step in build_program(optimize(module)).steps if isinstance(step, LibraryCall))
    assert call.inputs[1].buffer == 1, "the sum takes the memory of the columns"
    assert not call.columns


@needs_compiler
def test_positions_of_64_bits_that_do_not_fit_are_refused() -> None:
    indptr = np.array([0, 2**62, -(2**62), 2], np.int64)
    assert not is_pattern(indptr, np.array([0, 1], np.int64), 4)
    assert not is_pattern(np.array([0, 1], np.int64), np.array([2**32], np.int64), 4)
    assert not is_pattern(np.array([0, 1], np.int16), np.array([0], np.int16), 4)  # NumPy looks at those
