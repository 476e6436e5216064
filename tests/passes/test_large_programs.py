"""The programs of tests/support/large_fuzz.py are there for every seed."""

import pytest
from draws import draws
from large_fuzz import check_case
from large_programs import large_program
from lowered_programs import needs_compiler

from fuse_opt.tools.source.verification import verify


def test_what_only_stores_numbers_has_no_neighbours_that_compute_with_them() -> None:
    """Tables of f8E4M3FN among these had a hyperbolic tangent before them, or a square behind them."""
    for seed in range(0, 300, 2):
        verify(large_program(seed))


@needs_compiler
@pytest.mark.parametrize("seed", draws(3))
def test_sequences_of_passes_leave_what_compiles_to_the_same_values(seed: int) -> None:
    """Most rewrite what was planned before them."""
    assert not check_case(seed, with_passes=True)
