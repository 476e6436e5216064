"""Convolutions of 3x3 windows by tiles of 2x2 positions: sixteen products of transformed tiles by transformed filters.

A task is some rows of tiles and some panels of filters. It copies what tiles read, with channels innermost and zeros around
it, and transforms them once; panel by panel, sixteen products give what the sums of all positions are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS, READ, SIDE
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.panel_result import PanelResult, is_new_copy
from fuse_opt.lowering.cpu.convolution.tilings.winograd_tiling import winograd_tiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, parallel_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope

Numbers = Sequence[SSAValue]


class WinogradTiles:
    """The loops of a task; `weight` holds transformed filters, `panel` of them side by side."""

    def __init__(
        self, convolution: Convolution, panel: int, weight: SSAValue, memory: KernelBuffers, root: Scope
    ) -> None:
        self.of, self.root, self.element, self.weight = convolution.contraction, root, convolution.sums, weight
        self.tiling = tiling = winograd_tiling(self.of.at_usual_batch(), panel, self.element.itemsize)
        x = root.block.args[memory.sources[convolution.x]]
        self.copy = ChannelCopy(self.of, tiling, x, self.element, root, fills=False)
        self.joined = tiling.joined_rows(self.element.itemsize)
        self.result = PanelResult(convolution, memory, root, SIDE * self.joined * self.of.positions[2], panel)
        lanes = vector_elements(self.element.name)
        self.tiles = RowTiles(self.element, panel // lanes, tiling.height, tiling.taller)
        self.seen, self.seen_step = self._memory("transformed", tiling.pitch, lanes)
        self.products, self.product_step = self._memory("products", panel, lanes)
        self.counts = (self.of.batch, self.of.positions[0], *tiling.blocks)

    def _memory(self, name: str, row: int, apart: int) -> tuple[Matrix, int]:
        """A row for each tile of a task, sixteen times, and how far these are apart: a vector more, or they evict each other."""
        step = self.tiling.places * row + apart
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [PRODUCTS * step]))
        memory.name_hint = name
        return Matrix(memory, self.root.index_constant(0), row), step

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        batch, first, some_rows, some = task_parts(task, self.root, number, self.counts)
        lines = part_bounds(task, some_rows, tiling.tile_rows, tiling.all_rows)
        filters = part_bounds(task, some, tiling.filters, of.filters)
        task.indices = {self.result.epilogue.batch: batch}
        rows = times(task, lines[0], SIDE), times(task, lines[1], SIDE)
        count = task.add(arith.SubiOp(lines[1], lines[0]))

        def transform(scope: Scope) -> None:
            block = first, rows, (constant(0), constant(tiling.columns))
            self.copy.build(scope, batch, constant(0), block)
            self._each_tile(scope, (constant(0), count), tiling.tile_columns, self._transform)

        either(task, is_new_copy(task, number, some, self.counts), transform)
        last = task.add(arith.MinSIOp(rows[1], constant(of.positions[1])))
        height = task.add(arith.SubiOp(last, rows[0]))
        row = plus(task, times(task, first, of.positions[1]), rows[0])
        place = times(task, row, of.positions[2])

        def some_rows_of(scope: Scope, filter: SSAValue, line: SSAValue) -> None:
            end = scope.add(arith.MinSIOp(plus(scope, line, constant(self.joined)), count))
            self._join(scope, (line, end))
            below = scope.add(arith.MinSIOp(times(scope, end, SIDE), height))
            above = times(scope, line, SIDE)
            positions = times(scope, scope.add(arith.SubiOp(below, above)), of.positions[2])
            at = plus(scope, place, times(scope, above, of.positions[2]))
            self.result.store(scope, (filter, filters[1]), at, positions)

        def panel(scope: Scope, filter: SSAValue) -> None:
            self._multiply(scope, filter, count)
            bounds = constant(0), count
            count_loop(scope, "joined", bounds, lambda s, line: some_rows_of(s, filter, line), self.joined)

        count_loop(task, "filter", filters, panel, tiling.panel)

    def _each_tile(
        self, scope: Scope, lines: Bounds, columns: int, build: Callable[[Scope, SSAValue, SSAValue], None]
    ) -> None:
        """A loop over so many tiles of each of the rows of tiles."""
        zero, count = self.root.index_constant(0), self.root.index_constant(columns)
        count_loop(
            scope, "line", lines,
            lambda outer, line: count_loop(outer, "tile", (zero, count), lambda s, tile: build(s, line, tile)),
        )  # fmt: skip

    def _tile(self, scope: Scope, line: SSAValue, column: SSAValue) -> SSAValue:
        """The number of a tile of a task."""
        return plus(scope, times(scope, line, self.tiling.tile_columns), column)

    def _transform(self, scope: Scope, line: SSAValue, column: SSAValue) -> None:
        """B^T d B of all channels of a tile."""
        copy, constant = self.copy, self.root.index_constant
        first = plus(scope, times(scope, line, SIDE * copy.pitch), times(scope, column, SIDE * copy.channels))
        at = [
            plus(scope, first, constant(i * copy.pitch + j * copy.channels)) for i in range(READ) for j in range(READ)
        ]
        target = times(scope, self._tile(scope, line, column), self.tiling.pitch)
        to = [plus(scope, target, constant(n * self.seen_step)) for n in range(PRODUCTS)]

        def channel(inner: Scope, number: SSAValue) -> None:
            seen = [inner.add(memref.LoadOp.get(copy.memory, [plus(inner, place, number)])) for place in at]
            found = over_rows_and_columns(seen, READ, lambda each: _input(inner, each))
            for value, place in zip(found, to, strict=True):
                inner.block.add_op(memref.StoreOp.get(value, self.seen.memory, [plus(inner, place, number)]))

        parallel_loop(scope, "channel", (constant(0), constant(self.of.channels)), channel)

    def _multiply(self, scope: Scope, filter: SSAValue, lines: SSAValue) -> None:
        """The sixteen products of a panel, over all tiles of a task, of some channels at a time."""
        of, constant, tiling = self.of, self.root.index_constant, self.tiling
        panel = times(scope, filter, PRODUCTS * of.channels)

        def product(outer: Scope, number: SSAValue) -> None:
            at = plus(outer, panel, times(outer, number, of.channels * tiling.panel))
            weight = Matrix(self.weight, at, tiling.panel)
            seen = self.seen.moved(outer, constant(0), times(outer, number, self.seen_step))
            sums = self.products.moved(outer, constant(0), times(outer, number, self.product_step))

            def block(middle: Scope, channel: SSAValue) -> None:
                left, right = seen.moved(middle, constant(0), channel), weight.moved(middle, channel, constant(0))
                rest = middle.add(arith.SubiOp(constant(of.channels), channel))
                depth = middle.add(arith.MinSIOp(rest, constant(tiling.channels)))

                def some(inner: Scope, line: SSAValue, tile: SSAValue) -> None:
                    row = self._tile(inner, line, self.tiles.first_row(inner, tile))
                    places = left.moved(inner, row, constant(0)), right, sums.moved(inner, row, constant(0))
                    self.tiles.multiply(inner, tile, depth, *places, channel)

                self._each_tile(middle, (constant(0), lines), tiling.tiles, some)

            count_loop(outer, "channel", (constant(0), constant(of.channels)), block, tiling.channels)

        count_loop(scope, "product", (constant(0), constant(PRODUCTS)), product)

    def _join(self, scope: Scope, lines: Bounds) -> None:
        """A^T m A of all filters of a panel: sums of the positions of each tile; a last one may have one too many in a row."""
        whole, more = divmod(self.of.positions[2], SIDE)
        self._each_tile(scope, lines, whole, lambda s, line, tile: self._joined(s, line, tile, lines[0], SIDE))
        if more:
            last = self.root.index_constant(whole)
            count_loop(scope, "line", lines, lambda s, line: self._joined(s, line, last, lines[0], more))

    def _joined(self, scope: Scope, line: SSAValue, column: SSAValue, first_line: SSAValue, columns: int) -> None:
        """The sums of a tile, next to those of the first line."""
        constant, sums, row = self.root.index_constant, self.result.sums, self.of.positions[2]
        first = times(scope, self._tile(scope, line, column), self.tiling.panel)
        at = [plus(scope, first, constant(n * self.product_step)) for n in range(PRODUCTS)]
        line = scope.add(arith.SubiOp(line, first_line))
        place = plus(scope, times(scope, line, SIDE * row), times(scope, column, SIDE))
        to = [
            sums.place(scope, plus(scope, place, constant(i * row + j)), constant(0))
            for i in range(SIDE)
            for j in range(columns)
        ]

        def filter(inner: Scope, number: SSAValue) -> None:
            products = [inner.add(memref.LoadOp.get(self.products.memory, [plus(inner, p, number)])) for p in at]
            found = over_rows_and_columns(products, READ, lambda each: _output(inner, each))
            kept = [found[SIDE * i + j] for i in range(SIDE) for j in range(columns)]
            for value, target in zip(kept, to, strict=True):
                inner.block.add_op(memref.StoreOp.get(value, sums.memory, [plus(inner, target, number)]))

        parallel_loop(scope, "filter", (constant(0), constant(self.tiling.panel)), filter)


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
