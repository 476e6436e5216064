"""Passes after recomputation do not undo it: a sample of the benchmark's random orders."""

from __future__ import annotations

import pytest
from recompute_orders import main


def test_no_pass_makes_the_arena_grow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "4", "--seed", "40"]) == 0
    assert "4 cases, 0 refused, 0 worse" in capsys.readouterr().out
