"""A product as tiles of sums in vector registers, with what follows it computed on each tile while a cache has it.

A task is a block of rows and some panels, which are as wide as a tile: block by block of the contracted dimension the panel is
copied so that a tile finds its elements side by side (few rows read it where it lies, and of more the first tile leaves that
copy where it can), and all tiles of the rows go over it, each with what follows its sums once they are complete; a single row
goes over many panels before the next block, and few rows that stream the right operand over all of a task's. Blocks and tiles
follow from the shapes alone, and blocks come in order: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects import arith, func
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.computed_operands import ComputedOperand
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.analysis.contractions.product_copies import (
    FEW_TRANSPOSED,
    FEWEST_COPYING,
    FEWEST_TASKS,
)
from fuse_opt.dialects.analysis.contractions.products import product_of
from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import RIGHT_OPERAND, TILE_BITS
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, may_exceed
from fuse_opt.lowering.c.headers.matrix_tiles import FEWEST_ROWS
from fuse_opt.lowering.cpu.kernel import KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.computed_matrix import Source
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.operand_copy import OperandCopy
from fuse_opt.lowering.cpu.matmul.panel_products import CutProduct, PanelProducts
from fuse_opt.lowering.cpu.matmul.product_sums import Columns, Rows
from fuse_opt.lowering.cpu.matmul.tilings.any_columns import takes_any_columns, tiling_for_any_columns
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import arithmetic_of
from fuse_opt.lowering.cpu.matmul.tilings.choice import choose_tiling
from fuse_opt.lowering.cpu.matmul.tilings.tile_copies import FEWEST_PANELS
from fuse_opt.lowering.cpu.matmul.tilings.tiling import FEW_COLUMNS, LEAST_STRETCH
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, operand_pass
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
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
        tiling = replace(tiling, is_near=RIGHT_OPERAND.word(kernel) == "near")
    passes = [product.epilogue, operand_reads(product.lhs), operand_reads(product.rhs)]
    return [product_loops(CutProduct(product, arithmetic, tiling, KernelBuffers(kernel, passes, storages)))]


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


def product_loops(cut: CutProduct) -> KernelLoops:
    """The launch of a product, and of what follows it."""
    product, tiling = cut.product.contraction, cut.tiling
    root = Scope(None, kernel_block(cut.memory))
    blocks = (prod(product.batch), tiling.row_blocks, tiling.column_blocks)
    body = _Tiles(cut, root)
    bounds = root.block.args[-2], root.block.args[-1]
    if tiling.spans_tasks(prod(product.batch)):
        parts = FEWEST_COPYING
        if tiling.panels_are_tasks:
            parts = FEWEST_PANELS if tiling.copies_tiles else FEWEST_TASKS
        elif tiling.tiles == 1:
            parts = product.columns // LEAST_STRETCH
        tasks, least = (tiling.panels,), _even_share(tiling.panels, -(-tiling.panels // max(1, parts)))
        count_loop(
            root,
            "first",
            bounds,
            lambda task, first: body.build_row(task, first, bounds[1]),
            tiling.panels_at_a_time,
        )
    elif tiling.shares_rows:
        tasks, least = blocks, 1
        body.build_shared(bounds, blocks)
    else:
        tasks, least = blocks, 1
        count_loop(root, "task", bounds, lambda task, number: body.build(task, number, blocks))
    body.end()
    root.block.add_op(func.ReturnOp())
    every = prod(tasks)
    grain = max(least, -(-WORK_PER_CHUNK * estimate(every) // max(estimate(product.operations), 1)))
    parameters, sizes = tuple(cut.memory.parameters), tuple(root.sizes)
    return KernelLoops(root.block, parameters, cut.memory.shared, every, grain, root.helpers, sizes)


def _even_share(panels: int, most: int) -> int:
    """
    Panels of a chunk, so many at most and half as many at least, such that chunks are alike, and two or four threads have as many
    of them (36 panels by 5 are 20 for one of two threads, and 16 for the other).
    """
    for threads in (4, 2):
        for share in range(most, most // 2, -1):
            if panels % (threads * share) == 0:
                return share
    return most


class _Tiles(PanelProducts):
    """The body of a task."""

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
        of, tiling, product = self.of, self.tiling, self.product
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
        if self.sums.result is None and not self.sums.by_tiles:
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
            again = number(scope, panel) if self.keeps_sums else None
            block = replace(block, has_tile=is_copied, in_lines=is_copied and copies is not None, again=again)
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
