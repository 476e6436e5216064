"""A depthwise convolution whose result has its channels innermost: vectors are of channels, each of a sum of its own.

A task is some rows of positions of some channels. It copies what windows see there, with zeros around it, so that no tap asks
whether it is inside; of an input that has its channels innermost these are stretches of memory, of another one they are turned.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.lowering.c.headers.lane_tiles import lanes_name
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.lanes.lane_tasks import LaneTasks
from fuse_opt.lowering.cpu.convolution.tilings.lane_tiling import channels_side_by_side, lane_tiles, lane_tiling
from fuse_opt.lowering.cpu.matmul.copies import count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


class ChannelLanes(LaneTasks):
    """Row by row of positions: the sums of all channels of a task, and what follows from them."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        self.tiling = tiling = lane_tiling(convolution.contraction.at_usual_batch(), convolution.sums.itemsize)
        super().__init__(convolution, memory, root, tiling.width)
        self.copy = ChannelCopy(channels_side_by_side(self.of), tiling, self.x, self.element, root)
        product = self.of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.count, height, taller = lane_tiles(self.of)
        self.tiles = RowTiles(self.element, 1, height, taller)
        self.taps, self.turned = self.copy.tap_table(), self.stack("turned", self.of.taps)
        self.sums = self.stack("sums", tiling.columns)
        self.counts = (tiling.blocks[0], self.of.batch, self.of.positions[0], tiling.blocks[1])

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        panel, batch, first, row = task_parts(task, self.root, number, self.counts)
        rows = part_bounds(task, row, tiling.rows, of.positions[1])
        channels = part_bounds(task, panel, tiling.width, of.groups)
        task.indices = {self.epilogue.batch: batch}
        self.turn_weights(task, number, panel, channels)
        copy_lines = self.copy.lines(task, batch, panel, (first, rows, (constant(0), constant(tiling.columns))))

        def line(inner: Scope, place: SSAValue) -> None:
            row = inner.add(arith.SubiOp(place, rows[0]))
            copy_lines(inner, self.copy.new_lines(inner, row))
            self._tiles(inner, times(inner, row, self.copy.row_step))
            position = plus(inner, times(inner, first, of.positions[1]), place)
            position = times(inner, position, of.positions[2])
            sums, count = Sums(self.sums, tiling.columns, tiling.width), constant(tiling.columns)
            self.epilogue.emit(inner, sums, position, count, channels, channels[0])

        count_loop(task, "line", rows, line)

    def _tiles(self, scope: Scope, at: SSAValue) -> None:
        """The sums of a row of positions, of which the first one reads there."""
        width, constant = self.tiling.width, self.root.index_constant
        flat = [flat_memory(self.root, each) for each in (self.copy.memory, self.taps, self.turned, self.sums)]

        def tile(inner: Scope, number: SSAValue) -> None:
            column = self.tiles.first_row(inner, number)
            here = plus(inner, at, times(inner, column, self.copy.column_step))
            read = [constant(width), flat[0], here, constant(self.copy.column_step), flat[1], constant(self.of.taps)]
            weights = [flat[2], constant(0), constant(width)]
            sums = [flat[3], times(inner, column, width), constant(width)]
            self.tiles.each_part(
                inner,
                number,
                lambda s, part: s.call_for_effect(lanes_name(self.element.name, part.rows), [*read, *weights, *sums]),
            )

        count_loop(scope, "tile", (constant(0), constant(self.count)), tile)
