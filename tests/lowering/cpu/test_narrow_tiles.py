"""Tiles of products that are cut for vectors of 256 bits: what NumPy gives, whatever the extents, and nothing else is touched."""

from __future__ import annotations

import os
import platform
import random
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, kernels, parse
from lowered_programs import needs_compiler
from narrow_vectors import NARROW
from thread_counts import by_threads

import fuse_opt
from fuse_opt.lowering.emit.c import build_program
from fuse_opt.tools.compiler import backend_switch
from fuse_opt.tools.compiler.pipeline import make_passes

Array = np.ndarray[Any, Any]


def shapes_of(rows: int, depth: int, columns: int, transposed: tuple[bool, bool]) -> list[tuple[int, int]]:
    """Of the operands and the result."""
    left = (depth, rows) if transposed[0] else (rows, depth)
    return [left, (columns, depth) if transposed[1] else (depth, columns), (rows, columns)]


def text_of(rows: int, depth: int, columns: int, *, transposed: tuple[bool, bool] = (False, False)) -> str:
    """relu(x @ w + r), where w may be frozen."""
    x, w, y = (f"tensor<{a}x{b}xf32>" for a, b in shapes_of(rows, depth, columns, transposed))
    flags = f"transpose_lhs = {str(transposed[0]).lower()}, transpose_rhs = {str(transposed[1]).lower()}"
    return f"""
func.func @main(%x: {x}, %w: {w} FROZEN, %r: {y}) -> {y} {{
  %p = graph.matmul %x, %w {{{flags}}} : ({x}, {w}) -> {y}
  %a = graph.add %p, %r : ({y}, {y}) -> {y}
  %y = graph.relu %a : ({y}) -> {y}
  func.return %y : {y}
}}"""


def arguments_of(
    rows: int, depth: int, columns: int, *, transposed: tuple[bool, bool] = (False, False)
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(rows + depth)
    x, w, r = (rng.standard_normal(shape).astype(np.float32) for shape in shapes_of(rows, depth, columns, transposed))
    return x, w, r


def exact(x: Array, w: Array, r: Array, transposed: tuple[bool, bool] = (False, False)) -> Array:
    left, right = (m.T if turned else m for m, turned in zip((x, w), transposed, strict=True))
    return np.maximum(left.astype(np.float64) @ right.astype(np.float64) + r, 0.0)


def assert_close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))


def check(
    rows: int, depth: int, columns: int, transposed: tuple[bool, bool] = (False, False), frozen: bool = True
) -> None:
    """Of a product as it is, and of one with its right operand packed before: the same bits where a panel is whole."""
    text = text_of(rows, depth, columns, transposed=transposed)
    x, w, r = arguments_of(rows, depth, columns, transposed=transposed)
    memory = np.full(rows * columns + 128, 7.5, np.float32)
    out = memory[64:-64].reshape(rows, columns)
    fuse_opt.compile(text.replace("FROZEN", ""), pipeline=NARROW)(x, w, r, out=out)
    assert (memory[:64] == 7.5).all() and (memory[-64:] == 7.5).all()
    assert_close(out, exact(x, w, r, transposed))
    if frozen:
        program = fuse_opt.compile(text.replace("FROZEN", "{graph.frozen}"), pipeline=NARROW)
        found, whole = program(x, w, r), (columns // 16 - 1) * 16
        np.testing.assert_array_equal(found[:, :whole], out[:, :whole])
        assert_close(found, exact(x, w, r, transposed))


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("columns", [1, 5, 8, 13, 16, 17, 23, 24, 31, 33, 64, 100, 197])
def test_every_width_has_its_tail(columns: int) -> None:
    for rows in (10, 13, 16, 43):
        check(rows, 99, columns, frozen=columns > 48)


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("columns", [8, 11, 12, 13, 15])
def test_few_columns_fill_vectors(columns: int) -> None:
    for rows, depth in ((16, 20), (43, 131), (1000, 97), (17, 700)):
        check(rows, depth, columns, frozen=False)


@pytest.mark.parametrize(("columns", "tiles"), [(7, False), (8, True), (9, False), (10, False), (11, True), (15, True)])
def test_columns_that_fill_no_vectors_are_sums_along_the_depth(columns: int, tiles: bool) -> None:
    passes = ["wrap-kernels", "schedule-kernels{device=avx2}"]
    source = build_program(apply(parse(text_of(64, 200, columns).replace("FROZEN", "")), passes)).source
    assert ("fo_tile_f32" in source, "fo_dot_f32" in source) == (tiles, not tiles)


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("depth", [96, 97, 127, 128, 129, 257, 400, 401, 771])
def test_every_depth_ends_in_a_stretch_of_its_own(depth: int) -> None:
    check(17, depth, 50)


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 9])
def test_few_rows_read_narrow_panels_of_what_memory_holds(rows: int) -> None:
    """The last of them end within a panel."""
    text = text_of(rows, 771, 411).replace("FROZEN", "{graph.frozen}")
    x, w, r = arguments_of(rows, 771, 411)
    program = fuse_opt.compile(text, pipeline=NARROW)
    assert f"_packed: tensor<{'13x771x32' if rows == 2 else '26x771x16'}xf32>" in str(program.module)
    assert_close(program(x, w, r), exact(x, w, r))


def rounding(found: Array, wanted: Array) -> float:
    """The root of the mean square of errors."""
    return float(np.sqrt(np.mean((found - wanted) ** 2)))


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86")
@pytest.mark.parametrize("depth", [256, 320, 321, 400, 401, 513, 771, 1024])
def test_rounding_errors_are_those_of_blocks_of_a_blas(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS adds up 320 elements at most where vectors have 256 bits, and halves what is left below 640."""
    monkeypatch.setenv("FUSE_OPT_CFLAGS", f"{os.environ.get('FUSE_OPT_CFLAGS', '')} -mno-avx512f")
    rng = np.random.default_rng(depth)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((96, depth), (depth, 96)))
    text = text_of(96, depth, 96).replace("FROZEN", "")
    found = fuse_opt.compile(text, pipeline=NARROW)(x, w, np.zeros((96, 96), np.float32))
    plain, begin, wanted = np.zeros((96, 96), np.float32), 0, exact(x, w, found * 0)
    while begin < depth:
        left = depth - begin
        end = begin + (320 if left >= 640 else -(-left // 16) * 8 if left > 320 else left)
        sums = np.zeros((96, 96), np.float32)
        for step in range(begin, min(end, depth)):
            sums = (sums + x[:, step : step + 1].astype(np.float64) * w[step]).astype(np.float32)
        plain, begin = plain + sums, end
    assert rounding(found, wanted) <= 1.05 * rounding(np.maximum(plain, 0), wanted)


@needs_compiler
@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)], ids=["right", "left", "both"])
def test_transposed_operands(transposed: tuple[bool, bool]) -> None:
    check(37, 131, 70, transposed)
    check(300, 512, 129, transposed)


@needs_compiler
def test_rows_that_evict_each_other_and_many_blocks_of_them() -> None:
    check(700, 1024, 100)
    check(33, 2048, 1024)


@needs_compiler
def test_random_extents() -> None:
    rng = random.Random(11)
    for _ in range(4):
        check(rng.randint(10, 300), rng.randint(96, 900), rng.randint(49, 300))


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    for rows, depth, columns in ((11, 97, 53), (47, 385, 37), (29, 50, 11), (100, 70, 8)):
        x, w, r = arguments = arguments_of(rows, depth, columns)
        program = fuse_opt.compile(text_of(rows, depth, columns).replace("FROZEN", ""), pipeline=NARROW)
        with guarded() as allocate:
            for at_end in (True, False):
                given = [allocate(each, at_end=at_end) for each in arguments]
                out = allocate(np.zeros_like(r), at_end=at_end)
                program(*given, out=out)
                assert_close(out, exact(x, w, r))
                del given, out


@needs_compiler
def test_threads_change_no_bit() -> None:
    for extents in ((100, 700, 333), (600, 1024, 65), (3000, 150, 13)):
        program = fuse_opt.compile(text_of(*extents).replace("FROZEN", ""), pipeline=NARROW)
        arguments = arguments_of(*extents)
        found = by_threads(lambda program=program, arguments=arguments: program(*arguments).copy())
        assert all((each == found[0]).all() for each in found)


@pytest.mark.parametrize(
    ("rows", "depth", "tile"), [(64, 256, "6x16"), (9, 128, None), (64, 64, None)], ids=["many", "few-rows", "short"]
)
def test_tiles_are_narrow_where_rows_and_steps_are_many(rows: int, depth: int, tile: str | None) -> None:
    module = apply(
        parse(text_of(rows, depth, 256).replace("FROZEN", "")), ["wrap-kernels", "schedule-kernels{device=avx2}"]
    )
    assert kernels(module)[0].schedule is not None and "tile_bits = 256" in str(kernels(module)[0].schedule)
    usual = parse(text_of(rows, depth, 256).replace("FROZEN", ""))
    wide = build_program(apply(usual, ["wrap-kernels", "schedule-kernels"])).source
    source = build_program(module).source
    assert (f"fo_tile_f32_{tile}" in source) if tile else (source == wide)


def test_programs_of_this_machine_are_for_its_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = make_passes("pack-weights,select-implementation,cse,select-implementation{device=h100}")

    def devices() -> list[str]:
        return [getattr(each, "device", "-") for each in backend_switch.with_host_device(passes)]

    monkeypatch.delenv("FUSE_OPT_DEVICE", raising=False)
    monkeypatch.setattr(backend_switch, "is_narrow_host", lambda: True)
    assert devices() == ["avx2", "avx2", "-", "h100"]
    monkeypatch.setenv("FUSE_OPT_DEVICE", "own.toml")
    assert devices() == ["cpu", "", "-", "h100"], "a person says more"
    monkeypatch.delenv("FUSE_OPT_DEVICE")
    monkeypatch.setattr(backend_switch, "is_narrow_host", lambda: False)
    assert devices() == ["cpu", "", "-", "h100"]
