"""A convolution as products of filters with what windows see, by tiles of sums in vector registers, without unfolding it.

Rows of a tile are filters, columns are neighbouring positions: the weight and the result are read and written where they
lie. A task is some rows of positions of a group's filters. It copies the rows of the input that their windows reach, with
zeros around them, or reads them where they lie; each tap reads this long row at a place of its own (an implicit product:
Chetlur et al. 2014, cuDNN, without a matrix of windows). Panel by panel, blocks of channels come in order, and what
follows is computed on a panel while a cache has it. The cut follows from extents alone: every number of threads gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.convolutions import Convolution, convolution_of
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.lowering.cpu.convolution.blocks import block_counts
from fuse_opt.lowering.cpu.convolution.input_copy import InputCopy, Origin, tap_offsets
from fuse_opt.lowering.cpu.convolution.tiling import ConvolutionTiling, Tile, choose_tiling
from fuse_opt.lowering.cpu.kernel import WORK_PER_CHUNK, KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Taps, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope


def build_convolution_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a convolution and pointwise ops. Raises Unschedulable."""
    convolution = convolution_of(kernel)
    tiling = choose_tiling(convolution.contraction, dtype(convolution.raw).itemsize)
    passes = [convolution.epilogue, _operand(convolution.x), _operand(convolution.weight)]
    memory = KernelBuffers(kernel, passes, storages)
    root = Scope(None, kernel_block(memory))
    body = _Task(convolution, tiling, memory, root)
    bounds = root.block.args[-2], root.block.args[-1]
    count_loop(root, "task", bounds, body.build)
    root.block.add_op(func.ReturnOp())
    grain = -(-WORK_PER_CHUNK * prod(body.counts) // max(convolution.contraction.operations, 1))
    return [KernelLoops(root.block, tuple(memory.parameters), memory.shared, prod(body.counts), grain, root.helpers)]


def _operand(value: SSAValue) -> LoopBody:
    """A pass that loads a value, so that the kernel has a buffer of it."""
    index = dimensions("i", shape(value))
    return LoopBody(index, shape(value), (), (), (ScalarNode(value, index, None),), ())


@dataclass(frozen=True, slots=True)
class _Place:
    """What a task works on: of filters, of the input, and where its positions end and have their results."""

    first_filter: SSAValue
    weight: Matrix
    """Of the first filter."""
    source: Matrix
    """Channels, of which the first position is at 0."""
    row: SSAValue
    """Of positions, the first one."""
    moved: SSAValue
    """What is added to a position to have that of its result, but for what lies between rows."""
    end: SSAValue


class _Task:
    """The body of a task."""

    def __init__(self, convolution: Convolution, tiling: ConvolutionTiling, memory: KernelBuffers, root: Scope) -> None:
        self.tiling, self.of, self.root = tiling, convolution.contraction, root
        element: DType = dtype(convolution.raw)
        of, block, product = self.of, tiling.block, convolution.contraction.product()
        self.element = element
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.counts = (of.batch, of.groups, *block_counts(of, block), of.filters // tiling.filters)
        sums = root.add(memref.AllocaOp.get(element.attribute, 64, [tiling.filters * tiling.columns]))
        sums.name_hint = "sums"
        self.sums = Sums(sums, tiling.filters, tiling.columns)
        self.taps = self._taps() if of.taps > 1 or of.channel_step != 1 else None
        self.copy = InputCopy(of, block, element, root, self._widest()) if block.copies else None

    def _widest(self) -> int:
        """Positions of a panel."""
        return max(tile.width for tile in (self.tiling.tile, self.tiling.last) if tile is not None)

    def _taps(self) -> Taps:
        """A table of places."""
        table = self.root.add(memref.AllocaOp.get(INDEX, 64, [self.of.taps]))
        table.name_hint = "taps"
        for number, offset in enumerate(tap_offsets(self.of, self.tiling.block)):
            value, place = (self.root.index_constant(n) for n in (offset, number))
            self.root.block.add_op(memref.StoreOp.get(value, table, [place]))
        return Taps(table, self.of.taps, self.of.channel_step)

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, block, constant = self.of, self.tiling, self.tiling.block, self.root.index_constant
        batch, group, first, row, column, some = task_parts(task, self.root, number, self.counts)
        rows = part_bounds(task, row, block.rows, of.positions[1])
        columns = part_bounds(task, column, block.columns, of.positions[2])
        first_filter = times(task, some, tiling.filters)
        image = plus(task, times(task, batch, of.groups), group)
        task.indices = {self.epilogue.batch: image}
        weight = plus(task, times(task, group, of.group_step), times(task, first_filter, of.filter_step))
        channels = times(task, image, of.channels * prod(of.extents))
        moved = times(task, first, of.positions[1] * of.positions[2])
        if self.copy is not None:
            copy, origin = self.copy, Origin(first, rows[0], columns[0], channels)
            either(task, self._is_new(task, number, some), lambda inner: copy.build(inner, self.x, origin))
            source, start = Matrix(self.copy.memory, constant(0), self.copy.channel_step), constant(0)
            moved = plus(task, moved, times(task, rows[0], of.positions[2]), columns[0])
        else:
            at = plus(task, channels, times(task, first, of.extents[1] * of.extents[2]))
            source = Matrix(self.x, at, prod(of.extents))
            start = plus(task, times(task, rows[0], block.pitch), columns[0])
        last = task.add(arith.SubiOp(task.add(arith.SubiOp(rows[1], rows[0])), constant(1)))
        length = plus(task, times(task, last, block.pitch), task.add(arith.SubiOp(columns[1], columns[0])))
        end = plus(task, start, length)
        place = _Place(first_filter, Matrix(self.weight, weight, of.filter_step), source, rows[0], moved, end)
        count_loop(task, "position", (start, end), lambda s, at: self._panels(s, at, place), self.sums.step)

    def _is_new(self, task: Scope, number: SSAValue, some: SSAValue) -> SSAValue | bool:
        """Whether a task is the first one of its block of positions here: those of other filters find its copy."""
        if self.counts[-1] == 1:
            return True
        begins = task.add(arith.CmpiOp(number, self.root.block.args[-2], "eq"))
        return task.add(arith.OrIOp(begins, task.add(arith.CmpiOp(some, self.root.index_constant(0), "eq"))))

    def _panels(self, scope: Scope, first: SSAValue, place: _Place) -> None:
        """Some panels, from the first position on, and what follows from them."""
        after = scope.add(arith.MinSIOp(plus(scope, first, self.root.index_constant(self.sums.step)), place.end))
        tile, last, split = self.tiling.tile, self.tiling.last, after
        if last is not None:
            split = self._split(scope, first, after, last)
        start = self._start(scope, first, self._widest())
        count_loop(scope, "panel", (first, split), lambda s, at: self._panel(s, at, start, place, tile), tile.width)
        if last is not None:
            self._panel(scope, split, start, place, last)
        self._epilogue(scope, (first, after), start, place)

    def _split(self, scope: Scope, first: SSAValue, after: SSAValue, last: Tile) -> SSAValue:
        """Where the last panel begins, behind as few others as there must be."""
        constant, width = self.root.index_constant, self.tiling.tile.width
        rest = scope.add(arith.SubiOp(scope.add(arith.SubiOp(after, first)), constant(last.width - width + 1)))
        others = scope.add(arith.DivSIOp(scope.add(arith.MaxSIOp(rest, constant(0))), constant(width)))
        return plus(scope, first, times(scope, others, width))

    def _start(self, scope: Scope, position: SSAValue, width: int) -> SSAValue:
        """Where so wide a panel begins: the last one early, as nothing may be read behind the operand."""
        if self.copy is not None:
            return position
        last = (self.of.positions[1] - 1) * self.tiling.block.pitch + self.of.positions[2] - width
        return scope.add(arith.MinSIOp(position, self.root.index_constant(last)))

    def _panel(self, scope: Scope, position: SSAValue, first: SSAValue, place: _Place, tile: Tile) -> None:
        """All channels of a panel; its sums lie behind those of the `first` position."""
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        rows = RowTiles(self.element, tile.vectors, tile.height, tile.taller)
        start = self._start(scope, position, tile.width)
        column = scope.add(arith.SubiOp(start, first))

        def multiply(inner: Scope, number: SSAValue, channel: SSAValue, count: SSAValue, source: Matrix) -> None:
            row = rows.first_row(inner, number)
            at = plus(inner, place.weight.at, times(inner, channel, of.channel_step))
            weight = replace(place.weight, at=plus(inner, at, times(inner, row, of.filter_step)))
            sums = Matrix(self.sums.memory, plus(inner, column, times(inner, row, self.sums.step)), self.sums.step)
            rows.multiply(inner, number, count, weight, source, sums, channel, self.taps)

        def block(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.channels)))
            at = plus(inner, place.source.at, times(inner, channel, place.source.row), start)
            source = replace(place.source, at=at)
            tiles = constant(0), constant(tile.tiles)
            count_loop(inner, "tile", tiles, lambda s, number: multiply(s, number, channel, count, source))

        count_loop(scope, "channel", (constant(0), constant(of.channels)), block, tiling.channels)

    def _epilogue(self, scope: Scope, positions: Bounds, start: SSAValue, place: _Place) -> None:
        """Stores panels of the result, and what follows from it: for each filter the rows of positions that they have."""
        constant, pitch, length = self.root.index_constant, self.tiling.block.pitch, self.of.positions[2]

        def store(inner: Scope, row: SSAValue, bounds: Bounds) -> None:
            moved = plus(inner, place.moved, times(inner, row, length - pitch)) if length != pitch else place.moved
            columns = [plus(inner, bound, moved) for bound in bounds]
            self.epilogue.over_columns(inner, self.sums, columns, plus(inner, start, moved))

        def segment(inner: Scope, row: SSAValue) -> None:
            first = times(inner, row, pitch)
            lower = inner.add(arith.MaxSIOp(positions[0], first))
            store(inner, row, (lower, inner.add(arith.MinSIOp(positions[1], plus(inner, first, constant(length))))))

        def rows(inner: Scope) -> None:
            if length == pitch or self.tiling.block.rows == 1:
                store(inner, constant(0) if self.copy is not None else place.row, positions)
                return
            first = inner.add(arith.DivSIOp(positions[0], constant(pitch)))
            last = inner.add(arith.DivSIOp(inner.add(arith.SubiOp(positions[1], constant(1))), constant(pitch)))
            count_loop(inner, "line", (first, plus(inner, last, constant(1))), segment)

        self.epilogue.over_rows(scope, self.sums, place.first_filter, constant(self.tiling.filters), rows)
