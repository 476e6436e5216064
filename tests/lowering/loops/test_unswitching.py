"""Choices by the counters of outer loops are made in front of the inner ones: concatenations along an axis before the last."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import assert_close, needs_compiler

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

PASSES = ["fuse-to-fixpoint", "wrap-kernels", "schedule-kernels"]


def concatenation(extents: list[int], behind: str = "exp") -> str:
    """Of arrays with so many rows, of whose elements a function is taken, plus another such concatenation."""
    types = [f"tensor<{rows}x40xf32>" for rows in extents]
    whole = f"tensor<{sum(extents)}x40xf32>"
    listed = ", ".join(types)
    arguments = ", ".join(f"%{name}{k}: {t}" for name in "xy" for k, t in enumerate(types))
    lines = [
        f"%{name} = graph.concat {', '.join(f'%{name}{k}' for k in range(len(types)))} {{axis = 0 : i64}}"
        f" : ({listed}) -> {whole}"
        for name in "xy"
    ]
    return f"""func.func @main({arguments}) -> {whole} {{
      {lines[0]}
      {lines[1]}
      %z = graph.add %x, %y : ({whole}, {whole}) -> {whole}
      %r = graph.{behind} %z : ({whole}) -> {whole}
      func.return %r : {whole}
    }}"""


@pytest.mark.parametrize("extents", ([3, 5], [4, 1, 7], [2, 3, 4, 5, 1, 6, 7, 8]), ids=len)
def test_one_loop_for_each_operand(extents: list[int]) -> None:
    text = text_of(apply(parse(concatenation(extents)), [*PASSES, "convert-fused-to-loops"]))
    assert "arith.select" not in text
    assert text.count("scf.parallel") == len(extents)
    assert text.count("scf.if") == len(extents) - 1


def test_too_many_operands() -> None:
    text = text_of(apply(parse(concatenation([2] * 66)), [*PASSES, "convert-fused-to-loops"]))
    assert "arith.select" in text and "scf.if" not in text


@needs_compiler
@pytest.mark.parametrize("extents", ([3, 5], [4, 1, 7], [2, 3, 4, 5, 1, 6, 7, 8], [1] * 40), ids=len)
def test_values(extents: list[int]) -> None:
    module = apply(parse(concatenation(extents, "tanh")), PASSES)
    random = np.random.default_rng(1)
    arguments = [random.standard_normal((rows, 40), np.float32) for rows in [*extents, *extents]]
    assert_close([CpuProgram(build_program(module))(*arguments)], evaluate(module, arguments))
