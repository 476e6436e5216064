"""Loop distribution: long chains become several loops over blocks, with the same bits; short ones are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import needs_compiler
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.loops.distribution import distribute_loops
from fuse_opt.runtime.cpu.program import CpuProgram

PASSES = ["decompose", "fuse-elementwise", "wrap-kernels", "schedule-kernels", "infer-inplace"]


def chain(size: int, kind: str, rounds: int, attributes: str = "") -> str:
    """tanh and sigmoid so many times, then a product with the argument and one with an earlier value."""
    t = f"tensor<{size}x{kind}>"
    lines, last = [f"func.func @main(%x: {t}{attributes}) -> {t} {{"], "x"
    for n in range(rounds):
        lines += [f"%t{n} = graph.tanh %{last} : ({t}) -> {t}", f"%s{n} = graph.sigmoid %t{n} : ({t}) -> {t}"]
        last = f"s{n}"
    lines.append(f"%p = graph.multiply %{last}, %x : ({t}, {t}) -> {t}")
    lines.append(f"%q = graph.multiply %p, %t0 : ({t}, {t}) -> {t}")
    return "\n".join([*lines, f"func.return %q : {t}", "}"])


def scheduled(text: str, cut: str) -> ModuleOp:
    return parse(text_of(apply(parse(text), PASSES)).replace("schedule = {", f'schedule = {{cut = "{cut}", '))


def loops_of(text: str, cut: str = "modelled") -> str:
    return text_of(apply(scheduled(text, cut), ["convert-fused-to-loops"]))


def run(text: str, x: Any, cut: str) -> Any:
    return CpuProgram(build_program(scheduled(text, cut)))(x)


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
@pytest.mark.parametrize("size, attributes", [(1300, ""), (1024, ""), (300, " {graph.donated}")])
def test_the_bits_are_those_of_one_loop(kind: str, size: int, attributes: str) -> None:
    text = chain(size, kind, 3, attributes)
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind]
    x = np.random.default_rng(1).standard_normal(size).astype(dtype)
    assert loops_of(text).count("scf.parallel") > 1
    assert loops_of(text, "never").count("scf.parallel") == 1
    np.testing.assert_array_equal(run(text, x.copy(), "modelled"), run(text, x.copy(), "never"))


def test_what_lives_across_a_cut_is_kept_and_loads_are_repeated() -> None:
    text = loops_of(chain(2048, "f32", 3))
    kernel = text[text.index("func.func private @kernel") :]
    assert kernel.count("memref.load %x[") == 2
    assert 2 <= kernel.count("memref.alloca") <= 3
    assert kernel.count("scf.for ") == 1


@pytest.mark.parametrize("size, rounds", [(2048, 1), (40, 3)])
def test_short_chains_and_short_loops_are_left_alone(size: int, rounds: int) -> None:
    text = loops_of(chain(size, "f32", rounds))
    assert text.count("scf.parallel") == 1
    assert "memref.alloca" not in text


def test_results_are_stored_by_the_last_loop() -> None:
    t = "tensor<4096xf32>"
    lines = [f"%t{n + 1} = graph.tanh %t{n} : ({t}) -> {t}" for n in range(5)]
    head, tail = f"func.func @main(%t0: {t}) -> ({t}, {t}) {{", f"func.return %t1, %t5 : {t}, {t}\n}}"
    *first, last = loops_of("\n".join([head, *lines, tail])).split('"scf.parallel"')
    assert len(first) >= 3
    assert last.count("memref.store") == 2


def test_nothing_is_cut_behind_a_store() -> None:
    """What is loaded there may be what the store wrote."""
    steps = "\n    ".join(f"%t{n + 1} = math.tanh %t{n} : f32" for n in range(9))
    text = f"""
func.func @kernel(%x: memref<512xf32>, %y: memref<512xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c512 = arith.constant 512 : index
  "scf.parallel"(%c0, %c512, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
  ^bb0(%i: index):
    %v = memref.load %x[%i] : memref<512xf32>
    memref.store %v, %y[%i] : memref<512xf32>
    %t0 = memref.load %x[%i] : memref<512xf32>
    {steps}
    memref.store %t9, %x[%i] : memref<512xf32>
    scf.reduce
  }}) : (index, index, index) -> ()
  func.return
}}
"""
    module = parse(text)
    before = text_of(module)
    (function,) = module.body.block.ops
    distribute_loops(function.regions[0].block, 512)
    assert text_of(module) == before
    module = parse(text.replace("    memref.store %v, %y[%i] : memref<512xf32>\n", ""))
    (function,) = module.body.block.ops
    distribute_loops(function.regions[0].block, 512)
    module.verify()
    assert text_of(module).count("scf.parallel") > 2
