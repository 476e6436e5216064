"""The products of attention's gradient: memory of a task for what they read and sum up, and the tiles of a block of keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention_gradients import (
    AttentionGradient,
    WeightedProduct,
)
from fuse_opt.dialects.analysis.contractions.operand_access import BATCH, OperandAccess
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.cpu.attention.gradient_tiling import GradientTiling
from fuse_opt.lowering.cpu.attention.gradient_weights import GradientWeights
from fuse_opt.lowering.cpu.attention.panels import on_stack
from fuse_opt.lowering.cpu.matmul.copies import (
    Bounds,
    Matrix,
    copy_matrix,
    count_loop,
    fill_columns,
    pack_panel,
    plus,
    times,
)
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import INDEX, Scope


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """A block of keys."""

    first: SSAValue
    count: SSAValue
    panels: SSAValue
    """Of scores."""
    is_whole: SSAValue | bool


@dataclass(frozen=True, slots=True)
class ProductSums:
    """A product of weights, with memory for panels of its right operand and for its sums."""

    of: WeightedProduct
    panels: SSAValue
    room: int
    """Rows that a panel has room for."""
    memory: SSAValue
    start: int
    """Where the sums of a matrix begin."""
    epilogue: BlockEpilogue


class GradientProducts:
    """What a task has memory for, and the products of a block of rows and keys."""

    def __init__(
        self,
        of: AttentionGradient,
        tiling: GradientTiling,
        memory: KernelBuffers,
        root: Scope,
        shared: SSAValue | None,
    ) -> None:
        """`shared` has room for the sums of rows of all matrices; None where the stack of a task has."""
        self.of, self.tiling, self.memory, self.root, self.shared = of, tiling, memory, root, shared
        self.element = dtype(of.scores[0].raw)
        self.batch, self.part = Dim(BATCH, of.matrices), Dim(BATCH, of.matrices * of.parts)
        self.row_tiles = RowTiles(self.element, tiling.vectors, tiling.height, tiling.taller)
        self.last_tiles = replace(self.row_tiles, vectors=tiling.last_vectors)
        """Of the last panel of keys."""
        rows = tiling.group_rows
        count = max(len(of.scores), of.count)
        self.blocks = [Sums(self._on_stack(rows * tiling.step, "scores"), rows, tiling.step) for _ in range(count)]
        self.weights = GradientWeights(of, self.blocks, memory, root)
        self.copies = [
            None if self._is_stretch(each.left) else self._on_stack(rows * each.product.depth, "rows")
            for each in of.scores
        ]
        self.score_panels = [self._on_stack(each.product.depth * tiling.keys, "panels") for each in of.scores]
        self.sums = [self._sum(each) for each in of.weighted]
        self.row_sums = sum(self._size(each) for each in of.weighted if each.by_row)
        self.flag = None
        if of.seen is not None:
            self.flag = root.add(memref.AllocaOp.get(INDEX, 64, [1]))
            self.flag.name_hint = "is_finite"

    def _on_stack(self, size: int, name: str) -> SSAValue:
        return on_stack(self.root, size, name, self.element)

    def _is_stretch(self, access: OperandAccess) -> bool:
        """Whether rows of an operand are stretches of memory that tiles can read."""
        return access.column == 1 and dtype(access.value) is self.element

    def _size(self, each: WeightedProduct) -> int:
        return self.of.parts * self.of.rows * self.tiling.padded(each.product.columns)

    def _sum(self, each: WeightedProduct) -> ProductSums:
        tiling, columns = self.tiling, self.tiling.padded(each.product.columns)
        room = tiling.keys if each.by_row else tiling.group_rows
        panels = self._on_stack(room * columns, "panels")
        epilogue = BlockEpilogue(each.epilogue, each.places, each.product, each.raw, self.memory, self.root)
        if not each.by_row:
            memory, start = self._on_stack(tiling.keys * columns, "key_sums"), 0
        elif self.shared is None:
            memory, start = self._on_stack(self._size(each), "row_sums"), 0
        else:
            before = self.of.weighted[: self.of.weighted.index(each)]
            memory, start = self.shared, sum(self._size(other) for other in before if other.by_row)
        return ProductSums(each, panels, room, memory, start, epilogue)

    def matrix(self, scope: Scope, access: OperandAccess) -> Matrix:
        """Where an operand has the matrix, or the part, that the scope knows."""
        value = self.root.block.args[self.memory.sources[access.value]]
        return Matrix(value, scope.index(access.offset), access.row, access.column)

    def sums_of(self, scope: Scope, each: ProductSums, number: SSAValue) -> Matrix:
        """The sums of a matrix, of all its rows or of a block of keys."""
        at = self.root.index_constant(each.start)
        if each.of.by_row and self.shared is not None:
            at = plus(scope, at, times(scope, number, self.row_sums))
        return Matrix(each.memory, at, self.tiling.padded(each.of.product.columns))

    def clear(self, scope: Scope, sums: Matrix, rows: SSAValue) -> None:
        zero, constant = self.root.index_constant(0), self.root.index_constant
        fill_columns(scope, sums, rows, (zero, constant(int(sums.row))), self.root.constant(0.0, self.element))

    def panels_of(self, each: ProductSums) -> SSAValue:
        return self.root.index_constant(self.tiling.padded(each.of.product.columns) // self.tiling.width)

    def pack(
        self,
        scope: Scope,
        source: Matrix,
        memory: SSAValue,
        room: int,
        extents: tuple[SSAValue, SSAValue],
        panels: SSAValue,
    ) -> None:
        """Copies so many rows and columns into panels that have room for so many rows."""
        width, (rows, columns) = self.tiling.width, extents

        def panel(inner: Scope, number: SSAValue) -> None:
            column = times(inner, number, width)
            rest = inner.add(arith.SubiOp(columns, column))
            count = inner.add(arith.MinSIOp(rest, self.root.index_constant(width)))
            target = Matrix(memory, times(inner, number, room * width), width)
            part = source.moved(inner, self.root.index_constant(0), column)
            pack_panel(inner, self.element, part, target, rows, count, True)

        count_loop(scope, "panel", (self.root.index_constant(0), panels), panel)

    def score(
        self, scope: Scope, keys: KeyBlock, tiles: Bounds, rows: tuple[SSAValue, SSAValue], lefts: list[Matrix]
    ) -> None:
        zero = self.root.index_constant(0)
        for number, each in enumerate(self.of.scores):
            depth, left = each.product.depth, lefts[number].moved(scope, rows[0], zero)
            if (copy := self.copies[number]) is not None:
                target = Matrix(copy, zero, depth)
                copy_matrix(scope, self.element, left, target, rows[1], self.root.index_constant(depth))
                left = target
            self._score(scope, number, keys, tiles, rows[0], left)

    def _score(self, scope: Scope, number: int, keys: KeyBlock, tiles: Bounds, first: SSAValue, left: Matrix) -> None:
        """Scores of a block, by one of the products that give some."""
        tiling, zero, depth = self.tiling, self.root.index_constant(0), self.of.scores[number].product.depth

        def panel(inner: Scope, at: SSAValue) -> None:
            right = Matrix(self.score_panels[number], times(inner, at, depth * tiling.width), tiling.width)
            out = Matrix(self.blocks[number].memory, times(inner, at, tiling.width), tiling.step)
            constant = self.root.index_constant

            def multiply(s: Scope, cut: RowTiles) -> None:
                self._over_rows(s, cut, tiles, first, (left, right, out), constant(depth), zero)

            is_last: SSAValue | bool = False
            if self.last_tiles != self.row_tiles:
                key = plus(inner, keys.first, times(inner, plus(inner, at, constant(1)), tiling.width))
                is_last = inner.add(arith.CmpiOp(key, constant(self.of.keys), "sgt"))
            either(inner, is_last, lambda s: multiply(s, self.last_tiles), lambda s: multiply(s, self.row_tiles))

        count_loop(scope, "panel", (zero, keys.panels), panel)

    def _over_rows(
        self,
        scope: Scope,
        cut: RowTiles,
        tiles: Bounds,
        first: SSAValue,
        matrices: tuple[Matrix, Matrix, Matrix],
        depth: SSAValue,
        add: SSAValue,
    ) -> None:
        """The products of the tiles of a block of rows, which begins with the row `first`, and a panel."""
        left, right, out = matrices
        zero = self.root.index_constant(0)

        def tile(inner: Scope, number: SSAValue) -> None:
            row = inner.add(arith.SubiOp(cut.first_row(inner, number), first))
            rows, sums = left.moved(inner, row, zero), out.moved(inner, row, zero)
            cut.multiply(inner, number, depth, rows, right, sums, add)

        count_loop(scope, "tile", tiles, tile)

    def add_to_rows(
        self, scope: Scope, each: ProductSums, keys: KeyBlock, tiles: Bounds, first: SSAValue, sums: Matrix
    ) -> None:
        """Adds what a block of weights gives to sums of its rows."""
        tiling, zero = self.tiling, self.root.index_constant(0)
        left = Matrix(self.blocks[each.of.weights].memory, zero, tiling.step)

        def panel(inner: Scope, at: SSAValue) -> None:
            right = Matrix(each.panels, times(inner, at, each.room * tiling.width), tiling.width)
            out = sums.moved(inner, zero, times(inner, at, tiling.width))
            matrices, one = (left, right, out), self.root.index_constant(1)
            self._over_rows(inner, self.row_tiles, tiles, first, matrices, keys.count, one)

        count_loop(scope, "panel", (zero, self.panels_of(each)), panel)

    def add_to_keys(self, scope: Scope, each: ProductSums, keys: KeyBlock, rows: SSAValue) -> None:
        """Adds what so many rows of weights give to sums of the keys."""
        tiling = self.tiling

        def of(inner: Scope, count: int) -> None:
            tiles, height, taller = tiling.key_tiles(count)
            self._over_keys(inner, each, RowTiles(self.element, tiling.vectors, height, taller), tiles, rows)

        either(scope, keys.is_whole, lambda s: of(s, tiling.keys), lambda s: of(s, tiling.last_keys))

    def _over_keys(self, scope: Scope, each: ProductSums, cut: RowTiles, tiles: int, rows: SSAValue) -> None:
        tiling, zero, one = self.tiling, self.root.index_constant(0), self.root.index_constant(1)
        left = Matrix(self.blocks[each.of.weights].memory, zero, tiling.step)
        sums = Matrix(each.memory, zero, tiling.padded(each.of.product.columns))

        def panel(inner: Scope, at: SSAValue) -> None:
            right = Matrix(each.panels, times(inner, at, each.room * tiling.width), tiling.width)

            def tile(scope: Scope, number: SSAValue) -> None:
                key = cut.first_row(scope, number)
                part = left.moved(scope, zero, key)
                out = sums.moved(scope, key, times(scope, at, tiling.width))
                cut.multiply(scope, number, rows, part, right, out, one, turned=True)

            count_loop(inner, "tile", (zero, self.root.index_constant(tiles)), tile)

        count_loop(scope, "panel", (zero, self.panels_of(each)), panel)
