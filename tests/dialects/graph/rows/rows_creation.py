"""Rows of what is made from nothing or little."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from graph_op_table import ANY, FLOATS, INTEGERS, TYPES, UNSIGNED, Array, Case, Row, converted, ramp, rounded, wrapped
from rows_placement import Shape, numbers


def made(op: str, attributes: str, expected: Array) -> Case:
    return Case(f"graph.{op}", attributes, (), np.array(expected), signed_zeros=True)


def _full_cases() -> Iterator[Case]:
    for name in ANY:
        for shape in [(3,), (2, 0), (), (2, 1, 3)]:
            values = converted(np.ones(shape), name)
            yield made("full", f"shape = {numbers(shape)}, value = 1 : i64, dtype = {name}", values)
    for name, text, value in [
        ("i8", "-128 : i64", -128),
        ("ui8", "255 : i64", 255),
        ("ui16", "65535 : i64", 65535),
        ("ui32", "4294967295 : i64", 2**32 - 1),
        ("ui64", "18446744073709551615 : ui64", 2**64 - 1),
        ("i64", "-9223372036854775808 : i64", -(2**63)),
        ("i1", "false", False),
        ("f32", "0x7F800000 : f32", np.inf),
        ("f32", "0x7FC00000 : f32", np.nan),
        ("f16", "0.1 : f64", 0.1),
        ("bf16", "-0.0 : f64", -0.0),
        ("f64", "0.1 : f64", 0.1),
        ("f64", "3 : i64", 3.0),
        ("f8E5M2", "1.75 : f64", 1.75),
    ]:
        given = np.array([value] * 2) if name in INTEGERS else rounded(np.array([float(value)] * 2), name)
        yield made("full", f"shape = array<i64: 2>, value = {text}, dtype = {name}", converted(given, name))


def _iota_cases() -> Iterator[Case]:
    layouts: list[tuple[Shape, int]] = [((7,), 0), ((2, 3), 0), ((2, 3), -1), ((2, 3, 4), 1), ((0,), 0), ((1, 1), 0)]
    for name in (*INTEGERS, *FLOATS):
        for shape, axis in layouts:
            position = np.indices(shape)[axis]
            text = f"shape = {numbers(shape)}, dtype = {name}" + f", axis = {axis} : i64" * bool(axis)
            yield made("iota", text, converted(position.astype(np.float64), name))
            scaled = wrapped(position * 60 - 100, name) if name in INTEGERS else rounded(position * 60.0 - 100, name)
            if name not in UNSIGNED:
                yield made("iota", f"{text}, start = -100 : i64, step = 60 : i64", scaled)
        if name in FLOATS:
            position = np.arange(300, dtype=np.float64)
            computed = np.float64 if name == "f64" else np.float32
            start, step = (float(computed(value)) for value in (-1.0, 0.1))
            exact = start + position * step  # of f64 within a unit in the last place
            text = f"shape = array<i64: 300>, dtype = {name}, start = -1.0 : f64, step = 0.1 : f64"
            yield Case("graph.iota", text, (), rounded(exact, name), slack=2e-16)
    yield made(
        "iota",
        "shape = array<i64: 3>, dtype = i64, start = 9223372036854775807 : i64",
        np.array([2**63 - 1, -(2**63), 1 - 2**63], np.int64),
    )
    yield made("iota", "shape = array<i64: 3>, dtype = ui8, start = 254 : i64", np.array([254, 255, 0], np.uint8))


def _reciprocal_cases() -> Iterator[Case]:
    for name in FLOATS:
        for size in (1, 7, 0):
            value = np.array(1.0 / size if size else np.nan)
            text = f"size = #graph.size<{size}>, dtype = {name}"
            yield made("reciprocal_of_size", text, converted(rounded(value, name), name))


def _eye_cases() -> Iterator[Case]:
    for name in ANY:
        for n, m, k in [(3, None, 0), (2, 4, 1), (4, 2, -1), (3, 3, 5), (0, 3, 0), (1, 1, 0)]:
            text = f"n = {n} : i64, dtype = {name}" + ("" if m is None else f", m = {m} : i64")
            yield made("eye", text + f", k = {k} : i64" * bool(k), converted(np.eye(n, m, k), name))


def _one_hot_cases() -> Iterator[Case]:
    for name in INTEGERS:
        ids = np.array([[0, 2, 4], [5, 3, 1]], TYPES[name])
        for axis in (-1, 0, 1):
            hot = np.arange(5) == ids[..., None].astype(np.int64)
            text = "depth = 5 : i64, dtype = f32" + f", axis = {axis} : i64" * (axis != -1)
            yield Case("graph.one_hot", text, (ids,), np.moveaxis(hot, -1, axis).astype(np.float32))
        limits = np.array([np.iinfo(TYPES[name]).min, np.iinfo(TYPES[name]).max, 1], TYPES[name])
        hot = np.arange(3) == limits[:, None].astype(object)
        text = "depth = 3 : i64, dtype = i8, on = 7 : i64, off = -1 : i64"
        yield Case("graph.one_hot", text, (limits,), np.where(hot, 7, -1).astype(np.int8))
        for shape, depth in [((), 3), ((0,), 2), ((2,), 0), ((2,), 1)]:
            ids = ramp(name, *shape)
            hot = np.arange(depth) == np.asarray(ids).astype(np.int64)[..., None]
            yield Case("graph.one_hot", f"depth = {depth} : i64, dtype = i1", (ids,), hot)
    ids = np.array([1, 0], np.int32)
    for name in ANY:
        hot = np.array([[0, 1], [1, 0]])
        yield Case("graph.one_hot", f"depth = 2 : i64, dtype = {name}", (ids,), converted(hot, name))
    floats = np.array([[0.1, 0.9], [0.9, 0.1]])
    text = "depth = 2 : i64, dtype = f16, on = 0.9 : f64, off = 0.1 : f64"
    yield Case("graph.one_hot", text, (ids,), rounded(floats, "f16"))


ROWS: list[Row] = [
    Row("full", [], _full_cases),
    Row("iota", [], _iota_cases),
    Row("eye", [], _eye_cases),
    Row("reciprocal_of_size", [], _reciprocal_cases),
    Row("one_hot", INTEGERS, _one_hot_cases),
]
