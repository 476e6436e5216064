"""Ops that are run as a whole by implementations: values, plans in place, and what happens when a backend goes away."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from fuzz import random_sequence
from ir_testing import context, parse, text_of
from laws import Subject, pass_fault

import fuse_opt
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler import backend_switch

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


ONLY_FROZEN = """
from fuse_opt.backend import Backend, Cost

backend = Backend("still")

@backend.implementation(
    "graph.softmax", accepts=lambda site: None if site.operands[0].frozen else "varies", cost=lambda site: Cost()
)
def softmax(inputs, outputs, config): ...
"""
DERIVED = f"""
func.func @main(%x: {T}, %w: {T} {{graph.frozen}}) -> ({T}, {T}) {{
  %v = graph.exp %w : ({T}) -> {T}
  %0 = graph.softmax %v {{axis = -1 : i64}} : ({T}) -> {T}
  %u = graph.add %v, %x : ({T}, {T}) -> {T}
  %1 = graph.softmax %u {{axis = -1 : i64}} : ({T}) -> {T}
  func.return %0, %1 : {T}, {T}
}}"""


def test_what_follows_from_frozen_arguments_alone_is_frozen(tmp_path: Path) -> None:
    """As what is made of it once will be, behind hoist-frozen."""
    path = tmp_path / "still.py"
    path.write_text(ONLY_FROZEN, encoding="utf-8")
    (attach,) = backend_switch.backend_passes(str(path))
    try:
        attach.apply(context(), module := parse(DERIVED))
        with collect() as remarks:
            text = str(fuse_opt.optimize(module, "select-composites"))
        assert text.count('implementation = "still.softmax"') == 1
        assert text.index("fused.kernel") < text.index("graph.add") < text.rindex("graph.softmax")
        assert sum("refused=still.softmax:varies" in str(remark) for remark in remarks) == 1
    finally:
        forget_backend("still")
        backend_switch.forget_files()
