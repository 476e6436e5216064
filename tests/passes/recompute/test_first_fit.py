"""The first way that fits, of ways that need ever less: few trials, whatever is predicted."""

from __future__ import annotations

import random

import pytest

from fuse_opt.passes.recompute.first_fit import TRIED, first_that_fits


@pytest.mark.parametrize("seed", range(40))
def test_the_first_that_fits(seed: int) -> None:
    choose = random.Random(seed)
    needs = sorted((choose.randint(50, 150) for _ in range(choose.randint(1, 9))), reverse=True)
    scale, trials = [choose.choice((0.7, 1.0, 1.4))], list[int]()

    def fits(number: int) -> bool:
        trials.append(number)
        scale[0] = 1.0  # a trial tells how wrong predictions were
        return needs[number] <= 100

    found = first_that_fits(
        len(needs),
        lambda number: scale[0] * needs[number] <= 100,
        fits,
        lambda number: needs[number] <= 130,
    )
    fitting = [number for number, need in enumerate(needs) if need <= 100]
    assert found == (fitting[0] if fitting else None)
    assert len(trials) == len(set(trials)) <= TRIED


def test_trials_end_where_predictions_stay_wrong() -> None:
    trials: list[int] = []
    assert (
        first_that_fits(9, lambda number: True, lambda number: bool(trials.append(number)), lambda number: True) is None
    )
    assert trials == list(range(TRIED))
    assert first_that_fits(9, lambda number: False, lambda number: True, lambda number: False) is None
