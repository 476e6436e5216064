"""Rows in tiles of equal heights, and of one row more: where each begins, and the call that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.c.headers.product_tiles import tile_name, vector_elements
from fuse_opt.lowering.cpu.matmul.copies import Matrix, count_loop, multiple_of, plus, times
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import INDEX, Scope

FOUR = 4
"""Rows, of parts of tiles that have fewer vectors: their sums are as many as a processor adds to at a time."""


@dataclass(frozen=True, slots=True)
class Taps:
    """Places from which each row of a right operand is read, for elements of the left one that lie side by side."""

    offsets: SSAValue
    """In memory."""
    count: int | SSAValue
    step: int
    """In the left operand, from the taps of a row of the right one to those of the next."""
    chosen: SSAValue | None = None
    """In memory, where the left operand's elements are, if they do not lie side by side."""


def tap_table(root: Scope, places: Sequence[SSAValue]) -> SSAValue:
    """Memory on the stack with such places."""
    table = root.add(memref.AllocaOp.get(INDEX, 64, [max(len(places), 1)]))
    table.name_hint = "taps"
    for number, place in enumerate(places):
        root.block.add_op(memref.StoreOp.get(place, table, [root.index_constant(number)]))
    return table


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sums over the taps of a window: where their weights are, where they read, and where sums go."""

    weight: Matrix
    """Of the first filter of a task."""
    channel_step: int
    """From the weights of a channel to those of the next one."""
    taps: Taps | None
    sums: SSAValue


@dataclass(frozen=True, slots=True)
class TilePart:
    """What one function computes of a tile."""

    rows: int
    """Of the function."""
    at: SSAValue | None = None
    """The first of them in the tile; None for that."""
    is_whole: SSAValue | None = None
    """Whether they all are rows of the tile, if that is not known: else the first one takes the places of all."""

    def step(self, scope: Scope, distance: Extent) -> SSAValue:
        """From one of them to the next, in a matrix whose rows are so far apart."""
        step = scope.root.index_constant(distance)
        if self.is_whole is None:
            return step
        return scope.add(arith.SelectOp(self.is_whole, step, scope.root.index_constant(0)))

    def place(self, scope: Scope, row: SSAValue) -> SSAValue:
        """Of the first of them, in a matrix where the tile begins with this row."""
        return row if self.at is None else plus(scope, row, self.at)


@dataclass(frozen=True, slots=True)
class RowTiles:
    """
    Tiles of `height` rows, and the first `taller` of one more, of so many vectors beside each other. Where all `rows` are a size,
    the last tile has what is left over, in parts of a few heights, as compiling a function for each takes long.
    """

    element: DType
    vectors: int
    height: int
    taller: int
    every: Extent | SSAValue | None = None
    """All rows, where they are a size, or computed."""

    def first_row(self, scope: Scope, tile: SSAValue) -> SSAValue:
        row = times(scope, tile, self.height)
        if self.every is not None:
            return scope.add(arith.MinSIOp(row, self._every(scope)))
        if not self.taller:
            return row
        return plus(scope, row, scope.add(arith.MinSIOp(tile, scope.root.index_constant(self.taller))))

    def rows(self, scope: Scope, tile: SSAValue) -> SSAValue:
        """Of a tile."""
        constant = scope.root.index_constant
        if self.every is not None:
            left_over = scope.add(arith.SubiOp(self._every(scope), times(scope, tile, self.height)))
            return scope.add(arith.MinSIOp(left_over, constant(self.height)))
        if not self.taller:
            return constant(self.height)
        is_taller = scope.add(arith.CmpiOp(tile, constant(self.taller), "slt"))
        return scope.add(arith.SelectOp(is_taller, constant(self.height + 1), constant(self.height)))

    def _every(self, scope: Scope) -> SSAValue:
        assert self.every is not None
        return self.every if isinstance(self.every, SSAValue) else scope.root.index_constant(self.every)

    def each_part(
        self,
        scope: Scope,
        tile: SSAValue,
        build: Callable[[Scope, TilePart], None],
        is_first: bool = False,
        repeats: bool = True,
    ) -> None:
        """
        Code for the parts of a tile, which may be known to be the first one; `repeats`: whether what is built may compute a row
        twice, in the place of the next one.
        """
        if self.every is not None:
            rows, most = self.rows(scope, tile), self.height
            is_whole = scope.add(arith.CmpiOp(rows, scope.root.index_constant(most), "eq"))
            either(
                scope,
                is_whole,
                lambda inner: build(inner, TilePart(most)),
                lambda inner: self._each_left_over(inner, rows, build, repeats),
            )
            return
        taller: SSAValue | bool = is_first and self.taller > 0
        if self.taller and not is_first:
            taller = scope.add(arith.CmpiOp(tile, scope.root.index_constant(self.taller), "slt"))
        either(
            scope,
            taller,
            lambda inner: build(inner, TilePart(self.height + 1)),
            lambda inner: build(inner, TilePart(self.height)),
        )

    def _each_left_over(
        self, scope: Scope, rows: SSAValue, build: Callable[[Scope, TilePart], None], repeats: bool
    ) -> None:
        """Code for fewer rows than a tile has: for fours if the tile is narrow, as twos wait there for sums, twos, and one."""
        constant = scope.root.index_constant
        at = constant(0)

        def over(height: int, end: SSAValue) -> None:
            nonlocal at
            count_loop(scope, "row", (at, end), lambda inner, row: build(inner, TilePart(height, row)), height)
            at = end

        if self.height > FOUR > self.vectors:
            over(FOUR, multiple_of(scope, rows, FOUR))
        if not repeats:
            over(2, multiple_of(scope, rows, 2))
            over(1, rows)
            return

        def two(inner: Scope, row: SSAValue) -> None:
            is_whole = inner.add(arith.CmpiOp(plus(inner, row, constant(1)), rows, "slt"))
            build(inner, TilePart(2, row, is_whole))

        count_loop(scope, "row", (at, rows), two, 2)

    def multiply(
        self,
        scope: Scope,
        tile: SSAValue,
        depth: SSAValue,
        left: Matrix,
        right: Matrix,
        sums: Matrix,
        add: SSAValue,
        taps: Taps | None = None,
        ahead: SSAValue | None = None,
        side_by_side: bool = True,
        turned: bool = False,
    ) -> None:
        """
        Sums, from the tile's first row on, are products over so much depth, at each tap where there are some; they are added
        to where `add` is not 0. A `turned` left operand has rows beside each other: its own are what is contracted. With
        `ahead` it has, too, if they are `side_by_side`, and is the one that taps move; what is read later of the right one is
        asked for that far from where it is.
        """
        columns, constant = self.vectors * vector_elements(self.element.name), scope.root.index_constant
        ends = [add]
        if taps is not None:
            count = constant(taps.count) if isinstance(taps.count, int) else taps.count
            table = [flat_memory(scope.root, taps.offsets), count]
            ends += [constant(taps.step), *table] if ahead is None else [*table, ahead]
            if taps.chosen is not None:
                ends.append(flat_memory(scope.root, taps.chosen))
        by_taps = "taps" if taps is None or taps.chosen is None else "chosen"
        kind = "tile" if taps is None else "windows" if ahead is not None else by_taps
        transposed, zero = turned or (ahead is not None and side_by_side), constant(0)

        def call(inner: Scope, part: TilePart) -> None:
            arguments = [depth]
            for matrix in (left, right, sums):
                at, step = matrix.at, constant(matrix.row)
                if part.at is not None and matrix is not right:
                    at, step = matrix.place(inner, part.at, zero), part.step(inner, matrix.row)
                arguments += [flat_memory(scope.root, matrix.memory), at, step]
            name = tile_name(self.element.name, part.rows, columns, transposed, kind)
            inner.call_for_effect(name, arguments + ends)

        self.each_part(scope, tile, call)


Build = Callable[[Scope], None]


def either(scope: Scope, condition: SSAValue | bool, then: Build, otherwise: Build | None = None) -> None:
    """Code for a condition, which may be known already, and for its contrary."""
    if isinstance(condition, bool):
        build = then if condition else otherwise
        if build is not None:
            build(scope)
        return
    branches: list[Region] = []
    for build in (then, otherwise):
        inner = Scope(scope, Block())
        if build is not None:
            build(inner)
        inner.block.add_op(scf.YieldOp())
        branches.append(Region(inner.block))
    scope.block.add_op(scf.IfOp(condition, [], branches[0], branches[1]))
