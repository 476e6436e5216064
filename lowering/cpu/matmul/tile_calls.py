"""Calls of the tiles of a block of rows, over a panel and a block of the contracted dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.c.headers.product_dots import FAR, LONG, NEAR, dot_name
from fuse_opt.lowering.c.headers.product_groups import ASKS, FEWEST_LANES, KEEPS, LINES
from fuse_opt.lowering.c.headers.product_tiles import tile_name, vector_elements
from fuse_opt.lowering.c.headers.row_sums import streamed_name
from fuse_opt.lowering.cpu.matmul.asking import Following
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, element_of
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, TilePart, either
from fuse_opt.lowering.cpu.matmul.tilings.dots import LONG_ROW
from fuse_opt.lowering.cpu.matmul.tilings.tiling import Tiling
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class TileBlock:
    """What the tiles of a block of rows go over; matrices begin where the block does."""

    left: Matrix
    right: Matrix
    """Rows are those of the contracted dimension, columns the panel's."""
    out: Matrix
    depth: SSAValue
    """How many elements are contracted."""
    add: SSAValue
    """Not 0 where the sums of the elements before are there."""
    columns: SSAValue
    """Of the panel."""
    is_last: SSAValue | bool
    """Whether the panel is the last one."""
    copy: Matrix | None = None
    """Where the first tile leaves the panel, for those after it."""
    has_tile: bool = False
    """Whether `left` has the rows of one tile."""
    in_lines: bool = False
    """Whether groups of `left` and `right` are followed by zeros, up to whole lines of `left`."""
    is_alone: bool = False
    """Whether `out` has the sums of one tile at a time."""
    lines: Matrix | None = None
    """Where what follows a tile stores, which it asks for."""
    is_last_block: SSAValue | None = None
    """Whether sums are complete then, if that is not known: else a tile asks for where they are."""
    in_place: tuple[SSAValue, Matrix] | None = None
    """Where the first holds, the right operand is read there, and not from `right`."""
    ask: Callable[[Scope, SSAValue], None] | None = None
    """Asks for what that reads, before the tile."""
    finish: Callable[[Scope, SSAValue], None] | None = None
    """Puts down what follows a tile that is as wide as the panel, while a cache has its sums."""
    following: Following | None = None
    """What tiles that leave no copy ask for."""
    again: SSAValue | None = None
    """Not 0 where the tile before had the same rows, of which it kept a copy; None where none does."""


@dataclass(frozen=True, slots=True)
class TileCalls:
    """How tiles of a product are called."""

    element: str
    """By which tiles are named."""
    tiling: Tiling
    tall: bool
    """Whether rows are more than columns: then a tile's rows are gone through once, else a tile's columns."""
    is_far: bool
    """Whether the right operand may be far away when a tile reads it where it lies."""
    registers: SSAValue | None = None
    """Memory for what matrix registers are set up for, where tiles have some."""

    @property
    def rows(self) -> RowTiles:
        sums = F64 if self.element == F64.name else F32  # narrow elements are added up in 32 bits
        vectors = self.tiling.width // vector_elements(sums.name)
        return RowTiles(sums, vectors, self.tiling.height, self.tiling.taller, self.tiling.rows)

    def emit(self, scope: Scope, tiles: Bounds, first: SSAValue, block: TileBlock) -> None:
        """Calls for the tiles within the bounds, of which the first begins with the row `first`."""

        def over_tiles(inner: Scope, build: Callable[[Scope, SSAValue], None]) -> None:
            count_loop(inner, "tile", tiles, build)

        if block.copy is not None:
            self.over_panel(scope, tiles[0], first, block)
            tiles = scope.add(arith.AddiOp(tiles[0], scope.root.index_constant(1))), tiles[1]
            block = replace(block, right=block.copy, copy=None)
        if block.following is not None:
            block = replace(block, following=replace(block.following, first=tiles[0]))
        if not self.tiling.along_depth:
            over_tiles(scope, lambda inner, tile: self.over_panel(inner, tile, first, block))
        elif self.tall:
            over_tiles(
                scope,
                lambda inner, tile: self._groups(
                    inner, block, lambda s, at, columns: self._rows(s, tile, first, at, columns, block)
                ),
            )
        else:
            self._groups(
                scope,
                block,
                lambda inner, at, columns: over_tiles(
                    inner, lambda s, tile: self._rows(s, tile, first, at, columns, block)
                ),
            )

    def stream(self, scope: Scope, left: Matrix, right: Matrix, out: Matrix, extents: tuple[Extent, SSAValue]) -> None:
        """A call for all rows, of so many elements that are contracted and so many columns."""
        constant, rows = scope.root.index_constant, self.tiling.height
        zero = constant(0)
        arguments = [constant(extents[0]), extents[1]]
        for matrix, steps in ((left, (left.row, left.column)), (right, (right.row,)), (out, (out.row,))):
            arguments += [
                flat_memory(scope.root, matrix.memory),
                matrix.place(scope, zero, zero),
                *map(constant, steps),
            ]
        of_left, of_right = element_of(left.memory).name, element_of(right.memory).name
        place = FAR * (self._place == FAR)
        scope.call_for_effect(streamed_name(of_left, of_right, rows, place), arguments)

    @property
    def _place(self) -> str:
        """Of a right operand that is read where it lies, or by vectors along the contracted dimension."""
        if not self.tiling.is_far:
            return ""
        if not self.tiling.is_near:
            return FAR
        size = 8 if self.element == F64.name else 4
        return LONG if self.tiling.depth * size > LONG_ROW else NEAR

    def over_panel(self, scope: Scope, tile: SSAValue, first: SSAValue, block: TileBlock) -> None:
        """A tile that is as wide as the panel."""
        tiling, start = self.tiling, scope.root.index_constant(0)
        if block.ask is not None:
            block.ask(scope, tile)
        if 0 < tiling.rest < tiling.width:
            either(
                scope,
                block.is_last,
                lambda inner: self._over_rest(inner, tile, first, block),
                lambda inner: self._rows(inner, tile, first, start, tiling.width, block),
            )
            if block.finish is not None:
                block.finish(scope, tile)
            return
        either(
            scope,
            block.is_last if tiling.width != tiling.last_width and not tiling.pads else False,
            lambda inner: self._rows(inner, tile, first, start, tiling.last_width, block),
            lambda inner: self._rows(inner, tile, first, start, tiling.width, block),
        )
        if block.finish is not None:
            block.finish(scope, tile)

    def _over_rest(self, scope: Scope, tile: SSAValue, first: SSAValue, block: TileBlock) -> None:
        """
        Tiles of the columns of a last panel: of a vector each, and of one and a half where half a one is enough at the end. Half
        a vector by itself waits for sums as long as a whole one.
        """
        constant, step = scope.root.index_constant, self.tiling.rest
        left = scope.add(arith.RemSIOp(block.columns, constant(step)))
        is_half = scope.add(arith.CmpiOp(scope.add(arith.SubiOp(left, constant(1))), constant(step // 2), "ult"))
        is_more = scope.add(arith.CmpiOp(block.columns, constant(step), "sgt"))
        is_half = scope.add(arith.AndIOp(is_half, is_more))
        before = scope.add(arith.SubiOp(scope.add(arith.SubiOp(block.columns, left)), constant(step)))
        end = scope.add(arith.SelectOp(is_half, before, block.columns))
        count_loop(scope, "column", (constant(0), end), lambda s, at: self._rows(s, tile, first, at, step, block), step)
        either(scope, is_half, lambda inner: self._rows(inner, tile, first, end, step + step // 2, block))

    def _groups(self, scope: Scope, block: TileBlock, build: Callable[[Scope, SSAValue, int], None]) -> None:
        """The panel's columns, as many at a time as a tile has, and then those that are left over in the last one."""
        columns = self.tiling.columns
        rest = self.tiling.last_width % columns
        end = block.columns
        if rest:
            step = scope.root.index_constant(columns)
            end = scope.add(arith.SubiOp(end, scope.add(arith.RemSIOp(end, step))))
        bounds = scope.root.index_constant(0), end
        count_loop(scope, "columns", bounds, lambda inner, at: build(inner, at, columns), columns)
        if rest:
            either(scope, block.is_last, lambda inner: build(inner, end, rest))

    def _rows(
        self, scope: Scope, tile: SSAValue, first: SSAValue, at: SSAValue, columns: int, block: TileBlock
    ) -> None:
        """A tile, which has one row more where it is among the taller ones."""
        row = scope.add(arith.SubiOp(self.rows.first_row(scope, tile), first))
        is_first = block.copy is not None and self.tiling.row_blocks == 1
        following = block.following if block.copy is None else None
        ends = following.arguments(scope, tile) if following is not None else []
        self.rows.each_part(
            scope,
            tile,
            lambda inner, part: self._call(inner, part, columns, row, at, block, ends),
            is_first,
            self.element in (F32.name, F64.name),
        )

    def _call(
        self,
        scope: Scope,
        part: TilePart,
        columns: int,
        row: SSAValue,
        column: SSAValue,
        block: TileBlock,
        asked: Sequence[SSAValue],
    ) -> None:
        left, right, out, root, rows = block.left, block.right, block.out, scope.root, part.rows
        zero = root.index_constant(0)
        along, in_tile = self.tiling.along_depth, part.place(scope, zero)
        row = part.place(scope, row)
        transposed = self.tiling.transposed_rows
        keeps = block.again is not None and columns >= FEWEST_LANES
        name = dot_name(element_of(right.memory).name, rows, columns, self._place)
        if not along:
            is_copied = block.copy is not None
            is_far, has_lines = self.is_far or is_copied, block.lines is not None and self.registers is None
            asks = (block.following.asks.rows, block.following.asks.lines) if asked and block.following else None
            name = tile_name(
                self.element, rows, columns, transposed, is_far=is_far, copies=is_copied, lines=has_lines, asks=asks
            )
            name += LINES * block.in_lines + KEEPS * keeps
            if block.lines is not None and not has_lines:
                name += f"{ASKS}{element_of(block.lines.memory).itemsize}"
        arguments = [
            block.depth,
            flat_memory(root, left.memory),
            left.place(scope, in_tile if block.has_tile else row, zero),
            root.index_constant(left.column) if transposed else part.step(scope, left.row),
            *self._right(scope, column, block),
            flat_memory(root, out.memory),
            out.place(scope, in_tile if block.is_alone else row, column),
            part.step(scope, out.row),
            block.add,
        ]
        if self.registers is not None:
            arguments.append(flat_memory(root, self.registers))
        if keeps and block.again is not None:
            arguments.append(block.again)
        if block.lines is not None:
            arguments += self._lines(scope, part, row, column, block, block.lines)
        if (to := block.copy) is not None:
            arguments += [flat_memory(root, to.memory), to.place(scope, zero, column), root.index_constant(to.row)]
        arguments += asked
        scope.call_for_effect(name, arguments)

    @staticmethod
    def _lines(
        scope: Scope, part: TilePart, row: SSAValue, column: SSAValue, block: TileBlock, lines: Matrix
    ) -> list[SSAValue]:
        """Where a tile asks for lines: of its own sums, while others are added to them."""

        def asked(matrix: Matrix) -> list[SSAValue]:
            place, step = matrix.place(scope, row, column), part.step(scope, matrix.row)
            return [flat_memory(scope.root, matrix.memory), place, step]

        if (last := block.is_last_block) is None:
            return asked(lines)
        return [scope.add(arith.SelectOp(last, *pair)) for pair in zip(asked(lines), asked(block.out), strict=True)]

    def _right(self, scope: Scope, column: SSAValue, block: TileBlock) -> list[SSAValue]:
        """The right operand's memory, where a tile begins in it, and its step."""
        zero = scope.root.index_constant(0)

        def read(matrix: Matrix) -> list[SSAValue]:
            step = matrix.column if self.tiling.along_depth else matrix.row
            memory = flat_memory(scope.root, matrix.memory)
            return [memory, matrix.place(scope, zero, column), scope.root.index_constant(step)]

        if block.in_place is None:
            return read(block.right)
        holds, other = block.in_place
        pairs = zip(read(other), read(block.right), strict=True)
        return [scope.add(arith.SelectOp(holds, there, here)) for there, here in pairs]
