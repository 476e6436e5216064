"""Attention whose tiles are cut for vectors of 256 and of 512 bits: what the reference gives, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from narrow_vectors import compiled_for
from thread_counts import by_threads

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION
from fuse_opt.lowering.emit.c import build_program

Array = np.ndarray[Any, Any]


def text_of(
    queries: int, keys: int, depth: int, width: int, attributes: str = "", mask: str = "", heads: int = 2
) -> str:
    """Attention of some heads, whose queries, keys and values lie side by side in one tensor where they can."""
    q, k, v, y = (
        f"tensor<{heads}x{a}x{b}xf32>" for a, b in ((queries, depth), (keys, depth), (keys, width), (queries, width))
    )
    of_mask = (", %m", f", %m: {mask}", f", {mask}") if mask else ("", "", "")
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {v}{of_mask[1]}) -> {y} {{
  %y = graph.scaled_dot_product_attention %q, %k, %v{of_mask[0]} {{{attributes}}} : ({q}, {k}, {v}{of_mask[2]}) -> {y}
  func.return %y : {y}
}}"""


def check(text: str, folder: Path, size: int) -> Array:
    module = parse(text)
    arguments = random_arguments(module, 3)
    (wanted,) = evaluate(module, arguments)
    program = compiled_for(text, size, folder)
    if arguments[1].shape[1] > 1:  # weights of one key are no softmax
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [ATTENTION]
    memory = np.full(wanted.size + 128, 7.5, np.float32)
    found = memory[64:-64].reshape(wanted.shape)
    program(*arguments, out=found)
    assert (memory[:64] == 7.5).all() and (memory[-64:] == 7.5).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    return found


@pytest.mark.sampled(9)
@needs_compiler
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize(
    ("depth", "width", "attributes", "mask"), [(24, 40, "", ""), (64, 17, "is_causal = true", ""), (5, 33, "", "i1")]
)
@pytest.mark.parametrize("keys", [1, 15, 16, 17, 63, 197, 401])
@pytest.mark.parametrize("queries", [8, 37, 197])
def test_lengths_and_masks(
    queries: int, keys: int, depth: int, width: int, attributes: str, mask: str, size: int, tmp_path: Path
) -> None:
    kind = mask and f"tensor<{queries}x{keys}x{mask}>"
    check(text_of(queries, keys, depth, width, attributes, kind), tmp_path, size)


@needs_compiler
@pytest.mark.parametrize("size", [32, 64])
def test_panels_that_no_stack_holds(size: int, tmp_path: Path) -> None:
    check(text_of(100, 1021, 64, 64, heads=1), tmp_path, size)


@needs_compiler
def test_bits_do_not_depend_on_threads(tmp_path: Path) -> None:
    text = text_of(197, 131, 64, 64, "is_causal = true")
    program = compiled_for(text, 32, tmp_path)
    arguments = random_arguments(parse(text), 5)
    first, *others = by_threads(lambda: program(*arguments))
    for found in others:
        np.testing.assert_array_equal(found, first)


@needs_guard_pages
@needs_compiler
def test_nothing_beside_operands_and_results_is_touched(tmp_path: Path) -> None:
    text = text_of(41, 53, 40, 24)
    program, arguments = compiled_for(text, 32, tmp_path), random_arguments(parse(text), 7)
    wanted = program(*arguments)
    with guarded() as allocate:
        for at_end in (True, False):
            given = [allocate(each, at_end=at_end) for each in arguments]
            out = allocate(np.zeros_like(wanted), at_end=at_end)
            program(*given, out=out)
            np.testing.assert_array_equal(out, wanted)
            del given, out


def test_tiles_are_as_wide_as_the_vectors_of_a_device() -> None:
    for device, tile in (("cpu", "fo_tile_f32_14x"), ("avx2", "fo_tile_f32_6x16")):
        passes = ["select-composites", "decompose", "fuse-attention", f"schedule-kernels{{device={device}}}"]
        assert tile in build_program(apply(parse(text_of(70, 80, 64, 64)), passes)).source
