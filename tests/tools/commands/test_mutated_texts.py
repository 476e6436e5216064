"""A sample of mutated programs: the driver answers each soon, with a status and no traceback; `mutate_texts.py` runs more."""

from __future__ import annotations

import pytest
from draws import draws
from mutate_texts import case_of, corpus, run

CASES = draws(15)
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_texts_are_answered(part: int) -> None:
    reports = [report for _, report in run(CASES[part::PARTS]) if report is not None]
    assert not reports, "\n".join(reports)


def test_cases_are_the_same_for_the_same_seed() -> None:
    assert [case_of(seed) for seed in range(8)] == [case_of(seed) for seed in range(8)]
    assert all(len(texts) > 30 for texts in corpus())
