"""A depthwise convolution whose input and result have their channels innermost, where most windows lie inside of the input.

A task is some rows of positions of some channels. Vectors are of channels, and the input is read where it lies: tiles of
neighbouring positions for windows that are inside along a row, position by position for those that are not. Taps that fall
outside, whose products would be zeros, are left out: what is left are neighbouring rows and columns of the window.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.lowering.c.headers.lane_tiles import inside_lanes_name
from fuse_opt.lowering.cpu.convolution.lanes.lane_tasks import LaneTasks
from fuse_opt.lowering.cpu.convolution.tilings.inside_tiling import inside, inside_tiles, inside_tiling, reads_inside
from fuse_opt.lowering.cpu.matmul.copies import Bounds, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


def has_lanes_inside(convolution: Convolution) -> bool:
    """Whether a convolution whose vectors are of channels reads its input where it lies."""
    of, itemsize = convolution.contraction, convolution.sums.itemsize
    return not convolution.widens and not of.flipped and reads_inside(of, itemsize)


class InsideLanes(LaneTasks):
    """Tile by tile of a row of positions: the sums of all channels of a task, and what follows from them."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        self.tiling = tiling = inside_tiling(convolution.contraction.at_usual_batch(), convolution.sums.itemsize)
        super().__init__(convolution, memory, root, tiling.width)
        product = self.of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.count, height, taller = inside_tiles(self.of)
        self.tiles = RowTiles(self.element, 1, height, taller)
        self.turned = self.stack("turned", self.of.taps)
        self.sums = self.stack("sums", height + (taller > 0))
        self.counts = (tiling.blocks[0], self.of.batch, tiling.blocks[1])

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling = self.of, self.tiling
        panel, batch, row = task_parts(task, self.root, number, self.counts)
        rows = part_bounds(task, row, tiling.rows, of.positions[1])
        channels = part_bounds(task, panel, tiling.width, of.groups)
        task.indices = {self.epilogue.batch: batch}
        self.turn_weights(task, number, panel, channels)
        image = plus(task, times(task, batch, of.x_steps()[0]), channels[0])
        count_loop(task, "line", rows, lambda inner, place: _Line(self, inner, image, place, channels).build(inner))

    def taps(self, scope: Scope, axis: int, place: SSAValue) -> tuple[Bounds, SSAValue]:
        """Of the position there, the taps along an axis that are inside, and the element that the first of all would read."""
        of, constant = self.of, self.root.index_constant
        dilation, taps = of.dilations[axis], constant(of.window[axis])
        start = scope.add(arith.SubiOp(times(scope, place, of.strides[axis]), constant(of.begins[axis])))

        def reached(bound: int) -> SSAValue:
            away = scope.add(arith.SubiOp(constant(bound + dilation - 1), start))
            away = scope.add(arith.MaxSIOp(away, constant(0)))
            return scope.add(arith.MinSIOp(scope.add(arith.DivSIOp(away, constant(dilation))), taps))

        return (reached(0), reached(of.extents[axis])), start


class _Line:
    """A row of positions: which rows of the window it has, and where their elements are."""

    def __init__(self, task: InsideLanes, scope: Scope, image: SSAValue, place: SSAValue, channels: Bounds) -> None:
        self.task, self.of, self.channels = task, task.of, channels
        _, line_step, self.column_step = self.of.x_steps()[3]
        self.tap_line = line_step * self.of.dilations[1]
        (first, last), start = task.taps(scope, 1, place)
        self.rows = scope.add(arith.SubiOp(last, first))
        self.at = plus(scope, image, times(scope, start, line_step), times(scope, first, self.tap_line))
        self.weight = times(scope, first, self.of.window[2] * task.tiling.width)
        self.position = times(scope, place, self.of.positions[2])
        self.lanes = scope.add(arith.SubiOp(channels[1], channels[0]))

    def build(self, scope: Scope) -> None:
        constant = self.task.root.index_constant
        first, last = inside(self.of, 2)
        for bounds in ((0, first), (last, self.of.positions[2])):
            if bounds[0] < bounds[1]:
                count_loop(scope, "column", (constant(bounds[0]), constant(bounds[1])), self._position)
        count_loop(scope, "tile", (constant(0), constant(self.task.count)), self._tile)

    def _position(self, scope: Scope, column: SSAValue) -> None:
        """A position of which not all taps of a row are inside."""
        (first, last), start = self.task.taps(scope, 2, column)
        taps = scope.add(arith.SubiOp(last, first))
        at = plus(scope, start, times(scope, first, self.of.dilations[2]))
        self._sum_up(scope, (1, 0), column, (at, taps, first))

    def _tile(self, scope: Scope, number: SSAValue) -> None:
        constant, of = self.task.root.index_constant, self.of
        column = plus(scope, self.task.tiles.first_row(scope, number), constant(inside(of, 2)[0]))
        start = scope.add(arith.SubiOp(times(scope, column, of.strides[2]), constant(of.begins[2])))
        seen = start, constant(of.window[2]), constant(0)
        self.task.tiles.each_part(
            scope, number, lambda inner, part: self._sum_up(inner, (part.rows, of.window[2]), column, seen)
        )

    def _sum_up(
        self, scope: Scope, tile: tuple[int, int], column: SSAValue, seen: tuple[SSAValue, SSAValue, SSAValue]
    ) -> None:
        """
        The sums of so many positions from a column on, and what follows; `seen`: the column of the input that the first tap
        reads, how many there are in a row, and which one it is.
        """
        task, of, constant = self.task, self.of, self.task.root.index_constant
        width, (at, taps, first) = task.tiling.width, seen
        x, turned, memory = (flat_memory(task.root, each) for each in (task.x, task.turned, task.sums))
        here = plus(scope, self.at, times(scope, at, self.column_step))
        weight = plus(scope, self.weight, times(scope, first, width))
        steps = [of.strides[2] * self.column_step, self.tap_line, of.dilations[2] * self.column_step]
        step, row, tap, wide = map(constant, (*steps, width))
        read = [self.lanes, x, here, step, self.rows, row, taps, tap]
        weights = [turned, weight, constant(of.window[2] * width), wide]
        name = inside_lanes_name(task.element.name, *tile)
        scope.call_for_effect(name, [*read, *weights, memory, constant(0), wide])
        sums, position = Sums(task.sums, tile[0], width), plus(scope, self.position, column)
        task.epilogue.emit(scope, sums, position, constant(tile[0]), self.channels, self.channels[0])
