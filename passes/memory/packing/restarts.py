"""The exact stage of packing: which capacities to ask for, in which orders, and when to give up.

One search rarely ends; many short ones in good orders do. After each, buffers that were in more of its dead ends come first,
as variables do under the weighted-degree heuristic (Boussemart et al., "Boosting systematic search by weighting constraints",
ECAI 2004). Numbers of nodes decide everything, so answers depend neither on the machine nor on how a search is implemented.
"""

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from math import gcd
from time import monotonic

from fuse_opt.passes.memory.packing.exact import (
    Outcome,
    Question,
    Search,
    SearchFactory,
    Span,
    TreeSearch,
    section_loads,
    spans_of,
)
from fuse_opt.passes.memory.packing.first_fit import Block

SEARCH: ContextVar[SearchFactory] = ContextVar("packing_search", default=TreeSearch)
"""What searches are made of. Whoever can compile exact.c may set a faster maker of the same answers."""

FIRST_LIMIT = 1_000
"""Nodes of the first searches; later ones get a twentieth more each round."""


@dataclass
class Budget:
    """What the exact stage may still spend: nodes, and wall-clock time up to `deadline` (of `time.monotonic`)."""

    nodes: int
    deadline: float | None = None

    def is_left(self) -> bool:
        """Whether another search may start."""
        return self.nodes > 0 and (self.deadline is None or monotonic() < self.deadline)


@dataclass(frozen=True)
class Part:
    """Blocks that no others meet in time, placed by `offsets` within `arena` bytes; `least` is the most alive at a time."""

    blocks: list[Block]
    spans: list[Span]
    offsets: list[int]

    @property
    def arena(self) -> int:
        return max(at + size for at, (size, _, _) in zip(self.offsets, self.spans, strict=True))

    @property
    def least(self) -> int:
        return max(section_loads(self.spans))


def improve(
    blocks: Sequence[Block], positions: int, offsets: dict[int, int], capacity: int | None, budget: Budget, largest: int
) -> tuple[dict[int, int], bool]:
    """Offsets as good as those given or better, by block index, and whether no smaller arena is possible.

    Ends at the first that fit into `capacity`. Parts of more than `largest` blocks stay as they are.
    """
    parts = sorted(parts_of(blocks, positions, offsets), key=lambda part: -part.arena)
    needed, optimal, improved = max(part.least for part in parts), True, dict(offsets)
    for part in parts:
        if part.arena <= needed:
            break
        if len(part.blocks) > largest:
            needed, optimal = part.arena, False
            continue
        better = _Descent(part, needed, capacity, budget)
        better.run()
        improved |= {block.index: at for block, at in zip(part.blocks, better.offsets, strict=True)}
        optimal = optimal and better.low >= better.arena
        needed = max(needed, better.arena)
    return improved, optimal


def parts_of(blocks: Sequence[Block], positions: int, offsets: dict[int, int]) -> Iterator[Part]:
    """The blocks cut at the sections that none of them crosses, with sections counted from 0 in each part."""
    spans, _ = spans_of(blocks, positions)
    order = sorted(range(len(blocks)), key=lambda at: (spans[at][1], at))
    begin = reach = 0
    for at, which in enumerate([*order, -1]):
        if at and (which < 0 or spans[which][1] >= reach):
            chosen = sorted(order[begin:at])
            first = spans[order[begin]][1]
            moved = [(size, lo - first, hi - first) for size, lo, hi in (spans[i] for i in chosen)]
            yield Part([blocks[i] for i in chosen], moved, [offsets[blocks[i].index] for i in chosen])
            begin = at
        reach = max(reach, spans[which][2])


class _Descent:
    """The smallest arena of one part: `low` and above are not proven impossible, `arena` is reached by `offsets`."""

    def __init__(self, part: Part, needed: int, capacity: int | None, budget: Budget) -> None:
        """Stops at `needed` bytes, which the other parts take up anyway, or at `capacity`."""
        self.spans, self.offsets, self.arena = part.spans, part.offsets, part.arena
        self.unit = gcd(*(size for size, _, _ in part.spans))
        self.low = max(part.least, needed // self.unit * self.unit)
        self.capacity = None if capacity is None else capacity // self.unit * self.unit
        self.budget = budget
        self.attempts: dict[int, Iterator[_Attempt]] = {}
        self.spent: dict[int, int] = {}

    def run(self) -> None:
        """Asks for several capacities in turn, always for the one that had the fewest nodes so far."""
        while self.low < self.arena and self.budget.is_left():
            if self.capacity is not None and not self.low <= self.capacity < self.arena:
                return
            wanted = min(self._targets(), key=lambda target: (self.spent.get(target, 0), target))
            if wanted not in self.attempts:
                self.attempts[wanted] = _attempts(self.spans, wanted, self.budget)
            attempt = next(self.attempts[wanted])
            self.spent[wanted] = self.spent.get(wanted, 0) + attempt.nodes
            self.budget.nodes -= attempt.nodes
            if attempt.outcome is Outcome.FOUND:
                self.offsets = list(attempt.offsets)
                self.arena = max(at + size for at, (size, _, _) in zip(self.offsets, self.spans, strict=True))
            elif attempt.outcome is Outcome.EXHAUSTED:
                self.low = wanted + self.unit

    def _targets(self) -> list[int]:
        """The bound itself, since tight capacities prune best; the given capacity, or some way down from the best arena."""
        if self.capacity is not None:
            return [self.low, self.capacity]
        steps = (self.arena - self.low) // self.unit
        return [self.low, self.low + steps // 2 * self.unit, self.arena - max(steps // 8, 1) * self.unit]


@dataclass(frozen=True)
class _Attempt:
    outcome: Outcome
    nodes: int
    offsets: Sequence[int]
    """By span, once found."""


_Key = Callable[[Span, int], tuple[int, ...]]

_ORDERS: tuple[_Key, ...] = (
    lambda span, load: (-load, _width(span), _area(span)),
    lambda span, load: (-load, _area(span), _width(span)),
    lambda span, load: (_width(span), _area(span), -load),
    lambda span, load: (-span[0], -load, _width(span)),
)
"""Sort keys of a span and the most bytes alive in its life: those of MiniMalloc, and size first."""


def _width(span: Span) -> int:
    return span[1] - span[2]


def _area(span: Span) -> int:
    return span[0] * (span[1] - span[2])


def _attempts(spans: Sequence[Span], capacity: int, budget: Budget) -> Iterator[_Attempt]:
    """Searches for one capacity without end: short ones that learn from their dead ends, and one that is never restarted."""
    make = SEARCH.get()
    loads = section_loads(spans)
    most = [max(loads[lo:hi]) for _, lo, hi in spans]
    orders = [sorted(range(len(spans)), key=lambda at, key=key: (key(spans[at], most[at]), at)) for key in _ORDERS]
    dead_ends = [[0] * len(spans) for _ in orders]
    steady = make(Question([spans[at] for at in orders[0]], capacity))
    limit = FIRST_LIMIT
    for turn in count():
        yield _attempt(steady, orders[0], min(limit, budget.nodes))
        for number, (order, seen) in enumerate(zip(orders, dead_ends, strict=True)):
            search, ranked = steady, order
            if turn or number:
                ranked = sorted(order, key=lambda at, seen=seen: -seen[at])
                search = make(Question([spans[at] for at in ranked], capacity))
                yield _attempt(search, ranked, min(limit, budget.nodes))
            for at, conflicts in zip(ranked, search.conflicts, strict=True):
                seen[at] += conflicts
        limit += limit // 20


def _attempt(search: Search, ranked: Sequence[int], limit: int) -> _Attempt:
    before = search.nodes
    outcome = search.run(limit)
    offsets = [0] * len(ranked)
    if outcome is Outcome.FOUND:
        for at, offset in zip(ranked, search.offsets, strict=True):
            offsets[at] = offset
    return _Attempt(outcome, search.nodes - before, offsets)
