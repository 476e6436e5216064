"""Tiles of 2x2 positions in memory: what windows see of them, transformed, products by transformed filters, sums of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS, READ, SIDE
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, parallel_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.kernel.scope import Scope

Numbers = Sequence[SSAValue]


Distance = int | SSAValue
"""In elements, tiles or positions."""


class Cut(Protocol):
    """How a task's filters and channels are cut, and how tiles lie in memory."""

    @property
    def places(self) -> int:
        """Tiles of a task, at most."""
        ...

    @property
    def pitch(self) -> int:
        """From a tile's channels to those of the next one."""
        ...

    @property
    def panel(self) -> int:
        """Filters side by side."""
        ...

    @property
    def channels(self) -> int:
        """That are summed up at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Grid:
    """How the tiles of a task lie: numbers, or where extents are sizes what is computed of them."""

    columns: Distance
    """Tiles of a row."""
    copied: Distance
    """From a row of the copy to the next one."""
    positions: Distance
    """Of a row of sums."""


class TileSums:
    """Tiles in memory on the stack: transformed, multiplied and joined; `weight` holds transformed filters."""

    def __init__(self, root: Scope, convolution: Convolution, cut: Cut, weight: SSAValue, copy: ChannelCopy) -> None:
        self.root, self.of, self.cut, self.weight, self.copy = root, convolution.contraction, cut, weight, copy
        self.element = convolution.sums
        lanes = vector_elements(self.element.name)
        self.seen, self.seen_step = self._memory("transformed", cut.pitch, lanes)
        self.products, self.product_step = self._memory("products", cut.panel, lanes)

    def _memory(self, name: str, row: int, apart: int) -> tuple[Matrix, int]:
        """A row for each tile of a task, sixteen times, and how far these are apart: a vector more, or they evict each other."""
        step = self.cut.places * row + apart
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [PRODUCTS * step]))
        memory.name_hint = name
        return Matrix(memory, self.root.index_constant(0), row), step

    def each_tile(
        self, scope: Scope, lines: Bounds, columns: Distance, build: Callable[[Scope, SSAValue, SSAValue], None]
    ) -> None:
        """A loop over so many tiles of each of the rows of tiles."""
        zero, count = self.root.index_constant(0), self._number(columns)
        count_loop(
            scope, "line", lines,
            lambda outer, line: count_loop(outer, "tile", (zero, count), lambda s, tile: build(s, line, tile)),
        )  # fmt: skip

    def transform(self, scope: Scope, lines: SSAValue, grid: Grid) -> None:
        """B^T d B of all channels of so many rows of tiles."""
        bounds = self.root.index_constant(0), lines
        self.each_tile(scope, bounds, grid.columns, lambda s, line, tile: self._transformed(s, line, tile, grid))

    def _transformed(self, scope: Scope, line: SSAValue, column: SSAValue, grid: Grid) -> None:
        copy, constant = self.copy, self.root.index_constant
        first = plus(scope, self._far(scope, line, SIDE, grid.copied), times(scope, column, SIDE * copy.channels))
        at = [
            plus(scope, first, self._beside(scope, i, grid.copied, j * copy.channels))
            for i in range(READ)
            for j in range(READ)
        ]
        target = times(scope, self.tile(scope, line, column, grid), self.cut.pitch)
        to = [plus(scope, target, constant(n * self.seen_step)) for n in range(PRODUCTS)]

        def channel(inner: Scope, number: SSAValue) -> None:
            seen = [inner.add(memref.LoadOp.get(copy.memory, [plus(inner, place, number)])) for place in at]
            found = over_rows_and_columns(seen, READ, lambda each: _input(inner, each))
            for value, place in zip(found, to, strict=True):
                inner.block.add_op(memref.StoreOp.get(value, self.seen.memory, [plus(inner, place, number)]))

        parallel_loop(scope, "channel", (constant(0), constant(self.of.channels)), channel)

    def multiply(
        self,
        scope: Scope,
        filter: SSAValue,
        tiles: RowTiles,
        over: Callable[[Scope, Callable[[Scope, SSAValue, SSAValue], None]], None],
    ) -> None:
        """
        The sixteen products of a panel, over all tiles of a task, of some channels at a time; `over` calls what it is given for
        each tile of registers, with the number of this and its first row.
        """
        of, constant, cut = self.of, self.root.index_constant, self.cut
        panel = times(scope, filter, PRODUCTS * of.channels)

        def product(outer: Scope, number: SSAValue) -> None:
            at = plus(outer, panel, times(outer, number, of.channels * cut.panel))
            weight = Matrix(self.weight, at, cut.panel)
            seen = self.seen.moved(outer, constant(0), times(outer, number, self.seen_step))
            sums = self.products.moved(outer, constant(0), times(outer, number, self.product_step))

            def block(middle: Scope, channel: SSAValue) -> None:
                left, right = seen.moved(middle, constant(0), channel), weight.moved(middle, channel, constant(0))
                rest = middle.add(arith.SubiOp(constant(of.channels), channel))
                depth = middle.add(arith.MinSIOp(rest, constant(cut.channels)))

                def some(inner: Scope, tile: SSAValue, row: SSAValue) -> None:
                    places = left.moved(inner, row, constant(0)), right, sums.moved(inner, row, constant(0))
                    tiles.multiply(inner, tile, depth, *places, channel)

                over(middle, some)

            count_loop(outer, "channel", (constant(0), constant(of.channels)), block, cut.channels)

        count_loop(scope, "product", (constant(0), constant(PRODUCTS)), product)

    def tile(self, scope: Scope, line: SSAValue, column: SSAValue, grid: Grid) -> SSAValue:
        """The number of a tile of a task."""
        return plus(scope, times(scope, line, grid.columns), column)

    def joined(
        self, scope: Scope, column: SSAValue, lines: tuple[SSAValue, SSAValue], columns: int, sums: Matrix, grid: Grid
    ) -> None:
        """
        A^T m A of all filters of a panel: sums of the positions of a tile of a line, next to those of another, the first one; a
        last tile may have one column too many.
        """
        constant, (line, first_line) = self.root.index_constant, lines
        first = times(scope, self.tile(scope, line, column, grid), self.cut.panel)
        at = [plus(scope, first, constant(n * self.product_step)) for n in range(PRODUCTS)]
        line = scope.add(arith.SubiOp(line, first_line))
        place = plus(scope, self._far(scope, line, SIDE, grid.positions), times(scope, column, SIDE))
        to = [
            sums.place(scope, plus(scope, place, self._beside(scope, i, grid.positions, j)), constant(0))
            for i in range(SIDE)
            for j in range(columns)
        ]

        def filter(inner: Scope, number: SSAValue) -> None:
            products = [inner.add(memref.LoadOp.get(self.products.memory, [plus(inner, p, number)])) for p in at]
            found = over_rows_and_columns(products, READ, lambda each: _output(inner, each))
            kept = [found[SIDE * i + j] for i in range(SIDE) for j in range(columns)]
            for value, target in zip(kept, to, strict=True):
                inner.block.add_op(memref.StoreOp.get(value, sums.memory, [plus(inner, target, number)]))

        parallel_loop(scope, "filter", (constant(0), constant(self.cut.panel)), filter)

    def _number(self, distance: Distance) -> SSAValue:
        return self.root.index_constant(distance) if isinstance(distance, int) else distance

    def _far(self, scope: Scope, value: SSAValue, factor: int, distance: Distance) -> SSAValue:
        if isinstance(distance, int):
            return times(scope, value, factor * distance)
        return times(scope, times(scope, value, factor), distance)

    def _beside(self, scope: Scope, rows: int, distance: Distance, more: int) -> SSAValue:
        """So many rows that are so far apart, and elements more."""
        constant = self.root.index_constant
        if isinstance(distance, int):
            return constant(rows * distance + more)
        return plus(scope, times(scope, constant(rows), distance), constant(more)) if rows else constant(more)


def over_rows_and_columns(values: Numbers, side: int, transform: Callable[[Numbers], Numbers]) -> list[SSAValue]:
    """A transformation of so many numbers, of the columns of a square of values, then of the rows of what that gives."""
    columns = [transform([values[side * i + j] for i in range(side)]) for j in range(side)]
    return [value for row in zip(*columns, strict=True) for value in transform(row)]


def _input(scope: Scope, d: Numbers) -> Numbers:
    """B^T times four numbers."""
    return [
        scope.add(arith.SubfOp(d[0], d[2])),
        scope.add(arith.AddfOp(d[1], d[2])),
        scope.add(arith.SubfOp(d[2], d[1])),
        scope.add(arith.SubfOp(d[1], d[3])),
    ]


def _output(scope: Scope, m: Numbers) -> Numbers:
    """A^T times four numbers."""
    plus, minus = scope.add(arith.AddfOp(m[1], m[2])), scope.add(arith.SubfOp(m[1], m[2]))
    return [scope.add(arith.AddfOp(m[0], plus)), scope.add(arith.SubfOp(minus, m[3]))]
