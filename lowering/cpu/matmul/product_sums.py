"""The sums of a product's tiles on the stack, and what follows them: tile by tile while a first cache has them, where it can."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.product_copies import NEAR_BYTES
from fuse_opt.dialects.analysis.contractions.products import Product
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import is_decided
from fuse_opt.lowering.c.headers.tile_steps import STEPS
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, element_of, plus, times
from fuse_opt.lowering.cpu.matmul.direct_result import DirectResult, direct_result, stored_rows
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.cpu.matmul.tilings.tiling import Tiling
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope

FEWEST_STEPS = 128
"""Elements that are contracted, of tiles that ask for what is read behind their sums."""

LITTLE_WORK = 8
"""
Simple operations of an element behind sums: with more, they are done for a panel at a time where panels are gone through once
for each block of the contracted dimension (tile by tile 591x1152x384 with a bias takes .98 of the time, 591x1536x384 with gelu
1.005; Zen 4).
"""

ROWS_AHEAD = 8
"""
Rows from what is computed behind sums of a panel to what is asked for (591x1536x384 with the gradient of gelu: .96 of the time; 4
to 12 are alike; Zen 4).
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a task."""

    tiles: Bounds
    first: SSAValue
    count: SSAValue


@dataclass(frozen=True, slots=True)
class Columns:
    """Those of a panel."""

    first: SSAValue
    count: SSAValue
    is_last: SSAValue | bool
    """Whether the panel is the last one."""
    sums: SSAValue
    """Where its sums begin."""


class ProductSums:
    """Memory for the sums of a tile, of a panel's rows or of all panels; none where tiles store the result as it is."""

    def __init__(
        self,
        product: Product,
        arithmetic: Arithmetic,
        tiling: Tiling,
        tiles: RowTiles,
        memory: KernelBuffers,
        root: Scope,
    ) -> None:
        element = arithmetic.sums
        self.of, self.tiling, self.tiles, self.root = product.contraction, tiling, tiles, root
        self.epilogue = BlockEpilogue(product.epilogue, product.places, self.of, product.raw, memory, root)
        is_direct = dtype(product.raw) is element and not tiling.pads
        self.result = direct_result(product, memory) if is_direct else None
        self.by_tiles = not (tiling.along_depth or (tiling.depth_first and self.epilogue.work > LITTLE_WORK))
        """Whether what follows is computed tile by tile, not for all rows of a panel."""
        self.is_alone = self.by_tiles and self._has_one_block()
        """Whether the sums of a tile are complete before those of the next one begin, which take their place."""
        rows = tiling.most_rows if self.is_alone else tiling.block * tiling.most_rows
        self.stored = self._stored(product, memory, arithmetic)
        """Where what follows a tile stores, if that is known to be rows, for the tile to ask for."""
        self.panel = rows * tiling.most_columns
        """Elements from the sums of a panel to those of the next one, where there are several."""
        self.asks = self._asks(arithmetic.group == 1 and self.stored is None)
        """
        Whether something is worth asking for before a tile: where what is read and stored behind sums is in no near cache, and
        tiles take some time (591x384x384 with a residual: .97 of the time; 591x1152x384 with a bias: .98; Zen 4).
        """
        if self.result is None:
            panels = tiling.panels_at_a_time if tiling.depth_first else 1
            found = root.add(memref.AllocaOp.get(element.attribute, 64, [panels * self.panel]))
            found.name_hint = "sums"
            self._sums = Sums(found, rows, tiling.most_columns * (panels if tiling.is_streamed else 1))

    def _has_one_block(self) -> bool:
        """Whether the contracted dimension is known to be one block."""
        return is_decided(lambda: self.of.depth <= self.tiling.depth)

    def is_last_block(self, scope: Scope, depth: SSAValue) -> SSAValue | bool:
        """Whether the block of the contracted dimension that begins at `depth` is the last one."""
        if self._has_one_block():
            return True
        after = plus(scope, depth, self.root.index_constant(self.tiling.depth))
        return scope.add(arith.CmpiOp(after, self.root.index_constant(self.of.depth), "sge"))

    def matrix(self, scope: Scope, rows: Rows, columns: Columns) -> Matrix:
        """Where tiles of the rows put their sums."""
        if self.result is not None:
            return self.result.matrix(scope, rows.first, columns.first)
        return Matrix(self._sums.memory, columns.sums, self._sums.step)

    def _stored(self, product: Product, memory: KernelBuffers, arithmetic: Arithmetic) -> DirectResult | None:
        """Tiles of groups ask for lines of any element, where they keep no sums for a next block of the contracted dimension."""
        if self.result is not None or not (self.is_alone if arithmetic.group > 1 else self.by_tiles):
            return None
        found = stored_rows(product, memory)
        if found is None or arithmetic.group > 1:
            return found
        is_alike = element_of(self.root.block.args[found.parameter]) is arithmetic.sums
        return found if is_alike and not self._is_short() else None

    def _is_short(self) -> bool:
        """Whether tiles have too few steps to ask for a row at every few of them."""
        return is_decided(lambda: self.of.depth < STEPS * self.tiling.most_rows)

    def lines(self, scope: Scope, rows: Rows, columns: Columns) -> Matrix | None:
        """Where what follows tiles of the rows stores, for them to ask for."""
        return None if self.stored is None else self.stored.matrix(scope, rows.first, columns.first)

    def finish(self, scope: Scope, columns: Columns, rows: Rows) -> None:
        """What follows the sums of all rows of a panel."""
        if self.result is None:
            self._follow(scope, columns, columns.sums, rows.first, rows.count, ROWS_AHEAD if self.asks else 0)

    def ask(self, scope: Scope, columns: Columns, tile: SSAValue) -> None:
        """Asks for what is read behind the sums of a tile, and for where that is stored."""
        rows = self.tiles.rows(scope, tile)
        self.epilogue.ask(scope, self.tiles.first_row(scope, tile), rows, columns.first, columns.count)

    def _asks(self, also_stores: bool) -> bool:
        """`also_stores`: tiles do not ask for what is stored themselves."""
        of, size = self.of, dtype(self.epilogue.raw).itemsize
        is_much = is_decided(lambda: of.rows * of.columns * size > NEAR_BYTES // 2)
        takes_time = self._is_short() or is_decided(lambda: of.depth >= FEWEST_STEPS)
        return is_much and takes_time and self.epilogue.find_asks(also_stores)

    def finish_tile(self, scope: Scope, columns: Columns, rows: Rows, tile: SSAValue) -> None:
        """What follows the sums of one of the tiles of the rows."""
        if self.result is not None:
            return
        first, at = self.tiles.first_row(scope, tile), columns.sums
        if not self.is_alone:
            at = plus(scope, at, times(scope, scope.add(arith.SubiOp(first, rows.first)), self._sums.step))
        self._follow(scope, columns, at, first, self.tiles.rows(scope, tile))

    def _follow(
        self, scope: Scope, columns: Columns, at: SSAValue, first: SSAValue, count: SSAValue, ahead: int = 0
    ) -> None:
        sums, after = replace(self._sums, at=at), plus(scope, columns.first, columns.count)
        self.epilogue.emit(scope, sums, first, count, (columns.first, after), columns.first, ahead)
