"""Attention of f16 and bf16 by products of four warps together (`wgmma`), which read keys and values from shared memory.

A group has 64 queries in registers, 16 of each warp; where a thread has scores, weights and sums is as with products of one warp.
What weights add to sums goes on while the next ones are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant
from fuse_opt.lowering.gpu.attention.blocks import GROUP_SIDE
from fuse_opt.lowering.gpu.attention.matrices import SIDE, any_size
from fuse_opt.lowering.gpu.attention.parts import TILE
from fuse_opt.lowering.gpu.attention.tensor_cores import TensorAttention
from fuse_opt.lowering.gpu.attention.tiled import THREADS
from fuse_opt.lowering.gpu.attention.tiles import Tile
from fuse_opt.lowering.gpu.scope import Values, loop, named, unrolled
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope

CHUNK = 8
"""Elements of 16 bytes."""
SUMS = GROUP_SIDE // 2
"""Of a thread, of a product of 64 columns."""


@dataclass(frozen=True, slots=True)
class MixedTile(Tile):
    """A matrix as the units of groups read it: columns of 64 elements, where chunk c of row r lies at c ^ r % 8."""

    def place(self, scope: Scope, row: SSAValue, column: SSAValue) -> SSAValue:
        def op(kind: type[arith.MuliOp | arith.DivSIOp | arith.RemSIOp | arith.AddiOp], a: SSAValue, b: int | SSAValue):
            return scope.add(kind(a, scope.index_constant(b) if isinstance(b, int) else b))

        whole = op(arith.DivSIOp, column, GROUP_SIDE)
        chunk = op(arith.RemSIOp, op(arith.DivSIOp, column, CHUNK), CHUNK)
        mixed = scope.add(arith.XOrIOp(chunk, op(arith.RemSIOp, row, CHUNK)))
        inner = op(arith.AddiOp, op(arith.MuliOp, mixed, CHUNK), op(arith.RemSIOp, column, CHUNK))
        above = op(arith.AddiOp, op(arith.MuliOp, whole, self.rows), row)
        place = named(op(arith.AddiOp, op(arith.MuliOp, above, GROUP_SIDE), inner), "place")
        return place if self.start is None else op(arith.AddiOp, place, self.start)


class GroupAttention(TensorAttention):
    """What a block of threads does."""

    def operand_tile(self, name: str, columns: int) -> Tile:
        self.kernel.asks_for_shared = True  # as these tiles begin at multiples of 1024 bytes
        memory = self.kernel.shared(self.narrow.attribute, 2 * self.block.keys * columns, name)
        return MixedTile(memory, self.block.keys, columns, columns)

    def share_steps(self) -> int:
        return self.block.keys // SIDE

    def share_place(self, steps: Dim) -> IndexExpr:
        return as_expr(steps) * 4

    def find_lanes(self) -> None:
        super().find_lanes()
        kernel, add, index = self.kernel, self.kernel.add, self.kernel.index_constant
        group = named(add(arith.DivSIOp(kernel.thread(), index(THREADS))), "group")
        above = add(arith.MuliOp(group, index(GROUP_SIDE)))
        self.team, self.team_rows = named(add(arith.AddiOp(self.first, above)), "first_of_group"), GROUP_SIDE

    def show(self, scope: Scope) -> None:
        scope.call_for_effect("fo_group_visible", [])

    def go_over(self, tiles: SSAValue) -> None:
        """
        All tiles of keys. While the weights of one are made, those of the tile before meet their values: copies of values are
        one tile behind those of keys.
        """
        kernel, index = self.kernel, self.kernel.index_constant
        self._copy_keys(kernel, index(0))
        self.arrive(kernel)
        self.keep_queries()
        self.following(kernel, index(0), tiles, self._copy_keys)
        self._copy_values(kernel, index(0))
        self._issue_keys(kernel, index(0))
        self._wait(kernel, self.scores, self.block.keys // GROUP_SIDE)
        self._weigh_tile(kernel, index(0))
        self._pack(kernel)
        loop(kernel, (index(1), tiles, index(1)), (), lambda s, _: self._next_tile(s, tiles), (TILE, "tile"))
        self.arrive(kernel)
        self._issue_values(kernel, kernel.add(arith.SubiOp(kernel.add(arith.MaxSIOp(tiles, index(1))), index(1))))
        self._wait(kernel, self.sums, self.n.extent // CHUNK)

    def _copy_keys(self, scope: Scope, number: SSAValue) -> None:
        self.key_copy.build(scope, self.staged(scope, self.keys, number), self.first_key(scope, number))

    def _copy_values(self, scope: Scope, number: SSAValue) -> None:
        self.value_copy.build(scope, self.staged(scope, self.values, number), self.first_key(scope, number))

    def _next_tile(self, scope: Scope, tiles: SSAValue) -> Values:
        number = scope.dim_value(TILE)
        self.arrive(scope)
        self.following(scope, number, tiles, self._copy_keys)
        self._copy_values(scope, number)
        self._issue_keys(scope, number)
        self._issue_values(scope, scope.add(arith.SubiOp(number, scope.index_constant(1))))
        self._wait(scope, self.scores, self.block.keys // GROUP_SIDE, "fo_group_wait_but_one")
        self._weigh_tile(scope, number)
        self._wait(scope, self.sums, self.n.extent // CHUNK)
        self.rescale(scope)
        self._pack(scope)
        return ()

    def _issue_keys(self, scope: Scope, number: SSAValue) -> None:
        self._multiply_keys(scope, self.staged(scope, self.keys, number))

    def _issue_values(self, scope: Scope, number: SSAValue) -> None:
        """What the weights of a tile add to the sums begins."""
        values = self.staged(scope, self.values, number)
        scope.call_for_effect("fo_group_begin", [])
        steps = Dim("tile_keys_of_16", self.share_steps())
        unrolled(scope, steps, (), lambda inner, _: self._multiply_values(inner, values, steps), "tile_keys_of_16")
        scope.call_for_effect("fo_group_end", [])

    def _weigh_tile(self, scope: Scope, number: SSAValue) -> None:
        """The weights of a tile in place of its scores."""
        first = named(self.first_key(scope, number), "first_key")
        self.mask(scope, first)
        self.each_row(scope, self.raise_largest)

        def keep(outer: Scope, scopes: list[Scope], largest: SSAValue) -> None:
            weights = self.weights_of(outer, scopes, largest)
            for each, weight in zip(scopes, weights, strict=True):
                each.block.add_op(memref.StoreOp.get(weight, self.scores, [self.score_place(each)]))

        def weigh(row: Scope) -> None:
            largest = self.without_factors(row)
            self.each_keys(row, first, lambda outer, scopes: keep(outer, scopes, largest))

        self.each_row(scope, weigh)

    def _pack(self, scope: Scope) -> None:
        """The weights, two in a register, as products take them."""
        eights = Dim("of_16", 2)
        steps = Dim("tile_keys_of_16", self.share_steps())

        def pack(inner: Scope, _: Values) -> Values:
            at = (as_expr(steps) * 2 + as_expr(eights)) * 4 + as_expr(self.half) * 2
            low, high = (inner.add(memref.LoadOp.get(self.scores, [inner.index(at + k)])) for k in range(2))
            place = inner.index(as_expr(steps) * 4 + as_expr(eights) * 2 + as_expr(self.half))
            inner.block.add_op(memref.StoreOp.get(self.warp.pair(inner, low, high), self.shares, [place]))
            return ()

        def halves(inner: Scope, _: Values) -> Values:
            return unrolled(inner, self.half, (), pack, "half")

        def both(inner: Scope, _: Values) -> Values:
            return unrolled(inner, eights, (), halves, "of_16")

        unrolled(scope, steps, (), both, "tile_keys_of_16")

    def _multiply_keys(self, scope: Scope, keys: Tile) -> None:
        blocks = Dim("keys_of_64", self.block.keys // GROUP_SIDE)
        scope.call_for_effect("fo_group_begin", [])

        def step(outer: Scope, _: Values) -> Values:
            at = as_expr(self.kk)
            column = (at // 4) * (self.block.keys * GROUP_SIDE) + (at % 4) * SIDE
            adds = outer.add(arith.CmpiOp(outer.dim_value(self.kk), outer.index_constant(0), "ne"))

            def some(inner: Scope, _: Values) -> Values:
                place = column + as_expr(blocks) * (GROUP_SIDE * GROUP_SIDE)
                sums = (self.scores, as_expr(blocks) * SUMS)
                self._multiply(inner, "fo_group_mma", sums, (self.query_parts, at * 4), keys, place, adds)
                return ()

            unrolled(outer, blocks, (), some, "keys_of_64")
            return ()

        unrolled(scope, self.kk, (), step, "depth_of_16")
        scope.call_for_effect("fo_group_end", [])

    def _multiply_values(self, scope: Scope, values: Tile, steps: Dim) -> Values:
        """What the weights of 16 keys add to the sums."""
        blocks, adds = Dim("columns_of_64", self.n.extent // CHUNK), scope.constant(1, BOOL)

        def some(inner: Scope, _: Values) -> Values:
            place = as_expr(blocks) * (self.block.keys * GROUP_SIDE) + as_expr(steps) * (SIDE * GROUP_SIDE)
            sums, left = (self.sums, as_expr(blocks) * SUMS), (self.shares, self.share_place(steps))
            self._multiply(inner, "fo_group_turned_mma", sums, left, values, place, adds)
            return ()

        return unrolled(scope, blocks, (), some, "columns_of_64")

    def _multiply(
        self,
        scope: Scope,
        name: str,
        sums: tuple[SSAValue, IndexExpr],
        left: tuple[SSAValue, IndexExpr],
        tile: Tile,
        place: IndexExpr,
        adds: SSAValue,
    ) -> None:
        at = scope.index(place)
        if tile.start is not None:
            at = scope.add(arith.AddiOp(at, tile.start))
        arguments = [each for memory, begin in (sums, left) for each in (any_size(scope, memory), scope.index(begin))]
        scope.call_for_effect(f"{name}_{self.narrow.name}", [*arguments, any_size(scope, tile.memory), at, adds])

    def _wait(self, scope: Scope, sums: SSAValue, blocks: int, name: str = "fo_group_wait") -> None:
        for number in range(blocks):
            place = scope.index(constant(number * SUMS))
            scope.call_for_effect(name, [any_size(scope, sums), place])
