"""Rows of a left operand that tiles for narrow vectors read from a copy, which tasks of a thread share."""

from __future__ import annotations

from math import prod
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

Array = np.ndarray[Any, Any]
Extents = tuple[int, ...]

WHOLE, BLOCKS, FAR = (130, 512, 530), (300, 1024, 520), (517, 771, 1030)
"""Rows, depth and columns: rows that are copied whole, by blocks of depth, and those that are merely far away."""


def text_of(extents: Extents, *, follows: bool, turned: bool = False, batch: int = 1) -> str:
    """x @ w, or relu(x @ w + r), by code of ours."""
    rows, depth, columns = extents
    x = "x".join(map(str, (*(batch,) * (batch > 1), *((depth, rows) if turned else (rows, depth)))))
    y = "x".join(map(str, (*(batch,) * (batch > 1), rows, columns)))
    w = f"{batch}x{depth}x{columns}" if batch > 1 else f"{depth}x{columns}"
    types = [f"tensor<{each}xf32>" for each in (x, w, y)]
    last = "%y" if follows else "%p"
    after = (
        f"%a = graph.add %p, %r : ({types[2]}, {types[2]}) -> {types[2]}\n"
        f"  %y = graph.relu %a : ({types[2]}) -> {types[2]}"
    )
    words = f'transpose_lhs = {str(turned).lower()}, use_implementation = "fuse.matmul"'
    return f"""
func.func @main(%x: {types[0]}, %w: {types[1]}, %r: {types[2]}) -> {types[2]} {{
  %p = graph.matmul %x, %w {{{words}}} : ({types[0]}, {types[1]}) -> {types[2]}
  {after if follows else ""}
  func.return {last} : {types[2]}
}}"""


def arguments_of(extents: Extents, turned: bool = False, batch: int = 1) -> list[Array]:
    rows, depth, columns = extents
    drawn = np.random.default_rng(prod(extents))
    shapes = [(depth, rows) if turned else (rows, depth), (depth, columns), (rows, columns)]
    return [drawn.standard_normal((*(batch,) * (batch > 1), *shape), dtype="f4") for shape in shapes]


def exact(x: Array, w: Array, r: Array, follows: bool, turned: bool = False) -> Array:
    left = np.swapaxes(x, -1, -2) if turned else x
    found = left.astype("f8") @ w.astype("f8")
    return np.maximum(found + r, 0.0) if follows else found


def source_of(extents: Extents, device: str, *, follows: bool = False) -> str:
    passes = ["wrap-kernels", f"schedule-kernels{{device={device}}}"]
    return build_program(apply(parse(text_of(extents, follows=follows)), passes)).source


@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize("follows", [False, True], ids=["alone", "followed"])
@pytest.mark.parametrize("extents", [WHOLE, BLOCKS, FAR, (67, 2048, 257), (1030, 640, 515)], ids=str)
def test_values(extents: Extents, follows: bool) -> None:
    x, w, r = arguments_of(extents)
    memory = np.full(r.size + 128, 7.5, np.float32)
    out = memory[64:-64].reshape(r.shape)
    fuse_opt.compile(text_of(extents, follows=follows), pipeline=NARROW)(x, w, r, out=out)
    wanted = exact(x, w, r, follows)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))
    assert (memory[:64] == 7.5).all() and (memory[-64:] == 7.5).all()


@needs_compiler
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "turned"])
def test_batches(turned: bool) -> None:
    extents = (129, 1024, 600)
    x, w, r = arguments_of(extents, turned, batch=3)
    for follows in (False, True):
        text = text_of(extents, follows=follows, turned=turned, batch=3)
        found, wanted = fuse_opt.compile(text, pipeline=NARROW)(x, w, r), exact(x, w, r, follows, turned)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))


@needs_compiler
def test_threads_change_no_bit() -> None:
    for extents, follows, turned in (
        (WHOLE, True, False),
        (BLOCKS, False, False),
        (FAR, True, False),
        (FAR, False, True),
    ):
        program = fuse_opt.compile(text_of(extents, follows=follows, turned=turned), pipeline=NARROW)
        arguments = arguments_of(extents, turned)
        found = by_threads(lambda program=program, arguments=arguments: program(*arguments).copy())
        assert all((each == found[0]).all() for each in found)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    for extents, follows in ((WHOLE, True), (BLOCKS, False)):
        arguments = arguments_of(extents)
        program = fuse_opt.compile(text_of(extents, follows=follows), pipeline=NARROW)
        with guarded() as allocate:
            for at_end in (True, False):
                given = [allocate(each, at_end=at_end) for each in arguments]
                out = allocate(np.zeros_like(arguments[2]), at_end=at_end)
                program(*given, out=out)
                wanted = exact(arguments[0], arguments[1], arguments[2], follows)
                np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))
                del given, out


@pytest.mark.parametrize(
    ("extents", "copies"),
    [
        (WHOLE, True),
        (BLOCKS, True),
        (FAR, True),
        ((*WHOLE[:2], 200), False),
        ((60, 512, 530), False),
        ((591, 384, 1152), False),
    ],
    ids=str,
)
def test_what_is_copied(extents: Extents, copies: bool) -> None:
    assert ("float rows[" in source_of(extents, "avx2")) == copies
    assert "float rows[" not in source_of(extents, "cpu")


@needs_compiler
@pytest.mark.parametrize("extents", [(300, 1030, 200), (260, 1021, 71), (517, 771, 1030)], ids=str)
def test_columns_that_are_copied_become_rows(extents: Extents) -> None:
    program = fuse_opt.compile(text_of(extents, follows=True, turned=True), pipeline=NARROW)
    assert "fo_tile_f32_6x16" in program.source and "fo_tile_f32_6x16t" not in program.source
    x, w, r = arguments_of(extents, turned=True)
    memory = np.full(r.size + 128, 7.5, np.float32)
    out = memory[64:-64].reshape(r.shape)
    program(x, w, r, out=out)
    wanted = exact(x, w, r, True, turned=True)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))
    assert (memory[:64] == 7.5).all() and (memory[-64:] == 7.5).all()


@pytest.mark.parametrize(
    ("extents", "device", "is_ours"),
    [
        ((1024, 1024, 1024), "avx2", False),
        ((1024, 1024, 1024), "cpu", True),
        ((591, 384, 1152), "avx2", True),
        ((129, 3072, 768), "avx2", False),
        ((128, 3072, 768), "avx2", True),
    ],
)
def test_a_library_runs_what_it_does_faster(extents: Extents, device: str, is_ours: bool) -> None:
    text = text_of(extents, follows=False).replace(', use_implementation = "fuse.matmul"', "")
    module = apply(parse(text), ["wrap-kernels", f"select-implementation{{device={device}}}"])
    named = kernels(module)[0].implementation
    assert named is not None and (named.data == "fuse.matmul") == is_ours
