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


def test_the_documentation_has_the_table() -> None:
    rows = [f"| {program.what} | {program.kernels} |" for program in PROGRAMS]
    module = optimized((ROOT / "examples" / "transformer_block.mlir").read_text(), DEFAULT_PIPELINE)
    rows.append(f"| {LIBRARY} | {len(generated_kernels(module))} |")
    table = "\n".join(["| program | kernels |", "|---|---|", *rows])
    text = (ROOT / "docs" / "fusion.md").read_text()
    assert table in text, f"put this table into docs/fusion.md:\n{table}"
