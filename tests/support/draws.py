"""How many of the cases of a test a run takes: a sample that is the same each time, small enough to be run at every change.

`FUSE_OPT_FUZZ_CASES=20` takes twenty times as many (as far as there are as many), `FUSE_OPT_FUZZ_FIRST=1000` others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

T = TypeVar("T")

MULTIPLIER = float(os.environ.get("FUSE_OPT_FUZZ_CASES", "1"))
FIRST = int(os.environ.get("FUSE_OPT_FUZZ_FIRST", "0"))


def scaled(count: int) -> int:
    """So many cases in a run at every change, more where more are asked for; never none."""
    return max(1, round(count * MULTIPLIER))


def draws(count: int) -> range:
    """The seeds of `count` random cases."""
    return range(FIRST, FIRST + scaled(count))


def shuffled(cases: Sequence[T]) -> list[T]:
    """The cases in an order that is drawn from a seed."""
    return random.Random(FIRST).sample(cases, len(cases))


def all_pairs(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """
    Few cases in which each two values of two parameters are together (Cohen, Dalal, Fredman and Patton 1997): every case where
    more are asked for.
    """
    values = [list(each) for each in parameters]
    every = list(product(*(range(len(each)) for each in values)))
    pairs = {case: set(combinations(enumerate(case), 2)) for case in every}
    missing = set[Any]().union(*pairs.values())
    taken = list[tuple[int, ...]]()
    while missing:
        taken.append(max(every, key=lambda case: len(pairs[case] & missing)))
        missing -= pairs[taken[-1]]
    return [
        tuple(each[k] for each, k in zip(values, case, strict=True))
        for case in (every if MULTIPLIER > 1 else sorted(taken))
    ]
