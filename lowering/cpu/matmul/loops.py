"""A product as tiles of sums in vector registers, with what follows it computed on each block while a cache has it.

A task is a block of rows and some panels, which are as wide as a tile: block by block of the contracted dimension the panel is
copied so that a tile finds its elements side by side (few rows read it where it lies), and all tiles of the rows go over
it. Blocks and tiles follow from the shapes alone, and blocks come in order: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.analysis.products import Product, product_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.lowering.cpu.kernel import WORK_PER_CHUNK, KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.copies import Matrix, copy_matrix, count_loop, pack_panel, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.cpu.matmul.tiling import Tiling, choose_tiling
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope

PADDING = 16
"""Elements between the rows of a copy, so that they lie in different sets of a cache."""


def build_product_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a product and pointwise ops. Raises Unschedulable."""
    product = product_of(kernel)
    tiling = choose_tiling(product.contraction, dtype(product.raw).itemsize)
    return [_ProductLoops(kernel, product, tiling, storages).build()]


def operand_pass(value: SSAValue) -> LoopBody:
    """A pass that loads a value, so that the kernel has a buffer of it."""
    index = dimensions("i", shape(value))
    return LoopBody(index, shape(value), (), (), (ScalarNode(value, index, None),), ())


class _ProductLoops:
    def __init__(self, kernel: KernelOp, product: Product, tiling: Tiling, storages: Sequence[Hashable]) -> None:
        self.product = product
        self.tiling = tiling
        self.of = product.contraction
        self.element: DType = dtype(product.raw)
        passes = [product.epilogue, operand_pass(product.lhs.value), operand_pass(product.rhs.value)]
        self.memory = KernelBuffers(kernel, passes, storages)

    def build(self) -> KernelLoops:
        root = Scope(None, kernel_block(self.memory))
        tasks = (prod(self.of.batch), self.tiling.row_blocks, self.tiling.column_blocks)
        body = _Tiles(self, root, root.block.args)
        bounds = root.block.args[-2], root.block.args[-1]
        count_loop(root, "task", bounds, lambda task, number: body.build(task, number, tasks))
        root.block.add_op(func.ReturnOp())
        grain = -(-WORK_PER_CHUNK * prod(tasks) // max(self.of.operations, 1))
        parameters = tuple(self.memory.parameters)
        return KernelLoops(root.block, parameters, self.memory.shared, prod(tasks), grain, root.helpers)


class _Tiles:
    """The body of a task."""

    def __init__(self, build: _ProductLoops, root: Scope, arguments: Sequence[SSAValue]) -> None:
        self.build_of, self.of, self.tiling, self.element = build, build.of, build.tiling, build.element
        self.root = root
        self.tiles = RowTiles(self.element, self.tiling.vectors, self.tiling.height, self.tiling.taller)
        product, sources = build.product, build.memory.sources
        self.epilogue = BlockEpilogue(product.epilogue, product.places, self.of, product.raw, build.memory, root)
        self.lhs, self.rhs = arguments[sources[product.lhs.value]], arguments[sources[product.rhs.value]]
        self.panel = self._on_stack(self.tiling.depth * self.tiling.width, "panel") if self.tiling.packs else None
        some = self.tiling.block * self.tiling.most_rows
        self.sums = Sums(self._on_stack(some * self.tiling.width, "sums"), some, self.tiling.width)
        self.copy_step = self.of.depth + PADDING
        self.copy = self._on_stack(some * self.copy_step, "rows") if self.tiling.copies_rows else None

    def _on_stack(self, size: int, name: str) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [size]))
        memory.name_hint = name
        return memory

    def build(self, task: Scope, number: SSAValue, blocks: Sequence[int]) -> None:
        of, tiling = self.of, self.tiling
        batch, row_block, column_block = task_parts(task, self.root, number, blocks)
        task.indices = {self.epilogue.batch: batch}
        tiles = part_bounds(task, row_block, tiling.block, tiling.tiles)
        first, last = (self.tiles.first_row(task, tile) for tile in tiles)
        product = self.build_of.product
        at = plus(task, times(task, first, of.lhs[-2]), task.index(product.lhs.offset))
        left = Matrix(self.lhs, at, of.lhs[-2], of.lhs[-1])
        if self.copy is not None:
            target = Matrix(self.copy, self.root.index_constant(0), self.copy_step)
            count = task.add(arith.SubiOp(last, first))
            copy_matrix(task, self.element, left, target, count, self.root.index_constant(of.depth))
            left = target
        right = Matrix(self.rhs, task.index(product.rhs.offset), of.rhs[-2], of.rhs[-1])
        rows = first, task.add(arith.SubiOp(last, first))
        panels = part_bounds(task, column_block, tiling.panels_at_a_time, tiling.panels)
        count_loop(
            task, "panel", panels, lambda scope, panel: self._panel(scope, panel, tiles, first, left, right, rows)
        )

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
                wanted = inner.add(arith.SubiOp(after, column))
                target = Matrix(self.panel, constant(0), tiling.width)
                source = pack_panel(inner, self.element, source, target, count, wanted, of.columns % tiling.width != 0)
            moved = Matrix(left.memory, plus(inner, left.at, depth), left.row)

            def multiply(at: Scope, tile: SSAValue) -> None:
                row = at.add(arith.SubiOp(self.tiles.first_row(at, tile), first))
                rows = Matrix(moved.memory, plus(at, moved.at, times(at, row, moved.row)), moved.row)
                sums = Matrix(self.sums.memory, times(at, row, tiling.width), tiling.width)
                self.tiles.multiply(at, tile, count, rows, source, sums, depth)

            count_loop(inner, "tile", tiles, multiply)

        count_loop(scope, "depth", (constant(0), constant(of.depth)), block, tiling.depth)
        self.epilogue.emit(scope, self.sums, *rows, (column, after), start)
