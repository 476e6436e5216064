"""Rows of ops over parts of sparse values, and of conversions between kinds, entry by entry."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from graph_op_table import ANY, FLOATS, INTEGERS, TYPES, Array, Case, Row, ramp, rounded, wide, wrapped

NUMBERS = (*FLOATS, *INTEGERS)
I32 = np.dtype(np.int32)

PATTERNS: list[tuple[int, int, list[tuple[int, int]], int]] = [
    (4, 5, [(0, 1), (0, 4), (2, 0), (2, 2), (2, 3), (3, 3)], 9),
    (3, 4, [], 2),
    (2, 3, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], 6),
    (0, 4, [], 0),
    (3, 0, [], 0),
    (1, 40, [(0, k) for k in range(1, 40)], 39),
]
"""Rows, columns, entries, capacity: some rows without entries, none at all, full ones, and many in a row."""


def parts(rows: int, entries: list[tuple[int, int]], capacity: int) -> tuple[Array, Array]:
    """The pattern; what lies behind its last entry is zero."""
    indptr = [sum(row < r for row, _ in entries) for r in range(rows + 1)]
    indices = [column for _, column in entries] + [0] * (capacity - len(entries))
    return np.array(indptr, I32), np.array(indices, I32)


def in_type(total: Array, name: str) -> Array:
    return rounded(total, name) if name in FLOATS else wrapped(total, name)


def exact(array: Array, name: str) -> Array:
    return wide(array) if name in FLOATS else array.astype(object)


def _matmul_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for rows, columns, entries, capacity in PATTERNS:
            for width in (1, 2, 3, 4, 7, 9, 17, 65, 0) if name in ("f32", "i64") else (1, 9):
                indptr, indices = parts(rows, entries, capacity)
                values, x = ramp(name, capacity), ramp(name, columns, width)
                total = np.zeros((rows, width), object if name in INTEGERS else np.float64)
                for p, (row, column) in enumerate(entries):
                    total[row] += exact(values, name)[p] * exact(x, name)[column]
                yield Case("graph.csr_matmul", "", (indptr, indices, values, x), in_type(total, name))


def _sampled_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for rows, columns, entries, capacity in PATTERNS:
            for width in (1, 3, 40, 0):
                x, y = ramp(name, rows, width), ramp(name, columns, width)
                total = np.zeros(capacity, object if name in INTEGERS else np.float64)
                for p, (row, column) in enumerate(entries):
                    total[p] = (exact(x, name)[row] * exact(y, name)[column]).sum()
                given = (*parts(rows, entries, capacity), x, y)
                yield Case("graph.csr_sampled_matmul", "", given, in_type(total, name))


def _reduce_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for rows, _, entries, capacity in PATTERNS:
            indptr, values = parts(rows, entries, capacity)[0], ramp(name, capacity)
            total = np.zeros(rows, object if name in INTEGERS else np.float64)
            for p, (row, _) in enumerate(entries):
                total[row] += exact(values, name)[p]
            yield Case("graph.csr_reduce", "", (indptr, values), in_type(total, name))
            if name in FLOATS:
                largest = [
                    max((wide(values)[p] for p, e in enumerate(entries) if e[0] == r), default=-math.inf)
                    for r in range(rows)
                ]
                found = rounded(np.array(largest), name)
                yield Case("graph.csr_reduce", 'reduce = "max"', (indptr, values), found)


def _rows_cases() -> Iterator[Case]:
    for rows, _, entries, capacity in PATTERNS:
        found = [row for row, _ in entries] + [0] * (capacity - len(entries))
        indptr = parts(rows, entries, capacity)[0]
        yield Case("graph.csr_rows", f"capacity = {capacity} : i64", (indptr,), np.array(found, I32))


def _transpose_cases() -> Iterator[Case]:
    for rows, columns, entries, capacity in PATTERNS:
        turned = sorted((column, row) for row, column in entries)
        places = [entries.index((row, column)) for column, row in turned] + [0] * (capacity - len(entries))
        wanted = (*parts(columns, turned, capacity), np.array(places, I32))
        yield Case("graph.csr_transpose", f"columns = {columns} : i64", parts(rows, entries, capacity), wanted)


def _take_cases() -> Iterator[Case]:
    for rows, _, entries, capacity in PATTERNS:
        for ids in ([], [rows - 1, 0, -1, rows - 1], list(range(rows))):
            own = [[p for p, (row, _) in enumerate(entries) if row == k % rows] for k in ids] if rows else []
            places, ends = [p for each in own for p in each], np.cumsum([0, *map(len, own)]).astype(I32)
            for room, kind in ((len(places), np.int64), (len(places) + 3, np.int16)):
                behind = [0] * (room - len(places))
                wanted = ends, np.array([entries[p][1] for p in places] + behind, I32), np.array(places + behind, I32)
                given = (*parts(rows, entries, capacity), np.array(ids if rows else [], kind))
                yield Case("graph.csr_take", f"capacity = {room} : i64", given, wanted)


def _union_cases() -> Iterator[Case]:
    for rows, columns, entries, capacity in PATTERNS:
        others = [(r, c) for r in range(rows) for c in range(columns) if (r * 7 + c) % 3 == 0]
        both = sorted({*entries, *others})
        for room in (len(both), len(both) + 3):
            a, b = (
                [own.index(e) if e in own else -1 for e in both] + [-1] * (room - len(both))
                for own in (entries, others)
            )
            wanted = (*parts(rows, both, room), np.array(a, I32), np.array(b, I32))
            given = (*parts(rows, entries, capacity), *parts(rows, others, len(others)))
            yield Case("graph.csr_union", f"capacity = {room} : i64", given, wanted)


def _dense(name: str, rows: int, columns: int, entries: list[tuple[int, int]], values: Array) -> Array:
    found = np.zeros((rows, columns), TYPES[name])
    for p, (row, column) in enumerate(entries):
        found[row, column] = values[p]
    return found


def _from_dense_cases() -> Iterator[Case]:
    for name in (*NUMBERS, "i1"):
        for rows, columns, entries, capacity in PATTERNS:
            values = ramp(name, capacity)
            given = ~np.asarray(values == 0)
            kept = [(e, values[p]) for p, e in enumerate(entries) if given[p]]
            stored = np.zeros(capacity, TYPES[name])
            for p, (_, value) in enumerate(kept):
                stored[p] = value
            indptr, indices = parts(rows, [e for e, _ in kept], capacity)
            x = _dense(name, rows, columns, entries, values)
            yield Case("graph.csr_from_dense", f"capacity = {capacity} : i64", (x,), (indptr, indices, stored))
    x = np.array([[math.nan, -0.0, 2.0], [0.0, 0.0, math.inf]], np.float32)
    wanted = (np.array([0, 2, 3], I32), np.array([0, 2, 2], I32), np.array([math.nan, 2, math.inf], np.float32))
    yield Case("graph.csr_from_dense", "capacity = 3 : i64", (x,), wanted)


def _to_dense_cases() -> Iterator[Case]:
    for name in (*NUMBERS, "i1"):
        for rows, columns, entries, capacity in PATTERNS:
            values = ramp(name, capacity)
            given = (*parts(rows, entries, capacity), values)
            yield Case(
                "graph.csr_to_dense", f"columns = {columns} : i64", given, _dense(name, rows, columns, entries, values)
            )


def _rows_put_cases() -> Iterator[Case]:
    for name in ANY:
        for shape, rows, capacity in [
            ((5, 3), [1, 4], 3),
            ((4,), [0, 1, 2, 3], 4),
            ((3, 2, 2), [], 2),
            ((2, 0), [], 0),
        ]:
            x, values = ramp(name, *shape), np.flip(ramp(name, capacity, *shape[1:])).copy().view(TYPES[name])
            expected = x.copy()
            for k, row in enumerate(rows):
                expected[row] = values[k]
            indices = np.array(rows + [0] * (capacity - len(rows)), I32)
            yield Case("graph.rows_put", "", (x, np.array([0, len(rows)], I32), indices, values), expected)


def _rows_subtract_cases() -> Iterator[Case]:
    for name in FLOATS:
        for shape, rows, capacity in [
            ((5, 3), [1, 4], 3),
            ((4,), [0, 1, 2, 3], 4),
            ((3, 2, 20), [0], 2),
            ((2, 0), [], 0),
        ]:
            x, values = ramp(name, *shape), np.flip(ramp(name, capacity, *shape[1:])).copy()
            expected = wide(x)
            expected[rows] -= wide(values)[: len(rows)]
            indices = np.array(rows + [0] * (capacity - len(rows)), I32)
            given = (x, np.array([0, len(rows)], I32), indices, values)
            yield Case("graph.rows_subtract", "", given, rounded(expected, name))


def _embedding_cases() -> Iterator[Case]:
    for name in FLOATS:
        for kind, ids, rows, width, padding, capacity in [
            ("i64", [4, 1, -1, 1, 0, 4], 5, 3, None, 6),
            ("i32", [3, 1, 3, 1], 4, 2, 1, 1),
            ("i64", [2, 0], 3, 20, -1, 3),
            ("i16", [], 3, 4, None, 2),
            ("i64", [k * 37 % 97 for k in range(300)], 97, 2, None, 97),
        ]:
            grad, sums = ramp(name, len(ids), width), dict[int, Array]()
            for k, given in enumerate(ids):
                row = given % rows
                if padding is None or row != padding % rows:
                    sums[row] = sums.get(row, np.zeros(width)) + wide(grad)[k]
            values = np.zeros((capacity, width))
            for slot, row in enumerate(sorted(sums)):
                values[slot] = sums[row]
            indices = np.array(sorted(sums) + [0] * (capacity - len(sums)), I32)
            text = [f"rows = {rows} : i64, capacity = {capacity} : i64"]
            text += [] if padding is None else [f"padding_index = {padding} : i64"]
            wanted = (np.array([0, len(sums)], I32), indices, rounded(values, name))
            yield Case("graph.embedding_rows_backward", ", ".join(text), (grad, np.array(ids, TYPES[kind])), wanted)


def _sampled_dense_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for rows, columns, width in [(3, 4, 2), (2, 2, 0), (0, 3, 2)]:
            pattern, x, y = ramp(name, rows, columns), ramp(name, rows, width), ramp(name, width, columns)
            pattern[::2, 1:2] = np.zeros_like(pattern[::2, 1:2])
            product = exact(x, name) @ exact(y, name) if width else np.zeros((rows, columns), object)
            expected = in_type(np.where(np.asarray(exact(pattern, name) != 0), product, 0), name)
            yield Case("graph.sampled_matmul", "", (pattern, x, y), expected)


def _softmax_cases() -> Iterator[Case]:
    for name in FLOATS:
        for shape in ((3, 4), (2, 1), (0, 3), (2, 0)):
            x = ramp(name, *shape)
            x[1:2] = np.zeros_like(x[1:2])
            weights = np.where(wide(x) != 0, np.exp(wide(x)), 0)
            total = weights.sum(axis=1, keepdims=True)
            yield Case(
                "graph.stored_softmax",
                "",
                (x,),
                rounded(np.where(total > 0, weights / np.where(total > 0, total, 1), 0), name),
            )


def _storage_cases() -> Iterator[Case]:
    for name in ANY:
        x = ramp(name, 3, 4)
        yield Case("graph.to_storage", "", (x,), x)


ROWS: list[Row] = [
    Row("to_storage", ANY, _storage_cases),
    Row("sampled_matmul", NUMBERS, _sampled_dense_cases),
    Row("stored_softmax", FLOATS, _softmax_cases),
    Row("csr_matmul", ("i32",), _matmul_cases),
    Row("csr_sampled_matmul", ("i32",), _sampled_cases),
    Row("csr_reduce", ("i32",), _reduce_cases),
    Row("csr_rows", ("i32",), _rows_cases),
    Row("csr_transpose", ("i32",), _transpose_cases),
    Row("csr_take", ("i32",), _take_cases),
    Row("csr_union", ("i32",), _union_cases),
    Row("csr_from_dense", (*NUMBERS, "i1"), _from_dense_cases),
    Row("csr_to_dense", ("i32",), _to_dense_cases),
    Row("rows_put", ANY, _rows_put_cases),
    Row("rows_subtract", FLOATS, _rows_subtract_cases),
    Row("embedding_rows_backward", FLOATS, _embedding_cases),
]
