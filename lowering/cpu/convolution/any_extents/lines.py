"""Convolutions of windows of one element that lie at all elements, of images of any extents, read where these lie.

Positions of an image are one line. Its panels are summed up one after the other, over all channels; the last one of a block
begins earlier. A result that nothing follows is written where it goes. What is shorter than a panel is copied before, into
narrow ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.packed_panels import PLANE_STEP
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.lowering.cpu.convolution.any_extents.blocks import BlockTasks
from fuse_opt.lowering.cpu.convolution.any_extents.tiling import any_extents_tiling
from fuse_opt.lowering.cpu.convolution.tilings.tiling import Tile
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope


def reads_lines(convolution: Convolution) -> bool:
    """Whether a convolution is computed so: tiles read channels of a filter side by side; transposed weights have filters so."""
    of = convolution.contraction
    is_line = of.reads_in_place and of.taps == 1 and of.extents[:2] == of.positions[:2] == (1, 1) and not of.result_last
    return is_line and of.channel_step == 1 and dtype(convolution.x) is convolution.sums


@dataclass(frozen=True, slots=True)
class _Task:
    """The numbers of a task: where its first filter's weights are, its input and its result; its filters; its positions."""

    weight: SSAValue
    x: SSAValue
    result: SSAValue
    filter: SSAValue
    positions: Bounds


class LineTasks(BlockTasks):
    """A task is some filters at a block of positions."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        super().__init__(convolution.contraction, root)
        of, self.element = self.of, convolution.sums
        self.tiling = tiling = any_extents_tiling(of.at_usual_batch(), self.element.itemsize, memory.register_bits)
        self.cut(tiling.rows, tiling.parts, of.filters // tiling.filters)
        self.x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.result = root.block.args[memory.targets[0]] if convolution.is_alone and not memory.nontemporal else None
        product = of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.width, self.narrow = tiling.tile.width, tiling.narrow or tiling.tile
        self.sums = Sums(self._memory("sums", tiling.filters), tiling.filters, self.width)
        self.copy = self._memory("rows", tiling.channels, PLANE_STEP)

    def _memory(self, name: str, rows: int, more: int = 0) -> SSAValue:
        """On the stack, so many rows of a panel, and so many elements more."""
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [rows * self.width + more]))
        memory.name_hint = name
        return memory

    def build(self, task: Scope, number: SSAValue) -> None:
        of, filters = self.of, self.tiling.filters
        (batch, group, _, some), _, positions = self.place(task, number)
        image = plus(task, times(task, batch, of.groups), group)
        task.indices = {self.epilogue.batch: image}
        first = times(task, some, filters)
        sample_step, group_step, *_ = of.x_steps()
        channels = plus(task, times(task, batch, sample_step), times(task, group, group_step))
        weight = plus(task, times(task, group, of.group_step), times(task, first, of.filter_step))
        result = times(task, plus(task, times(task, image, of.filters), first), of.positions[2])
        found = _Task(weight, channels, result, first, positions)
        count = task.add(arith.SubiOp(positions[1], positions[0]))
        is_long = task.add(arith.CmpiOp(count, self.root.index_constant(self.width), "sge"))
        if self.result is None:
            self._stored_once(task, is_long, found)
        else:
            either(task, is_long, lambda s: self._in_place(s, found), lambda s: self._short(s, found))

    def _in_place(self, scope: Scope, task: _Task) -> None:
        """Whole panels, the last of which begins so early that it is one, where the result is."""
        (begin, end), constant = task.positions, self.root.index_constant
        latest, result = scope.add(arith.SubiOp(end, constant(self.width))), self.result
        assert result is not None

        def panel(inner: Scope, position: SSAValue) -> None:
            first = inner.add(arith.MinSIOp(position, latest))
            target = Matrix(result, plus(inner, task.result, first), self.of.positions[2])
            self._sum_wide(inner, task, first, target)

        count_loop(scope, "position", (begin, end), panel, self.width)

    def _short(self, scope: Scope, task: _Task) -> None:
        """Fewer positions than a panel has, in narrow ones; what is behind them there is not stored."""
        (begin, end), width = task.positions, self.narrow.width

        def panel(inner: Scope, first: SSAValue) -> None:
            self._sum_narrow(inner, task, first)
            after = inner.add(arith.MinSIOp(plus(inner, first, self.root.index_constant(width)), end))
            self._store(inner, task, (first, after), first)

        count_loop(scope, "panel", (begin, end), panel, width)

    def _stored_once(self, scope: Scope, is_long: SSAValue, task: _Task) -> None:
        """
        As `_in_place` or `_short`, into sums: what follows these is in one place, for panels of either width, as it may be much
        to compile.
        """
        (begin, end), constant = task.positions, self.root.index_constant
        sums = Matrix(self.sums.memory, constant(0), self.width)
        step = constant(self.width)
        if self.narrow.width != self.width:
            step = scope.add(arith.SelectOp(is_long, step, constant(self.narrow.width)))
        whole = scope.add(arith.SubiOp(end, constant(self.width)))
        latest = scope.add(arith.SelectOp(is_long, whole, end))

        def panel(inner: Scope, position: SSAValue) -> None:
            first = inner.add(arith.MinSIOp(position, latest))
            either(
                inner, is_long,
                lambda s: self._sum_wide(s, task, first, sums), lambda s: self._sum_narrow(s, task, first),
            )  # fmt: skip
            after = inner.add(arith.MinSIOp(plus(inner, position, step), end))
            self._store(inner, task, (position, after), first)

        count_loop(scope, "position", (begin, end), panel, step)

    def _sum_wide(self, scope: Scope, task: _Task, first: SSAValue, target: Matrix) -> None:
        """Sums of a whole panel, read where it lies."""
        x = Matrix(self.x, plus(scope, task.x, first), self.of.x_steps()[2])
        zero = self.root.index_constant(0)
        self._sum_up(scope, task, target, lambda s, channel, _: x.moved(s, channel, zero), self.tiling.tile)

    def _sum_narrow(self, scope: Scope, task: _Task, first: SSAValue) -> None:
        """Sums of a narrow panel, which is copied, with zeros behind it: what lies there by chance may be slow to multiply."""
        constant, zero, tile = self.root.index_constant, self.root.index_constant(0), self.narrow
        row = constant(self.of.x_steps()[2])
        rest = scope.add(arith.SubiOp(task.positions[1], first))
        count = scope.add(arith.MinSIOp(rest, constant(tile.width)))
        x = plus(scope, task.x, first)

        def right(inner: Scope, channel: SSAValue, channels: SSAValue) -> Matrix:
            at = plus(inner, x, inner.add(arith.MuliOp(channel, row)))
            read = [flat_memory(self.root, self.x), at, row, constant(1), zero, count]
            written = [flat_memory(self.root, self.copy), zero, constant(tile.width), zero, channels, zero]
            inner.call_for_effect(f"fo_rows_{self.element.name}", [*read, *written, constant(1), zero, zero])
            return Matrix(self.copy, zero, tile.width)

        self._sum_up(scope, task, Matrix(self.sums.memory, zero, self.width), right, tile)

    def _sum_up(
        self,
        scope: Scope,
        task: _Task,
        target: Matrix,
        right: Callable[[Scope, SSAValue, SSAValue], Matrix],
        tile: Tile,
    ) -> None:
        """Sums of a panel; `right` gives the elements of so many channels from one on."""
        constant, tiles = self.root.index_constant, RowTiles(self.element, tile.vectors, tile.height, tile.taller)

        def some_channels(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(self.of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(self.tiling.channels)))
            elements = right(inner, channel, count)
            weight = plus(inner, task.weight, times(inner, channel, self.of.channel_step))

            def multiply(each: Scope, number: SSAValue) -> None:
                row = tiles.first_row(each, number)
                left = Matrix(self.weight, weight, self.of.filter_step).moved(each, row, constant(0))
                tiles.multiply(each, number, count, left, elements, target.moved(each, row, constant(0)), channel)

            count_loop(inner, "tile", (constant(0), constant(tile.tiles)), multiply)

        count_loop(scope, "channel", (constant(0), constant(self.of.channels)), some_channels, self.tiling.channels)

    def _store(self, scope: Scope, task: _Task, positions: Bounds, first: SSAValue) -> None:
        """What follows the sums of a panel that begins at the position `first`, at some of its positions."""
        count = self.root.index_constant(self.tiling.filters)
        self.epilogue.emit(scope, self.sums, task.filter, count, positions, first)
