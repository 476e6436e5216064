"""First fit for memory placement in about O(n log n): which bytes are taken at which births, and the lowest gap they leave.

Time here is the row of distinct birth steps. Two lifetimes overlap exactly when they share a birth step (the later of their
two), so a half-open range of positions in that row is all that placement needs to know about a lifetime.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heapreplace


@dataclass(frozen=True, slots=True)
class Block:
    """A buffer that takes up room: its index in the problem, its steps [start, stop) and birth positions [lo, hi).

    `size` (a multiple of the alignment) and `pin` are in bytes.
    """

    index: int
    size: int
    start: int
    stop: int
    lo: int
    hi: int
    pin: int | None


def occupy(bounds: list[int], low: int, high: int) -> bool:
    """Add bytes [low, high) to a set of disjoint intervals; False when all of them were in it already.

    The set is one ascending list of boundaries: start, stop, start, stop, ... An odd insertion point lies inside an interval.
    """
    at = bisect_right(bounds, low)
    if at & 1 and high <= bounds[at]:
        return False
    first, last = bisect_left(bounds, low), bisect_right(bounds, high)
    bounds[first:last] = ([] if first & 1 else [low]) + ([] if last & 1 else [high])
    return True


def lowest_gap(taken: Sequence[list[int]], size: int, floor: int, dense: Sequence[list[int]] = ()) -> int:
    """The lowest offset of at least `floor` bytes from which `size` bytes are free in all of these sets.

    Sets with few gaps are best given as `dense`: the others are asked only about gaps that those have in common.
    """
    offset = floor
    # Heaps of each set's next obstacle (at first not known, so `floor`): only the nearest one needs a look.
    first = [(floor, index) for index in range(len(dense))]
    rest = [(floor, index) for index in range(len(taken))]
    while True:
        while first and first[0][0] < offset + size:
            offset = pass_nearest(first, dense, size, offset)
        if not rest or rest[0][0] >= offset + size:
            return offset
        offset = pass_nearest(rest, taken, size, offset)


def pass_nearest(obstacles: list[tuple[int, int]], taken: Sequence[list[int]], size: int, offset: int) -> int:
    """The lowest offset of at least `offset` that is free in the set with the nearest obstacle; moves that obstacle on."""
    index = obstacles[0][1]
    bounds = taken[index]
    at = bisect_right(bounds, offset)
    if at & 1:
        offset = bounds[at]
        at += 1
    while at < len(bounds) and bounds[at] < offset + size:
        offset = bounds[at + 1]
        at += 2
    if at == len(bounds):
        heappop(obstacles)
    else:
        heapreplace(obstacles, (bounds[at], index))
    return offset


def tree_leaves(positions: int) -> int:
    """The leaves of a segment tree over so many positions (at least one): a power of two, so that all are equally deep."""
    return 1 << (positions - 1).bit_length()


def covering_nodes(lo: int, hi: int, leaves: int) -> Iterator[int]:
    """The O(log n) nodes of a bottom-up segment tree (root 1, parent i // 2) whose leaves are exactly [lo, hi)."""
    lo, hi = lo + leaves, hi + leaves
    while lo < hi:
        if lo & 1:
            yield lo
            lo += 1
        if hi & 1:
            hi -= 1
            yield hi
        lo, hi = lo >> 1, hi >> 1


def nodes_above(lo: int, hi: int, leaves: int) -> Iterator[int]:
    """The ancestors of the first and the last leaf of [lo, hi), each once."""
    left, right = lo + leaves >> 1, hi - 1 + leaves >> 1
    while left != right:
        yield left
        yield right
        left, right = left >> 1, right >> 1
    while left:
        yield left
        left >>= 1


UPPER_LEAVES = 64
"""How many nodes the lowest level of the upper part of an `Occupancy` has, at most."""


class Occupancy:
    """The bytes taken at each birth position: a segment tree over the positions, with two sets of byte intervals per node.

    `covered[node]` holds the blocks that live through all positions of the node (one entry per covering node). In the upper
    part of the tree `touched[node]` holds all blocks that live at any of its positions: with many long lives it has few gaps.
    In the lower part it leaves out those that cover a node above; so there, a range meets what touches its covering nodes and
    what covers a node above.
    """

    def __init__(self, positions: int) -> None:
        self.leaves = tree_leaves(positions)
        self.upper = min(self.leaves, UPPER_LEAVES)
        self.covered: list[list[int]] = [[] for _ in range(2 * self.leaves)]
        self.touched: list[list[int]] = [[] for _ in range(2 * self.leaves)]

    def add(self, block: Block, offset: int) -> None:
        """Take the block's bytes from `offset` on, for as long as it lives."""
        stop, upper = offset + block.size, self.upper
        for node in covering_nodes(block.lo, block.hi, self.leaves):
            occupy(self.covered[node], offset, stop)
            # A node above holds all that its children hold, so each climb ends at the first one that gains nothing.
            while node >= 2 * upper and occupy(self.touched[node], offset, stop):
                node >>= 1
        width = self.leaves // upper
        for node in range(upper + block.lo // width, upper + (block.hi - 1) // width + 1):
            while node and occupy(self.touched[node], offset, stop):
                node >>= 1

    def fit(self, block: Block, floor: int = 0) -> int:
        """The lowest offset of at least `floor` where the block meets nothing, in bytes."""
        lo, hi, leaves = block.lo, block.hi, self.leaves
        dense: list[list[int]] = []
        taken: list[list[int]] = []
        for node in covering_nodes(lo, hi, leaves):
            if bounds := self.touched[node]:
                (dense if node < 2 * self.upper else taken).append(bounds)
        taken += [bounds for node in nodes_above(lo, hi, leaves) if (bounds := self.covered[node])]
        return lowest_gap(taken, block.size, floor, dense)


def first_fit(
    pinned: Sequence[Block], order: Iterable[Block], positions: int, limit: int | None = None
) -> dict[int, int] | None:
    """Offsets in bytes by block index: the pinned ones at their pins, then those of `order`, each as low as is still free.

    None as soon as a block of `order` ends above `limit`. Raises ValueError for two pinned blocks that overlap.
    """
    occupancy = Occupancy(positions)
    offsets = place_pinned(pinned, occupancy)
    for block in order:
        offset = occupancy.fit(block)
        if limit is not None and offset + block.size > limit:
            return None
        occupancy.add(block, offset)
        offsets[block.index] = offset
    return offsets


def place_pinned(pinned: Sequence[Block], occupancy: Occupancy) -> dict[int, int]:
    """Take the pinned blocks' bytes; ValueError naming both when two of them overlap in time and in bytes."""
    offsets: dict[int, int] = {}
    for at, block in enumerate(pinned):
        if block.pin is None:
            raise ValueError(f"buffer {block.index} is not pinned")
        if occupancy.fit(block, block.pin) != block.pin:
            other = next(earlier for earlier in pinned[:at] if pins_overlap(earlier, block))
            raise ValueError(f"pinned buffers {other.index} and {block.index} overlap: {place(other)}, {place(block)}")
        occupancy.add(block, block.pin)
        offsets[block.index] = block.pin
    return offsets


def pins_overlap(a: Block, b: Block) -> bool:
    """Whether two pinned blocks share a step and a byte."""
    if a.pin is None or b.pin is None or a.stop <= b.start or b.stop <= a.start:
        return False
    return a.pin < b.pin + b.size and b.pin < a.pin + a.size


def place(block: Block) -> str:
    """Where a pinned block is, for error messages."""
    pin = block.pin or 0
    return f"bytes [{pin}, {pin + block.size}) in steps [{block.start}, {block.stop})"
