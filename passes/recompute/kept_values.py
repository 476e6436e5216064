"""Which values of a chain to keep so that all can be had in reverse order within some memory, at the least work. Knows no IR.

Each value follows from the one before it, the first from what is there anyway, and they are asked for from the last to the
first. What is not kept is computed anew from the nearest one before it that is there, and on the way others may be kept in
turn where there is room: for those from `i` to `j`, with some room, the best first one to keep is found by trying each
(Griewank & Walther 2000 for values that are alike, Beaumont et al. 2021 for others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, gcd, inf
from typing import TypeAlias

LEVELS = 64
"""Into how many parts room is divided at most."""
LONGEST = 32
"""Values of a chain; of longer ones neighbours are kept or dropped together."""


Work: TypeAlias = Sequence[float] | Callable[[], Sequence[float]]
"""Seconds of each value; a function of which all are finite, for who does not have them yet."""


def values_to_keep(sizes: Sequence[int], work: Work, room: int, later: int) -> list[int]:
    """
    The numbers of the values to keep, which are there at first, of a chain of these bytes and seconds of work. All that are
    kept have `room`, and what is there when they are asked for has room `later`: or more, where nothing fits. A function is not
    called where there is room for none.
    """
    width = ceil(len(sizes) / LONGEST) or 1
    groups = [range(k, min(k + width, len(sizes))) for k in range(0, len(sizes), width)]
    chain = _Chain([sum(sizes[k] for k in group) for group in groups], groups, work)
    room, later = max(room, 0), max([later, *chain.sizes])
    while (kept := chain.kept(room, later)) is None:
        room, later = room + later // 4 + 1, later + later // 4 + 1
    return [number for group in kept for number in groups[group]]


@dataclass
class _Chain:
    sizes: Sequence[int]
    groups: Sequence[range]
    """The values of each link."""
    work: Work
    """Of all values."""

    @cached_property
    def _until(self) -> list[float]:
        work = self.work() if callable(self.work) else self.work
        return [0.0, *accumulate(sum(work[k] for k in group) for group in self.groups)]

    def kept(self, room: int, later: int) -> list[int] | None:
        """The values to keep; None where nothing fits."""
        unit = max(gcd(*self.sizes), ceil(max(room, later) / LEVELS))
        count, units, most, levels = (
            len(self.sizes),
            [ceil(size / unit) for size in self.sizes],
            room // unit,
            later // unit,
        )
        if callable(self.work) and most < min(units, default=0):
            return [] if max(units) <= levels else None
        again = self._again(units, levels)
        best = [
            [(inf, count)] * (most + 1) for _ in range(count + 1)
        ]  # by first value to decide about, and what is kept
        for start in reversed(range(count + 1)):
            for used in range(min(most, levels) + 1):
                ways = [(again[start][count][levels - used], count)]
                for k in range(start, count):
                    if used + units[k] <= most:
                        ways.append((best[k + 1][used + units[k]][0] + again[start][k][levels - used], k))
                best[start][used] = min(ways)
            for used in range(levels + 1, most + 1):  # no room to compute any
                best[start][used] = (0.0, count) if start == count else best[start][used]
        if best[0][0][0] == inf:
            return None
        found: list[int] = []
        start, used = 0, 0
        while (chosen := best[start][used][1]) < count:
            found.append(chosen)
            start, used = chosen + 1, used + units[chosen]
        return found

    def _again(self, units: Sequence[int], levels: int) -> list[list[list[float]]]:
        """By start, stop and room: the least work to have values from start up to stop, last first, of which none is there."""
        count, until = len(units), self._until
        found = [
            [[0.0 if stop <= start else inf] * (levels + 1) for stop in range(count + 1)] for start in range(count + 1)
        ]
        for length in range(1, count + 1):
            for start in range(count - length + 1):
                stop = start + length
                for level in range(levels + 1):
                    found[start][stop][level] = min(
                        (
                            until[k + 1] - until[start] + found[k + 1][stop][level - units[k]] + found[start][k][level]
                            for k in range(start, stop)
                            if units[k] <= level
                        ),
                        default=inf,
                    )
        return found
