"""Convolutions of 3x3 windows by tiles of 2x2 positions: sixteen products of transformed tiles by transformed filters.

A task is some rows of tiles and some panels of filters. It copies what tiles read, with channels innermost and zeros around
it, and transforms them once; panel by panel, sixteen products give what the sums of all positions are made of.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.transformed_weight import SIDE
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.lanes.panel_result import PanelResult, is_new_copy
from fuse_opt.lowering.cpu.convolution.tilings.winograd_tiling import winograd_tiling
from fuse_opt.lowering.cpu.convolution.winograd.tile_sums import Grid, TileSums
from fuse_opt.lowering.cpu.matmul.copies import Bounds, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


class WinogradTiles:
    """The loops of a task; `weight` holds transformed filters, `panel` of them side by side."""

    def __init__(
        self, convolution: Convolution, panel: int, weight: SSAValue, memory: KernelBuffers, root: Scope
    ) -> None:
        self.of, self.root, element = convolution.contraction, root, convolution.sums
        self.tiling = tiling = winograd_tiling(self.of.at_usual_batch(), panel, element.itemsize)
        x = root.block.args[memory.sources[convolution.x]]
        self.copy = ChannelCopy(self.of, tiling, x, element, root, fills=False)
        self.rows = tiling.joined_rows(element.itemsize)
        width = self.of.positions[2]
        self.result = PanelResult(convolution, memory, root, SIDE * self.rows * width, panel)
        lanes = vector_elements(element.name)
        self.tiles = RowTiles(element, panel // lanes, tiling.height, tiling.taller)
        self.grid = Grid(tiling.tile_columns, self.copy.pitch, width)
        self.sums = TileSums(root, convolution, tiling, weight, self.copy)
        self.counts = (self.of.batch, self.of.positions[0], *tiling.blocks)

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
            self.sums.transform(scope, count, self.grid)

        either(task, is_new_copy(task, number, some, self.counts), transform)
        last = task.add(arith.MinSIOp(rows[1], constant(of.positions[1])))
        height = task.add(arith.SubiOp(last, rows[0]))
        row = plus(task, times(task, first, of.positions[1]), rows[0])
        place = times(task, row, of.positions[2])

        def some_rows_of(scope: Scope, filter: SSAValue, line: SSAValue) -> None:
            end = scope.add(arith.MinSIOp(plus(scope, line, constant(self.rows)), count))
            self._join(scope, (line, end))
            below = scope.add(arith.MinSIOp(times(scope, end, SIDE), height))
            above = times(scope, line, SIDE)
            positions = times(scope, scope.add(arith.SubiOp(below, above)), of.positions[2])
            at = plus(scope, place, times(scope, above, of.positions[2]))
            self.result.store(scope, (filter, filters[1]), at, positions)

        def over(scope: Scope, build: Callable[[Scope, SSAValue, SSAValue], None]) -> None:
            def some_tiles(inner: Scope, line: SSAValue, tile: SSAValue) -> None:
                build(inner, tile, self.sums.tile(inner, line, self.tiles.first_row(inner, tile), self.grid))

            self.sums.each_tile(scope, (constant(0), count), tiling.tiles, some_tiles)

        def panel(scope: Scope, filter: SSAValue) -> None:
            self.sums.multiply(scope, filter, self.tiles, over)
            bounds = constant(0), count
            count_loop(scope, "joined", bounds, lambda s, line: some_rows_of(s, filter, line), self.rows)

        count_loop(task, "filter", filters, panel, tiling.panel)

    def _join(self, scope: Scope, lines: Bounds) -> None:
        """Sums of the positions of each tile; a last one may have one too many in a row."""
        whole, more = divmod(self.of.positions[2], SIDE)

        def joined(inner: Scope, line: SSAValue, tile: SSAValue, columns: int) -> None:
            self.sums.joined(inner, tile, (line, lines[0]), columns, self.result.sums, self.grid)

        self.sums.each_tile(scope, lines, whole, lambda s, line, tile: joined(s, line, tile, SIDE))
        if more:
            last = self.root.index_constant(whole)
            count_loop(scope, "line", lines, lambda s, line: joined(s, line, last, more))
