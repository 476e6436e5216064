"""Kernels checked one by one: none of a right program is beyond its bound, and each fault of generated text is found."""

from __future__ import annotations

import random
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from c_printing import needs_cc
from text_faults import generated_kernels, named_with

from fuse_opt.tools.commands.fuse_run_main import main

PROGRAM = """
func.func @net(%x: tensor<5x7xf32>, %w: tensor<7x9xf32>, %i: tensor<5x9xi32>) -> (tensor<9x5xf32>, tensor<5x9xi1>) {
  %h = graph.matmul %x, %w : (tensor<5x7xf32>, tensor<7x9xf32>) -> tensor<5x9xf32>
  %a = graph.softmax %h {axis = 1 : i64} : (tensor<5x9xf32>) -> tensor<5x9xf32>
  %f = graph.astype %i {dtype = f32} : (tensor<5x9xi32>) -> tensor<5x9xf32>
  %c = graph.greater %f, %a : (tensor<5x9xf32>, tensor<5x9xf32>) -> tensor<5x9xi1>
  %t = graph.permute_dims %a {axes = array<i64: 1, 0>} : (tensor<5x9xf32>) -> tensor<9x5xf32>
  func.return %t, %c : tensor<9x5xf32>, tensor<5x9xi1>
}
"""
needs_cxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to run CUDA text on the CPU")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.mlir").write_text(PROGRAM)
    return "net.mlir"


@needs_cc
def test_kernels_of_a_right_program(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program, "--check-each"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].split() == ["kernel", "against", "run", "by", "ULP", "allowed", "differ", "of"]
    assert "all within their bounds" in said and not Path("check").exists()


@needs_cxx
def test_cuda_by_emulation(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program, "--check-each", "--against", "cuda", "-p", "unfused", "--stats", "json"]) == 0
    assert '"against": "cuda", "run_by": "generated"' in capsys.readouterr().out


def test_cuda_without_a_compiler_of_cxx_is_one_line(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuse_opt.runtime.emulation.program.find_cxx", lambda: None)
    assert main([program, "--check-each", "--against", "cuda", "-p", "unfused"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "CUDA C runs on the CPU by g++, and there is none on PATH; install it" in line


@needs_cxx
def test_unknown_extents_and_frozen_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "frozen.mlir"
    source.write_text("""
func.func @main(%x: tensor<?x7xf32>, %w: tensor<7x9xf32> {graph.frozen}, %b: tensor<9xf32> {graph.frozen}) -> tensor<?x9xf32> {
  %e = graph.exp %b : (tensor<9xf32>) -> tensor<9xf32>
  %h = graph.matmul %x, %w : (tensor<?x7xf32>, tensor<7x9xf32>) -> tensor<?x9xf32>
  %a = graph.add %h, %e : (tensor<?x9xf32>, tensor<9xf32>) -> tensor<?x9xf32>
  func.return %a : tensor<?x9xf32>
}
""")
    assert main([str(source), "--check-each", "--against", "cuda"]) == 0, capsys.readouterr()


@needs_cc
def test_the_kernel_with_a_fault_is_named() -> None:
    kernels = list(generated_kernels(PROGRAM, "c"))
    named = {kernel: named_with(PROGRAM, "c", kernel, random.Random(seed)) for seed, kernel in enumerate(kernels)}
    changed = {kernel: found[0] for kernel, found in named.items() if found is not None}
    assert changed and changed == {kernel: [kernel] for kernel in changed}


@needs_cc
def test_a_kernel_beyond_its_bound_is_written_with_the_command_that_shows_it(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuse_opt.tools.watching.check_each.allowed_differences", nothing_allowed)
    assert main([program, "--check-each"]) == 1
    said = capsys.readouterr().out
    command = said.partition("to see it again: ")[2].splitlines()[0]
    words = shlex.split(command)
    folder = Path(words[1]).parent
    with np.load(folder / "inputs.npz") as inputs, np.load(folder / "expected.npz") as expected:
        assert len(inputs.files) >= 1 and len(expected.files) >= 1
    assert main(words[1:]) == 1
    assert folder.name in capsys.readouterr().out


def nothing_allowed(kernel: object, operands: object, expected: list[np.ndarray], got: object) -> list[np.ndarray]:
    return [np.full(array.shape, -1.0) for array in expected]
