"""Convolutions of images of any extents: blocks of positions whose rows and parts of rows are numbers of the call.

As where extents are known, rows of a tile are filters and its columns neighbouring positions; what windows see of some channels
is copied, with zeros around it, and added to sums of all positions of a block before the next channels are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.cpu.convolution.any_extents.blocks import BlockTasks, Positions
from fuse_opt.lowering.cpu.convolution.any_extents.tiling import any_extents_tiling
from fuse_opt.lowering.cpu.convolution.any_extents.window_copy import Origin, WindowCopy
from fuse_opt.lowering.cpu.convolution.tilings.tiling import Tile
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Sweep, Taps, tap_table
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


class AnyExtents(BlockTasks):
    """A task is some filters at a block of positions."""

    def __init__(
        self,
        convolution: Convolution,
        memory: KernelBuffers,
        root: Scope,
        weight: SSAValue | None = None,
        product: Contraction | None = None,
    ) -> None:
        """
        `weight`: another buffer of it, in the elements of sums; `product`: that whose result the kernel's is, where positions
        are parts of it.
        """
        super().__init__(convolution.contraction, root)
        self.element = convolution.sums
        self.tiling = tiling = any_extents_tiling(self.of.at_usual_batch(), self.element.itemsize, memory.register_bits)
        product = product or self.of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.x, given = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.weight = given if weight is None else weight
        some = self.of.filters // tiling.filters
        self.cut(tiling.rows, tiling.parts, some)
        sums = root.add(memref.AllocaOp.get(self.element.attribute, 64, [tiling.filters * tiling.columns]))
        sums.name_hint = "sums"
        self.sums = Sums(sums, tiling.filters, tiling.columns)
        self.copy = WindowCopy(self.of, tiling, self.element, root)

    @cached_property
    def taps(self) -> Taps:
        """A table of places, which depend on how far rows are apart."""
        table = tap_table(self.root, self.copy.tap_places())
        return Taps(table, self.of.taps, self.of.channel_step)

    def sweeps(self, scope: Scope, weight: SSAValue) -> Sequence[Sweep]:
        """What is summed up at each position; the weight of a task's first filter is as far behind that of the first one."""
        return [
            Sweep(Matrix(self.weight, weight, self.of.filter_step), self.of.channel_step, self.taps, self.sums.memory)
        ]

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        (batch, group, first, some), rows, columns = self.place(task, number)
        task.indices = {self.epilogue.batch: plus(task, times(task, batch, of.groups), group)}
        sample_step, group_step, *_ = of.x_steps()
        channels = plus(task, times(task, batch, sample_step), times(task, group, group_step))
        counts = [task.add(arith.SubiOp(last, first)) for first, last in (rows, columns)]
        block = Positions(first, rows[0], columns[0], *counts)
        first_filter = times(task, some, tiling.filters)
        weight = plus(task, times(task, group, of.group_step), times(task, first_filter, of.filter_step))
        sweeps = self.sweeps(task, weight)

        def some_channels(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.channels)))
            begin = plus(inner, channels, times(inner, channel, of.x_steps()[2]))
            self.copy.build(inner, self.x, Origin(first, rows[0], columns[0], begin), count, block.rows)
            self._sum_up(inner, block, (channel, count), [_from_channel(inner, sweep, channel) for sweep in sweeps])

        count_loop(task, "channel", (constant(0), constant(of.channels)), some_channels, tiling.channels)
        self.store(task, first_filter, block)

    def _sum_up(
        self, scope: Scope, block: Positions, channels: tuple[SSAValue, SSAValue], sweeps: Sequence[Sweep]
    ) -> None:
        """Adds what so many channels from one on give at all positions; of the first one nothing was there before."""
        constant, narrow = self.root.index_constant, self.tiling.narrow
        before = scope.add(arith.SubiOp(block.rows, constant(1)))
        length = plus(scope, scope.add(arith.MuliOp(before, self.copy.pitch)), block.columns)
        first, split = constant(0), length if narrow is None else self._split(scope, length)
        if (single := self.tiling.single) is not None:
            are_few = scope.add(arith.CmpiOp(length, constant(single.width), "sle"))
            first, split = (scope.add(arith.SelectOp(are_few, length, each)) for each in (first, split))
            self._panels(scope, (constant(0), first), single, channels, sweeps)
        self._panels(scope, (first, split), self.tiling.tile, channels, sweeps)
        if narrow is not None:
            self._panels(scope, (split, length), narrow, channels, sweeps)

    def _split(self, scope: Scope, length: SSAValue) -> SSAValue:
        """Where narrow panels begin: behind as many whole ones as there are, or at the end, where too many would be left."""
        constant, tiling = self.root.index_constant, self.tiling
        rest = scope.add(arith.RemSIOp(length, constant(tiling.tile.width)))
        are_few = scope.add(arith.CmpiOp(rest, constant(tiling.most_narrow), "sle"))
        return scope.add(arith.SelectOp(are_few, scope.add(arith.SubiOp(length, rest)), length))

    def _panels(
        self, scope: Scope, positions: Bounds, tile: Tile, channels: tuple[SSAValue, SSAValue], sweeps: Sequence[Sweep]
    ) -> None:
        constant, step, (channel, count) = self.root.index_constant, self.sums.step, channels
        tiles = RowTiles(self.element, tile.vectors, tile.height, tile.taller)

        def multiply(inner: Scope, number: SSAValue, position: SSAValue, sweep: Sweep) -> None:
            row = tiles.first_row(inner, number)
            left = sweep.weight.moved(inner, row, constant(0))
            right = Matrix(self.copy.memory, position, self.copy.channel_step)
            sums = Matrix(sweep.sums, plus(inner, position, times(inner, row, step)), step)
            tiles.multiply(inner, number, count, left, right, sums, channel, sweep.taps)

        def panel(outer: Scope, at: SSAValue) -> None:
            numbers = constant(0), constant(tile.tiles)
            for sweep in sweeps:
                count_loop(outer, "tile", numbers, lambda inner, number, s=sweep: multiply(inner, number, at, s))

        count_loop(scope, "position", positions, panel, tile.width)

    def store(self, task: Scope, first_filter: SSAValue, block: Positions) -> None:
        """Row by row of positions, as those between rows have no result."""
        constant, (_, height, width) = self.root.index_constant, self.of.positions
        first = plus(task, times(task, block.first, height), block.row)
        first = plus(task, times(task, first, width), block.column)

        def line(inner: Scope, number: SSAValue) -> None:
            place = plus(inner, first, times(inner, number, width))
            start = inner.add(arith.SubiOp(place, inner.add(arith.MuliOp(number, self.copy.pitch))))
            self.epilogue.over_columns(inner, self.sums, (place, plus(inner, place, block.columns)), start)

        self.epilogue.over_rows(
            task, self.sums, first_filter, constant(self.tiling.filters),
            lambda row: count_loop(row, "line", (constant(0), block.rows), lambda s, n: line(s, n)),
        )  # fmt: skip


def _from_channel(scope: Scope, sweep: Sweep, channel: SSAValue) -> Sweep:
    at = plus(scope, sweep.weight.at, times(scope, channel, sweep.channel_step))
    return replace(sweep, weight=replace(sweep.weight, at=at))
