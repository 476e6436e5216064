"""Orders of places for values whose bytes are sizes: sound for all sizes, as values that live at once lie above one another.

An order in which every path is a set of values that live at once is the best plan for all sizes: the arena is as large as the
most bytes that live at once. That is a transitive orientation of the graph of conflicts (Golumbic 1977). Where there is none,
orders are those of packings at some sizes, each new one at the size at which those before are worst.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fuse_opt.dialects.analysis.place_orders import Order, PlaceOrders, offsets_of
from fuse_opt.dialects.types.extents import evaluate, symbols
from fuse_opt.dialects.types.size import Extent
from fuse_opt.dialects.types.symbol import Symbol
from fuse_opt.passes.memory.packing.live_bytes import live_bytes
from fuse_opt.passes.memory.packing.packing import Buffer, Problem, pack

Life = tuple[Extent, int, int]
"""Bytes, and the half-open interval of steps in which they are in use."""

_MOST_ORDERS = 4
_ORIENTED = 192
"""Places up to which a transitive orientation is looked for: the work grows with the pairs that live at once."""
_WORK = 40_000
"""Places times sizes that plans are tried at."""


@dataclass(frozen=True)
class OrderPlan:
    """Orders, and how their arenas compare with the most bytes that live at once, at the sizes that were tried."""

    orders: PlaceOrders
    method: str
    points: Sequence[Mapping[str, int]]
    """The sizes; none where no plan can be smaller at any."""
    worst: float = 1.0
    mean: float = 1.0

    def is_larger_than(self, other: OrderPlan) -> bool:
        """Whether the other's arena is smaller on average and larger at no size."""
        ratios = [other.orders.at(values)[1] / max(self.orders.at(values)[1], 1) for values in self.points]
        return max(ratios) <= 1.0 and min(ratios) < 1.0


def plan_orders(lives: Sequence[Life], alignment: int) -> OrderPlan:
    """A place for each."""
    places, bounds = tuple(life[0] for life in lives), _live_sets(lives)
    conflicts = _conflicts(lives)
    if (found := _universal(conflicts)) is not None:
        return OrderPlan(PlaceOrders(alignment, places, (found,), bounds), "universal", ())
    sizes = _Sizes(lives, alignment)
    orders: list[Order] = []
    best = [float("inf")] * len(sizes.points)
    at = 0
    while len(orders) < _MOST_ORDERS:
        orders.append(_packed(lives, sizes.bytes[at], conflicts, alignment))
        ratios = [offsets_of(orders[-1], nbytes)[1] / sizes.bounds[k] for k, nbytes in enumerate(sizes.bytes)]
        best = list(map(min, best, ratios))
        at = max(range(len(best)), key=lambda k: best[k])
        if best[at] <= 1.0:
            break
    found = PlaceOrders(alignment, places, tuple(orders), bounds)
    return OrderPlan(found, "orders", sizes.points, max(best), sum(best) / len(best))


class _Sizes:
    """At sizes of values, the typical ones first, the bytes of each and the most that live at once."""

    def __init__(self, lives: Sequence[Life], alignment: int) -> None:
        kinds = {life[0]: number for number, life in enumerate(lives)}
        self.points = _points(symbols(kinds), max(_WORK // max(len(lives), 1), 24))
        self.bytes: list[list[int]] = []
        self.bounds: list[int] = []
        steps = max((death for _, _, death in lives), default=0)
        for values in self.points:
            rounded = {kind: -(-evaluate(kind, values) // alignment) * alignment for kind in kinds}
            nbytes = [rounded[kind] for kind, _, _ in lives]
            alive = live_bytes(((b, d, n) for (_, b, d), n in zip(lives, nbytes, strict=True)), steps)
            self.bytes.append(nbytes)
            self.bounds.append(max(*alive, 1) if alive else 1)


def _conflicts(lives: Sequence[Life]) -> list[int]:
    """By value the others that live when it does, as bits."""
    found = [0] * len(lives)
    alive: list[int] = []
    for number in sorted(range(len(lives)), key=lambda k: lives[k][1]):
        alive = [other for other in alive if lives[other][2] > lives[number][1]]
        for other in alive:
            found[other] |= 1 << number
            found[number] |= 1 << other
        alive.append(number)
    return found


def _live_sets(lives: Sequence[Life]) -> tuple[tuple[int, ...], ...]:
    """The values that live at a step, for each step at which no fewer live than at another."""
    found: list[tuple[int, ...]] = []
    births = sorted({birth for _, birth, _ in lives})
    for step, following in zip(births, [*births[1:], None], strict=False):
        alive = tuple(k for k, (_, birth, death) in enumerate(lives) if birth <= step < death)
        if following is None or not all(lives[k][2] > following for k in alive):
            found.append(alive)
    return tuple(found)


def _points(found: Sequence[Symbol], most: int) -> list[dict[str, int]]:
    """Values of symbols: typical ones, corners, then all that there are or draws whose logarithms are spread evenly."""
    ranges = [range(-(-one.least // one.multiple) * one.multiple, one.most + 1, one.multiple) for one in found]
    names, rng = [one.name for one in found], random.Random(len(found))
    points = [tuple(one.usual for one in found)]
    points += product(*((each[0], each[-1]) for each in ranges)) if len(found) <= 4 else ()
    if prod(map(len, ranges)) <= most:
        points += product(*ranges)
    else:
        while len(points) < most:
            points.append(tuple(each[int(len(each) ** rng.random()) - 1] for each in ranges))
    return [dict(zip(names, point, strict=True)) for point in dict.fromkeys(points)]


def _packed(lives: Sequence[Life], nbytes: Sequence[int], conflicts: Sequence[int], alignment: int) -> Order:
    """The order of offsets at some sizes."""
    buffers = tuple(Buffer(n, b, d) for n, (_, b, d) in zip(nbytes, lives, strict=True))
    offsets = pack(Problem(buffers, alignment)).offsets
    return _reduced(sorted(range(len(lives)), key=lambda k: (offsets[k], k)), conflicts)


def _reduced(ascending: Sequence[int], joined: Sequence[int]) -> Order:
    """The pairs that are `joined`, as bits, the one first that comes first, without those that follow from others."""
    below = [0] * len(ascending)
    order: list[tuple[int, int]] = []
    for place, number in enumerate(ascending):
        reached = 0
        for other in reversed(ascending[:place]):
            if joined[number] >> other & 1 and not reached >> other & 1:
                order.append((other, number))
                reached |= below[other] | 1 << other
        below[number] = reached
    return tuple(order)


def _universal(conflicts: Sequence[int]) -> Order | None:
    """An order all of whose paths are values that live at once; None where there is none, or too many pairs."""
    if len(conflicts) > _ORIENTED or (above := _transitive(conflicts)) is None:
        return None
    below = [0] * len(conflicts)
    for number, upper in enumerate(above):
        for other in _bits(upper):
            below[other] |= 1 << number
    ascending = sorted(range(len(conflicts)), key=lambda k: (below[k].bit_count(), k))
    return _reduced(ascending, below)


def _transitive(conflicts: Sequence[int]) -> list[int] | None:
    """A transitive orientation of a graph: by number those above. None where there is none."""
    left, above = list(conflicts), [0] * len(conflicts)
    for start in range(len(conflicts)):
        while left[start]:
            first = (start, next(_bits(left[start])))
            upper: dict[int, int] = {}
            pending = [first]
            while pending:
                a, b = pending.pop()
                if upper.get(a, 0) >> b & 1:
                    continue
                if upper.get(b, 0) >> a & 1:
                    return None
                upper[a] = upper.get(a, 0) | 1 << b
                pending += [(a, c) for c in _bits(left[a] & ~left[b] & ~(1 << b))]
                pending += [(c, b) for c in _bits(left[b] & ~left[a] & ~(1 << a))]
            for a, found in upper.items():
                above[a] |= found
                left[a] &= ~found
                for b in _bits(found):
                    left[b] &= ~(1 << a)
    return above


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
