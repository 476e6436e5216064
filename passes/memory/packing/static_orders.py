"""Static orders in which first fit tries blocks: sorts by size, live load and lifetime.

Every order is total (the block's index breaks ties), so the same blocks always come in the same order.
"""

from collections.abc import Callable, Sequence

from fuse_opt.passes.memory.packing.first_fit import Block
from fuse_opt.passes.memory.packing.live_bytes import live_bytes, peak_of


def loads_at_births(blocks: Sequence[Block], positions: int) -> list[int]:
    """Bytes alive at each birth position; the largest is the most alive at any time, since loads only grow at births."""
    return live_bytes(((block.lo, block.hi, block.size) for block in blocks), positions)


class Loads:
    """What orders ask about live bytes: the position of the (first) global peak, and the most alive during a block's life.

    Built from at least one block. Maxima over all windows of 1, 2, 4, ... positions answer the second question in O(1).
    """

    def __init__(self, blocks: Sequence[Block], positions: int) -> None:
        row = loads_at_births(blocks, positions)
        self.positions = positions
        self.peak = peak_of(row)[1]
        self.rows = [row]
        while (window := 1 << len(self.rows)) <= positions:
            row = list(map(max, row, row[window // 2 :]))
            self.rows.append(row)

    def most(self, block: Block) -> int:
        """The most bytes alive at any time in the block's life."""
        level = (block.hi - block.lo).bit_length() - 1
        row = self.rows[level]
        return max(row[block.lo], row[block.hi - (1 << level)])

    def peak_first(self, block: Block, *rest: int) -> tuple[int, ...]:
        """A key that puts blocks alive at the peak first, by latest death and then earliest birth; the others by `rest`."""
        if block.lo <= self.peak < block.hi:
            return (0, -block.stop, block.start, -block.size)
        return (1, *rest)


Key = Callable[[Block, Loads], tuple[int, ...]]

KEYS: dict[str, Key] = {
    "peak-death-size": lambda b, loads: loads.peak_first(b, -b.size, b.start),
    "peak-death": lambda b, loads: loads.peak_first(b, -loads.most(b), -b.size, b.start),
    "peak": lambda b, loads: (-loads.most(b), -b.size, b.start),
    "size": lambda b, _: (-b.size, b.start - b.stop, b.start),
    "area": lambda b, _: (-b.size * (b.stop - b.start), -b.size, b.start),
    "life": lambda b, _: (b.start - b.stop, -b.size, b.start),
    "peak-life": lambda b, loads: (-loads.most(b), b.start - b.stop, -b.size),
    "time": lambda b, _: (b.start, -b.size, b.stop),
}
"""Sort keys by the order's name, the orders that are exact most often on real graphs first. A name reads from the first
criterion to the next: "peak-death-size" is alive at the peak, then latest death; the others by size."""


def static_order(name: str, blocks: Sequence[Block], loads: Loads) -> list[Block]:
    """The blocks sorted by the key of that name, then by index."""
    key = KEYS[name]
    return sorted(blocks, key=lambda block: (key(block, loads), block.index))
