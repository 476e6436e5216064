"""Groups of values that have something in common that they are computed from, beside all of it looked at."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from fuse_opt.passes.recompute.least_cut import Closures

Graph = Sequence[Sequence[int]]
"""By value, in order: what it is computed from."""


def graph(choose: random.Random) -> Graph:
    count = choose.randint(1, 40)
    return [[at - choose.randint(1, min(at, 6)) for _ in range(choose.randint(0, 2)) if at] for at in range(count)]


def behind(needs: Graph, value: int) -> set[int]:
    found, waiting = {value}, [value]
    while waiting:
        more = set(needs[waiting.pop()]) - found
        found |= more
        waiting += more
    return found


def groups(needs: Graph, wanted: Sequence[int]) -> list[set[int]]:
    """By trying all pairs, until none has anything in common."""
    found: list[set[int]] = []
    for value in wanted:
        whole = behind(needs, value)
        common = [group for group in found if group & whole]
        if not common:
            found.append(whole)
            continue
        common[0] |= whole.union(*common[1:])
        found = [group for group in found if not any(group is other for other in common[1:])]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_those_of_everything(seed: int) -> None:
    """A group of which enough is known may be known in part, if it is the only one left; which are together is the same."""
    choose = random.Random(seed)
    needs = graph(choose)
    wanted = choose.sample(range(len(needs)), choose.randint(1, min(len(needs), 5)))
    looked_at: list[int] = []

    def needs_of(value: int) -> Sequence[int]:
        looked_at.append(value)
        return needs[value]

    def found(is_enough: bool) -> list[set[int]]:
        looked_at.clear()
        closures = Closures(needs_of, lambda value: value, lambda group: is_enough)
        return [set(group) for group in closures.groups(wanted, 3)]

    whole = groups(needs, wanted)
    assert found(False) == whole and sorted(looked_at) == sorted(set[int]().union(*whole))
    part = found(True)
    assert [group & set(wanted) for group in part] == [group & set(wanted) for group in whole]
    assert [group for group, all_of in zip(part, whole, strict=True) if group < all_of][1:] == []
    assert len(looked_at) == len(set(looked_at))


def test_a_long_chain_is_not_looked_at_to_its_end() -> None:
    looked_at: list[int] = []

    def needs(value: int) -> Sequence[int]:
        looked_at.append(value)
        return [value - 1] if value else []

    closures = Closures(needs, lambda value: value, lambda group: len(group) > 100)
    ((*group,),) = closures.groups([5000, 4999], 64)
    assert {5000, 4999} < set(group) and len(looked_at) < 150
