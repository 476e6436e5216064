"""The least budget that a refusal names is one: a sample of the benchmark's random programs."""

from __future__ import annotations

import pytest
from recompute_bounds import main


def test_named_budgets_are_kept_and_nothing_less_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Of seed 1 a smaller one was found by keeping one of five products, and by values of less than 64 KiB."""
    assert main(["--cases", "2", "--seed", "0"]) == 0
    assert (
        "2 programs, 0 with another least budget than the named one; recomputation gains in 2"
        in capsys.readouterr().out
    )
