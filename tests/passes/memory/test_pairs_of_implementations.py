"""In-place pairs are those of the implementation that was chosen: the same op, two implementations, two plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.tools.compiler import backend_switch

SORTS = """
import numpy as np
from fuse_opt.backend import Backend
backend = Backend("{name}")

@backend.implementation("graph.sort", inplace={pairs}, priority=1)
def sort(inputs, outputs, config):
    outputs[0][...] = np.sort(inputs[0], axis=-1)
"""
PROGRAM = """
func.func @main(%x: tensor<64x256xf32>) -> tensor<64xf32> {
  %0 = graph.exp %x : (tensor<64x256xf32>) -> tensor<64x256xf32>
  %1 = graph.sort %0 {axis = -1 : i64} : (tensor<64x256xf32>) -> tensor<64x256xf32>
  %2 = graph.sum %1 {axes = array<i64: 1>} : (tensor<64x256xf32>) -> tensor<64xf32>
  func.return %2 : tensor<64xf32>
}
"""
OPERAND = 64 * 256 * 4


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    yield
    for name in ("over", "apart"):
        forget_backend(name)
    backend_switch.forget_files()


def compiled(tmp_path: Path, name: str, pairs: str) -> fuse_opt.CompiledProgram:
    path = tmp_path / f"{name}.py"
    path.write_text(SORTS.format(name=name, pairs=pairs), encoding="utf-8")
    return fuse_opt.compile(PROGRAM, backend=str(path))


def test_the_arena_differs_by_the_operand(tmp_path: Path) -> None:
    over, apart = compiled(tmp_path, "over", "((0, 0),)"), compiled(tmp_path, "apart", "()")
    pairs = [
        [
            kernel.inplace_pairs()
            for kernel in program.module.walk()
            if isinstance(kernel, KernelOp) and kernel.implementation
        ]
        for program in (over, apart)
    ]
    assert pairs == [[[(0, 0)]], [[]]]
    assert apart.stats.arena_bytes - over.stats.arena_bytes == OPERAND
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    np.testing.assert_array_equal(over(x), apart(x))
    np.testing.assert_allclose(over(x), np.exp(x).sum(axis=1), rtol=1e-5)


def test_another_choice_drops_the_pairs(tmp_path: Path) -> None:
    """Switched off after planning: what is named then may not write over its operand."""
    over = compiled(tmp_path, "over", "((0, 0),)")
    again = fuse_opt.optimize(str(over.module), "attach-backends{backends=-numpy,numpy},select-implementation")
    (kernel,) = [op for op in again.walk() if isinstance(op, KernelOp) and op.implementation]
    assert kernel.implementation is not None and kernel.implementation.data == "numpy.sort"
    assert kernel.inplace is None
