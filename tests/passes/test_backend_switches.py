"""A sample of random programs through random passes and switches of backends; `fuzz.py --backends` runs more."""

from __future__ import annotations

import random
from dataclasses import replace

import backend_fuzz
import pytest
from backend_fuzz import foreign_backends, random_switch
from fuzz import BACKENDS, run
from laws import Subject, compiled_fault
from lowered_programs import needs_compiler

CASES = 6
PRODUCT = """
func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>) -> tensor<3x5xf32> {
  %0 = graph.matmul %x, %w : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  func.return %0 : tensor<3x5xf32>
}
"""


@needs_compiler
def test_switches_change_no_value() -> None:
    summary = run(range(CASES), BACKENDS)
    assert not summary.mismatches, "\n".join(summary.reports)
    assert summary.compiled == CASES and summary.work.passes > 4 * CASES


def test_switches_name_every_backend_that_is_here() -> None:
    switches = [random_switch(random.Random(seed)) for seed in range(200)]
    for name in ("fuse", "blas", "numpy", "reference", "none", "-", *foreign_backends()):
        assert any(name in switch for switch in switches), name


@needs_compiler
def test_other_values_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = ('attach-backends{backends="none","numpy"}', "decompose", "wrap-kernels", "select-implementation")
    right = Subject.of(PRODUCT, 1)
    wrong = replace(right, values=[value + 1 for value in right.values])
    monkeypatch.setattr(backend_fuzz, "compiled_fault", lambda subject, passes: compiled_fault(wrong, passes))
    assert backend_fuzz.backends_fault(PRODUCT, passes, 1) == "result 0 differs"
    monkeypatch.setattr(Subject, "of", lambda text, seed: wrong)
    assert backend_fuzz.backends_fault(PRODUCT, passes, 1) == "values differ"
