"""Products of few rows, which meet all columns of some rows of the right operand at a time."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, assert_same_bits, kernels, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads
from xdsl.dialects.builtin import DictionaryAttr, StringAttr

import fuse_opt
from fuse_opt.dialects.analysis.contractions.product_copies import FEWEST_STREAMED, MOST_STREAMED, NEAR_BYTES
from fuse_opt.lowering.c.headers.row_sums import DEPTH, STREAMS, most_columns
from fuse_opt.lowering.cpu.matmul.tilings.streamed_rows import MOST_NEAR_STREAMED
from fuse_opt.lowering.emit.c import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

Array = np.ndarray[Any, Any]
FAR = (520, 1021)
"""Depth and columns of f32 that a second cache does not hold."""


def text_of(
    rows: int,
    depth: int,
    columns: int,
    *,
    element: str = "f32",
    follows: bool = False,
    turned: bool = False,
    batch: int = 0,
) -> str:
    """x @ w, or relu(x @ w + b), by code of ours."""
    lead = f"{batch}x" * (batch > 0)
    x, w, y = (
        f"tensor<{lead}{extents}x{element}>"
        for extents in (f"{depth}x{rows}" if turned else f"{rows}x{depth}", f"{depth}x{columns}", f"{rows}x{columns}")
    )
    b = f"tensor<{columns}x{element}>"
    after = f"""
  %a = graph.add %p, %b : ({y}, {b}) -> {y}
  %y = graph.relu %a : ({y}) -> {y}"""
    words = f'transpose_lhs = {str(turned).lower()}, use_implementation = "fuse.matmul"'
    return f"""
func.func @main(%x: {x}, %w: {w}, %b: {b}) -> {y} {{
  %p = graph.matmul %x, %w {{{words}}} : ({x}, {w}) -> {y}{after * follows}
  func.return %{"y" if follows else "p"} : {y}
}}"""


def arguments_of(
    rows: int, depth: int, columns: int, *, element: str = "f32", turned: bool = False, batch: int = 0, **_: bool
) -> list[Array]:
    drawn, lead = np.random.default_rng(depth + columns), (batch,) * (batch > 0)
    shapes = [(*lead, depth, rows) if turned else (*lead, rows, depth), (*lead, depth, columns), (columns,)]
    return [np.asarray(drawn.standard_normal(shape), f"f{int(element[1:]) // 8}") for shape in shapes]


def exact(x: Array, w: Array, b: Array, *, follows: bool = False, turned: bool = False, **_: object) -> Array:
    found = (np.swapaxes(x, -1, -2) if turned else x).astype("f8") @ w.astype("f8")
    return np.maximum(found + b, 0.0) if follows else found


def is_streamed(text: str) -> bool:
    return "void fo_streamed_" in build_program(apply(parse(text), ["wrap-kernels", "schedule-kernels"])).source


def check(*extents: int, **kind: Any) -> None:
    text, arguments = text_of(*extents, **kind), arguments_of(*extents, **kind)
    program = fuse_opt.compile(text)
    found, wanted = program(*arguments), exact(*arguments, **kind)
    assert "void fo_streamed_" in program.source
    assert found.shape == wanted.shape and found.dtype == arguments[0].dtype
    near = 2e-5 if found.dtype.itemsize == 4 else 1e-13
    np.testing.assert_allclose(found, wanted, near, near * np.sqrt(extents[1]))


def test_few_rows_of_wide_matrices_are_streamed() -> None:
    depth, columns = FAR
    assert depth * columns * 4 > NEAR_BYTES
    assert is_streamed(text_of(MOST_STREAMED, depth, columns))
    assert not is_streamed(text_of(MOST_STREAMED + 1, depth, columns))
    assert is_streamed(text_of(MOST_NEAR_STREAMED, 64, columns))
    assert not is_streamed(text_of(MOST_NEAR_STREAMED + 1, 64, columns))
    assert not is_streamed(text_of(1, depth, FEWEST_STREAMED - 1))
    assert not is_streamed(text_of(1, STREAMS - 1, columns))


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize("rows", range(1, MOST_STREAMED + 1))
@pytest.mark.parametrize("follows", [False, True])
def test_values_of_few_rows(rows: int, follows: bool) -> None:
    check(rows, *FAR, follows=follows)
    if follows == (rows % 2 == 0):
        check(rows, 277, 1030, follows=follows, element="f64")


@needs_compiler
def test_bits_do_not_hang_on_where_the_right_operand_is() -> None:
    text, arguments = text_of(2, *FAR), arguments_of(2, *FAR)
    module = apply(parse(text), ["wrap-kernels", "schedule-kernels"])
    (kernel,) = kernels(module)
    assert kernel.schedule is not None and str(kernel.schedule.data["right_operand"]) == '"near"'
    near = build_program(module)
    others = {name: entry for name, entry in kernel.schedule.data.items() if name != "right_operand"}
    kernel.schedule = DictionaryAttr(others)
    far = build_program(module)
    assert "void fo_streamed_f32_f32_2(" in near.source and "void fo_streamed_f32_f32_2r(" in far.source
    assert "__builtin_prefetch" not in near.source and "__builtin_prefetch" in far.source
    results = [[np.asarray(CpuProgram(program)(*arguments))] for program in (near, far)]
    assert_same_bits(results[0], results[1])


@pytest.mark.sampled(3)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_transposed_right_operands_of_the_last_cache(rows: int, element: str) -> None:
    """They give the same bits as those behind all caches, and nothing is read beside them."""
    for depth, columns in ((768, 500), (521, 1021), (1021, 259), (33, 9001)):
        x, w, y = (f"tensor<{m}x{n}x{element}>" for m, n in ((rows, depth), (columns, depth), (rows, columns)))
        text = f"""
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %y = graph.matmul %x, %w {{transpose_rhs = true, use_implementation = "fuse.matmul"}} : ({x}, {w}) -> {y}
  func.return %y : {y}
}}"""
        module = apply(parse(text), ["wrap-kernels", "schedule-kernels"])
        near = build_program(module)
        (kernel,) = kernels(module)
        assert kernel.schedule is not None and str(kernel.schedule.data["right_operand"]) == '"near"'
        kernel.schedule = DictionaryAttr({**kernel.schedule.data, "right_operand": StringAttr("far")})
        far = build_program(module)
        assert near.source != far.source
        a, b, _ = arguments_of(rows, depth, columns, element=element)
        with guarded() as allocate:
            given = [allocate(each, at_end=True) for each in (a, np.ascontiguousarray(b.T))]
            results = [[np.asarray(CpuProgram(program)(*given)).copy()] for program in (near, far)]
        assert_same_bits(results[0], results[1])
        np.testing.assert_allclose(results[0][0], a.astype("f8") @ b, 1e-4, 1e-4)


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize("depth", [8, 9, 15, 31, 32, 33, 40, 63, 71, 97, 128, 256, 257, 263, 264, 265, 384, 391, 392])
def test_every_depth(depth: int) -> None:
    check(1, depth, 259, follows=depth % 2 == 0)
    if depth > 3 * DEPTH:
        check(4, depth, 2800, follows=depth % 2 == 0)
        check(3, depth, 2800, follows=depth % 2 == 1)


@pytest.mark.sampled(5)
@needs_compiler
@pytest.mark.parametrize("columns", [256, 257, 263, 320, 1000, 4096, 4097, 5003, 8192, 8200])
def test_columns_that_are_no_multiple_of_anything(columns: int) -> None:
    check(1, 40, columns, follows=columns % 2 == 0)
    if columns > most_columns(2, 4):
        check(2, 97, columns, follows=columns % 2 == 1)


@needs_compiler
@pytest.mark.parametrize("kind", [{"turned": True}, {"batch": 3}, {"batch": 2, "turned": True, "follows": True}])
def test_left_operands_that_lie_anyhow(kind: dict[str, Any]) -> None:
    check(1, 50, 300, **kind)
    check(5, *FAR, **kind)


@needs_compiler
def test_numbers_of_threads_change_no_bit() -> None:
    for rows, follows in ((1, False), (1, True), (3, True), (8, False)):
        text, arguments = text_of(rows, 301, 5003, follows=follows), arguments_of(rows, 301, 5003)
        program = fuse_opt.compile(text)
        first, *others = by_threads(lambda program=program, arguments=arguments: program(*arguments).copy())
        assert all(np.array_equal(first, other) for other in others)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_is_touched() -> None:
    for extents in ((1, 33, 259), (1, 129, 259), (2, *FAR), (4, *FAR)):
        program, arguments = fuse_opt.compile(text_of(*extents)), arguments_of(*extents)
        with guarded() as allocate:
            for at_end in (True, False):
                given = [allocate(each, at_end=at_end) for each in arguments]
                out = allocate(np.zeros((extents[0], extents[2]), "f4"), at_end=at_end)
                program(*given, out=out)
                np.testing.assert_allclose(out, exact(*arguments), 1e-4, 1e-4)


@needs_compiler
def test_rounding_errors_are_those_of_short_sums() -> None:
    """
    Sums of DEPTH steps, of which there are depth / DEPTH: an error that grows with the sum of both, where that of cumulative
    sums of a type grows with the depth.
    """
    depth = 4096
    text, (x, w, b) = text_of(1, depth, 512), arguments_of(1, depth, 512)
    found, wanted = fuse_opt.compile(text)(x, w, b), exact(x, w, b)
    plain = np.cumsum(x.T * w, axis=0, dtype="f4")[-1:]

    def rounding(values: Array) -> float:
        return float(np.sqrt(np.mean((values - wanted) ** 2)))

    assert rounding(found) < 0.5 * rounding(plain)
    assert depth > DEPTH * STREAMS


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86")
def test_no_bit_depends_on_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all processors multiply and add with one rounding."""
    monkeypatch.setenv("FUSE_OPT_CFLAGS", "-O1")
    text, arguments = text_of(3, *FAR), arguments_of(3, *FAR)
    wide = fuse_opt.compile(text)(*arguments).copy()
    monkeypatch.setenv("FUSE_OPT_CFLAGS", "-O1 -mno-avx512f")
    assert np.array_equal(fuse_opt.compile(text)(*arguments), wide)
