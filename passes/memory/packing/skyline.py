"""The order of a rising skyline: blocks in the order in which they can go lowest when nothing may be put beneath anything."""

from collections.abc import Sequence
from heapq import heappop, heapreplace

from fuse_opt.passes.memory.packing.first_fit import Block, covering_nodes, tree_leaves

PATIENCE = 8
"""How often, per block and on average, a waiting block may turn out to be buried deeper before the search for an order ends."""


class Skyline:
    """The height in bytes reached at each birth position.

    A segment tree as in `Occupancy`, with a height where that has a set: `covered[node]` for what lives through all
    positions of the node, `touched[node]` for what lives at any of them.
    """

    def __init__(self, positions: int) -> None:
        self.leaves = tree_leaves(positions)
        self.covered = [0] * (2 * self.leaves)
        self.touched = [0] * (2 * self.leaves)

    def height(self, block: Block) -> int:
        """The greatest height in bytes during the block's life."""
        # The walks of `covering_nodes` and `nodes_above`, written out: this is where nearly all time goes.
        touched, covered, height = self.touched, self.covered, 0
        lo, hi = block.lo + self.leaves, block.hi + self.leaves
        first, last = lo >> 1, hi - 1 >> 1
        while lo < hi:
            if lo & 1:
                height = touched[lo] if touched[lo] > height else height
                lo += 1
            if hi & 1:
                hi -= 1
                height = touched[hi] if touched[hi] > height else height
            lo, hi = lo >> 1, hi >> 1
        while first:
            height = covered[first] if covered[first] > height else height
            height = covered[last] if covered[last] > height else height
            first, last = first >> 1, last >> 1
        return height

    def raise_to(self, height: int, block: Block) -> None:
        """Make the height at least `height` bytes during the block's life."""
        for node in covering_nodes(block.lo, block.hi, self.leaves):
            self.covered[node] = max(self.covered[node], height)
            while node and self.touched[node] < height:
                self.touched[node] = height
                node >>= 1


def skyline_order(ranked: Sequence[Block], positions: int) -> list[Block]:
    """Next is always the block that can go lowest on the skyline of those before; of equally low ones the first ranked.

    Offsets never fall along this order, as along the canonical solutions of MiniMalloc (Moffitt, ASPLOS 2023). To stay
    near-linear it gives up after `PATIENCE` updates per block, and the blocks still waiting follow as ranked.
    """
    skyline = Skyline(positions)
    waiting = [(0, rank) for rank in range(len(ranked))]
    updates = PATIENCE * (len(ranked) + 20_000)
    order: list[Block] = []
    while waiting and updates:
        known, rank = waiting[0]
        block = ranked[rank]
        if (height := skyline.height(block)) > known:
            heapreplace(waiting, (height, rank))
            updates -= 1
            continue
        heappop(waiting)
        skyline.raise_to(height + block.size, block)
        order.append(block)
    return order + [ranked[rank] for rank in sorted(rank for _, rank in waiting)]
