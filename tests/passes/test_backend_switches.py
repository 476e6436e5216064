"""Random programs through random passes and switches of backends: a sample; `fuzz.py --backends` takes more."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import backend_fuzz
import numpy as np
import pytest
from backend_fuzz import foreign_backends, random_switch
from draws import draws
from fuzz import BACKENDS, run
from laws import Subject, compiled_fault
from lowered_programs import needs_compiler

import fuse_opt

TRANSPOSED = """
func.func @main(%x: tensor<1x1x3xf32>, %w: tensor<1x1x2xf32>) -> tensor<1x1x11xf32> {
  %0 = graph.conv_transpose %x, %w {strides = array<i64: 3>, pads = array<i64: 0, 0>, dilations = array<i64: 2>,
    output_padding = array<i64: 2>} : (tensor<1x1x3xf32>, tensor<1x1x2xf32>) -> tensor<1x1x11xf32>
  func.return %0 : tensor<1x1x11xf32>
}
"""
PRODUCT = """
func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>) -> tensor<3x5xf32> {
  %0 = graph.matmul %x, %w : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  func.return %0 : tensor<3x5xf32>
}
"""


@needs_compiler
def test_switches_change_no_value() -> None:
    summary = run(seeds := draws(3), BACKENDS)
    assert not summary.mismatches, "\n".join(summary.reports)
    assert summary.compiled == len(seeds) and summary.work.passes > 4 * len(seeds)


def test_switches_name_every_backend_that_is_here() -> None:
    switches = [random_switch(random.Random(seed)) for seed in range(200)]
    for name in ("fuse", "blas", "numpy", "reference", "none", "-", *foreign_backends()):
        assert any(name in switch for switch in switches), name


@needs_compiler
@pytest.mark.parametrize("infinite", [False, True])
def test_transposed_convolutions_multiply_zeros(infinite: bool) -> None:
    """Found by `fuzz.py --backends`: where nothing is added up, generated code has 0 times the weight."""
    x, w = np.ones((1, 1, 3), np.float32), np.array([[[np.inf if infinite else 2.0, 1.0]]], np.float32)
    program = fuse_opt.compile(TRANSPOSED)
    assert program.implementations == {"fuse.conv": 1}
    found, expected = program(x, w), fuse_opt.evaluate(TRANSPOSED, x, w)
    differs = ~np.isclose(found, expected, equal_nan=True)
    assert differs.any() == infinite and np.isnan(found[differs]).all()


@needs_compiler
def test_other_values_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = ('attach-backends{backends="none","numpy"}', "decompose", "wrap-kernels", "select-implementation")
    right = Subject.of(PRODUCT, 1)
    wrong = replace(right, values=[value + 1 for value in right.values])

    def compiled(subject: Subject, passes: Sequence[str]) -> str:
        return compiled_fault(wrong, passes)

    def other(text: str, seed: int) -> Subject:
        return wrong

    monkeypatch.setattr(backend_fuzz, "compiled_fault", compiled)
    assert backend_fuzz.backends_fault(PRODUCT, passes, 1) == "result 0 differs"
    monkeypatch.setattr(Subject, "of", other)
    assert backend_fuzz.backends_fault(PRODUCT, passes, 1) == "values differ"
