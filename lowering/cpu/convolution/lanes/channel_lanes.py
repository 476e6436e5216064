"""A depthwise convolution whose result has its channels innermost: vectors are of channels, each of a sum of its own.

A task is some rows of positions of some channels. It copies what windows see there, with zeros around it, so that no tap asks
whether it is inside; of an input that has its channels innermost these are stretches of memory, of another one they are turned.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.lowering.c.headers.lane_tiles import lanes_name
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.tilings.lane_tiling import channels_side_by_side, lane_tiles, lane_tiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


class ChannelLanes:
    """Row by row of positions: the sums of all channels of a task, and what follows from them."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        self.of, self.root, self.element = convolution.contraction, root, convolution.sums
        self.tiling = tiling = lane_tiling(self.of.at_usual_batch(), self.element.itemsize)
        x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.copy = ChannelCopy(channels_side_by_side(self.of), tiling, x, self.element, root)
        product = self.of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.count, height, taller = lane_tiles(self.of)
        self.tiles = RowTiles(self.element, 1, height, taller)
        self.taps, self.turned = self.copy.tap_table(), self._memory("turned", self.of.taps)
        self.sums = self._memory("sums", tiling.columns)
        self.counts = (tiling.blocks[0], self.of.batch, self.of.positions[0], tiling.blocks[1])

    def _memory(self, name: str, rows: int) -> SSAValue:
        """On the stack, so many rows of the channels of a task."""
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [rows * self.tiling.width]))
        memory.name_hint = name
        return memory

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        panel, batch, first, row = task_parts(task, self.root, number, self.counts)
        rows = part_bounds(task, row, tiling.rows, of.positions[1])
        channels = part_bounds(task, panel, tiling.width, of.groups)
        task.indices = {self.epilogue.batch: batch}
        either(task, self._is_new(task, number, panel), lambda inner: self._turn(inner, channels))
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

    def _is_new(self, task: Scope, number: SSAValue, panel: SSAValue) -> SSAValue | bool:
        """Whether a task is the first one of its channels here: others find their weights."""
        rest = prod(self.counts[1:])
        if rest == 1:
            return True
        begins = task.add(arith.CmpiOp(number, self.root.block.args[-2], "eq"))
        first = task.add(arith.CmpiOp(number, times(task, panel, rest), "eq"))
        return task.add(arith.OrIOp(begins, first))

    def _turn(self, scope: Scope, channels: Bounds) -> None:
        """Has the weights of a tap side by side."""
        of, constant = self.of, self.root.index_constant
        source = Matrix(self.weight, times(scope, channels[0], of.group_step), 1, of.group_step)
        target = Matrix(self.turned, constant(0), self.tiling.width)
        count = scope.add(arith.SubiOp(channels[1], channels[0]))
        copy_matrix(scope, self.element, source, target, constant(of.taps), count)

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
