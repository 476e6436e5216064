"""Poison mode: right programs compute the same, and what reads bytes that are not its own is exposed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from ir_testing import apply, parse, random_arguments
from planned_programs import kernels_of

import fuse_opt
from fuse_opt.dialects.interfaces.properties import int_array, ints
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import BufferRef, Config, LibraryCall, Program, Segment
from fuse_opt.runtime.cpu.poison import PoisonedProgram, complement, live_after_steps, united
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.tools.commands.fuse_run_main import main

pytestmark = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.mlir"))

CHAIN = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x16xf32>) -> tensor<8x16xf32> {
  %a = graph.exp %x : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %b = graph.matmul %a, %w : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %c = graph.sin %b : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %d = graph.matmul %c, %w : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %e = graph.subtract %d, %a : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %e : tensor<8x16xf32>
}
"""
"""%a is alive until the end; %b and %c are two values, as no pair is inferred."""
STEPS = "wrap-kernels,select-implementation{prefer=numpy},schedule-kernels,plan-memory,bulk-launches{max-launches=1}"


def shrunk(path: Path) -> str:
    """An example with extents of 64 and more made sixteen times smaller."""
    return re.sub(
        r"(?<=[<x ])\d+(?=[x,>])",
        lambda match: str({56: 14}.get(n := int(match[0]), n // 16 if n % 64 == 0 else n)),
        path.read_text(),
    )


def as_tuple(results: Any) -> tuple[npt.NDArray[Any], ...]:
    return cast("tuple[npt.NDArray[Any], ...]", results if isinstance(results, tuple) else (results,))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_give_the_same_with_poison(path: Path) -> None:
    text = shrunk(path)
    arguments = random_arguments(parse(text), 1)
    for value in arguments:
        value[...] = abs(value)  # variances and second moments are positive
    plain, poisoned = fuse_opt.compile(text), fuse_opt.compile(text, poison=True)
    for _ in range(2):  # the second run finds the arena of the first
        expected = as_tuple(plain(*(array.copy() for array in arguments)))
        found = as_tuple(poisoned(*(array.copy() for array in arguments)))
        for one, other in zip(found, expected, strict=True):
            assert not np.isnan(other).any()
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_live_bytes_follow_from_launches_and_calls() -> None:
    program = build_program(apply(parse(CHAIN), STEPS))
    arena = next(number for number, buffer in enumerate(program.buffers) if buffer.kind == "arena")
    live = live_after_steps(program)
    assert len(live) == 5 and live[4] == []
    written = [ref for step in program.steps for ref in stored(step) if ref.buffer == arena]
    a, b, c, d = [(ref.offset, ref.offset + ref.nbytes) for ref in written]
    assert live == [united([a]), united([a, b]), united([a, c]), united([a, d]), []]


def stored(step: Segment | LibraryCall) -> Sequence[BufferRef]:
    if isinstance(step, LibraryCall):
        return step.outputs
    (launch,) = step.launches
    assert launch.loads is not None and launch.stores is not None
    assert not {*launch.loads} & {*launch.stores}
    return [launch.buffers[k] for k in launch.stores]


def test_unknown_accesses_read_everything() -> None:
    program = build_program(apply(parse(CHAIN), STEPS))
    steps = tuple(
        Segment(s.function, tuple(replace(launch, loads=None, stores=None) for launch in s.launches))
        if isinstance(s, Segment)
        else s
        for s in program.steps
    )
    (before, *_), (after, *_) = live_after_steps(program), live_after_steps(replace(program, steps=steps))
    assert united([*before, *after]) == after


def test_ranges() -> None:
    assert united([(8, 12), (0, 4), (4, 6), (9, 10)]) == [(0, 6), (8, 12)]
    assert complement([(0, 6), (8, 12)], 16) == [(6, 8), (12, 16)]
    assert complement([], 16) == [(0, 16)] and complement([], 0) == []


def run_both(program: Program) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The results of CHAIN without and with poison, and the right one."""
    rng = np.random.default_rng(0)
    x, w = rng.random((8, 16), np.float32), rng.random((16, 16), np.float32)
    a = np.exp(x)
    return CpuProgram(program)(x, w), PoisonedProgram(program)(x, w), np.sin(a @ w) @ w - a


def test_a_plan_that_uses_storage_too_early_is_exposed() -> None:
    """%c is put where %a still lives, past the verifier: straight to lowering."""
    module = apply(parse(CHAIN), STEPS)
    names = {kernel.results[0].name_hint: kernel for kernel in kernels_of(module)}
    _, poisoned, right = run_both(build_program(module))
    np.testing.assert_allclose(poisoned, right, rtol=1e-4)
    names["c"].slots = int_array(ints(names["a"].slots))
    _, poisoned, right = run_both(build_program(module))
    wrong = np.isnan(poisoned) | (abs(poisoned - right) > 1e-3)
    assert wrong.mean() > 0.9


def test_what_nobody_wrote_is_nan() -> None:
    """A routine that leaves half of its output out: zeros or an earlier run's values without poison, NaN with it."""

    def half(inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]], config: Config) -> None:
        outputs[0][:4] = (inputs[0] @ inputs[1])[:4]

    program = build_program(apply(parse(CHAIN), STEPS))
    first = next(number for number, step in enumerate(program.steps) if isinstance(step, LibraryCall))
    call = program.steps[first]
    assert isinstance(call, LibraryCall)
    spoiled = replace(call, run=half, implementation="test.half")
    steps = (*program.steps[:first], spoiled, *program.steps[first + 1 :])
    plain, poisoned, right = run_both(replace(program, steps=steps))
    np.testing.assert_allclose(plain[:4], right[:4], rtol=1e-4)
    np.testing.assert_allclose(poisoned[:4], right[:4], rtol=1e-4)
    assert np.isnan(poisoned[4:]).all() and not np.isnan(plain).any()


def test_result_buffers_are_poisoned() -> None:
    def nothing(inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]], config: Config) -> None:
        pass

    text = CHAIN.replace("func.return %e", "func.return %d")
    program = build_program(apply(parse(text), STEPS))
    steps = tuple(
        replace(step, run=nothing, implementation="test.nothing") if isinstance(step, LibraryCall) else step
        for step in program.steps
    )
    assert np.isnan(run_both(replace(program, steps=steps))[1]).all()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chain.mlir"
    file.write_text(CHAIN)
    assert main([str(file), "--poison", "--check"]) == 0
    assert "check: passed" in capsys.readouterr().out
    assert main([str(file), "--poison", "--target", "reference"]) == 2
    assert "argument --poison: expected --target cpu, got --target reference" in capsys.readouterr().err


def test_poison_is_for_the_cpu() -> None:
    with pytest.raises(ValueError, match="poison=True fills the arena of target 'cpu' .* got target 'cuda'"):
        fuse_opt.compile(CHAIN, "cuda", poison=True)


def test_unknown_extents() -> None:
    text = CHAIN.replace("8x16xf32", "?x16xf32")
    x, w = np.ones((3, 16), np.float32), np.full((16, 16), 0.1, np.float32)
    np.testing.assert_allclose(fuse_opt.compile(text, poison=True)(x, w), fuse_opt.compile(text)(x, w), rtol=1e-5)
