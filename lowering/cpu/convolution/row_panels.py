"""Sums of neighbouring filters side by side, whatever the order of what is read and stored: rows of a tile are positions.

A task is some rows of positions and some panels of filters. It copies what windows see there with channels innermost and zeros
around it, and each tap of each position reads a stretch of channels; sums are turned where neighbours in the result are
positions.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.panel_result import PanelResult, is_new_copy
from fuse_opt.lowering.cpu.convolution.tilings.row_panel_tiling import row_panel_tiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Taps, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


class RowPanels:
    """Panel by panel of filters, tiles of all positions of a task."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        assert convolution.panel is not None
        self.of, self.root, self.element = convolution.contraction, root, convolution.sums
        self.tiling = tiling = row_panel_tiling(self.of.at_usual_batch(), convolution.panel, self.element.itemsize)
        x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.copy = ChannelCopy(self.of, tiling, x, self.element, root, fills=False)
        self.taps = Taps(self.copy.tap_table(), self.of.taps, 1)
        self.result = PanelResult(convolution, memory, root, tiling.rows * tiling.columns, tiling.panel)
        self.sums = self.result.sums
        vectors = tiling.panel // vector_elements(self.element.name)
        self.tiles = RowTiles(self.element, vectors, tiling.height, tiling.taller)
        self.counts = (self.of.batch, self.of.positions[0], *tiling.blocks)

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        batch, first, row, some = task_parts(task, self.root, number, self.counts)
        rows = part_bounds(task, row, tiling.rows, of.positions[1])
        filters = part_bounds(task, some, tiling.filters, of.filters)
        task.indices = {self.result.epilogue.batch: batch}
        block = first, rows, (constant(0), constant(tiling.columns))
        either(
            task, is_new_copy(task, number, some, self.counts), lambda s: self.copy.build(s, batch, constant(0), block)
        )
        position = plus(task, times(task, first, of.positions[1]), rows[0])
        place = times(task, position, of.positions[2])
        count = task.add(arith.SubiOp(rows[1], rows[0]))
        count_loop(
            task, "filter", filters, lambda s, at: self._panel(s, (at, filters[1]), place, count), tiling.panel
        )  # fmt: skip

    def _panel(self, scope: Scope, filters: Bounds, place: SSAValue, lines: SSAValue) -> None:
        """All positions of a panel, and what follows from them; the first one's result lies at `place`."""
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        weight = Matrix(self.weight, times(scope, filters[0], of.channels * of.taps), tiling.panel)

        def block(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.channels)))
            right = weight.moved(inner, times(inner, channel, of.taps), constant(0))
            count_loop(
                inner, "line", (constant(0), lines),
                lambda s, line: self._line(s, line, (channel, count), right),
            )  # fmt: skip

        count_loop(scope, "channel", (constant(0), constant(of.channels)), block, tiling.channels)
        self.result.store(scope, filters, place, times(scope, lines, tiling.columns))

    def _line(self, scope: Scope, line: SSAValue, channels: tuple[SSAValue, SSAValue], right: Matrix) -> None:
        """The tiles of a row of positions; sums over so many channels are added to those of channels before."""
        tiling, (channel, count) = self.tiling, channels
        first = plus(scope, times(scope, line, self.copy.row_step), channel)

        def tile(inner: Scope, number: SSAValue) -> None:
            column = self.tiles.first_row(inner, number)
            at = plus(inner, first, times(inner, column, self.copy.column_step))
            seen = Matrix(self.copy.memory, at, self.copy.column_step)
            position = plus(inner, times(inner, line, tiling.columns), column)
            sums = self.sums.moved(inner, position, self.root.index_constant(0))
            ahead = self._ahead(inner, plus(inner, times(inner, line, tiling.tiles), number), count)
            self.tiles.multiply(inner, number, count, seen, right, sums, channel, self.taps, ahead, side_by_side=False)

        count_loop(scope, "tile", (self.root.index_constant(0), self.root.index_constant(tiling.tiles)), tile)

    def _ahead(self, scope: Scope, tile: SSAValue, channels: SSAValue) -> SSAValue:
        """Where a tile asks for its part of the next block of filters, which lies behind this one: a line in each step."""
        steps, lines = times(scope, channels, self.of.taps), self.tiles.vectors
        part = scope.add(arith.MinSIOp(tile, self.root.index_constant(lines - 1)))
        next_block = times(scope, steps, self.tiling.panel)
        return plus(scope, next_block, times(scope, scope.add(arith.MuliOp(steps, part)), self.tiling.panel // lines))
