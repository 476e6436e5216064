"""Places for values whose bytes are sizes: sound whatever the sizes are, as only values that never live at once share one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuse_opt.dialects.types.extents import estimate, is_decided, largest
from fuse_opt.dialects.types.size import Extent

Life = tuple[Extent, int, int]
"""Bytes, and the half-open interval of steps in which they are in use."""


@dataclass
class _Place:
    nbytes: Extent
    lives: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Of what is there, sorted."""

    def is_free(self, birth: int, death: int) -> bool:
        at = bisect_left(self.lives, (birth, birth))
        before, after = self.lives[at - 1] if at else None, self.lives[at] if at < len(self.lives) else None
        return (before is None or before[1] <= birth) and (after is None or death <= after[0])


def assign_places(lives: Sequence[Life]) -> tuple[list[int], list[Extent]]:
    """
    The number of a place for each, and the bytes of places: the most of what is in one. Those that are typically largest come
    first; each takes the place that grows least, or else a new one.
    """
    places: list[_Place] = []
    found = [0] * len(lives)
    for number in sorted(range(len(lives)), key=lambda k: (-estimate(lives[k][0]), lives[k][1], k)):
        nbytes, birth, death = lives[number]
        free = [k for k, place in enumerate(places) if place.is_free(birth, death)]
        if free:
            found[number] = min(free, key=lambda k: (*_growth(places[k].nbytes, nbytes), k))
        else:
            found[number] = len(places)
            places.append(_Place(nbytes))
        place = places[found[number]]
        place.nbytes = largest(place.nbytes, nbytes)
        insort(place.lives, (birth, death))
    return found, [place.nbytes for place in places]


def _growth(place: Extent, nbytes: Extent) -> tuple[int, int]:
    """What a place grows by, and how much larger it is: typically, and worst where no proof says that it is large enough."""
    if is_decided(lambda: nbytes <= place):
        return 0, estimate(place) - estimate(nbytes)
    return max(estimate(nbytes) - estimate(place), 1), 0
