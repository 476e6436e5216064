"""Turns by a table of seconds: what one slow look says, and pairs during which the processor was taken away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, repeat
from math import log

import pytest

from fuse_opt.tools.tuning.search.measuring_child import times_slower
from fuse_opt.tools.tuning.search.slots import Slots, involuntary_switches, pairs


class Table(Slots):
    """Calls that take what a list says, and then always the last of it."""

    def __init__(self, *seconds: float) -> None:
        self._seconds: Iterator[float] = chain(seconds, repeat(seconds[-1]))
        self.called = 0

    def call(self) -> float:
        self.called += 1
        return next(self._seconds)


@pytest.mark.parametrize(
    ("calls", "ratio", "looks"),
    [
        ((2.0,), 2.0, 1),
        ((4.0,), 4.0, 3),
        ((4.0, 4.0, 4.0, 1.0), 1.0, 2),
        ((100.0,), 100.0, 1),
    ],
)
def test_what_seems_slow_is_looked_at_again(calls: Sequence[float], ratio: float, looks: int) -> None:
    candidate = Table(*calls)
    assert times_slower(Table(1.0), candidate) == ratio
    assert candidate.called == 3 * looks


@pytest.mark.parametrize(
    ("disturbed", "found"),
    [
        ((), [2.0, 2.0, 2.0]),
        ((0,), [2.0, 2.0, 2.0]),
        ((0, 1, 2), [2.0, 2.0, 2.0]),
        ((0, 1, 2, 3), [9.0, 2.0, 2.0]),
    ],
)
def test_a_pair_that_was_disturbed_is_taken_again(disturbed: Sequence[int], found: Sequence[float]) -> None:
    taken, looked = count(), count()

    class Disturbed(Table):
        """Nine times as long while somebody else has the processor."""

        def slot(self) -> float:
            return 9.0 if next(taken) in disturbed else 2.0

    class Quick(Table):
        def slot(self) -> float:
            return 1.0

    def switches() -> int:
        """Looked at before and behind each pair, of which the last but one has no spare one left."""
        number = next(looked)
        return sum(place < (number + 1) // 2 for place in disturbed)

    assert pairs(Disturbed(1.0), Quick(1.0), 3, switches) == pytest.approx([log(each) for each in found])


def test_switches_only_grow() -> None:
    before = involuntary_switches()
    assert 0 <= before <= involuntary_switches()
