"""The first of several ways, each of which needs less than the one before it, that fits; trials are dear. Knows no IR."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

TRIED = 4
"""Trials at most."""


def first_that_fits(
    count: int, is_likely: Callable[[int], bool], fits: Callable[[int], bool], may_fit: Callable[[int], bool]
) -> int | None:
    """
    The number of the first way that fits, found by halving what is likely to fit; each trial may change what is. Where none is
    likely, the last one is tried if it may fit. None where none of those tried fits.
    """
    tried: dict[int, bool] = {}
    while len(tried) < TRIED:
        first = bisect_left(range(count), True, key=is_likely)
        while tried.get(first) is False:
            first += 1
        if first >= count:
            first = count - 1
            if first in tried or not may_fit(first):
                break
        if first in tried:
            break
        tried[first] = fits(first)
    return min((number for number, is_fitting in tried.items() if is_fitting), default=None)
