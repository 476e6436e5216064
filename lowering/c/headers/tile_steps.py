"""Pieces of text that tiles of products share: vectors of columns, parts of rows, loops of which some steps are written out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

STEPS = 4
"""Steps from one request for a row of sums to the next, and those that are written out: counting, and asking, take instructions
that a processor starts in the place of others, most of all one whose core another one shares."""
Bounds = list[tuple[int, int]]


def vectors_of_columns(columns: int, lanes: int) -> tuple[int, list[int]]:
    """Lanes of vectors that hold so many columns, and where each begins: the last may hold some that the one before has."""
    while lanes > columns:
        lanes //= 2
    return lanes, sorted({*range(0, columns - lanes + 1, lanes), columns - lanes})


def ask_for_sums(rows: int, starts: list[int], c: str) -> list[str]:
    """
    Prefetches, in a loop over every fourth `p`, of where a tile's sums go, a row at a time: all at once, they would wait for each
    other, and stores, or loads of sums to add to, at the end for what may be far away.
    """
    lines = [f"    __builtin_prefetch({c} + p / {STEPS} * c_step + {at}, 1);" for at in starts]
    return [f"  if (p < {STEPS * rows}) {{", *lines, "  }"]


def written_out(asks: list[str], step: list[str], moves: Sequence[tuple[str, str]]) -> list[str]:
    """
    A loop over `p` up to `k`, some steps at a time, of which the first asks for something: each is the `u`-th from where
    pointers are, which then move by so much a step. Steps that are left over come one by one.
    """
    forward = [f"{pointer} += {STEPS} * {by};" for pointer, by in moves]
    return [
        "long p = 0;",
        f"for (; p + {STEPS} <= k; p += {STEPS}) {{",
        *asks,
        f"#pragma GCC unroll {STEPS}",
        f"  for (long u = 0; u < {STEPS}; u++) {{",
        *(f"  {line}" for line in step),
        "  }",
        *(f"  {line}" for line in forward),
        "}",
        "for (long u = 0; u < k - p; u++) {",
        *step,
        "}",
    ]


def even_parts(count: int, most: int) -> Bounds:
    """The bounds of as few parts as can be of at most so many each, the larger ones first."""
    parts = -(-count // most)
    return list(pairwise(-(-count * number // parts) for number in range(parts + 1)))
