"""Matrices of 16-bit floats in shared memory for tensor cores: copied there 16 bytes at a time, and read from there by warps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, I32
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.gpu.attention.tiles import Tile, TileCopy
from fuse_opt.lowering.gpu.scope import KernelScope, Values, less, unrolled, when
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.program import VECTOR_BYTES

SIDE = 16
"""Rows and columns that matrices are padded to multiples of."""


def padded(extent: int) -> int:
    return -(-extent // SIDE) * SIDE


def any_size(scope: Scope, memory: SSAValue) -> SSAValue:
    """A buffer as one of any size, for functions that take it."""
    kind = memory.type
    assert isa(kind, MemRefType)
    wanted = MemRefType(kind.element_type, [DYNAMIC_INDEX], memory_space=kind.memory_space)
    return scope.root.made(("any_size", memory), lambda: memref.CastOp.get(memory, wanted))


@dataclass(frozen=True, slots=True)
class MatrixCopy:
    """Copies rows of an operand to shared memory by all threads of a block, with zeros around what there is."""

    kernel: KernelScope
    threads: int
    source: SSAValue
    access: OperandAccess
    rows: Extent
    """Of the operand."""
    columns: int
    chunked: bool = False
    """Whether it goes by chunks of 16 bytes, which are there when they have been waited for."""

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        return VECTOR_BYTES // dtype(self.access.value).itemsize

    def is_chunked(self) -> bool:
        """Whether rows are chunks of 16 bytes where the operand begins at a multiple of them."""
        offset = self.access.offset
        steps = [self.access.row, offset.constant, self.columns, *(factor for _, factor in offset.terms)]
        return self.access.column == 1 and all(exact_quotient(step, self.chunk) is not None for step in steps)

    def in_chunks(self) -> MatrixCopy:
        return replace(self, chunked=True)

    def build(self, scope: Scope, tile: Tile, first: SSAValue) -> None:
        """The rows of the tile from the first on."""
        if self.chunked:
            self._copy_chunks(scope, tile, first)
            return
        copy = TileCopy(self.kernel, self.threads, self.source, self.access, dtype(self.access.value))
        copy.build(scope, tile, first, self.rows, self.columns)

    def _copy_chunks(self, scope: Scope, tile: Tile, first: SSAValue) -> None:
        along = tile.columns // self.chunk
        turn = Dim("chunk", -(-tile.rows * along // self.threads))
        constant = scope.index_constant

        def chunk(inner: Scope, _: Values) -> Values:
            thread, number = self.kernel.thread(), inner.dim_value(turn)
            if self.threads % along == 0:
                row = inner.add(arith.MuliOp(number, constant(self.threads // along)))
                row = inner.add(arith.AddiOp(self._part(arith.DivSIOp, along), row))
                column = self._part(arith.RemSIOp, along)
            else:
                whole = inner.add(arith.MuliOp(number, constant(self.threads)))
                whole = inner.add(arith.AddiOp(thread, whole))
                row = inner.add(arith.DivSIOp(whole, constant(along)))
                column = inner.add(arith.RemSIOp(whole, constant(along)))
            column = inner.add(arith.MuliOp(column, constant(self.chunk)))
            if tile.rows * along % self.threads:
                when(
                    inner,
                    less(inner, row, tile.rows),
                    (),
                    lambda there, _: self._chunk(there, tile, first, row, column),
                )
            else:
                self._chunk(inner, tile, first, row, column)
            return ()

        unrolled(scope, turn, (), chunk, "chunk")

    def _part(self, build: type[arith.DivSIOp] | type[arith.RemSIOp], along: int) -> SSAValue:
        kernel = self.kernel
        return kernel.made((build, along), lambda: build(kernel.thread(), kernel.index_constant(along)))

    def _chunk(self, scope: Scope, tile: Tile, first: SSAValue, row: SSAValue, column: SSAValue) -> Values:
        given = scope.add(arith.AddiOp(first, row))
        inside = scope.constant(1, BOOL)
        if exact_quotient(self.rows, tile.rows) is None:
            inside = less(scope, given, self.rows)
        if self.columns < tile.columns:
            inside = scope.add(arith.AndIOp(inside, less(scope, column, self.columns)))
        place = scope.index(self.access.offset)
        place = scope.add(arith.AddiOp(place, scope.add(arith.MuliOp(given, scope.index_constant(self.access.row)))))
        place = scope.add(arith.AddiOp(place, column))
        target = tile.place(scope, row, column)
        arguments = [any_size(scope, tile.memory), target, any_size(scope, self.source), place, inside]
        scope.call_for_effect(f"fo_async_copy_{dtype(self.access.value).name}", arguments)
        return ()


@dataclass(frozen=True, slots=True)
class Warp:
    """What a warp does with matrices of a type."""

    kernel: KernelScope
    name: str
    """Of the type of elements."""

    def load(
        self,
        scope: Scope,
        tile: Tile,
        lane: SSAValue,
        place: IndexExpr,
        target: tuple[SSAValue, IndexExpr],
        turned: bool = False,
    ) -> None:
        """Four matrices from a tile, where a lane names the element `lane + place` of it."""
        at = scope.add(arith.AddiOp(lane, scope.index(place)))
        if tile.start is not None:
            at = scope.add(arith.AddiOp(at, tile.start))
        memory, position = target
        arguments = [any_size(scope, memory), scope.index(position), any_size(scope, tile.memory), at]
        scope.call_for_effect(f"fo_{'turned_' if turned else ''}matrices_{self.name}", arguments)

    def multiply(
        self,
        scope: Scope,
        sums: tuple[SSAValue, IndexExpr],
        left: tuple[SSAValue, IndexExpr],
        right: tuple[SSAValue, int],
    ) -> None:
        """Adds a product of matrices in registers to sums."""
        arguments: list[SSAValue] = []
        for memory, position in (sums, left):
            arguments += [any_size(scope, memory), scope.index(position)]
        arguments += [any_size(scope, right[0]), scope.index_constant(right[1])]
        scope.call_for_effect(f"fo_mma_{self.name}", arguments)

    def pair(self, scope: Scope, low: SSAValue, high: SSAValue) -> SSAValue:
        return scope.call(f"fo_pair_{self.name}", [low, high], I32.attribute)
