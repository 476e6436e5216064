"""How many of the cases of a test a run takes: a sample that is the same each time, small enough to be run at every change.

`FUSE_OPT_FUZZ_CASES=20` takes twenty times as many (as far as there are as many), `FUSE_OPT_FUZZ_FIRST=1000` others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MULTIPLIER = float(os.environ.get("FUSE_OPT_FUZZ_CASES", "1"))
FIRST = int(os.environ.get("FUSE_OPT_FUZZ_FIRST", "0"))


def scaled(count: int) -> int:
    """So many cases in a run at every change, more where more are asked for; never none."""
    return max(1, round(count * MULTIPLIER))


def draws(count: int) -> range:
    """The seeds of `count` random cases."""
    return range(FIRST, FIRST + scaled(count))


def sampled(cases: Sequence[T], count: int) -> list[T]:
    """`count` of the cases in their order, drawn from a seed; those of a small count are among those of a larger one."""
    order = random.Random(FIRST).sample(range(len(cases)), len(cases))
    return [cases[k] for k in sorted(order[: scaled(count)])]
