"""Loops over parts of sparse values read and write nothing beside these: arguments and results that end where pages end."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler
from sparse_programs import Array, csr_arrays

import fuse_opt

ROWS, COLUMNS = 23, 19


def program(entries: int, other: int, some: int, n: int, element: str) -> tuple[Any, list[tuple[int, ...]]]:
    """Every op over parts on arguments themselves, and the shapes of results, which are dense."""
    a, b = (f"tensor<{ROWS}x{COLUMNS}x{element}, #graph.csr<capacity = {count}>>" for count in (entries, other))
    s = f"tensor<{ROWS}x{n}x{element}, #graph.row_sparse<capacity = {some}>>"
    x, y, dense = (f"tensor<{r}x{c}x{element}>" for r, c in ((COLUMNS, n), (ROWS, n), (ROWS, COLUMNS)))
    sums, turned = f"tensor<{ROWS}x{element}>", f"tensor<{n}x{COLUMNS}x{element}>"
    ids, part, half = f"tensor<{some}xi32>", f"tensor<{some}x{n}x{element}>", f"tensor<7x{COLUMNS}x{element}>"
    text = f"""func.func @main(%a: {a}, %b: {b}, %s: {s}, %x: {x}, %y: {y}, %u: {turned}, %ids: {ids}, %g: {part})
    -> ({y}, {x}, {dense}, {dense}, {sums}, {y}, {dense}, {half}, {y}) {{
  %0 = graph.matmul %a, %x : ({a}, {x}) -> {y}
  %1 = graph.matmul %a, %y {{transpose_lhs = true}} : ({a}, {y}) -> {x}
  %2 = graph.add %a, %b : ({a}, {b}) -> {dense}
  %3 = graph.sampled_matmul %a, %y, %u : ({a}, {y}, {turned}) -> {dense}
  %4 = graph.sum %a {{axes = array<i64: 1>, keepdims = false}} : ({a}) -> {sums}
  %5 = graph.subtract %y, %s : ({y}, {s}) -> {y}
  %6 = graph.stored_softmax %b : ({b}) -> {dense}
  %7 = graph.slice %b {{starts = array<i64: 9, 0>, stops = array<i64: 16, {COLUMNS}>}} : ({b}) -> {half}
  %8 = graph.embedding_backward %g, %ids {{rows = {ROWS} : i64}} : ({part}, {ids}) -> {s}
  %9 = graph.to_storage %8 : ({s}) -> {y}
  func.return %0, %1, %2, %3, %4, %5, %6, %7, %9 : {y}, {x}, {dense}, {dense}, {sums}, {y}, {dense}, {half}, {y}
}}"""
    shapes = [
        (ROWS, n),
        (COLUMNS, n),
        *[(ROWS, COLUMNS)] * 2,
        (ROWS,),
        (ROWS, n),
        (ROWS, COLUMNS),
        (7, COLUMNS),
        (ROWS, n),
    ]
    return fuse_opt.compile(text), shapes


@pytest.mark.sampled(3)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize(("n", "element"), [(1, "f32"), (7, "f32"), (41, "f32"), (1, "f64"), (150, "f64")])
def test_nothing_beside_arrays_is_touched(n: int, element: str) -> None:
    rng = np.random.default_rng(n)
    kind = np.dtype(element.replace("f", "float"))
    a, b = ((p, i, v.astype(kind)) for p, i, v in (csr_arrays(rng, ROWS, COLUMNS, d) for d in (0.2, 0.5)))
    rows = np.sort(rng.permutation(ROWS)[:9]).astype(np.int32)
    dense = [
        rng.standard_normal(shape).astype(kind) for shape in ((9, n), (COLUMNS, n), (ROWS, n), (n, COLUMNS), (9, n))
    ]
    ids = rng.integers(0, ROWS, 9).astype(np.int32)
    compiled, shapes = program(a[1].size, b[1].size, 9, n, element)
    given: list[Any] = [a, b, (rows, dense[0]), *dense[1:4], ids, dense[4]]
    wanted = compiled(*given)
    for at_end in (True, False):
        with guarded() as allocate:
            arguments: list[Any] = []
            for value in given:
                whole = cast("tuple[Array, ...]", value if isinstance(value, tuple) else (value,))
                parts = tuple(allocate(part, at_end=at_end) for part in whole)
                arguments.append(parts if isinstance(value, tuple) else parts[0])
            found = compiled.signature.arguments[0].arrays(arguments[0])
            assert all(part is array for part, array in zip(found, arguments[0], strict=True)), "they are not copied"
            targets = [allocate(np.empty(shape, kind), at_end=at_end) for shape in shapes]
            compiled(*arguments, out=targets)
            equal = [np.array_equal(array, right) for array, right in zip(targets, wanted, strict=True)]
        assert all(equal), equal
