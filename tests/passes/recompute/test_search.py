"""Which of some ways to recompute a budget gets, of made-up ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from fuse_opt.passes.recompute.rematerialize import SEARCHED, RematerializePass
from fuse_opt.passes.recompute.search import Search
from fuse_opt.passes.recompute.tiers import DEAR


@dataclass(frozen=True)
class Way:
    """Bytes that are alive before there are kernels, those of the arena then, and seconds of what is computed again."""

    alive: int
    arena: int
    seconds: float

    @property
    def key(self) -> object:
        return self


def searched(budget: int, ways: dict[int, Way], other: Way, dear: Way | None = None) -> tuple[Way | None, list[Way]]:
    """
    What is found, and what was tried: `ways` are by the least target of searches for which products to keep, all that is dear
    without them is as said.
    """
    tried: list[Way] = []

    def choice(tier: RematerializePass | None) -> Way:
        if tier is None or not tier.products:
            return other
        if tier.products != SEARCHED:
            return dear if dear is not None and tier in DEAR else other
        return ways[max((target for target in ways if target <= tier.target), default=min(ways))]

    def fitting(way: Way, _: int) -> Way:
        tried.append(way)
        return way

    search = Search(cast(Any, choice), cast(Any, fitting))
    return cast(Way | None, search.within(budget)), tried


FAR = Way(900, 900, 0.0)


def test_the_search_of_least_work_that_fits_is_found_though_less_room_leads_to_more_bytes() -> None:
    large, fits, dear = Way(300, 300, 3.0), Way(90, 95, 1.0), Way(85, 90, 2.0)
    found, tried = searched(100, {0: large, 65: dear, 75: fits}, FAR)
    assert found is fits
    assert large not in tried and dear not in tried


def test_the_next_one_is_taken_where_an_arena_is_larger_than_it_looked() -> None:
    wrong, fits = Way(90, 130, 1.0), Way(60, 95, 2.0)
    found, tried = searched(100, {0: fits, 75: wrong}, FAR)
    assert found is fits
    assert tried == [wrong, fits]


def test_no_more_work_than_without_a_search_is_taken() -> None:
    dear, more = Way(80, 80, 1.0), Way(70, 70, 2.0)
    found, tried = searched(100, {0: more}, FAR, dear)
    assert found is dear
    assert more not in tried
