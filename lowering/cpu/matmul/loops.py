"""A product as tiles of sums in vector registers, with what follows it computed on each tile while a cache has it.

A task is a block of rows and some panels, which are as wide as a tile: block by block of the contracted dimension the panel is
copied so that a tile finds its elements side by side (few rows read it where it lies, and of more the first tile leaves that
copy where it can), and all tiles of the rows go over it, each with what follows its sums once they are complete; a single row
goes over many panels before the next block, and few rows that stream the right operand over all of a task's. Blocks and tiles
follow from the shapes alone, and blocks come in order: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.computed_operands import ComputedOperand
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.analysis.contractions.product_copies import (
    FEW_ROWS,
    FEW_TRANSPOSED,
    FEWEST_COPYING,
    FEWEST_TASKS,
)
from fuse_opt.dialects.analysis.contractions.products import Product, product_of
from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import TILE_BITS
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, is_decided, may_exceed
from fuse_opt.lowering.c.headers.matrix_tiles import FEWEST_ROWS
from fuse_opt.lowering.cpu.kernel import KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.asking import Asks, Following, shared_asks
from fuse_opt.lowering.cpu.matmul.computed_matrix import ComputedMatrix, Source, operand_matrix
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, fill_columns, plus, times
from fuse_opt.lowering.cpu.matmul.operand_copy import OperandCopy
from fuse_opt.lowering.cpu.matmul.product_sums import Columns, ProductSums, Rows
from fuse_opt.lowering.cpu.matmul.row_tiles import either
from fuse_opt.lowering.cpu.matmul.tile_calls import TileBlock, TileCalls
from fuse_opt.lowering.cpu.matmul.tilings.any_columns import takes_any_columns, tiling_for_any_columns
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic, arithmetic_of
from fuse_opt.lowering.cpu.matmul.tilings.choice import choose_tiling
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import FEWEST_PANELS
from fuse_opt.lowering.cpu.matmul.tilings.tiling import FEW_COLUMNS, LEAST_STRETCH, SMALL_BYTES, Tiling
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, operand_pass
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.loops.excess_precision import keeps_excess
from fuse_opt.lowering.loops.fast_math import is_fast


def build_product_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a product and pointwise ops. Raises Unschedulable."""
    product = product_of(kernel)
    elements = [dtype(access.value) for access in (product.lhs, product.rhs)]
    in_pairs = (is_fast(kernel) or keeps_excess(kernel)) and _fills_pairs(product.contraction)
    is_sized = takes_any_columns(product.contraction)
    arithmetic = arithmetic_of(elements[0], elements[1], in_pairs and not is_sized)
    panels = product.rhs.panels
    computed = isinstance(product.lhs, ComputedOperand), isinstance(product.rhs, ComputedOperand)
    itemsize = arithmetic.sums.itemsize
    if is_sized:
        tiling = tiling_for_any_columns(product.contraction, itemsize, arithmetic, computed, TILE_BITS.number(kernel))
    else:
        width, bits = panels and panels.width, TILE_BITS.number(kernel)
        tiling = choose_tiling(product.contraction, itemsize, arithmetic, width, computed, bits)
    return [_ProductLoops(kernel, product, arithmetic, tiling, storages).build()]


def _fills_pairs(product: Contraction) -> bool:
    """
    Whether tiles of pairs have as many rows, and columns, as matrix registers take: for fewer a right operand is read where it
    lies, and widened (8 to 12 rows of pairs take 0.32 to 0.60 of that time, 5 to 7 take 1.17 to 1.36; measured).
    """
    few = FEWEST_ROWS - 1 if may_exceed(product.columns, FEW_COLUMNS - 1) else FEW_TRANSPOSED
    return may_exceed(product.rows, few)


def operand_reads(operand: OperandAccess) -> LoopBody:
    """A pass that loads what an operand is made from, so that the kernel has buffers of it."""
    if isinstance(operand, ComputedOperand) and operand.elements is not None:
        return operand.elements.loop_body
    return operand_pass(operand.value)


class _ProductLoops:
    def __init__(
        self, kernel: KernelOp, product: Product, arithmetic: Arithmetic, tiling: Tiling, storages: Sequence[Hashable]
    ) -> None:
        self.product = product
        self.arithmetic = arithmetic
        self.tiling = tiling
        self.of = product.contraction
        passes = [product.epilogue, operand_reads(product.lhs), operand_reads(product.rhs)]
        self.memory = KernelBuffers(kernel, passes, storages)

    def build(self) -> KernelLoops:
        root = Scope(None, kernel_block(self.memory))
        blocks = (prod(self.of.batch), self.tiling.row_blocks, self.tiling.column_blocks)
        body = _Tiles(self, root, root.block.args)
        bounds = root.block.args[-2], root.block.args[-1]
        if self.tiling.spans_tasks(prod(self.of.batch)):
            parts = FEWEST_COPYING
            if self.tiling.panels_are_tasks:
                parts = FEWEST_PANELS if self.tiling.copies_tiles else FEWEST_TASKS
            elif self.tiling.tiles == 1:
                parts = self.of.columns // LEAST_STRETCH
            tasks, least = (self.tiling.panels,), -(-self.tiling.panels // max(1, parts))
            count_loop(
                root,
                "first",
                bounds,
                lambda task, first: body.build_row(task, first, bounds[1]),
                self.tiling.panels_at_a_time,
            )
        elif self.tiling.shares_rows:
            tasks, least = blocks, 1
            body.build_shared(bounds, blocks)
        else:
            tasks, least = blocks, 1
            count_loop(root, "task", bounds, lambda task, number: body.build(task, number, blocks))
        body.end()
        root.block.add_op(func.ReturnOp())
        every = prod(tasks)
        grain = max(least, -(-WORK_PER_CHUNK * estimate(every) // max(estimate(self.of.operations), 1)))
        parameters, sizes = tuple(self.memory.parameters), tuple(root.sizes)
        return KernelLoops(root.block, parameters, self.memory.shared, every, grain, root.helpers, sizes)


class _Tiles:
    """The body of a task."""

    def __init__(self, build: _ProductLoops, root: Scope, arguments: Sequence[SSAValue]) -> None:
        self.build_of, self.of, self.tiling, self.arithmetic = build, build.of, build.tiling, build.arithmetic
        self.root = root
        product, tiling, sources = build.product, build.tiling, build.memory.sources
        is_far = not tiling.packs and not may_exceed(self.of.rows, FEW_ROWS) and self.arithmetic.group == 1
        is_tall = is_decided(lambda: self.of.rows > self.of.columns)
        self.calls = TileCalls(self.arithmetic.tile, tiling, is_tall, is_far, self._registers())
        self.computed = [operand_matrix(operand, build.memory, root) for operand in (product.lhs, product.rhs)]
        self.in_memory = [
            arguments[sources[o.value]] if o.value in sources else None for o in (product.lhs, product.rhs)
        ]
        self.sums = ProductSums(product, self.arithmetic.sums, tiling, self.calls.rows, build.memory, root)
        self.left, self.right = self._copies(tiling.most_rows * (1 if tiling.copies_tiles else tiling.block))
        self.asks = self._asks()

    def _registers(self) -> SSAValue | None:
        """Memory for what a thread's matrix registers are set up for, which tiles of groups have some of."""
        if self.arithmetic.group == 1:
            return None
        found = self.root.add(memref.AllocaOp.get(i64, 8, [1]))
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

    def build(self, task: Scope, number: SSAValue, blocks: Sequence[int]) -> None:
        tiling = self.tiling
        batch, row_block, column_block = task_parts(task, self.root, number, blocks)
        panels = part_bounds(task, column_block, tiling.panels_at_a_time, tiling.panels)
        self._build(task, batch, row_block, panels)

    def build_shared(self, bounds: Bounds, blocks: Sequence[int]) -> None:
        """Blocks of rows, each with the panels of all tasks within the bounds that have it: those follow each other."""
        root, groups = self.root, self.root.index_constant(blocks[-1])
        first = root.add(arith.DivSIOp(bounds[0], groups))
        last = root.add(arith.DivSIOp(plus(root, bounds[1], root.index_constant(blocks[-1] - 1)), groups))

        def block(task: Scope, number: SSAValue) -> None:
            before = times(task, number, blocks[-1])
            begin, end = (task.add(arith.SubiOp(bound, before)) for bound in bounds)
            begin = task.add(arith.MaxSIOp(begin, root.index_constant(0)))
            end = task.add(arith.MinSIOp(end, groups))
            batch, row_block = task_parts(task, root, number, blocks[:-1])
            self._build_groups(task, batch, row_block, (begin, end))

        count_loop(root, "rows", (first, last), block)

    def _build_groups(self, task: Scope, batch: SSAValue, row_block: SSAValue, groups: Bounds) -> None:
        """Groups of panels, all at a time where there is room for what they leave."""
        some, every = self.tiling.panels_at_a_time, self.tiling.panels
        if self.tiling.depth_first and self.sums.result is None:
            count_loop(
                task,
                "group",
                groups,
                lambda scope, group: self._build(scope, batch, row_block, part_bounds(scope, group, some, every)),
            )
            return
        first, last = (times(task, group, some) for group in groups)
        last = task.add(arith.MinSIOp(last, self.root.index_constant(every)))
        self._build(task, batch, row_block, (first, last))

    def build_row(self, task: Scope, first: SSAValue, end: SSAValue) -> None:
        """Panels that are tasks, as many as sums have room for from the first on, of a single block of rows."""
        zero, some = self.root.index_constant(0), self.root.index_constant(self.tiling.panels_at_a_time)
        last = task.add(arith.MinSIOp(task.add(arith.AddiOp(first, some)), end))
        self._build(task, zero, zero, (first, last))

    def _build(self, task: Scope, batch: SSAValue, row_block: SSAValue, panels: Bounds) -> None:
        of, tiling, product = self.of, self.tiling, self.build_of.product
        task.indices = {self.sums.epilogue.batch: batch}
        tiles = part_bounds(task, row_block, tiling.block, tiling.tiles)
        first, last = (self.calls.rows.first_row(task, tile) for tile in tiles)
        rows = Rows(tiles, first, task.add(arith.SubiOp(last, first)))
        left = self._operand(task, 0, product.lhs).moved(task, first, self.root.index_constant(0))
        if self.left is not None and not (tiling.depth_first or tiling.copies_tiles):
            left = self.left.rows(task, left, rows.count, self.root.index_constant(of.depth))
        right = self._operand(task, 1, product.rhs)
        if tiling.is_streamed:
            self._stream(task, panels, rows, left, right)
        elif tiling.depth_first:
            self._blocks_of_panels(task, panels, rows, left, right)
        elif tiling.rows_first:
            self._panels_of_tiles(task, panels, rows, left, right)
        else:
            count_loop(
                task, "panel", panels, lambda scope, panel: self._panel(scope, panel, panels[0], rows, left, right)
            )

    def _operand(self, task: Scope, number: int, operand: OperandAccess) -> Source:
        """The matrix of an operand that a task reads."""
        if (computed := self.computed[number]) is not None:
            return computed
        memory = self.in_memory[number]
        assert memory is not None
        return Matrix(memory, task.index(operand.offset), operand.row, operand.column)

    def _stream(self, task: Scope, panels: Bounds, rows: Rows, left: Source, right: Source) -> None:
        """All columns of the panels, for the whole contracted dimension, and then what follows them."""
        assert isinstance(left, Matrix) and isinstance(right, Matrix)  # operands that are computed have copies
        constant = self.root.index_constant
        first, last = (times(task, panel, self.tiling.width) for panel in panels)
        count = task.add(arith.SubiOp(task.add(arith.MinSIOp(last, constant(self.of.columns))), first))
        columns = Columns(first, count, True, constant(0))
        self.calls.stream(
            task,
            left,
            right.moved(task, constant(0), first),
            self.sums.matrix(task, rows, columns),
            (self.of.depth, count),
        )
        self.sums.finish(task, columns, rows)

    def _blocks_of_panels(self, task: Scope, panels: Bounds, rows: Rows, left: Source, right: Source) -> None:
        """All panels for a block of the contracted dimension, then for the next one."""

        def block(scope: Scope, depth: SSAValue) -> None:
            part = left.moved(scope, self.root.index_constant(0), depth)
            if self.left is not None:
                part = self.left.rows(scope, part, rows.count, self._depth_of(scope, depth))

            def panel_of(inner: Scope, panel: SSAValue) -> None:
                self._multiply(inner, self._columns(inner, panel, panels[0]), rows, part, right, depth)

            count_loop(scope, "panel", panels, panel_of)

        self._over_depth(task, block)
        if self.sums.result is None:
            count_loop(
                task,
                "panel",
                panels,
                lambda scope, panel: self.sums.finish(scope, self._columns(scope, panel, panels[0]), rows),
            )

    def _panels_of_tiles(self, task: Scope, panels: Bounds, rows: Rows, left: Source, right: Source) -> None:
        """All panels for the rows of a tile, then for the next ones; where they are copied, they are so before."""
        zero, depth, copies = self.root.index_constant(0), self.root.index_constant(self.of.depth), self.right

        def number(scope: Scope, panel: SSAValue) -> SSAValue:
            return scope.add(arith.SubiOp(panel, panels[0]))

        def copy(scope: Scope, panel: SSAValue, copies: OperandCopy) -> None:
            columns = self._columns(scope, panel, panels[0])
            source = self._right_from(scope, right, zero, columns.first)
            copies.panel(scope, source, depth, columns.count, number(scope, panel))

        def tile_of(scope: Scope, tile: SSAValue) -> None:
            part = left
            if self.left is not None and self.tiling.copies_tiles:
                row = scope.add(arith.SubiOp(self.calls.rows.first_row(scope, tile), rows.first))
                part = self.left.rows(scope, left.moved(scope, row, zero), self.calls.rows.rows(scope, tile), depth)
            count_loop(scope, "panel", panels, lambda inner, panel: panel_of(inner, tile, panel, part))

        def panel_of(scope: Scope, tile: SSAValue, panel: SSAValue, left: Source) -> None:
            columns = self._columns(scope, panel, panels[0])
            if copies is None:
                source = self._right_from(scope, right, zero, columns.first)
            else:
                source = copies.of_number(scope, number(scope, panel))
            assert isinstance(left, Matrix) and isinstance(source, Matrix)  # what is computed has a copy
            block = self._block(scope, columns, rows, left, source, depth, zero)
            is_copied = self.tiling.copies_tiles
            block = replace(block, has_tile=is_copied, in_lines=is_copied and copies is not None)
            self.calls.over_panel(scope, tile, rows.first, block)

        if copies is not None and isinstance(right, Matrix):
            self._copy_panels(task, panels, right, copies)
        elif copies is not None:
            count_loop(task, "panel", panels, lambda scope, panel: copy(scope, panel, copies))
        count_loop(task, "tile", rows.tiles, tile_of)

    def _copy_panels(self, task: Scope, panels: Bounds, right: Matrix, copies: OperandCopy) -> None:
        """Of a matrix in memory, of which all rows are copied."""
        constant, width = self.root.index_constant, self.tiling.width
        first, last = (times(task, panel, width) for panel in panels)
        columns = task.add(arith.SubiOp(task.add(arith.MinSIOp(last, constant(self.of.columns))), first))
        source = right.moved(task, constant(0), first)
        copies.panels(task, source, constant(self.of.depth), columns, width)

    def _panel(self, scope: Scope, panel: SSAValue, first: SSAValue, rows: Rows, left: Source, right: Source) -> None:
        """A panel, block by block of the contracted dimension."""
        columns = self._columns(scope, panel, first)

        def block(inner: Scope, depth: SSAValue) -> None:
            part = left.moved(inner, self.root.index_constant(0), depth)
            self._multiply(inner, columns, rows, part, right, depth)

        self._over_depth(scope, block)
        if not self.sums.by_tiles:
            self.sums.finish(scope, columns, rows)

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
        if is_even and not isinstance(few, bool) and isinstance(source, Matrix):
            # what follows sums, and the loop over tiles, is there once, of which compilers take their time
            either(scope, few, lambda inner: None, lambda inner: copy(inner) and None)
            tiles(scope, self.right.matrix, (few, source))
            return
        either(scope, few, lambda inner: tiles(inner, source), lambda inner: tiles(inner, copy(inner)))

    def _asks(self) -> tuple[Asks, bool] | None:
        """How tiles ask for the next part of the right operand, if they do, and whether columns are its rows in memory."""
        tiling, right = self.tiling, self.build_of.product.rhs
        near = tiling.along_depth or tiling.rows is not None or tiling.rest > 0 or self.arithmetic.group > 1
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
        if not self.tiling.rest:
            return few_rows
        most = SMALL_BYTES // self.arithmetic.right.itemsize
        elements, small = self.root.index_constant(self.of.depth * self.of.columns), self.root.index_constant(most)
        is_small = self.root.made("small", lambda: arith.CmpiOp(elements, small, "sle"))
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

        lines = self.sums.lines(scope, rows, columns) if group > 1 else None
        return replace(found, is_alone=self.sums.is_alone, lines=lines, finish=finish)

    def _right_from(self, scope: Scope, right: Source, depth: SSAValue, column: SSAValue) -> Source:
        """The right operand from a row and the first column of a panel on."""
        panels = self.build_of.product.rhs.panels
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
            return Columns(column, constant(tiling.last_width), True, sums)
        is_last = scope.add(arith.CmpiOp(panel, constant(tiling.panels - 1), "eq"))
        count = constant(tiling.width)
        if tiling.last_width != tiling.width:
            count = scope.add(arith.SelectOp(is_last, constant(tiling.last_width), count))
        return Columns(column, count, is_last, sums)
