"""Offsets for buffers in one arena, apart from any IR: a problem goes in, a placement and the bound that judges it come out.

    Problem -> rounded blocks -> a portfolio of orders, each placed by first fit -> a tree search if that helps -> Solution

The portfolio ends at the first arena that no other can beat; where none is, an exact search tries to find it. Placing buffers
without overlap in the least space is the NP-hard dynamic storage allocation problem (Garey and Johnson, SR2); first fit over
sorted orders follows Pisarchyk and Lee, "Efficient memory management for deep neural net inference" (2020).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from fuse_opt.passes.memory.packing.first_fit import Block, first_fit
from fuse_opt.passes.memory.packing.restarts import Budget, improve
from fuse_opt.passes.memory.packing.skyline import skyline_order
from fuse_opt.passes.memory.packing.static_orders import KEYS, Loads, loads_at_births, static_order

SKYLINES = ("skyline-peak-death", "skyline-area", "skyline-peak-life", "skyline-time")
ORDERS = (*KEYS, *SKYLINES)
STRATEGIES = ("auto", "exact", *ORDERS)
"""What `pack` takes as a strategy: "auto" for the portfolio and a short exact search, "exact" for a long one, or one order
of first fit by name."""

EFFORT = 360_000
"""How many blocks the portfolio may place in all before it stops trying further orders; the first order always runs.

Where some 4,000 more are alive at a time on average, a block counts once more: there are more gaps to look at."""

SHORT_SEARCH, LONG_SEARCH = 10_000, 2_000_000
"""Nodes of the exact search: by default, and where it is asked for by name or has a capacity to reach."""

SMALL_PART, LARGE_PART = 1_000, 8_000
"""The most blocks in one part, with nothing between it and others in time, that a short and a long search look at."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One storage: `size` in bytes, alive in the half-open range [start, stop) of schedule steps.

    An `offset` in bytes pins it there.
    """

    size: int
    start: int
    stop: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Buffers to place in one arena, at multiples of `alignment` bytes; sizes count rounded up to the alignment.

    Raises ValueError for an alignment below 1, a negative size, a death before the birth, or a pin that is not aligned.
    """

    buffers: tuple[Buffer, ...]
    alignment: int = 64

    def __post_init__(self) -> None:
        if self.alignment < 1:
            raise ValueError(f"alignment must be at least 1 byte, got {self.alignment}")
        for index, buffer in enumerate(self.buffers):
            if buffer.size < 0:
                raise ValueError(f"buffer {index} has a negative size: {buffer.size} bytes")
            if buffer.stop < buffer.start:
                raise ValueError(f"buffer {index} dies at step {buffer.stop}, before its birth at step {buffer.start}")
            if buffer.offset is not None and (buffer.offset < 0 or buffer.offset % self.alignment):
                raise ValueError(f"buffer {index} is pinned to byte {buffer.offset}, no multiple of {self.alignment}")


@dataclass(frozen=True, slots=True)
class Solution:
    """Where each buffer of a problem goes: `offsets` in bytes, in the problem's order; `arena`, the bytes they take up.

    `lower_bound` is that of the problem, in bytes; an arena equal to it is proven optimal. `method` names the order that won,
    or is "exact". `optimal` is whether no smaller arena exists, by the bound or by an exhausted search.
    """

    offsets: tuple[int, ...]
    arena: int
    lower_bound: int
    method: str
    optimal: bool

    @property
    def gap(self) -> float:
        """The arena's excess over the lower bound, as a fraction of the bound; 0.0 is optimal."""
        return self.arena / self.lower_bound - 1.0 if self.lower_bound else 0.0


def lower_bound(problem: Problem) -> int:
    """The most bytes alive at any step, sizes rounded up to the alignment: no arena can be smaller. O(n log n)."""
    blocks, positions = _blocks(problem)
    return max(loads_at_births(blocks, positions), default=0)


def pack(
    problem: Problem,
    strategy: str = "auto",
    *,
    capacity: int | None = None,
    nodes: int | None = None,
    seconds: float | None = None,
) -> Solution:
    """Offsets such that no two buffers share a byte while both are alive, the same for the same problem every time.

    `capacity` in bytes ends the work at the first solution that fits; the caller compares, since one that does not fit is
    returned, too. `nodes` limits the exact search, which leaves problems with pins alone; `seconds`, of wall-clock time,
    aborts it, so that the answer may depend on the machine. Buffers without bytes or without lifetime go to their pin
    or to 0 and take up nothing. Raises ValueError for an unknown strategy and for two pinned buffers that overlap in time
    and in bytes.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown packing strategy {strategy!r}, expected one of {', '.join(STRATEGIES)}")
    deadline = None if seconds is None else monotonic() + seconds
    blocks, positions = _blocks(problem)
    if not blocks:
        return Solution(tuple(buffer.offset or 0 for buffer in problem.buffers), 0, 0, "empty", True)
    names = ORDERS if strategy in ("auto", "exact") else (strategy,)
    method, placed = _portfolio(blocks, positions, names, capacity or 0)
    bound, arena = max(loads_at_births(blocks, positions)), _arena(blocks, placed)
    optimal, pinned = arena == bound, any(block.pin is not None for block in blocks)
    if strategy in ("auto", "exact") and not pinned and arena > max(bound, capacity or 0):
        long = strategy == "exact" or capacity is not None
        budget = Budget(nodes if nodes is not None else LONG_SEARCH if long else SHORT_SEARCH, deadline)
        placed, optimal = improve(blocks, positions, placed, capacity, budget, LARGE_PART if long else SMALL_PART)
        if _arena(blocks, placed) < arena:
            method, arena = "exact", _arena(blocks, placed)
    offsets = tuple(placed.get(index, buffer.offset or 0) for index, buffer in enumerate(problem.buffers))
    return Solution(offsets, arena, bound, method, optimal)


def _blocks(problem: Problem) -> tuple[list[Block], int]:
    """The buffers that take up room, with sizes rounded up, and the number of distinct steps at which they are born."""
    alive = [(i, b) for i, b in enumerate(problem.buffers) if b.size and b.start < b.stop]
    births = sorted({buffer.start for _, buffer in alive})
    blocks: list[Block] = []
    for index, buffer in alive:
        size = -(-buffer.size // problem.alignment) * problem.alignment
        lo, hi = bisect_left(births, buffer.start), bisect_left(births, buffer.stop)
        blocks.append(Block(index, size, buffer.start, buffer.stop, lo, hi, buffer.offset))
    return blocks, len(births)


def _portfolio(
    blocks: Sequence[Block], positions: int, names: Sequence[str], enough: int
) -> tuple[str, dict[int, int]]:
    """The name and offsets of the order with the smallest arena, of those tried before one could not be beaten.

    One of `enough` bytes ends it, too.
    """
    pinned = [block for block in blocks if block.pin is not None]
    free = [block for block in blocks if block.pin is None]
    loads = Loads(blocks, positions)
    # No arena ends below the load at the peak or below the end of a pinned block.
    least = max(max(loads.rows[0]), _arena(pinned, {block.index: block.pin or 0 for block in pinned}))
    least = max(least, enough)
    effort = len(blocks) + len(blocks) * sum(block.hi - block.lo for block in blocks) // (4_000 * positions)
    method, best, arena = "", dict[int, int](), None
    for tried, name in enumerate(names):
        if (arena is not None and arena <= least) or (tried and (tried + 1) * effort > EFFORT):
            break
        limit = None if arena is None else arena - 1
        placed = first_fit(pinned, _order(name, free, loads), positions, limit)
        if placed is not None:
            method, best, arena = name, placed, _arena(blocks, placed)
    return method, best


def _order(name: str, blocks: Sequence[Block], loads: Loads) -> list[Block]:
    """The blocks in the order of that name."""
    rank = name.removeprefix("skyline-")
    ranked = static_order(rank, blocks, loads)
    return ranked if rank == name else skyline_order(ranked, loads.positions)


def _arena(blocks: Sequence[Block], offsets: dict[int, int]) -> int:
    """The highest end of these blocks in bytes."""
    return max((offsets[block.index] + block.size for block in blocks), default=0)
