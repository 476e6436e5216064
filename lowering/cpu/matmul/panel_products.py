"""The tiles of a panel of a product: what they read, where it is copied before, and where their sums go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.analysis.contractions.product_copies import (
    FEW_ROWS,
)
from fuse_opt.dialects.analysis.contractions.products import Product
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import is_decided, is_number, may_exceed
from fuse_opt.lowering.c.headers.product_groups import kept_longs
from fuse_opt.lowering.cpu.matmul.asking import Asks, Following, shared_asks
from fuse_opt.lowering.cpu.matmul.computed_matrix import ComputedMatrix, Source, operand_matrix
from fuse_opt.lowering.cpu.matmul.copies import Matrix, count_loop, element_of, fill_columns, plus, times
from fuse_opt.lowering.cpu.matmul.operand_copy import OperandCopy
from fuse_opt.lowering.cpu.matmul.product_sums import Columns, ProductSums, Rows
from fuse_opt.lowering.cpu.matmul.row_tiles import either
from fuse_opt.lowering.cpu.matmul.tile_calls import TileBlock, TileCalls
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.cpu.matmul.tilings.tiling import SMALL_BYTES, Tiling
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope

MOST_SEQUENTIAL = 3
"""
Rows that meet panels which were packed before as fast as these are read: nothing is asked for then, as processors do that in time
for what lies side by side (one and two rows of a weight in the last cache take .7 to .75 of the time, three .89; Zen 4).
"""


@dataclass(frozen=True, slots=True)
class CutProduct:
    """A product of a kernel, what it is computed in, how it is cut, and its buffers."""

    product: Product
    arithmetic: Arithmetic
    tiling: Tiling
    memory: KernelBuffers


class PanelProducts:
    """Tiles of some rows and a panel, in a function whose outermost scope is `root`."""

    def __init__(self, of: CutProduct, root: Scope) -> None:
        self.product, self.tiling, self.arithmetic, self.of = (
            of.product,
            of.tiling,
            of.arithmetic,
            of.product.contraction,
        )
        self.root = root
        product, tiling, memory = of.product, of.tiling, of.memory
        self.is_sequential = product.rhs.panels is not None and not may_exceed(self.of.rows, MOST_SEQUENTIAL)
        is_near = tiling.packs or may_exceed(self.of.rows, FEW_ROWS) or self.is_sequential
        is_far = not is_near and self.arithmetic.group == 1
        is_tall = is_decided(lambda: self.of.rows > self.of.columns)
        by_rows = tiling.rows_first and tiling.panels > 1 and tiling.rows is None
        self.keeps_sums = self.arithmetic.sums_rows and by_rows and is_number(self.of.depth)
        self.calls = TileCalls(self.arithmetic.tile, tiling, is_tall, is_far, self._registers())
        self.computed = [operand_matrix(operand, memory, root) for operand in (product.lhs, product.rhs)]
        places = [memory.sources.get(operand.value) for operand in (product.lhs, product.rhs)]
        self.in_memory = [None if place is None else root.block.args[place] for place in places]
        self.sums = ProductSums(product, self.arithmetic, tiling, self.calls.rows, memory, root)
        self.left, self.right = self._copies(tiling.most_rows * (1 if tiling.copies_tiles else tiling.block))
        self.asks = self._asks()

    def _registers(self) -> SSAValue | None:
        """
        Memory for what a thread's matrix registers are set up for, which tiles of groups have some of, and for the rows of a tile
        where they are kept.
        """
        if self.arithmetic.group == 1:
            return None
        longs = kept_longs(self.tiling.most_rows) if self.keeps_sums else 1
        found = self.root.add(memref.AllocaOp.get(i64, 8, [longs]))
        found.name_hint = "registers"
        self.root.call_for_effect("fo_matrix_begin", [flat_memory(self.root, found)])
        return found

    def end(self) -> None:
        """What comes after a thread's last task."""
        if self.calls.registers is not None:
            self.root.call_for_effect("fo_matrix_end", [flat_memory(self.root, self.calls.registers)])

    def _copies(self, rows: int) -> tuple[OperandCopy | None, OperandCopy | None]:
        """Of so many rows of the left operand, and of a panel of the right one."""
        tiling, group = self.tiling, self.arithmetic.group
        left = right = None
        if tiling.copied_depth:
            depth = -(-tiling.copied_depth // group) * group
            extents = (depth, rows) if tiling.transposed_rows else (rows, depth)
            left = OperandCopy(
                self.arithmetic,
                self.arithmetic.left,
                extents,
                tiling.transposed_rows,
                self.root,
                "rows",
                in_lines=tiling.copies_tiles,
                repeats=tiling.transposed_rows and tiling.rows is not None,
            )
        if tiling.packs:
            step = LANE_BYTES // self.arithmetic.left.itemsize if tiling.copies_tiles else group
            depth, columns = -(-tiling.depth // step) * step, tiling.most_columns
            extents = (columns, depth) if tiling.along_depth else (depth, columns)
            count = tiling.panels_at_a_time if tiling.rows_first else 1
            right = OperandCopy(
                self.arithmetic,
                self.arithmetic.right,
                extents,
                tiling.along_depth,
                self.root,
                "panel",
                count,
                in_lines=tiling.copies_tiles,
            )
        return left, right

    def _operand(self, task: Scope, number: int, operand: OperandAccess) -> Source:
        """The matrix of an operand that a task reads."""
        if (computed := self.computed[number]) is not None:
            return computed
        memory = self.in_memory[number]
        assert memory is not None
        return Matrix(memory, task.index(operand.offset), operand.row, operand.column)

    def _copy_by_tiles(self) -> Matrix | None:
        """Where a first tile leaves a panel, if one does."""
        return self.right.matrix if self.right is not None and self.tiling.tiles_copy else None

    def _over_depth(self, scope: Scope, build: Callable[[Scope, SSAValue], None]) -> None:
        bounds = self.root.index_constant(0), self.root.index_constant(self.of.depth)
        count_loop(scope, "depth", bounds, build, self.tiling.depth)

    def _depth_of(self, scope: Scope, first: SSAValue) -> SSAValue:
        """Of a block of the contracted dimension, how many elements it has."""
        rest = scope.add(arith.SubiOp(self.root.index_constant(self.of.depth), first))
        return scope.add(arith.MinSIOp(rest, self.root.index_constant(self.tiling.depth)))

    def _multiply(
        self, scope: Scope, columns: Columns, rows: Rows, left: Source, right: Source, depth: SSAValue
    ) -> None:
        """All tiles of the rows and of a panel, for the block of the contracted dimension that begins at `depth`."""
        count = self._depth_of(scope, depth)
        source = self._right_from(scope, right, depth, columns.first)
        assert isinstance(left, Matrix)  # what is computed has a copy

        def tiles(inner: Scope, panel: Source, in_place: tuple[SSAValue, Matrix] | None = None) -> None:
            assert isinstance(panel, Matrix)
            is_whole = panel is source and self.right is not None and self.tiling.rest > 0
            met = replace(columns, is_last=False) if is_whole else columns
            block = self._block(inner, met, rows, left, panel, count, depth)
            following = self._following(inner, right, columns, depth)
            ends = replace(block, copy=self._copy_by_tiles(), following=following, in_place=in_place)
            self.calls.emit(inner, rows.tiles, rows.first, ends)

        def copy(inner: Scope) -> Matrix:
            assert self.right is not None
            panel = self.right.panel(inner, source, count, columns.count)
            if self.tiling.pads:
                every = columns.count, self.root.index_constant(self.tiling.width)
                fill_columns(inner, panel, count, every, self.root.constant(0.0, self.arithmetic.right))
            return panel

        if self.right is None or self.tiling.tiles_copy:
            tiles(scope, source)
            return
        few, tiling = self._are_few(), self.tiling
        if tiling.rest and not isinstance(few, bool):
            whole = scope.add(arith.CmpiOp(columns.count, self.root.index_constant(tiling.width), "eq"))
            few = scope.add(arith.AndIOp(few, whole))
        is_even = tiling.rest == tiling.width or (not tiling.rest and tiling.last_width == tiling.width)
        is_alike = isinstance(source, Matrix) and element_of(source.memory) is self.arithmetic.right
        if is_even and is_alike and not isinstance(few, bool) and isinstance(source, Matrix):
            # what follows sums, and the loop over tiles, is there once, of which compilers take their time
            either(scope, few, lambda inner: None, lambda inner: copy(inner) and None)
            tiles(scope, self.right.matrix, (few, source))
            return
        either(scope, few, lambda inner: tiles(inner, source), lambda inner: tiles(inner, copy(inner)))

    def _asks(self) -> tuple[Asks, bool] | None:
        """How tiles ask for the next part of the right operand, if they do, and whether columns are its rows in memory."""
        tiling, right = self.tiling, self.product.rhs
        near = tiling.along_depth or tiling.rows is not None or tiling.rest > 0 or self.arithmetic.group > 1
        near = near or self.is_sequential or not is_number(self.of.depth)
        if near or self.computed[1] is not None or dtype(right.value) is not self.arithmetic.right:
            return None
        is_only = tiling.panels == 1 and tiling.depth >= self.of.depth
        if is_only or (not tiling.packs and right.panels is None):
            return None
        line, turned = LANE_BYTES // self.arithmetic.right.itemsize, right.column != 1
        rows, length = (tiling.width, tiling.depth) if turned else (tiling.depth, tiling.width)
        tiles = tiling.block - tiling.tiles_copy
        found = shared_asks(tiles, (rows, -(-length // line)), tiling.depth, self.arithmetic.right.itemsize)
        return None if found is None or (turned and right.row != 1) else (found, turned)

    def _following(self, scope: Scope, right: Source, columns: Columns, depth: SSAValue) -> Following | None:
        """What tiles of a panel and a block of the contracted dimension ask for, where they do."""
        if self.asks is None or isinstance(right, ComputedMatrix):
            return None
        (asks, turned), tiling, constant = self.asks, self.tiling, self.root.index_constant
        column = plus(scope, columns.first, constant(tiling.width))
        if not tiling.depth_first:
            later = plus(scope, depth, constant(tiling.depth))
            is_last = scope.add(arith.CmpiOp(later, constant(self.of.depth), "sge"))
            depth = scope.add(arith.SelectOp(is_last, constant(0), later))
            column = scope.add(arith.SelectOp(is_last, column, columns.first))
        exists = scope.add(arith.CmpiOp(column, constant(self.of.columns), "slt"))
        part = self._right_from(scope, right, depth, column)
        assert isinstance(part, Matrix)
        return Following(part.transposed() if turned else part, exists, asks)

    def _are_few(self) -> SSAValue | bool:
        """Whether rows are so few that the right operand is read where it lies, in spite of the memory for its panels."""
        if not self.tiling.few_rows:
            return False
        every, few = (self.root.index_constant(rows) for rows in (self.of.rows, self.tiling.few_rows))
        few_rows = self.root.made("few", lambda: arith.CmpiOp(every, few, "sle"))
        if is_number(size := self.of.depth * self.of.columns):
            return few_rows
        elements, most = map(self.root.index_constant, (size, SMALL_BYTES // self.arithmetic.right.itemsize))
        is_small = self.root.made("small", lambda: arith.CmpiOp(elements, most, "sle"))
        return self.root.made("few or small", lambda: arith.OrIOp(few_rows, is_small))

    def _block(
        self,
        scope: Scope,
        columns: Columns,
        rows: Rows,
        left: Matrix,
        panel: Matrix,
        count: SSAValue,
        depth: SSAValue,
    ) -> TileBlock:
        """What tiles of the rows go over at a time: so much of a panel from `depth` on."""
        out = self.sums.matrix(scope, rows, columns)
        if (group := self.arithmetic.group) > 1:
            more = scope.add(arith.AddiOp(count, self.root.index_constant(group - 1)))
            count = scope.add(arith.DivSIOp(more, self.root.index_constant(group)))
        found = TileBlock(left, panel, out, count, depth, columns.count, columns.is_last)
        if self.sums.result is not None or not self.sums.by_tiles:
            return found

        def finish(scope: Scope, tile: SSAValue) -> None:
            last = self.sums.is_last_block(scope, depth)
            either(scope, last, lambda inner: self.sums.finish_tile(inner, columns, rows, tile))

        def ask(scope: Scope, tile: SSAValue) -> None:
            last = self.sums.is_last_block(scope, depth)
            either(scope, last, lambda inner: self.sums.ask(inner, columns, tile))

        lines = self.sums.lines(scope, rows, columns)
        asks = ask if self.sums.asks else None
        last = self.sums.is_last_block(scope, depth) if lines is not None else True
        found = replace(found, is_last_block=None if isinstance(last, bool) else last)
        return replace(found, is_alone=self.sums.is_alone, lines=lines, ask=asks, finish=finish)

    def _right_from(self, scope: Scope, right: Source, depth: SSAValue, column: SSAValue) -> Source:
        """The right operand from a row and the first column of a panel on."""
        panels = self.product.rhs.panels
        if panels is None or isinstance(right, ComputedMatrix):
            return right.moved(scope, depth, column)
        first = Matrix(
            right.memory, right.at, right.row, panels.distance // panels.width
        )  # a column's share of a panel
        return Matrix(right.memory, first.place(scope, depth, column), right.row)

    def _columns(self, scope: Scope, panel: SSAValue, first: SSAValue) -> Columns:
        """Of a panel, which is one of those from the first one of the task on."""
        tiling, constant = self.tiling, self.root.index_constant
        column, sums = times(scope, panel, tiling.width), constant(0)
        if tiling.depth_first and self.sums.result is None:
            sums = times(scope, scope.add(arith.SubiOp(panel, first)), self.sums.panel)
        if tiling.rest:
            left = scope.add(arith.SubiOp(constant(self.of.columns), column))
            count = scope.add(arith.MinSIOp(left, constant(tiling.width)))
            is_rest = scope.add(arith.CmpiOp(count, constant(tiling.width), "slt"))
            return Columns(column, count, is_rest, sums)
        if tiling.panels == 1:
            return Columns(constant(0), constant(tiling.last_width), True, sums)
        is_last = scope.add(arith.CmpiOp(panel, constant(tiling.panels - 1), "eq"))
        count = constant(tiling.width)
        if tiling.last_width != tiling.width:
            count = scope.add(arith.SelectOp(is_last, constant(tiling.last_width), count))
        return Columns(column, count, is_last, sums)
