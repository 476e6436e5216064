"""What tiles ask for while they compute: the part of the right operand that is read after theirs, shared out among them.

The first tile of a block of rows waits for each line of that part, and reads a fifth as fast as others where it is in a third
cache; others read little that is far away, so they have the time to ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.lowering.c.headers.tile_steps import STEPS
from fuse_opt.lowering.cpu.matmul.copies import Matrix, times
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope

MOST_ROWS = 4
"""Of what a tile asks for at a time."""


@dataclass(frozen=True, slots=True)
class Asks:
    """
    The share of each tile: strips of a few lines, one below the other, of which the next rows are asked for at every few
    steps. Tiles go down the strips in turn, and from left to right.
    """

    rows: int
    """That are asked for at a time."""
    lines: int
    """Of each of them."""
    extents: tuple[int, int]
    """Rows of the part, as they lie in memory, and lines of each."""
    times: int
    """How often a tile asks, at most."""
    itemsize: int

    def arguments(self, scope: Scope, number: SSAValue, part: Matrix, exists: SSAValue) -> list[SSAValue]:
        """Of the tile of that number, for a part that begins where the matrix does, if it `exists`."""
        root = scope.root
        rows, lines = self.extents
        abreast = root.index_constant(-(-lines // self.lines))
        below = scope.add(arith.DivSIOp(number, abreast))
        beside = scope.add(arith.RemSIOp(number, abreast))
        place = part.moved(
            scope,
            times(scope, below, self.times * self.rows),
            times(scope, beside, self.lines * LANE_BYTES // self.itemsize),
        )
        every = scope.add(
            arith.SelectOp(exists, root.index_constant(-(-rows // self.rows) * STEPS), root.index_constant(0))
        )
        left = scope.add(arith.SubiOp(every, times(scope, below, self.times * STEPS)))
        return [flat_memory(root, place.memory), place.at, root.index_constant(place.row), left]


def shared_asks(tiles: int, extents: tuple[int, int], steps: int, itemsize: int) -> Asks | None:
    """
    For so many tiles of so many steps, and a part of some rows and lines: as few lines at a time as will do, or as many as
    are of use. None where no tile asks.
    """
    asked = steps // STEPS
    if tiles < 1 or asked < 1:
        return None
    rows, lines = extents
    found = [Asks(some, each, extents, asked, itemsize) for some in (1, 2, MOST_ROWS) for each in range(1, lines + 1)]
    enough = (one for one in found if -(-rows // (asked * one.rows)) * -(-lines // one.lines) <= tiles)
    return next(enough, found[-1])


@dataclass(frozen=True, slots=True)
class Following:
    """The part of the right operand that is read next, if there is one, as its rows lie in memory."""

    part: Matrix
    exists: SSAValue
    asks: Asks
    first: SSAValue | None = None
    """The first tile that asks."""

    def arguments(self, scope: Scope, tile: SSAValue) -> list[SSAValue]:
        """Those of a tile."""
        assert self.first is not None
        return self.asks.arguments(scope, scope.add(arith.SubiOp(tile, self.first)), self.part, self.exists)
