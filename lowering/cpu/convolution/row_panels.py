"""Sums of neighbouring filters side by side, whatever the order of what is read and stored: rows of a tile are positions.

A task is some rows of positions and some panels of filters. It copies what windows see there with channels innermost and zeros
around it, and each tap of each position reads a stretch of channels; sums are turned where neighbours in the result are
positions. Where they are filters, what follows is computed tile by tile, while a first cache has the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.product_copies import NEAR_BYTES
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.lanes.panel_result import PanelResult, is_new_copy
from fuse_opt.lowering.cpu.convolution.tilings.row_panel_tiling import row_panel_tiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.product_sums import FEWEST_STEPS
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Taps, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class _Panel:
    """What tiles of a panel and a block of channels have in common."""

    filters: Bounds
    """The first one, and where those of the task end."""
    place: SSAValue
    """Of the result of the task's first position."""
    channel: SSAValue
    """The first one."""
    count: SSAValue
    """Of channels."""
    is_last: SSAValue | bool
    """Whether no other block of channels follows."""
    right: Matrix


class RowPanels:
    """Panel by panel of filters, tiles of all positions of a task."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        assert convolution.panel is not None
        self.of, self.root, self.element = convolution.contraction, root, convolution.sums
        self.tiling = tiling = row_panel_tiling(self.of.at_usual_batch(), convolution.panel, self.element.itemsize)
        x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.copy = ChannelCopy(self.of, tiling, x, self.element, root, fills=False)
        self.taps = Taps(self.copy.tap_table(), self.of.taps, 1)
        vectors = tiling.panel // vector_elements(self.element.name)
        self.tiles = RowTiles(self.element, vectors, tiling.height, tiling.taller)
        self.by_tiles = self.of.result_last
        """Whether what follows is computed tile by tile, not for all positions of a panel."""
        self.is_alone = self.by_tiles and self.of.channels <= tiling.channels
        """Whether the sums of a tile are complete before those of the next one begin, which take their place."""
        positions = tiling.height + (tiling.taller > 0) if self.is_alone else tiling.rows * tiling.columns
        self.result = PanelResult(convolution, memory, root, positions, tiling.panel)
        self.sums = self.result.sums
        self.asks = self.by_tiles and self._is_worth_asking() and self.result.epilogue.find_asks(True)
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
            panel = _Panel(filters, place, channel, count, self._is_last_block(inner, channel), right)
            count_loop(inner, "line", (constant(0), lines), lambda s, line: self._line(s, line, panel))

        count_loop(scope, "channel", (constant(0), constant(of.channels)), block, tiling.channels)
        if not self.by_tiles:
            self.result.store(scope, filters, place, times(scope, lines, tiling.columns))

    def _is_worth_asking(self) -> bool:
        """Whether the result is in no near cache, and tiles take some time."""
        of, size = self.of, self.element.itemsize
        steps = min(of.channels, self.tiling.channels) * of.taps
        return prod(of.positions) * of.filters * size > NEAR_BYTES // 2 and steps >= FEWEST_STEPS

    def _is_last_block(self, scope: Scope, channel: SSAValue) -> SSAValue | bool:
        """Whether the block of channels that begins with this one is the last one."""
        if self.of.channels <= self.tiling.channels:
            return True
        after = plus(scope, channel, self.root.index_constant(self.tiling.channels))
        return scope.add(arith.CmpiOp(after, self.root.index_constant(self.of.channels), "sge"))

    def _line(self, scope: Scope, line: SSAValue, panel: _Panel) -> None:
        """The tiles of a row of positions; sums over so many channels are added to those of channels before."""
        tiling, channel, count = self.tiling, panel.channel, panel.count
        first = plus(scope, times(scope, line, self.copy.row_step), channel)

        def tile(inner: Scope, number: SSAValue) -> None:
            column = self.tiles.first_row(inner, number)
            at = plus(inner, first, times(inner, column, self.copy.column_step))
            seen = Matrix(self.copy.memory, at, self.copy.column_step)
            position = plus(inner, times(inner, line, tiling.columns), column)
            sums = self.sums if self.is_alone else self.sums.moved(inner, position, self.root.index_constant(0))
            place, rows = plus(inner, panel.place, position), self.tiles.rows(inner, number)
            if self.asks:
                either(inner, panel.is_last, lambda s: self.result.ask(s, panel.filters, place, rows))
            ahead = self._ahead(inner, plus(inner, times(inner, line, tiling.tiles), number), count)
            self.tiles.multiply(
                inner, number, count, seen, panel.right, sums, channel, self.taps, ahead, side_by_side=False
            )
            if self.by_tiles:
                either(inner, panel.is_last, lambda s: self.result.follow(s, panel.filters, place, rows, sums.at))

        count_loop(scope, "tile", (self.root.index_constant(0), self.root.index_constant(tiling.tiles)), tile)

    def _ahead(self, scope: Scope, tile: SSAValue, channels: SSAValue) -> SSAValue:
        """Where a tile asks for its part of the next block of filters, which lies behind this one: a line in each step."""
        steps, lines = times(scope, channels, self.of.taps), self.tiles.vectors
        part = scope.add(arith.MinSIOp(tile, self.root.index_constant(lines - 1)))
        next_block = times(scope, steps, self.tiling.panel)
        return plus(scope, next_block, times(scope, scope.add(arith.MuliOp(steps, part)), self.tiling.panel // lines))
