"""Ops that are run as a whole by implementations: values, plans in place, and what happens when a backend goes away."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from fuzz import random_sequence
from ir_testing import parse, text_of
from laws import Subject, pass_fault

import fuse_opt
from fuse_opt.passes.remarks import collect

BACKEND = str(Path(__file__).parents[3] / "test_lit/passes/implementation/Inputs/composites.py")
T = "tensor<64x512xf32>"
SOFTMAX = f"""
func.func @main(%x: {T} {{graph.donated}}) -> {T} {{
  %0 = graph.softmax %x {{axis = -1 : i64}} : ({T}) -> {T}
  func.return %0 : {T}
}}"""
BETWEEN = f"""
func.func @main(%x: {T}, %w: tensor<512x512xf32>) -> {T} {{
  %0 = graph.matmul %x, %w : ({T}, tensor<512x512xf32>) -> {T}
  %1 = graph.softmax %0 {{axis = -1 : i64}} : ({T}) -> {T}
  %2 = graph.matmul %1, %w : ({T}, tensor<512x512xf32>) -> {T}
  func.return %2 : {T}
}}"""


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_a_call_of_the_whole_op_writes_over_what_it_says() -> None:
    program = fuse_opt.compile(parse(SOFTMAX), backend=BACKEND)
    x = np.random.default_rng(0).standard_normal((64, 512), np.float32)
    wanted = softmax(x)
    result = program(x)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)
    assert 'implementation = "whole.softmax"' in text_of(program.module) and "inplace = array<i64: 0, 0>" in text_of(
        program.module
    )
    assert np.shares_memory(result, x)


def test_it_is_planned_between_other_kernels() -> None:
    program = fuse_opt.compile(parse(BETWEEN), backend=BACKEND)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(extents, np.float32) / 8 for extents in ((64, 512), (512, 512)))
    np.testing.assert_allclose(program(x, w), softmax(x @ w) @ w, rtol=1e-3, atol=1e-5)
    assert program.stats.arena_bytes == 64 * 512 * 4  # the softmax of a product takes its place


def test_without_its_backend_the_op_is_code_of_the_program_again() -> None:
    chosen = text_of(fuse_opt.compile(parse(SOFTMAX), backend=BACKEND).module)
    with collect() as remarks:
        program = fuse_opt.compile(parse(chosen), backend="-whole")
    assert "whole.softmax" not in text_of(program.module)
    assert any(remark.code == "generated" for remark in remarks)
    x = np.random.default_rng(2).standard_normal((64, 512), np.float32)
    np.testing.assert_allclose(program(x.copy()), softmax(x), rtol=1e-5)


def test_a_printed_module_chooses_the_same() -> None:
    chosen = text_of(fuse_opt.compile(parse(BETWEEN), backend=BACKEND).module)
    assert text_of(fuse_opt.compile(parse(chosen), backend=BACKEND).module) == chosen


def test_orders_of_passes() -> None:
    fuse_opt.compile(parse(SOFTMAX), backend=BACKEND)  # from here on it is known by its name
    for seed in range(12):
        rng = random.Random(seed)
        passes = ["attach-backends{backends=whole}", "select-composites", *random_sequence(rng)]
        text = BETWEEN if seed % 2 else SOFTMAX
        assert pass_fault(Subject.of(text, seed), passes) == "", passes
