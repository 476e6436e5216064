"""The least budget that a refusal names is one: a sample of the benchmark's random programs."""

from __future__ import annotations

import pytest
from recompute_bounds import main


def test_named_budgets_are_kept_and_nothing_less_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "2", "--seed", "7"]) == 0
    assert "2 programs, 0 with another least budget" in capsys.readouterr().out
