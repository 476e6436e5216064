"""A product as tiles of sums in vector registers, with what follows it computed on each block while a cache has it.

A task is a block of rows and some panels, which are as wide as a tile: block by block of the contracted dimension the panel is
copied so that a tile finds its elements side by side (few rows read it where it lies), and all tiles of the rows go over
it. Blocks and tiles follow from the shapes alone, and blocks come in order: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from xdsl.dialects import arith, func, memref, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.analysis.products import Product, product_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.index_expr import Dim, dimensions
from fuse_opt.lowering.c.headers.product_tiles import tile_name
from fuse_opt.lowering.cpu.kernel import WORK_PER_CHUNK, KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.copies import Matrix, copy_matrix, count_loop, fill_columns, plus, times
from fuse_opt.lowering.cpu.matmul.tiling import Tiling, choose_tiling
from fuse_opt.lowering.cpu.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope

PADDING = 16
"""Elements between the rows of a copy, so that they lie in different sets of a cache."""


def build_product_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a product and pointwise ops. Raises Unschedulable."""
    product = product_of(kernel)
    tiling = choose_tiling(product.contraction, dtype(product.raw).itemsize)
    return [_ProductLoops(kernel, product, tiling, storages).build()]


def _operand(value: SSAValue) -> LoopBody:
    """A pass that loads a value, so that the kernel has a buffer of it."""
    index = dimensions("i", shape(value))
    return LoopBody(index, shape(value), (), (), (ScalarNode(value, index, None),), ())


class _ProductLoops:
    def __init__(self, kernel: KernelOp, product: Product, tiling: Tiling, storages: Sequence[Hashable]) -> None:
        self.product = product
        self.tiling = tiling
        self.of = product.contraction
        self.element: DType = dtype(product.raw)
        passes = [product.epilogue, _operand(product.lhs), _operand(product.rhs)]
        self.memory = KernelBuffers(kernel, passes, storages)

    def build(self) -> KernelLoops:
        root = Scope(None, kernel_block(self.memory))
        tasks = (*self.of.batch, self.tiling.row_blocks, self.tiling.column_blocks)
        body = _Tiles(self, root, root.block.args)
        bounds = root.block.args[-2], root.block.args[-1]
        count_loop(root, "task", bounds, lambda task, number: body.build(task, number, tasks))
        root.block.add_op(func.ReturnOp())
        grain = -(-WORK_PER_CHUNK * prod(tasks) // max(self.of.operations, 1))
        parameters = tuple(self.memory.parameters)
        return KernelLoops(root.block, parameters, self.memory.shared, prod(tasks), grain, root.helpers)

    def batch_offset(self, scope: Scope, digits: Sequence[SSAValue], strides: Sequence[int]) -> SSAValue:
        """Where the matrix of a batch begins, from the strides of axes of which the last two are its own."""
        found = [times(scope, digit, s) for digit, s in zip(digits, strides[:-2], strict=False) if s]
        return plus(scope, *found) if found else scope.root.index_constant(0)


class _Tiles(StageLoops):
    """The body of a task."""

    def __init__(self, build: _ProductLoops, root: Scope, arguments: Sequence[SSAValue]) -> None:
        self.build_of, self.of, self.tiling, self.element = build, build.of, build.tiling, build.element
        nodes = KernelNodes(build.product.epilogue)
        dims = nodes.loop(build.product.epilogue.rows)
        whole = Dim("element", extent(dims))
        nodes.flatten_rows(dims, whole)
        rows = prod(self.of.batch) * self.of.rows
        self.row, self.column = Dim("row", rows), Dim("column", self.of.columns)
        nodes.split_dim(whole, self.row, self.column)
        nodes.finish()
        super().__init__(nodes, build.memory, arguments[: len(build.memory.types)], root)
        self.lhs = arguments[build.memory.sources[build.product.lhs]]
        self.rhs = arguments[build.memory.sources[build.product.rhs]]
        self.panel = self._on_stack(self.tiling.depth * self.tiling.width, "panel") if self.tiling.packs else None
        some = self.tiling.block * self.tiling.most_rows
        self.sums = self._on_stack(some * self.tiling.width, "sums")
        self.copy_step = self.of.depth + PADDING
        self.copy = self._on_stack(some * self.copy_step, "rows") if self.tiling.copies_rows else None

    def _on_stack(self, size: int, name: str) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [size]))
        memory.name_hint = name
        return memory

    def build(self, task: Scope, number: SSAValue, blocks: Sequence[int]) -> None:
        of, tiling = self.of, self.tiling
        *digits, row_block, column_block = task_parts(task, self.root, number, blocks)
        tiles = part_bounds(task, row_block, tiling.block, tiling.tiles)
        first, last = (self._row_of(task, tile) for tile in tiles)
        at = plus(task, times(task, first, of.lhs[-2]), self.build_of.batch_offset(task, digits, of.lhs))
        left = Matrix(self.lhs, at, of.lhs[-2], of.lhs[-1])
        if self.copy is not None:
            target = Matrix(self.copy, self.root.index_constant(0), self.copy_step)
            count = task.add(arith.SubiOp(last, first))
            copy_matrix(task, self.element, left, target, count, self.root.index_constant(of.depth))
            left = target
        right = Matrix(self.rhs, self.build_of.batch_offset(task, digits, of.rhs), of.rhs[-2], of.rhs[-1])
        index = task.add(arith.AddiOp(self._flat_batch(task, digits), first))
        rows = index, task.add(arith.SubiOp(last, first))
        panels = part_bounds(task, column_block, tiling.panels_at_a_time, tiling.panels)
        count_loop(
            task, "panel", panels, lambda scope, panel: self._panel(scope, panel, tiles, first, left, right, rows)
        )

    def _flat_batch(self, task: Scope, digits: Sequence[SSAValue]) -> SSAValue:
        """The first row of the batch among all rows of the result."""
        strides = [prod(self.of.batch[axis + 1 :]) * self.of.rows for axis in range(len(self.of.batch))]
        return self.build_of.batch_offset(task, digits, [*strides, 0, 0])

    def _row_of(self, scope: Scope, tile: SSAValue) -> SSAValue:
        """The first row of a tile."""
        row = times(scope, tile, self.tiling.height)
        if not self.tiling.taller:
            return row
        return plus(scope, row, scope.add(arith.MinSIOp(tile, self.root.index_constant(self.tiling.taller))))

    def _panel(
        self,
        scope: Scope,
        panel: SSAValue,
        tiles: tuple[SSAValue, SSAValue],
        first: SSAValue,
        left: Matrix,
        right: Matrix,
        rows: tuple[SSAValue, SSAValue],
    ) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        column = times(scope, panel, tiling.width)
        after = scope.add(arith.MinSIOp(plus(scope, column, constant(tiling.width)), constant(of.columns)))
        start = column
        if not tiling.packs:  # the last panel begins early, as nothing may be read behind the operand
            start = scope.add(arith.MinSIOp(column, constant(of.columns - tiling.width)))

        def block(inner: Scope, depth: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(constant(of.depth), depth))
            count = inner.add(arith.MinSIOp(rest, constant(tiling.depth)))
            source = Matrix(right.memory, right.place(inner, depth, start), right.row, right.column)
            if self.panel is not None:
                source = self._packed(inner, self.panel, source, count, (column, after))
            moved = Matrix(left.memory, plus(inner, left.at, depth), left.row)
            count_loop(inner, "tile", tiles, lambda s, tile: self._tile(s, tile, first, count, moved, source, depth))

        count_loop(scope, "depth", (constant(0), constant(of.depth)), block, tiling.depth)
        self._epilogue(scope, rows, (column, after), start)

    def _packed(
        self, scope: Scope, panel: SSAValue, source: Matrix, depth: SSAValue, columns: tuple[SSAValue, SSAValue]
    ) -> Matrix:
        """The panel, with so many rows of these columns in it, and zeros behind the last one."""
        width, constant = self.tiling.width, self.root.index_constant
        target = Matrix(panel, constant(0), width)
        count = scope.add(arith.SubiOp(columns[1], columns[0]))
        copy_matrix(scope, self.element, source, target, depth, count)
        if self.of.columns % width:
            fill_columns(scope, target, depth, (count, constant(width)), self.root.constant(0.0, self.element))
        return target

    def _tile(
        self,
        scope: Scope,
        tile: SSAValue,
        first: SSAValue,
        count: SSAValue,
        left: Matrix,
        right: Matrix,
        depth: SSAValue,
    ) -> None:
        tiling, constant = self.tiling, self.root.index_constant
        row = scope.add(arith.SubiOp(self._row_of(scope, tile), first))
        arguments = [
            count,
            flat_memory(self.root, left.memory),
            plus(scope, left.at, times(scope, row, left.row)),
            constant(left.row),
            flat_memory(self.root, right.memory),
            right.at,
            constant(right.row),
            flat_memory(self.root, self.sums),
            times(scope, row, tiling.width),
            constant(tiling.width),
            depth,
        ]
        names = [tile_name(self.element.name, rows, tiling.vectors) for rows in (tiling.height + 1, tiling.height)]
        if not tiling.taller:
            scope.call_for_effect(names[1], arguments)
            return
        branches: list[Region] = []
        for name in names:
            inner = Scope(scope, Block())
            inner.call_for_effect(name, arguments)
            inner.block.add_op(scf.YieldOp())
            branches.append(Region(inner.block))
        is_taller = scope.add(arith.CmpiOp(tile, constant(tiling.taller), "slt"))
        scope.block.add_op(scf.IfOp(is_taller, [], branches[0], branches[1]))

    def _epilogue(
        self, scope: Scope, rows: tuple[SSAValue, SSAValue], columns: tuple[SSAValue, SSAValue], start: SSAValue
    ) -> None:
        """Stores a block of the result, and what follows from it: a loop over its rows, and columns side by side."""
        some = self.tiling.block * self.tiling.most_rows
        local = Dim("block_row", some), Dim("block_column", self.tiling.width)
        stage = Stage((self.row, self.column), stores=list(self.loop_body.stores))
        place = as_expr(local[0]) * self.tiling.width + as_expr(local[1])
        for load in self.loop_body.loads():
            if load.value is self.build_of.product.raw:
                stage.taken[load] = RowBuffer(self.sums, place)
        outer = Scope(scope, Block(arg_types=[INDEX]))
        row = outer.block.args[0]
        row.name_hint = "row"
        outer.indices = {local[0]: row, self.row: outer.add(arith.AddiOp(rows[0], row))}
        inner = Scope(outer, Block(arg_types=[INDEX]))
        column = inner.block.args[0]
        column.name_hint = "column"
        inner.indices = {self.column: column, local[1]: inner.add(arith.SubiOp(column, start))}
        self.emitter.emit(stage.roots(), inner, stage)
        self.store(stage.stores, inner)
        inner.block.add_op(scf.ReduceOp())
        outer.block.add_op(self.parallel(inner.block, *columns))
        outer.block.add_op(scf.YieldOp())
        scope.block.add_op(self.loop(outer.block, self.root.index_constant(0), rows[1]))
