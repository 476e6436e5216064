"""Matrices in the memory that a block of threads shares: tiles, and how they are copied there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.gpu.scope import KernelScope, Values, combined_index, less, loop, named, store_at, when
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of a matrix in shared memory, `step` elements apart."""

    memory: SSAValue
    rows: int
    columns: int
    step: int
    start: SSAValue | None = None
    """Where the first row begins in memory; None for its beginning."""

    def starting(self, start: SSAValue) -> Tile:
        return replace(self, start=start)

    def place(self, scope: Scope, row: SSAValue, column: SSAValue) -> SSAValue:
        place = combined_index(scope, row, self.step, column, "place")
        return place if self.start is None else scope.add(arith.AddiOp(place, self.start))

    def load(self, scope: Scope, row: SSAValue, column: SSAValue) -> SSAValue:
        return scope.add(memref.LoadOp.get(self.memory, [self.place(scope, row, column)]))

    def store(self, scope: Scope, value: SSAValue, row: SSAValue, column: SSAValue) -> None:
        store_at(scope, value, self.memory, self.place(scope, row, column))


@dataclass(frozen=True, slots=True)
class TileCopy:
    """Copies rows of a matrix from memory, by all threads of a block, with zeros behind the last one."""

    kernel: KernelScope
    threads: int
    source: SSAValue
    access: OperandAccess
    element: DType
    """Of what is copied; memory may have narrower floats."""

    def build(self, scope: Scope, tile: Tile, first: SSAValue, rows: Extent, columns: int | None = None) -> None:
        """The rows of the tile from the first on, of so many of the matrix; it may have fewer columns than the tile."""
        count = Dim("element", tile.rows * tile.columns)
        bounds = (self.kernel.thread(), scope.index_constant(count.extent), scope.index_constant(self.threads))
        along_rows = self.access.column != 1 and self.access.row == 1
        inner_count = scope.index_constant(tile.rows if along_rows else tile.columns)

        def element(inner: Scope, _: Values) -> Values:
            number = inner.dim_value(count)
            outer = inner.add(arith.DivSIOp(number, inner_count))
            rest = inner.add(arith.RemSIOp(number, inner_count))
            row, column = (rest, outer) if along_rows else (outer, rest)
            given = named(inner.add(arith.AddiOp(first, row)), "row")
            zero = self._zero(inner)
            inside = less(inner, given, rows)
            if columns is not None and columns < tile.columns:
                inside = inner.add(arith.AndIOp(inside, less(inner, column, columns)))
            value = when(inner, inside, [zero], lambda there, _: [self._load(there, given, column)])
            tile.store(inner, value[0], row, column)
            return ()

        loop(scope, bounds, (), element, (count, "element"))

    def _zero(self, scope: Scope) -> SSAValue:
        zero = scope.constant(0.0, self.element)
        if zero.type == self.element.attribute:
            return zero
        return scope.root.made(("zero", self.element), lambda: arith.TruncFOp(zero, self.element.attribute))

    def _load(self, scope: Scope, row: SSAValue, column: SSAValue) -> SSAValue:
        place = scope.index(self.access.offset)
        for number, step in ((row, self.access.row), (column, self.access.column)):
            part = scope.add(arith.MuliOp(number, scope.index_constant(step)))
            place = scope.add(arith.AddiOp(place, part))
        value = scope.add(memref.LoadOp.get(self.source, [place]))
        wide = dtype(self.access.value) is not self.element
        return scope.add(arith.ExtFOp(value, self.element.attribute)) if wide else value


def numbers(scope: Scope, first: SSAValue, count: int, step: int) -> Sequence[SSAValue]:
    """So many numbers from the first on."""
    return [scope.add(arith.AddiOp(first, scope.index_constant(k * step))) if k else first for k in range(count)]
