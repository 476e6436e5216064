"""Sums of neighbouring positions side by side: rows of a tile are filters, which are read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.cpu.convolution.task import ConvolutionTask, Place
from fuse_opt.lowering.cpu.convolution.tilings.tiling import Tile, choose_tiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Sweep
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


class PositionPanels(ConvolutionTask):
    """Panel by panel of positions, tiles of all filters of the task."""

    def __init__(
        self,
        convolution: Convolution,
        memory: KernelBuffers,
        root: Scope,
        weight: SSAValue | None = None,
        product: Contraction | None = None,
    ) -> None:
        """`weight`: another buffer of the weight, in the elements of sums; `product`: as of a task."""
        copies = convolution.widens or product is not None
        self.tiling = choose_tiling(convolution.contraction.at_usual_batch(), convolution.sums.itemsize, copies)
        super().__init__(convolution, self.tiling, memory, root, weight, product)

    def sweeps(self, scope: Scope, place: Place) -> Sequence[Sweep]:
        """What is summed up at each position: all taps at once."""
        return [Sweep(place.weight, self.of.channel_step, self.taps, self.sums.memory)]

    def sum_up(self, task: Scope, start: SSAValue, place: Place) -> None:
        bounds = start, place.end
        count_loop(task, "position", bounds, lambda s, at: self._panels(s, at, place), self.sums.step)

    def _panels(self, scope: Scope, first: SSAValue, place: Place) -> None:
        """Some panels, from the first position on, and what follows from them."""
        after = scope.add(arith.MinSIOp(plus(scope, first, self.root.index_constant(self.sums.step)), place.end))
        last, split = self.tiling.last, after
        if last is not None:
            split = self._split(scope, first, after, last)
        start = self._start(scope, first, self.tiling.widest)
        for sweep in self.sweeps(scope, place):
            self._sweep(scope, (first, split), start, place, sweep)
        filters = place.first_filter, self.root.index_constant(self.filters)
        self.store(scope, filters, (first, after), start, place)

    def _sweep(self, scope: Scope, bounds: Bounds, start: SSAValue, place: Place, sweep: Sweep) -> None:
        """All panels of a sweep: those within the bounds, and a last one of another width."""
        tile, last = self.tiling.tile, self.tiling.last
        count_loop(scope, "panel", bounds, lambda s, at: self._panel(s, at, start, place, tile, sweep), tile.width)
        if last is not None:
            self._panel(scope, bounds[1], start, place, last, sweep)

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
        last = (self.of.positions[1] - 1) * self.block.pitch + self.of.positions[2] - width
        return scope.add(arith.MinSIOp(position, self.root.index_constant(last)))

    def _panel(self, scope: Scope, position: SSAValue, first: SSAValue, place: Place, tile: Tile, sweep: Sweep) -> None:
        """All channels of a panel; its sums lie behind those of the `first` position."""
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        rows = RowTiles(self.element, tile.vectors, tile.height, tile.taller)
        start = self._start(scope, position, tile.width)
        column = scope.add(arith.SubiOp(start, first))

        def multiply(inner: Scope, number: SSAValue, channel: SSAValue, count: SSAValue, source: Matrix) -> None:
            row = rows.first_row(inner, number)
            at = plus(inner, sweep.weight.at, times(inner, channel, sweep.channel_step))
            weight = replace(sweep.weight, at=plus(inner, at, times(inner, row, sweep.weight.row)))
            sums = Matrix(sweep.sums, plus(inner, column, times(inner, row, self.sums.step)), self.sums.step)
            rows.multiply(inner, number, count, weight, source, sums, channel, sweep.taps)

        def block(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.channels)))
            at = plus(inner, place.source.at, times(inner, channel, place.source.row), start)
            source = replace(place.source, at=at)
            tiles = constant(0), constant(tile.tiles)
            count_loop(inner, "tile", tiles, lambda s, number: multiply(s, number, channel, count, source))

        count_loop(scope, "channel", (constant(0), constant(of.channels)), block, tiling.channels)
