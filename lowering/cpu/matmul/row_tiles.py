"""Rows in tiles of equal heights, and of one row more: where each begins, and the call that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.c.headers.product_tiles import tile_name, vector_elements
from fuse_opt.lowering.cpu.matmul.copies import Matrix, plus, times
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import INDEX, Scope


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
class RowTiles:
    """
    Tiles of `height` rows, and the first `taller` of one more, of so many vectors beside each other. Where all `rows` are a size,
    heights are equal ones or differ by one, too, and follow from it at the call: `height` is the most.
    """

    element: DType
    vectors: int
    height: int
    taller: int
    every: Extent | None = None
    """All rows, where they are a size."""

    def first_row(self, scope: Scope, tile: SSAValue) -> SSAValue:
        if self.every is not None:
            height, taller = self._cut(scope, self.every)
            before = scope.add(arith.MinSIOp(tile, taller))
            return plus(scope, scope.add(arith.MuliOp(tile, height)), before)
        row = times(scope, tile, self.height)
        if not self.taller:
            return row
        return plus(scope, row, scope.add(arith.MinSIOp(tile, scope.root.index_constant(self.taller))))

    def rows(self, scope: Scope, tile: SSAValue) -> SSAValue:
        """Of a tile."""
        constant = scope.root.index_constant
        if self.every is not None:
            height, taller = self._cut(scope, self.every)
            is_taller = scope.add(arith.CmpiOp(tile, taller, "slt"))
            return scope.add(arith.SelectOp(is_taller, plus(scope, height, constant(1)), height))
        if not self.taller:
            return constant(self.height)
        is_taller = scope.add(arith.CmpiOp(tile, constant(self.taller), "slt"))
        return scope.add(arith.SelectOp(is_taller, constant(self.height + 1), constant(self.height)))

    def each_height(
        self, scope: Scope, tile: SSAValue, build: Callable[[Scope, int], None], is_first: bool = False
    ) -> None:
        """Code for a tile, which may be known to be the first one, given how many rows it has."""
        if self.every is not None:
            _each_of(scope, self.rows(scope, tile), self.height, build)
            return
        taller: SSAValue | bool = is_first and self.taller > 0
        if self.taller and not is_first:
            taller = scope.add(arith.CmpiOp(tile, scope.root.index_constant(self.taller), "slt"))
        either(scope, taller, lambda inner: build(inner, self.height + 1), lambda inner: build(inner, self.height))

    def _cut(self, scope: Scope, rows: Extent) -> tuple[SSAValue, SSAValue]:
        """The least height of a tile, and how many tiles have one row more."""
        root = scope.root
        every, tiles = root.index_constant(rows), root.index_constant(-(-rows // self.height))
        cut = ("tiles", rows, self.height)
        height = root.made((*cut, "height"), lambda: arith.DivSIOp(every, tiles))
        return height, root.made((*cut, "taller"), lambda: arith.RemSIOp(every, tiles))

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
        arguments = [depth]
        for matrix in (left, right, sums):
            arguments += [flat_memory(scope.root, matrix.memory), matrix.at, constant(matrix.row)]
        arguments.append(add)
        if taps is not None:
            count = constant(taps.count) if isinstance(taps.count, int) else taps.count
            table = [flat_memory(scope.root, taps.offsets), count]
            arguments += [constant(taps.step), *table] if ahead is None else [*table, ahead]
            if taps.chosen is not None:
                arguments.append(flat_memory(scope.root, taps.chosen))
        by_taps = "taps" if taps is None or taps.chosen is None else "chosen"
        kind = "tile" if taps is None else "windows" if ahead is not None else by_taps
        self.each_height(
            scope,
            tile,
            lambda inner, rows: inner.call_for_effect(
                tile_name(self.element.name, rows, columns, turned or (ahead is not None and side_by_side), kind),
                arguments,
            ),
        )


Build = Callable[[Scope], None]


def _each_of(scope: Scope, value: SSAValue, most: int, build: Callable[[Scope, int], None]) -> None:
    """Code for each number from `most` down to 1 that a value may be."""
    if most == 1:
        build(scope, 1)
        return
    found = scope.add(arith.CmpiOp(value, scope.root.index_constant(most), "eq"))
    either(scope, found, lambda inner: build(inner, most), lambda inner: _each_of(inner, value, most - 1, build))


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
