"""Which cut of a training graph is taken within a budget: of those that are likely to fit, the one of least work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch_testing import torch as torch

from fuse_opt.frontends.torch.cuts import Cut, CutSearch


@dataclass
class Work:
    """What a search finds."""

    arena: int
    work: float


@dataclass
class Graph:
    """Bytes and seconds at the levels of recomputation, and what a search finds to take within any budget."""

    bytes_at: tuple[int, int, int]
    work_at: tuple[float, float, float]
    searched: float | None
    kept: tuple[tuple[int, float], ...] = ()
    """Bytes and seconds of searches for which products to keep, for ever fewer bytes."""
    asked: list[int] = field(default_factory=list[int])
    """Budgets of searches."""

    def alive(self, level: int) -> int:
        return self.bytes_at[level]

    def work(self, level: int) -> float:
        return self.work_at[level]

    def keeping(self, nbytes: int) -> Iterator[tuple[int, float]]:
        return iter(self.kept)

    def arena(self, level: int, budget: int) -> int:
        return self.bytes_at[level]

    def found(self, budget: int) -> Any:
        self.asked.append(budget)
        return None if self.searched is None else Work(budget, self.searched)

    @property
    def least(self) -> Any:
        return Work(min(self.bytes_at), self.work_at[-1])


def search(budget: int, *cuts: tuple[int, Graph]) -> tuple[Cut | None, list[Cut]]:
    """The choice among cuts of so many saved bytes and a backward graph, and all of them."""
    made = [
        Cut(saved, (None, None), lambda _, kind, graph=graph: graph if kind == "backward" else None)
        for saved, graph in cuts
    ]
    return CutSearch(budget, len(made), made.__getitem__).choice(), made


def cut(saved: int, products: int, work: float, searched: float | None) -> tuple[int, Graph]:
    """One that fits with products alone: 200 bytes with loops computed again, which take 1."""
    return saved, Graph((300, 200, products), (1.0, 1.0, work), searched)


def test_the_cut_that_keeps_the_most_is_taken_as_it_is() -> None:
    free = 10, Graph((50, 40, 30), (1.0, 1.0, 9.0), None)
    choice, cuts = search(100, (90, free[1]), free, (0, free[1]))
    assert choice is cuts[1], "90 + 50 bytes are too many"
    assert not free[1].asked, "nothing is searched"


def middle(saved: int, arena: int, work: float) -> tuple[int, Graph]:
    """One of whose graph nothing is computed again by level."""
    return saved, Graph((arena, arena, arena), (work, work, work), work)


def test_one_that_keeps_more_and_works_less_is_taken_though_one_between_them_does_not_fit() -> None:
    """As of a ResNet of eight images: less is kept, but more is needed, and then less again."""
    cuts = middle(90, 30, 1.0), middle(60, 35, 1.1), middle(50, 70, 1.2), middle(20, 78, 1.3), middle(0, 90, 1.6)
    choice, made = search(100, *cuts)
    assert choice is made[1], "95 bytes: 120, 95, 120, 98 and 90 are needed"


def test_one_that_works_as_much_is_not_searched() -> None:
    near, last = middle(60, 35, 1.59), middle(0, 90, 1.6)
    choice, made = search(100, middle(90, 30, 1.0), near, middle(50, 70, 1.0), last)
    assert choice is made[3]
    assert not near[1].asked


def test_of_those_that_fit_the_one_of_least_work_is_taken() -> None:
    """Of the last one half of the products are computed again, of the one before it, which keeps more, fewer have to be."""
    before, last = cut(20, 50, 2.0, 1.4), cut(0, 60, 9.0, 6.0)
    choice, cuts = search(100, cut(40, 90, 2.0, 1.1), before, last)
    assert choice is cuts[1]
    assert not last[1].asked, "more work is guessed of it by far"
    assert before[1].asked == [80], "what is saved is not there for the arena"


def test_those_of_about_the_same_work_are_all_searched() -> None:
    before, last = cut(20, 70, 3.0, 3.1), cut(0, 20, 4.4, 2.9)
    choice, cuts = search(100, before, last)
    assert choice is cuts[1], "what is found counts, not what is guessed"
    assert before[1].asked and last[1].asked


def test_one_that_keeps_more_is_found_behind_one_of_more_work() -> None:
    first, dear, last = cut(30, 65, 1.1, 1.1), cut(20, 70, 9.0, 8.0), cut(0, 20, 2.0, 2.0)
    choice, cuts = search(100, first, dear, last)
    assert choice is cuts[0]
    assert not dear[1].asked


@pytest.mark.parametrize("searched", [None, 5.0])
def test_where_a_search_finds_nothing_the_next_one_is_taken(searched: float | None) -> None:
    before, last = cut(20, 70, 2.0, None), cut(0, 20, 9.0, searched)
    choice, cuts = search(100, before, last)
    assert choice is (None if searched is None else cuts[1])
    assert before[1].asked and last[1].asked


def test_what_no_room_is_left_for_is_not_asked() -> None:
    large, last = cut(90, 20, 1.1, 1.0), cut(0, 20, 2.0, 2.0)
    choice, cuts = search(100, large, last)
    assert choice is cuts[1]
    assert not large[1].asked, "110 bytes are predicted of it"


def kept(saved: int, searched: float | None, *found: tuple[int, float]) -> tuple[int, Graph]:
    """One that fits at no level; searches for the products to keep find so many bytes and seconds."""
    return saved, Graph((300, 200, 150), (1.0, 1.0, 3.0), searched, found)


def test_one_that_fits_with_some_products_kept_is_taken() -> None:
    """As of a ResNet of eight images: at no level it fits, and what is behind it is computed again and again."""
    chosen, last = kept(40, 1.2, (90, 1.1), (55, 1.2)), cut(0, 60, 9.0, 6.0)
    choice, cuts = search(100, kept(60, 1.1, (90, 1.1), (70, 1.2)), chosen, last)
    assert choice is cuts[1]
    assert chosen[1].asked == [60] and not last[1].asked
    assert not cuts[0].may_fit(100), "70 bytes and 60 are too many"


def test_one_of_those_that_does_not_fit_after_all_gives_way() -> None:
    chosen, last = kept(40, None, (55, 1.2)), cut(0, 60, 9.0, 6.0)
    choice, cuts = search(100, chosen, last)
    assert choice is cuts[1]
    assert chosen[1].asked and last[1].asked


def test_few_are_searched_before_the_one_that_is_likely_to_fit() -> None:
    more = [kept(saved, None, (5, 1.0 + saved / 100)) for saved in (90, 80, 70, 60)]
    choice, cuts = search(100, *more, cut(0, 60, 9.0, 6.0))
    assert choice is cuts[4]
    assert [bool(graph.asked) for _, graph in more] == [False, False, True, True]


def test_nothing_fits() -> None:
    choice, cuts = search(100, cut(200, 20, 1.1, 1.0), cut(150, 20, 2.0, 2.0))
    assert choice is None
    assert [each.least for each in cuts] == [220, 170]
