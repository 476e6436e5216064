"""Tasks of tiles of 2x2 positions of images of any extents: a block of tiles, whose numbers are those of the call.

Tiles of a block lie one behind the other, whatever rows they are of: products go over all of them at once. What is left over of
tiles of registers are rows of their own there.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.transformed_weight import SIDE
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.any_extents.blocks import BlockTasks
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.lanes.panel_result import PanelResult, is_new_copy
from fuse_opt.lowering.cpu.convolution.tilings.winograd_tiling import sized_winograd_tiling
from fuse_opt.lowering.cpu.convolution.winograd.tile_sums import Grid, TileSums
from fuse_opt.lowering.cpu.matmul.copies import Bounds, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds
from fuse_opt.lowering.kernel.scope import Scope


class SizedWinogradTiles(BlockTasks):
    """The loops of a task; `weight` holds transformed filters, `panel` of them side by side."""

    def __init__(
        self, convolution: Convolution, panel: int, weight: SSAValue, memory: KernelBuffers, root: Scope
    ) -> None:
        super().__init__(convolution.contraction, root)
        of, self.element = self.of, convolution.sums
        self.tiling = tiling = sized_winograd_tiling(of.at_usual_batch(), panel, self.element.itemsize)
        self.extents = (-(-of.positions[1] // SIDE), -(-of.positions[2] // SIDE))
        self.cut(tiling.block_rows, tiling.parts, tiling.shares(of.filters))
        x = root.block.args[memory.sources[convolution.x]]
        self.copied = self._copied()
        self.copy = ChannelCopy(
            of, tiling, x, self.element, root, fills=False, sized=(self.copied, tiling.copied * tiling.width)
        )
        self.result = PanelResult(convolution, memory, root, tiling.positions, panel)
        self.sums = TileSums(root, convolution, tiling, weight, self.copy)

    def _copied(self) -> SSAValue:
        """From a row of the copy to the next one: as many positions as the longest part of a row has, and those around it."""
        root, constant, parts = self.root, self.root.index_constant, self.tiling.parts
        longest = constant(self.extents[1])
        if parts != 1:
            longest = root.add(arith.DivSIOp(plus(root, longest, constant(parts - 1)), constant(parts)))
        return times(root, plus(root, times(root, longest, SIDE), constant(SIDE)), self.tiling.width)

    def build(self, task: Scope, number: SSAValue) -> None:
        constant, (_, height, width) = self.root.index_constant, self.of.positions
        (batch, _, first, some), lines, tiles = self.place(task, number)
        filters = part_bounds(task, some, self.tiling.filters, self.of.filters)
        task.indices = {self.result.epilogue.batch: batch}
        count, columns = (task.add(arith.SubiOp(last, begin)) for begin, last in (lines, tiles))
        top, left = times(task, lines[0], SIDE), times(task, tiles[0], SIDE)
        right = task.add(arith.MinSIOp(times(task, tiles[1], SIDE), constant(width)))
        bottom = task.add(arith.MinSIOp(times(task, lines[1], SIDE), constant(height)))
        positions = task.add(arith.SubiOp(right, left))
        grid = Grid(columns, self.copied, positions)

        def transform(scope: Scope) -> None:
            ends = [times(scope, each, SIDE) for each in (*lines, *tiles)]
            self.copy.build(scope, batch, constant(0), (first, (ends[0], ends[1]), (ends[2], ends[3])))
            self.sums.transform(scope, count, grid)

        either(task, is_new_copy(task, number, some, self.counts), transform)
        row = plus(task, times(task, first, height), top)
        place = plus(task, times(task, row, width), left)
        rows = task.add(arith.SubiOp(bottom, top))
        is_whole = task.add(arith.CmpiOp(positions, constant(width), "eq"))
        registers = RowTiles(
            self.element, self.tiling.panel // vector_elements(self.element.name), self.tiling.height, 0,
            task.add(arith.MuliOp(count, columns)),
        )  # fmt: skip
        fitting = times(task, positions, SIDE)
        joined = task.add(arith.MaxSIOp(task.add(arith.DivSIOp(constant(self.tiling.positions), fitting)), constant(1)))

        def some_rows_of(scope: Scope, filter: SSAValue, line: SSAValue) -> None:
            end = scope.add(arith.MinSIOp(plus(scope, line, joined), count))
            self._join(scope, (line, end), grid, positions)
            above = times(scope, line, SIDE)
            below = scope.add(arith.MinSIOp(times(scope, end, SIDE), rows))
            at = plus(scope, place, times(scope, above, width))
            self._store(scope, (filter, filters[1]), at, scope.add(arith.SubiOp(below, above)), positions, is_whole)

        def panel(scope: Scope, filter: SSAValue) -> None:
            self.sums.multiply(scope, filter, registers, lambda s, build: self._over(s, registers, build))
            bounds = constant(0), count
            count_loop(scope, "joined", bounds, lambda s, line: some_rows_of(s, filter, line), joined)

        count_loop(task, "filter", filters, panel, self.tiling.panel)

    def _over(self, scope: Scope, registers: RowTiles, build: Callable[[Scope, SSAValue, SSAValue], None]) -> None:
        """All tiles of registers of a block."""
        constant, every = self.root.index_constant, registers.every
        assert isinstance(every, SSAValue)
        tiles = plus(scope, every, constant(registers.height - 1))
        tiles = scope.add(arith.DivSIOp(tiles, constant(registers.height)))
        count_loop(scope, "tile", (constant(0), tiles), lambda s, tile: build(s, tile, registers.first_row(s, tile)))

    def _join(self, scope: Scope, lines: Bounds, grid: Grid, positions: SSAValue) -> None:
        """Sums of the positions of each tile; a last one may have one too many in a row."""
        whole = scope.add(arith.DivSIOp(positions, self.root.index_constant(SIDE)))

        def joined(inner: Scope, line: SSAValue, tile: SSAValue, columns: int) -> None:
            self.sums.joined(inner, tile, (line, lines[0]), columns, self.result.sums, grid)

        self.sums.each_tile(scope, lines, whole, lambda s, line, tile: joined(s, line, tile, SIDE))
        is_odd = scope.add(arith.CmpiOp(times(scope, whole, SIDE), positions, "ne"))
        either(
            scope, is_odd,
            lambda inner: count_loop(inner, "line", lines, lambda s, line: joined(s, line, whole, SIDE - 1)),
        )  # fmt: skip

    def _store(
        self, scope: Scope, filters: Bounds, place: SSAValue, rows: SSAValue, positions: SSAValue, is_whole: SSAValue
    ) -> None:
        """What follows from the sums of so many rows of positions: of all at once where they lie one behind the other."""
        constant = self.root.index_constant
        count = scope.add(arith.SelectOp(is_whole, constant(1), rows))
        all_positions = scope.add(arith.MuliOp(rows, positions))
        length = scope.add(arith.SelectOp(is_whole, all_positions, positions))

        def some(inner: Scope, row: SSAValue) -> None:
            at = times(inner, inner.add(arith.MuliOp(row, positions)), self.tiling.panel)
            target = plus(inner, place, times(inner, row, self.of.positions[2]))
            self.result.store(inner, filters, target, length, at)

        count_loop(scope, "row", (constant(0), count), some)
