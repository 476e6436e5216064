"""Large programs compile in units side by side; kernels that the compiler refuses do not take their program with them."""

import stat
from pathlib import Path

import numpy as np
import pytest

import fuse_opt
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.emit import c as c_emission
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import find_c_compiler

pytestmark = pytest.mark.skipif(find_c_compiler() is None, reason="no C compiler")

THREE = """
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %a = graph.tanh %x {no_fuse} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = graph.matmul %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = graph.exp %b : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %d = graph.negative %c : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = graph.matmul %d, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %f = graph.tanh %e : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %f : tensor<8x8xf32>
}
"""
X = np.linspace(-0.5, 0.5, 64, dtype=np.float32).reshape(8, 8)


def test_small_programs_are_one_unit() -> None:
    assert build_program(fuse_opt.optimize(THREE)).units == ()


def test_units_compile_apart_and_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(c_emission, "_WORTH_A_UNIT", 500)
    program = build_program(fuse_opt.optimize(THREE))
    assert len(program.units) == 4, "three kernels (one tanh is in place), and what launches them"
    assert not any("static void kernel" in unit.source for unit in program.units)
    find_c_compiler(DiskCache(tmp_path))
    first = CpuProgram(program, DiskCache(tmp_path))
    got = first(X)
    np.testing.assert_array_equal(got, fuse_opt.compile(THREE)(X))
    assert first.stats.compiled == 5, "its objects, and what they are linked to"
    again = CpuProgram(program, DiskCache(tmp_path))
    assert (again.stats.compiled, again.stats.cached) == (0, 1), "as another process would find them"
    changed = build_program(fuse_opt.optimize(THREE.replace("graph.negative", "graph.abs")))
    assert CpuProgram(changed, DiskCache(tmp_path)).stats.cached == 2, "both kernels of tanh are known"


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A compiler that says no to every text in which the words of a file stand on one line each."""
    real = find_c_compiler()
    assert real is not None
    words, script = tmp_path / "words", tmp_path / "cc"
    words.write_text("")
    script.write_text(
        f"#!/bin/sh\nsrc=$(mktemp); cat > $src\nif [ -s {words} ] && grep -q -f {words} $src; then rm $src; "
        f'echo "<stdin>:1:1: error: refused" >&2; exit 1; fi\n{real.path} "$@" < $src; rc=$?; rm $src; exit $rc\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("FUSE_OPT_CC", str(script))
    monkeypatch.setenv("FUSE_OPT_CACHE_DIR", str(tmp_path / "cache"))
    return words


def test_refused_kernel_comes_apart(refusing: Path) -> None:
    wanted = fuse_opt.evaluate(THREE, X)
    refusing.write_text("kernel_matmul_exp_negative\n")
    with pytest.warns(
        RuntimeWarning, match=r"kernels do not compile: matmul\+exp\+negative run unfused \(.*error: refused\)"
    ):
        program = fuse_opt.compile(THREE)
    assert (program.stats.kernels, program.stats.launches) == (5, 5)
    np.testing.assert_allclose(program(X), wanted, rtol=1e-5, atol=1e-6)


def test_refused_op_is_left_to_the_reference(refusing: Path) -> None:
    wanted = fuse_opt.evaluate(THREE, X)
    refusing.write_text("fo_exp_f32\n")
    with pytest.warns(RuntimeWarning, match=r"exp\+negative run unfused .*; exp runs on the reference"):
        program = fuse_opt.compile(THREE)
    np.testing.assert_allclose(program(X), wanted, rtol=1e-5, atol=1e-6)


def test_refused_product_is_left_to_the_reference(refusing: Path) -> None:
    """Whatever the kernel names: what it names is code that the compiler does not take."""
    text = "func.func @main(%x: tensor<5x7xf32>, %w: tensor<7x3xf32>) -> tensor<5x3xf32> {\n"
    text += "  %0 = graph.matmul %x, %w : (tensor<5x7xf32>, tensor<7x3xf32>) -> tensor<5x3xf32>\n"
    text += "  func.return %0 : tensor<5x3xf32>\n}\n"
    refusing.write_text("fo_tile_f32\n")
    with pytest.warns(RuntimeWarning, match="kernels do not compile: matmul runs on the reference"):
        program = fuse_opt.compile(text)
    x, w = np.ones((5, 7), np.float32), np.ones((7, 3), np.float32)
    np.testing.assert_array_equal(program(x, w), x @ w)


def test_whole_programs_do_not_come_apart(refusing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing.write_text("kernel_matmul_exp_negative\n")
    with pytest.raises(RuntimeError, match="refused"):
        fuse_opt.compile(THREE, whole=True)
    monkeypatch.setenv("FUSE_OPT_CC", "/bin/false")
    with pytest.raises(RuntimeError, match=r"no C compiler works here \(FUSE_OPT_CC='/bin/false'"):
        fuse_opt.compile(THREE, whole=True)


def test_program_is_refused_where_no_kernel_is_at_fault(refusing: Path) -> None:
    refusing.write_text("Generated by fuse-opt\n")
    module = fuse_opt.optimize(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}"
    )
    fuse_opt.compile(module)  # nothing to compile
    refusing.write_text("fuse_segment_0\n")
    with pytest.warns(RuntimeWarning, match="tanh runs on the reference"):
        program = fuse_opt.compile(THREE)
    assert program.stats.kernels == 0
    np.testing.assert_allclose(program(X), fuse_opt.evaluate(THREE, X), rtol=1e-5, atol=1e-6)
