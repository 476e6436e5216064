"""Parts of sparse values in memory plans: values change in place, capacities alone decide, a pattern is never copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from ir_testing import text_of
from lowered_programs import needs_compiler

import fuse_opt

CSR = "tensor<40x50xf32, #graph.csr<capacity = 600>>"
TWO = f"({CSR}, {CSR}) -> {CSR}"


def arguments(count: int) -> Any:
    """A matrix with so many entries, the first of each row."""
    rng = np.random.default_rng(count)
    there = np.sort(rng.permutation(40 * 50)[:count])
    indptr = np.searchsorted(there, np.arange(41) * 50).astype(np.int32)
    return indptr, (there % 50).astype(np.int32), rng.standard_normal(count).astype(np.float32)


def chain(donated: str) -> str:
    return f"""func.func @main(%a: {CSR}{donated}) -> {CSR} {{
  %0 = graph.relu %a : ({CSR}) -> {CSR}
  %1 = graph.square %a : ({CSR}) -> {CSR}
  %2 = graph.add %0, %1 : {TWO}
  %3 = graph.tanh %2 : ({CSR}) -> {CSR}
  func.return %3 : {CSR}
}}"""


@needs_compiler
def test_chains_on_values_are_one_kernel_and_overwrite_them() -> None:
    """Two chains on one pattern meet without a union of patterns; of donated memory nothing more is taken."""
    for donated in ("", " {graph.donated}"):
        program = fuse_opt.compile(chain(donated))
        text = text_of(program.module)
        assert text.count("fused.kernel") == 1 and "csr_union" not in text and program.fallbacks == (0, 0)
        assert program.stats.arena_bytes == 0
        assert ("inplace" in text) == bool(donated)
        indptr, indices, values = arguments(600)
        wanted = np.tanh(np.maximum(values, 0) + np.square(values))
        found = program((indptr, indices, values))
        np.testing.assert_array_equal(found[0], indptr)
        np.testing.assert_array_equal(found[1], indices)
        np.testing.assert_allclose(found[2], wanted, rtol=1e-6)
        assert np.shares_memory(found[2], values) == bool(donated)


@needs_compiler
def test_two_results_on_one_pattern_copy_no_index() -> None:
    """Both have the argument's pattern: one kernel computes values, and no other part is of the program's making."""
    text = f"""func.func @main(%a: {CSR}) -> ({CSR}, {CSR}) {{
  %0 = graph.relu %a : ({CSR}) -> {CSR}
  %1 = graph.square %0 : ({CSR}) -> {CSR}
  %2 = graph.abs %a : ({CSR}) -> {CSR}
  %3 = graph.tanh %2 : ({CSR}) -> {CSR}
  func.return %1, %3 : {CSR}, {CSR}
}}"""
    program = fuse_opt.compile(text)
    lowered = text_of(program.module)
    assert lowered.count("fused.kernel") == 1 and program.stats.arena_bytes == 0
    assert lowered.count("func.return %a_indptr, %a_indices, %0, %a_indptr, %a_indices, %1") == 1, lowered
    indptr, indices, values = arguments(600)
    for found, wanted in zip(
        program((indptr, indices, values)), (np.maximum(values, 0) ** 2, np.tanh(abs(values))), strict=True
    ):
        np.testing.assert_array_equal(found[0], indptr)
        np.testing.assert_array_equal(found[1], indices)
        np.testing.assert_allclose(found[2], wanted, rtol=1e-6)


@needs_compiler
def test_what_is_stored_moves_no_plan() -> None:
    """Intermediate parts have a place of their capacity, which is used again; a run with fewer entries has the same."""
    both, x, y = CSR.replace("600", "1200"), "tensor<50x8xf32>", "tensor<40x8xf32>"
    lines = [f"  %0 = graph.add %a, %b : ({CSR}, {CSR}) -> {both}"]
    for k in range(4):
        lines.append(f"  %y{k} = graph.matmul %0, %x{k} : ({both}, {x}) -> {y}")
        lines.append(f"  %x{k + 1} = graph.matmul %0, %y{k} {{transpose_lhs = true}} : ({both}, {y}) -> {x}")
    body = "\n".join([*lines, f"  func.return %x4 : {x}"])
    text = f"func.func @main(%a: {CSR}, %b: {CSR}, %x0: {x}) -> {x} {{\n{body}\n}}"
    program = fuse_opt.compile(text)
    arena, slots = program.stats.arena_bytes, text_of(program.module)
    union = 41 * 4 + 5 * 1200 * 4  # the pattern, places in both operands, values and what they are gathered from
    turned = 51 * 4 + 3 * 1200 * 4
    assert 0 < arena <= union + turned + 4 * (50 + 40) * 8 + 64 * 16, "rows of products take each other's memory"
    dense = np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32)
    for count in (600, 3, 0):
        a, b = arguments(count), arguments(count // 2)
        found = program(a, b, dense)
        full = np.zeros((40, 50), np.float64)
        for parts in (a, b):
            full[np.repeat(np.arange(40), np.diff(parts[0])), parts[1]] += parts[2]
        wanted = dense.astype(np.float64)
        for _ in range(4):
            wanted = full.T @ (full @ wanted)
        np.testing.assert_allclose(found, wanted, 1e-3, 1e-5 * max(1.0, float(np.abs(wanted).max())))
        assert program.stats.arena_bytes == arena and text_of(program.module) == slots
