"""Sums of neighbouring filters side by side at images of any extents: rows of a tile are positions, filters are in panels.

A task copies what windows see at a block of positions. Panel by panel, tiles go over lines of positions: the rows of the block,
or all of it with what lies between rows, whichever are fewer tiles. Sums of a panel are turned before they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.lowering.c.headers.product_tiles import vector_elements
from fuse_opt.lowering.cpu.convolution.any_extents.blocks import BlockTasks
from fuse_opt.lowering.cpu.convolution.any_extents.panel_tiling import panel_tiling
from fuse_opt.lowering.cpu.convolution.any_extents.window_copy import Origin, WindowCopy
from fuse_opt.lowering.cpu.convolution.lanes.panel_result import Lines, PanelResult, is_new_copy
from fuse_opt.lowering.cpu.matmul.copies import Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Taps, either, tap_table
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a line is cut into tiles."""

    tiles: SSAValue
    """Of full height."""
    shorter: SSAValue
    """Behind these."""
    length: SSAValue
    """Positions of all of them."""


@dataclass(frozen=True, slots=True)
class _Line:
    """What lines of a block have in common."""

    count: SSAValue
    cut: _Cut
    apart: SSAValue
    """Of sums, from a line to the next one."""


class SizedFilterPanels(BlockTasks):
    """A task is some panels of filters at a block of positions."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        super().__init__(convolution.contraction, root)
        assert convolution.panel is not None
        of, self.element, panel = self.of, convolution.sums, convolution.panel
        self.tiling = tiling = panel_tiling(of.at_usual_batch(), panel, self.element.itemsize)
        self.cut(tiling.rows, tiling.parts, -(-of.filters // tiling.filters))
        self.x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.copy = WindowCopy(of, tiling, self.element, root)
        self.result = PanelResult(convolution, memory, root, tiling.positions, panel)
        vectors = panel // vector_elements(self.element.name)
        self.tiles, self.shorter = (RowTiles(self.element, vectors, n, 0) for n in (tiling.height, tiling.shorter))
        self.taps = None if of.taps == 1 else Taps(tap_table(root, self.copy.tap_places()), of.taps, 1)

    def build(self, task: Scope, number: SSAValue) -> None:
        of, constant = self.of, self.root.index_constant
        (batch, _, first, some), rows, columns = self.place(task, number)
        filters = part_bounds(task, some, self.tiling.filters, of.filters)
        task.indices = {self.result.epilogue.batch: batch}
        height, width = (task.add(arith.SubiOp(last, begin)) for begin, last in (rows, columns))
        channels = times(task, batch, of.x_steps()[0])
        origin = Origin(first, rows[0], columns[0], channels)
        every = constant(of.channels)
        either(
            task, is_new_copy(task, number, some, self.counts),
            lambda s: self.copy.build(s, self.x, origin, every, height),
        )  # fmt: skip
        line = self._line(task, height, width)
        row = plus(task, times(task, first, of.positions[1]), rows[0])
        place = plus(task, times(task, row, of.positions[2]), columns[0])
        stored = Lines(place, height, width, line.apart, of.positions[2])

        def panel(scope: Scope, filter: SSAValue) -> None:
            self._sum_up(scope, filter, line)
            self.result.store_lines(scope, (filter, filters[1]), stored)

        count_loop(task, "filter", filters, panel, self.tiling.panel)

    def _line(self, scope: Scope, rows: SSAValue, columns: SSAValue) -> _Line:
        """Rows of positions as lines, or a single one that has what lies between them, too."""
        before = scope.add(arith.SubiOp(rows, self.root.index_constant(1)))
        whole = plus(scope, scope.add(arith.MuliOp(before, self.copy.pitch)), columns)
        joined, apart = self._cut_line(scope, whole), self._cut_line(scope, columns)
        both = scope.add(arith.MuliOp(apart.length, rows))
        is_joined = scope.add(arith.CmpiOp(joined.length, both, "sle"))

        def chosen(a: SSAValue, b: SSAValue) -> SSAValue:
            return scope.add(arith.SelectOp(is_joined, a, b))

        cut = _Cut(
            chosen(joined.tiles, apart.tiles),
            chosen(joined.shorter, apart.shorter),
            chosen(joined.length, apart.length),
        )
        return _Line(chosen(self.root.index_constant(1), rows), cut, chosen(self.copy.pitch, apart.length))

    def _cut_line(self, scope: Scope, positions: SSAValue) -> _Cut:
        """Tiles of so many positions: the last one or two are shorter where fewer positions are computed for nothing then."""
        constant, (height, shorter) = self.root.index_constant, (self.tiling.height, self.tiling.shorter)
        tiles, rest = (scope.add(op(positions, constant(height))) for op in (arith.DivSIOp, arith.RemSIOp))

        def either_of(condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
            return scope.add(arith.SelectOp(condition, a, b))

        def at_most(bound: int) -> SSAValue:
            return scope.add(arith.CmpiOp(rest, constant(bound), "sle"))

        # A rest of one fits one shorter tile; one that is less takes the place of a whole tile, too, by two of them.
        are_many = scope.add(arith.CmpiOp(positions, constant(height), "sgt"))
        are_two = scope.add(arith.AndIOp(at_most(2 * shorter - height), are_many))
        less = scope.add(arith.SubiOp(tiles, constant(1)))
        some = either_of(are_two, constant(2), either_of(at_most(shorter), constant(1), constant(0)))
        whole = either_of(are_two, less, either_of(at_most(shorter), tiles, plus(scope, tiles, constant(1))))
        some, whole = (either_of(at_most(0), none, n) for none, n in ((constant(0), some), (tiles, whole)))
        return _Cut(whole, some, plus(scope, times(scope, whole, height), times(scope, some, shorter)))

    def _sum_up(self, scope: Scope, filter: SSAValue, line: _Line) -> None:
        """All sums of a panel, some channels at a time."""
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        weight = Matrix(self.weight, times(scope, filter, of.channels * of.taps), tiling.panel)

        def some_channels(inner: Scope, channel: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.channels), channel))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.depth)))
            right = weight.moved(inner, times(inner, channel, of.taps), constant(0))
            seen = times(inner, channel, self.copy.channel_step)

            def tiles(outer: Scope, number: SSAValue) -> None:
                at = plus(outer, seen, outer.add(arith.MuliOp(number, self.copy.pitch)))
                first = outer.add(arith.MuliOp(number, line.apart))
                self._tiles(outer, self.tiles, line.cut.tiles, (at, first), right, (channel, count))
                behind = times(outer, line.cut.tiles, tiling.height)
                begin = plus(outer, at, behind), plus(outer, first, behind)
                self._tiles(outer, self.shorter, line.cut.shorter, begin, right, (channel, count))

            count_loop(inner, "line", (constant(0), line.count), tiles)

        count_loop(scope, "channel", (constant(0), constant(of.channels)), some_channels, tiling.depth)

    def _tiles(
        self,
        scope: Scope,
        tiles: RowTiles,
        count: SSAValue,
        begin: tuple[SSAValue, SSAValue],
        right: Matrix,
        channels: tuple[SSAValue, SSAValue],
    ) -> None:
        """So many tiles of a line, of one height, from a position on: where that is in the copy, and which one of the sums."""
        zero, (channel, depth) = self.root.index_constant(0), channels

        def tile(inner: Scope, number: SSAValue) -> None:
            at, position = (plus(inner, first, times(inner, number, tiles.height)) for first in begin)
            left = Matrix(self.copy.memory, at, self.copy.channel_step)
            sums = self.result.sums.moved(inner, position, zero)
            if self.taps is None:
                tiles.multiply(inner, number, depth, left, right, sums, channel, turned=True)
                return
            ahead = times(inner, depth, self.of.taps * self.tiling.panel)
            tiles.multiply(inner, number, depth, left, right, sums, channel, self.taps, ahead)

        count_loop(scope, "tile", (zero, count), tile)
