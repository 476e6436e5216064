"""Sums of neighbouring filters side by side: rows of a tile are positions, which are few; filters are in panels."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.packed_panels import has_narrow_panels
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.task import ConvolutionTask, Place
from fuse_opt.lowering.cpu.convolution.tilings.filter_tiling import filter_tiling
from fuse_opt.lowering.cpu.matmul.copies import Matrix, copy_matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


class FilterPanels(ConvolutionTask):
    """Panel by panel of filters, tiles of all positions; their sums are turned before they are stored."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        element, of = dtype(convolution.raw), convolution.contraction
        assert convolution.panel is not None
        self.tiling = tiling = filter_tiling(of.at_usual_batch(), convolution.panel, element.itemsize)
        super().__init__(convolution, tiling, memory, root)
        is_product = of.taps == 1 and has_narrow_panels(of, tiling.width, element.itemsize)
        self.windows = None if is_product else self.taps or self._taps()
        vectors = tiling.width // vector_elements(element.name)
        self.tiles = RowTiles(element, vectors, tiling.height, tiling.taller)
        positions = root.add(memref.AllocaOp.get(element.attribute, 64, [tiling.columns * tiling.width]))
        positions.name_hint = "positions"
        self.positions = Matrix(positions, root.index_constant(0), tiling.width)
        """Sums by position."""

    def sum_up(self, task: Scope, start: SSAValue, place: Place) -> None:
        last = task.add(
            arith.MinSIOp(plus(task, place.first_filter, self._constant(self.filters)), self._constant(self.of.filters))
        )
        bounds = place.first_filter, last
        count_loop(task, "filter", bounds, lambda s, at: self._panel(s, at, last, start, place), self.tiling.width)

    def _constant(self, number: int) -> SSAValue:
        return self.root.index_constant(number)

    def _panel(self, scope: Scope, filter: SSAValue, last: SSAValue, start: SSAValue, place: Place) -> None:
        """All positions of a panel, and what follows from them."""
        of, tiling, constant = self.of, self.tiling, self._constant
        weight = Matrix(place.weight.memory, times(scope, filter, of.channels * of.taps), tiling.width)

        def block(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.channels)))
            right = weight.moved(inner, times(inner, channel, of.taps), constant(0))
            left = replace(
                place.source, at=plus(inner, place.source.at, times(inner, channel, place.source.row), start)
            )
            count_loop(
                inner, "line", (constant(0), constant(tiling.lines)),
                lambda s, line: self._line(s, line, (channel, count), left, right),
            )  # fmt: skip

        count_loop(scope, "channel", (constant(0), constant(of.channels)), block, tiling.channels)
        count = scope.add(arith.MinSIOp(scope.add(arith.SubiOp(last, filter)), constant(tiling.width)))
        if not of.result_last:
            self._turn(scope)
        self.store(scope, (filter, count), (start, place.end), start, place)

    def by_position(self, scope: Scope, filters: SSAValue, positions: SSAValue) -> Matrix:
        """The sums as they are."""
        return self.positions

    def _turn(self, scope: Scope) -> None:
        """Puts the sums of a filter side by side."""
        tiling, constant = self.tiling, self._constant
        length = constant(tiling.block.positions(tiling.block.rows))
        turned = Matrix(self.positions.memory, self.positions.at, 1, tiling.width)
        sums = Matrix(self.sums.memory, constant(0), tiling.columns)
        copy_matrix(scope, self.element, turned, sums, constant(tiling.width), length)

    def _line(
        self, scope: Scope, line: SSAValue, channels: tuple[SSAValue, SSAValue], left: Matrix, right: Matrix
    ) -> None:
        """The tiles of neighbouring positions; sums over so many channels are added to those of channels before."""
        first = times(scope, line, self.tiling.block.pitch)

        def tile(inner: Scope, number: SSAValue) -> None:
            position = plus(inner, first, self.tiles.first_row(inner, number))
            seen = replace(left, at=plus(inner, left.at, position))
            sums = self.positions.moved(inner, position, self._constant(0))
            channel, count = channels
            before = plus(inner, times(inner, line, self.tiling.tiles), number)
            if self.windows is None:
                self.tiles.multiply(inner, number, count, seen, right, sums, channel, turned=True)
                return
            ahead = self._ahead(inner, before, count)
            self.tiles.multiply(inner, number, count, seen, right, sums, channel, self.windows, ahead)

        count_loop(scope, "tile", (self._constant(0), self._constant(self.tiling.tiles)), tile)

    def _ahead(self, scope: Scope, tile: SSAValue, channels: SSAValue) -> SSAValue:
        """Where a tile asks for its part of the next block of filters, which lies behind this one: a line in each step."""
        steps, lines = times(scope, channels, self.of.taps), self.tiles.vectors
        part = scope.add(arith.MinSIOp(tile, self._constant(lines - 1)))
        next_block = times(scope, steps, self.tiling.width)
        return plus(scope, next_block, times(scope, scope.add(arith.MuliOp(steps, part)), self.tiling.width // lines))
