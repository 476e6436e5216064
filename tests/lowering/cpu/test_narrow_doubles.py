"""Tiles of f64 over packed panels of two vectors of 256 bits: what NumPy gives, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler
from narrow_vectors import NARROW
from thread_counts import by_threads

import fuse_opt

Array = np.ndarray[Any, Any]
Turned = tuple[bool, bool]
PLAIN: Turned = (False, False)


def text_of(rows: int, depth: int, columns: int, turned: Turned = PLAIN) -> str:
    """max(x @ w, r), where w is frozen."""
    left, right = (depth, rows) if turned[0] else (rows, depth), (columns, depth) if turned[1] else (depth, columns)
    x, w, y = (f"tensor<{a}x{b}xf64>" for a, b in (left, right, (rows, columns)))
    flags = f"transpose_lhs = {str(turned[0]).lower()}, transpose_rhs = {str(turned[1]).lower()}"
    return f"""
func.func @main(%x: {x}, %w: {w} {{graph.frozen}}, %r: {y}) -> {y} {{
  %p = graph.matmul %x, %w {{{flags}, use_implementation = "fuse.matmul"}} : ({x}, {w}) -> {y}
  %y = graph.maximum %p, %r : ({y}, {y}) -> {y}
  func.return %y : {y}
}}"""


def arguments_of(rows: int, depth: int, columns: int, turned: Turned = PLAIN) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(rows + depth + columns)
    left, right = (depth, rows) if turned[0] else (rows, depth), (columns, depth) if turned[1] else (depth, columns)
    return rng.standard_normal(left), rng.standard_normal(right), rng.standard_normal((rows, columns))


def exact(x: Array, w: Array, r: Array, turned: Turned = PLAIN) -> Array:
    left, right = (m.T if flag else m for m, flag in zip((x, w), turned, strict=True))
    return np.maximum(left.astype(np.longdouble) @ right.astype(np.longdouble), r)


def check(rows: int, depth: int, columns: int, turned: Turned = PLAIN) -> None:
    arguments = arguments_of(rows, depth, columns, turned)
    program = fuse_opt.compile(text_of(rows, depth, columns, turned), pipeline=NARROW)
    memory = np.full(rows * columns + 128, 7.5)
    out = memory[64:-64].reshape(rows, columns)
    program(*arguments, out=out)
    assert (memory[:64] == 7.5).all() and (memory[-64:] == 7.5).all()
    np.testing.assert_allclose(out, exact(*arguments, turned).astype(np.float64), rtol=1e-12, atol=1e-12 * depth**0.5)


@needs_compiler
@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", [9, 15, 16, 17, 23, 33, 64, 100, 197])
@pytest.mark.parametrize("turned", [PLAIN, (True, False), (False, True)], ids=["plain", "left", "right"])
def test_every_width_has_its_tail(columns: int, turned: Turned) -> None:
    for rows, depth in ((10, 96), (13, 257), (43, 401), (200, 771))[columns % 2 :: 2]:
        check(rows, depth, columns, turned)


@needs_compiler
def test_rows_that_evict_each_other_and_many_blocks_of_them() -> None:
    check(700, 1024, 300)
    check(300, 1024, 129, (True, False))


@needs_compiler
def test_threads_change_no_bit() -> None:
    arguments = arguments_of(333, 700, 129)
    program = fuse_opt.compile(text_of(333, 700, 129), pipeline=NARROW)
    found = by_threads(lambda: program(*arguments).copy())
    assert all((each == found[0]).all() for each in found)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    for rows, depth, columns in ((11, 97, 53), (47, 385, 37)):
        arguments = arguments_of(rows, depth, columns)
        program = fuse_opt.compile(text_of(rows, depth, columns), pipeline=NARROW)
        wanted = program(*arguments).copy()
        with guarded() as allocate:
            for at_end in (True, False):
                given = [allocate(each, at_end=at_end) for each in arguments]
                out = allocate(np.zeros_like(wanted), at_end=at_end)
                program(*given, out=out)
                np.testing.assert_array_equal(out, wanted)
                del given, out


@needs_compiler
@pytest.mark.parametrize("depth", [200, 384, 513, 1024])
def test_errors_are_no_larger_than_those_of_a_library(depth: int) -> None:
    x, w, r = arguments_of(96, depth, 96)
    found = fuse_opt.compile(text_of(96, depth, 96), pipeline=NARROW)(x, w, r - 1e9)
    wanted = x.astype(np.longdouble) @ w.astype(np.longdouble)
    assert np.std((found - wanted).astype(np.float64)) <= 1.1 * np.std((x @ w - wanted).astype(np.float64))


def test_tiles_are_narrow_where_panels_are_packed() -> None:
    program = fuse_opt.compile(text_of(64, 256, 256), pipeline=NARROW)
    assert "fo_tile_f64_6x8" in program.source
    plain = fuse_opt.compile(text_of(64, 256, 256).replace("{graph.frozen}", ""), pipeline=NARROW)
    assert "x8" not in plain.source.split("fo_tile_f64_")[1][:5]
