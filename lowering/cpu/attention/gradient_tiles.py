"""A task of attention's gradient: blocks of keys, and for each the rows that see one."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.lowering.cpu.attention.gradient_products import GradientProducts, KeyBlock, ProductSums
from fuse_opt.lowering.cpu.matmul.copies import (
    Matrix,
    count_loop,
    element_of,
    plus,
    times,
)
from fuse_opt.lowering.cpu.matmul.epilogue import Sums
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import INDEX, Scope


class GradientTiles(GradientProducts):
    """The body of a task: all rows and keys of a matrix, or of the matrices that share keys."""

    def build(self, task: Scope, number: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        task.indices = {self.batch: number}
        sources = [self.matrix(task, each.right) for each in of.scores]
        for each in self.sums:
            if each.of.by_row:
                self.clear(task, self.sums_of(task, each, number), constant(of.parts * of.rows))
        if self.flag is not None:
            self._note_finite(task, number, sources)
        first = constant(0), constant(tiling.key_blocks)
        count_loop(task, "block", first, lambda scope, block: self._block(scope, block, number, sources))
        for each in self.sums:
            if each.of.by_row:
                self._each_part(task, number, lambda scope, part, each=each: self._end(scope, each, number, part))

    def _each_part(self, scope: Scope, number: SSAValue, build: Callable[[Scope, SSAValue], None]) -> None:
        """Code for each of the parts of a matrix, given its number among them."""
        constant, parts = self.root.index_constant, self.of.parts
        if parts == 1:
            build(scope, constant(0))
            return

        def of_part(inner: Scope, part: SSAValue) -> None:
            inner.indices = {self.part: plus(inner, times(inner, number, parts), part)}
            build(inner, part)

        count_loop(scope, "part", (constant(0), constant(parts)), of_part)

    def _end(self, scope: Scope, each: ProductSums, number: SSAValue, part: SSAValue) -> None:
        """Stores what the sums of the rows of a part come to."""
        constant, rows = self.root.index_constant, self.of.rows
        sums = self.sums_of(scope, each, number).moved(scope, times(scope, part, rows), constant(0))
        columns = constant(0), constant(each.of.product.columns)
        block = Sums(sums.memory, rows, int(sums.row), sums.at)
        each.epilogue.emit(scope, block, constant(0), constant(rows), columns, constant(0))

    def _block(self, scope: Scope, block: SSAValue, number: SSAValue, sources: list[Matrix]) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        first = times(scope, block, tiling.keys)
        whole = tiling.last_keys == tiling.keys
        is_whole = whole or scope.add(arith.CmpiOp(block, constant(tiling.key_blocks - 1), "slt"))
        count = scope.add(arith.MinSIOp(scope.add(arith.SubiOp(constant(of.keys), first)), constant(tiling.keys)))
        rest = plus(scope, count, constant(tiling.width - 1))
        keys = KeyBlock(first, count, scope.add(arith.DivSIOp(rest, constant(tiling.width))), is_whole)
        zero = constant(0)
        for each, source, panels in zip(of.scores, sources, self.score_panels, strict=True):
            depth = constant(each.product.depth)
            self.pack(scope, source.moved(scope, zero, first), panels, each.product.depth, (depth, count), keys.panels)
        for each in self.sums:
            if each.of.by_row:
                columns = constant(each.of.product.columns)
                source = self.matrix(scope, each.of.right).moved(scope, first, zero)
                self.pack(scope, source, each.panels, each.room, (count, columns), self.panels_of(each))
            else:
                self.clear(scope, self.sums_of(scope, each, number), count)
        self._each_part(scope, number, lambda inner, part: self._part(inner, keys, number, part))
        for each in self.sums:
            if not each.of.by_row:
                sums = Sums(each.memory, tiling.keys, tiling.padded(each.of.product.columns))
                columns = zero, constant(each.of.product.columns)
                each.epilogue.emit(scope, sums, first, count, columns, zero)

    def _part(self, scope: Scope, keys: KeyBlock, number: SSAValue, part: SSAValue) -> None:
        """All rows of a part that see one of the keys, block by block."""
        tiling, constant = self.tiling, self.root.index_constant
        lefts = [self.matrix(scope, each.left) for each in self.of.scores]
        rights = [None if each.of.by_row else self.matrix(scope, each.of.right) for each in self.sums]

        def block(inner: Scope, tile: SSAValue) -> None:
            last = inner.add(arith.MinSIOp(plus(inner, tile, constant(tiling.group)), constant(tiling.tiles)))
            first = self.row_tiles.first_row(inner, tile)
            count = inner.add(arith.SubiOp(self.row_tiles.first_row(inner, last), first))
            self.score(inner, keys, (tile, last), (first, count), lefts)
            columns = keys.first, plus(inner, keys.first, keys.count)
            self.weights.emit(inner, self.blocks[0], first, count, columns, keys.first)
            for each, right in zip(self.sums, rights, strict=True):
                if right is not None:
                    extents = count, constant(each.of.product.columns)
                    source = right.moved(inner, first, constant(0))
                    self.pack(inner, source, each.panels, each.room, extents, self.panels_of(each))
                    self.add_to_keys(inner, each, keys, count)
                else:
                    row = plus(inner, times(inner, part, self.of.rows), first)
                    sums = self.sums_of(inner, each, number).moved(inner, row, constant(0))
                    self.add_to_rows(inner, each, keys, (tile, last), first, sums)

        count_loop(scope, "tile", (self._first_tile(scope, keys), constant(tiling.tiles)), block, tiling.group)

    def _first_tile(self, scope: Scope, keys: KeyBlock) -> SSAValue:
        """The first tile that has a row that sees one of the keys, or one before it."""
        zero, constant = self.root.index_constant(0), self.root.index_constant
        if self.flag is None:
            return zero
        assert self.of.seen is not None
        row = scope.add(arith.MaxSIOp(plus(scope, keys.first, constant(1 - self.of.seen)), zero))
        tile = scope.add(arith.DivSIOp(row, constant(self.tiling.most_rows)))
        skips = scope.add(arith.CmpiOp(scope.add(memref.LoadOp.get(self.flag, [zero])), zero, "ne"))
        return scope.add(arith.SelectOp(skips, tile, zero))

    def _note_finite(self, task: Scope, number: SSAValue, sources: list[Matrix]) -> None:
        """Sets the flag to whether all that a hidden key is multiplied with is finite: then it adds nothing to any sum."""
        assert self.flag is not None
        flag, constant = self.flag, self.root.index_constant
        zero = constant(0)
        task.block.add_op(memref.StoreOp.get(constant(1), flag, [zero]))
        others = list(zip(self.of.scores, sources, strict=True))[1:]
        for each, source in others:
            self._note_matrix(task, source.transposed(), self.of.keys, each.product.depth)

        def of_part(scope: Scope, part: SSAValue) -> None:
            for each, _ in others:
                self._note_matrix(scope, self.matrix(scope, each.left), self.of.rows, each.product.depth)
            self.weights.note_rows(scope, constant(self.of.rows), flag)

        self._each_part(task, number, of_part)

    def _note_matrix(self, scope: Scope, matrix: Matrix, rows: int, columns: int) -> None:
        flag, constant = self.flag, self.root.index_constant
        assert flag is not None
        zero = constant(0)
        if matrix.column != 1 or element_of(matrix.memory) is not self.element:
            scope.block.add_op(memref.StoreOp.get(zero, flag, [zero]))
            return

        def row(inner: Scope, number: SSAValue) -> None:
            arguments = [constant(columns), flat_memory(self.root, matrix.memory), matrix.place(inner, number, zero)]
            found = inner.call(f"fo_all_finite_{self.element.name}", arguments, INDEX)
            known = inner.add(memref.LoadOp.get(flag, [zero]))
            inner.block.add_op(memref.StoreOp.get(inner.add(arith.AndIOp(known, found)), flag, [zero]))

        count_loop(scope, "row", (zero, constant(rows)), row)
