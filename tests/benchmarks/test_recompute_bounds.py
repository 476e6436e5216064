"""The least budget that a refusal names is one: a sample of the benchmark's random programs."""

from __future__ import annotations

import pytest
from recompute_bounds import main


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("seed", "count"), [(1, 1), (30, 1), (127, 1), (190, 1)])
def test_named_budgets_are_kept_and_nothing_less_is(seed: int, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Smaller ones were found of seed 1 by keeping one of five products, and by values of less than 64 KiB, as of seed 30, and of
    seed 127 by the fifth of the ways that leave few bytes alive. A search for what seed 190 can keep goes by something smaller
    that takes more time.
    """
    assert main(["--cases", str(count), "--seed", str(seed)]) == 0
    said = f"{count} programs, 0 with another least budget than the named one; recomputation gains in {count}"
    assert said in capsys.readouterr().out
