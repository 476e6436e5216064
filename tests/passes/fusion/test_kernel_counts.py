"""How many kernels programs of primitive ops become, and that docs/fusion.md says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from fusion_programs import PROGRAMS, Program
from ir_testing import assert_same_bits, evaluate, generated_kernels, kernels, optimized, parse, random_arguments

from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = "transformer block (examples/transformer_block.mlir), besides 4 matrix products and attention"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_kernel_count(program: Program) -> None:
    module = optimized(program.text, DEFAULT_PIPELINE)
    assert len(kernels(module)) == len(generated_kernels(module)) == program.kernels
    original = parse(program.text)
    arguments = random_arguments(original, 0)
    assert_same_bits(evaluate(module, arguments), evaluate(original, arguments))


@pytest.mark.parametrize(("extent", "count"), [(112, 1), (111, 2)])
def test_what_a_thread_computes_once_for_its_vector_costs_less_than_a_launch(extent: int, count: int) -> None:
    """Rows of an odd number of elements have vectors in which a channel ends, so an element of them each has its own root."""
    x, c = f"tensor<32x64x{extent}x{extent}xf32>", "tensor<64xf32>"
    text = f"""func.func @f(%x: {x}, %s: {c}, %b: {c}, %m: {c}, %v: {c}) -> {x} {{
      %y = graph.batch_norm %x, %s, %b, %m, %v : ({x}, {c}, {c}, {c}, {c}) -> {x}
      func.return %y : {x}
    }}"""
    module = optimized(text, ["gpu-attach-device{device=h100}", *DEFAULT_PIPELINE])
    assert len(kernels(module)) == count


def test_the_documentation_has_the_table() -> None:
    rows = [f"| {program.what} | {program.kernels} |" for program in PROGRAMS]
    module = optimized((ROOT / "examples" / "transformer_block.mlir").read_text(), DEFAULT_PIPELINE)
    rows.append(f"| {LIBRARY} | {len(generated_kernels(module))} |")
    table = "\n".join(["| program | kernels |", "|---|---|", *rows])
    text = (ROOT / "docs" / "fusion.md").read_text()
    assert table in text, f"put this table into docs/fusion.md:\n{table}"
