"""Products of attention on tensor cores: where lanes have elements of matrices, what is copied, loaded and multiplied."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant
from fuse_opt.lowering.gpu.attention.blocks import TensorBlock, matrix_step
from fuse_opt.lowering.gpu.attention.matrices import SIDE, Warp, padded
from fuse_opt.lowering.gpu.attention.scores import scores_of
from fuse_opt.lowering.gpu.attention.tiled import TiledAttention
from fuse_opt.lowering.gpu.attention.tiles import Tile
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, named, unrolled
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope

LANES = 4
"""Lanes that share a row of what a product gives."""
MOST_KEPT = 32
"""Registers that may hold queries."""


class TensorProducts(TiledAttention):
    """The products of a block of threads, whose scores, weights and sums lie in its registers."""

    def __init__(self, online: OnlineSoftmax, block: TensorBlock, buffers: KernelBuffers, kernel: KernelScope) -> None:
        super().__init__(online, buffers, kernel, (block.rows, block.keys), scores_of(online))
        of, self.block = online.of, block
        self.narrow = dtype(of.queries.value)
        self.warp = Warp(kernel, self.narrow.name)
        self.m, self.half, self.of_pair = Dim("rows_of_16", block.tiles), Dim("half", 2), Dim("of_pair", 2)
        self.threads = block.threads
        self.j, self.n = Dim("keys_of_8", block.keys // 8), Dim("columns_of_8", block.width(of.second.columns) // 8)
        self.m_half = as_expr(self.m) * 2 + as_expr(self.half)
        """The row of a thread that loops are at."""
        self.kk = Dim("depth_of_16", padded(of.first.depth) // SIDE)
        depth, width = self.kk.extent * SIDE, self.n.extent * 8
        self.keeps = block.tiles * self.kk.extent * 4 <= MOST_KEPT
        """Whether queries stay in registers."""
        self.keys = self.operand_tile("keys", block.width(depth))
        self.values = self.operand_tile("values", width)
        self.queries = self._tile("queries", block.rows, depth, 1)
        tiles, kind = block.tiles, self.element.attribute
        self.scores = kernel.registers(kind, tiles * self.j.extent * 4, "scores")
        self.shares = kernel.registers(i32, tiles * 4 * self.share_steps(), "shares")
        self.sums = kernel.registers(kind, tiles * self.n.extent * 4, "sums")
        self.query_parts = kernel.registers(i32, tiles * 4 * (self.kk.extent if self.keeps else 1), "query_parts")
        self.key_parts = kernel.registers(i32, 4, "key_parts")
        self.value_parts = kernel.registers(i32, 4, "value_parts")

    @abstractmethod
    def weigh(self, row: Scope, steps: Dim, first: SSAValue) -> None:
        """Makes the weights of a row's keys of 16 from their scores."""

    def share_steps(self) -> int:
        """How many keys of 16 there are weights of at a time."""
        return 1

    def share_place(self, steps: Dim) -> IndexExpr:
        """Where the weights of keys of 16 begin."""
        return as_expr(self.m) * 4

    def operand_tile(self, name: str, columns: int) -> Tile:
        """Two tiles of keys or values, so that one is copied while the other one is read."""
        return self._tile(name, self.block.keys, columns, 2)

    def _tile(self, name: str, rows: int, columns: int, stages: int) -> Tile:
        step = matrix_step(columns)
        memory = self.kernel.shared(self.narrow.attribute, stages * rows * step, name)
        return Tile(memory, rows, columns, step)

    def find_lanes(self) -> None:
        """Where this thread's lane has elements of products, and which rows it names of those that a warp loads."""
        kernel, add, index = self.kernel, self.kernel.add, self.kernel.index_constant

        def part(value: SSAValue, by: int, build: type[arith.DivSIOp] | type[arith.RemSIOp]) -> SSAValue:
            return add(build(value, index(by)))

        def plus(row: SSAValue, step: int, column: SSAValue) -> SSAValue:
            return add(arith.AddiOp(add(arith.MuliOp(row, index(step))), column))

        thread = kernel.thread()
        warp, lane = named(part(thread, WARP, arith.DivSIOp), "warp"), named(part(thread, WARP, arith.RemSIOp), "lane")
        above = add(arith.MuliOp(warp, index(self.block.tiles * SIDE)))
        own = part(lane, LANES, arith.DivSIOp)
        self.first_own = named(add(arith.AddiOp(self.first, above)), "first_own")
        self.team, self.team_rows = self.first_own, self.block.tiles * SIDE
        self.own_row = named(add(arith.AddiOp(self.first_own, own)), "own_row")
        self.own_pair = named(add(arith.MuliOp(part(lane, LANES, arith.RemSIOp), index(2))), "own_pair")
        low, high = part(lane, SIDE, arith.RemSIOp), add(arith.MuliOp(part(lane, SIDE, arith.DivSIOp), index(8)))
        self.query_lane = plus(add(arith.AddiOp(above, low)), self.queries.step, high)
        key = add(arith.AddiOp(high, part(lane, 8, arith.RemSIOp)))
        middle = part(part(lane, 8, arith.DivSIOp), 2, arith.RemSIOp)
        self.key_lane = plus(key, self.keys.step, add(arith.MuliOp(middle, index(8))))
        self.value_lane = plus(low, self.values.step, high)

    def staged(self, scope: Scope, tile: Tile, number: SSAValue) -> Tile:
        """The half of shared memory that a tile of this number lies in."""
        stage = scope.add(arith.RemSIOp(number, scope.index_constant(2)))
        start = scope.add(arith.MuliOp(stage, scope.index_constant(tile.rows * tile.step)))
        return tile.starting(named(start, "stage"))

    def copy_tile(self, scope: Scope, number: SSAValue) -> None:
        first = self.first_key(scope, number)
        self.key_copy.build(scope, self.staged(scope, self.keys, number), first)
        self.value_copy.build(scope, self.staged(scope, self.values, number), first)

    def load_queries(self, scope: Scope) -> Values:
        """Those of this warp at one place along the depth."""
        target = as_expr(self.m) * 4 + (as_expr(self.kk) * (4 * self.m.extent) if self.keeps else constant(0))
        place = as_expr(self.m) * (SIDE * self.queries.step) + as_expr(self.kk) * SIDE

        def load(inner: Scope, _: Values) -> Values:
            self.warp.load(inner, self.queries, self.query_lane, place, (self.query_parts, target))
            return ()

        unrolled(scope, self.m, (), load, "rows_of_16")
        return ()

    def multiply_keys(self, scope: Scope, keys: Tile) -> None:
        self.fill(scope, scope.constant(0.0, self.element), self.scores, self.m.extent * self.j.extent * 4)
        pairs = Dim("keys_of_16", self.j.extent // 2)

        def step(outer: Scope, _: Values) -> Values:
            if not self.keeps:
                self.load_queries(outer)

            def some(inner: Scope, _: Values) -> Values:
                place = as_expr(pairs) * (SIDE * keys.step) + as_expr(self.kk) * SIDE
                self.warp.load(inner, keys, self.key_lane, place, (self.key_parts, constant(0)))
                unrolled(inner, self.m, (), lambda each, _: add(each), "rows_of_16")
                return ()

            def add(inner: Scope) -> Values:
                left = as_expr(self.m) * 4 + (as_expr(self.kk) * (4 * self.m.extent) if self.keeps else constant(0))
                for of_pair in range(2):
                    place = (as_expr(self.m) * self.j.extent + as_expr(pairs) * 2 + of_pair) * 4
                    self.warp.multiply(
                        inner, (self.scores, place), (self.query_parts, left), (self.key_parts, of_pair * 2)
                    )
                return ()

            unrolled(outer, pairs, (), some, "keys_of_16")
            return ()

        unrolled(scope, self.kk, (), step, "depth_of_16")

    def multiply_values(self, scope: Scope, values: Tile, first: SSAValue) -> None:
        """The weights of 16 keys, what their values add, and then those of the next 16: one may go on while the other does."""
        steps, pairs = Dim("tile_keys_of_16", self.j.extent // 2), Dim("columns_of_16", self.n.extent // 2)

        def step(outer: Scope, _: Values) -> Values:
            self.each_row(outer, lambda row: self.weigh(row, steps, first))

            def some(inner: Scope, _: Values) -> Values:
                place = as_expr(steps) * (SIDE * values.step) + as_expr(pairs) * SIDE
                self.warp.load(inner, values, self.value_lane, place, (self.value_parts, constant(0)), turned=True)
                unrolled(inner, self.m, (), lambda each, _: add(each), "rows_of_16")
                return ()

            def add(inner: Scope) -> Values:
                for of_pair in range(2):
                    place = (as_expr(self.m) * self.n.extent + as_expr(pairs) * 2 + of_pair) * 4
                    left = (self.shares, self.share_place(steps))
                    self.warp.multiply(inner, (self.sums, place), left, (self.value_parts, of_pair * 2))
                return ()

            unrolled(outer, pairs, (), some, "columns_of_16")
            return ()

        unrolled(scope, steps, (), step, "tile_keys_of_16")

    def row_of(self, scope: Scope) -> SSAValue:
        place = scope.index(as_expr(self.m) * SIDE + as_expr(self.half) * 8)
        return scope.add(arith.AddiOp(self.own_row, place))

    def rows(self, scope: Scope, body: Callable[[Scope], None]) -> None:
        def row(inner: Scope, _: Values) -> Values:
            body(inner)
            return ()

        def rows(inner: Scope, _: Values) -> Values:
            return unrolled(inner, self.half, (), row, "half")

        unrolled(scope, self.m, (), rows, "rows_of_16")

    def each_keys(self, scope: Scope, first: SSAValue, body: Callable[[Scope, list[Scope]], None]) -> None:
        """Two neighbouring keys at a time."""

        def pair(inner: Scope, _: Values) -> Values:
            self.pair_of_keys(inner, first, body)
            return ()

        unrolled(scope, self.j, (), pair, "keys_of_8")

    def pair_of_keys(self, scope: Scope, first: SSAValue, body: Callable[[Scope, list[Scope]], None]) -> None:
        """Two neighbouring keys of those that the scope is about."""
        place = scope.add(arith.AddiOp(self.own_pair, scope.index(as_expr(self.j) * 8)))
        start = scope.add(arith.AddiOp(first, place))
        keys = enumerate((start, scope.add(arith.AddiOp(start, scope.index_constant(1)))))
        body(scope, [self.at_key(scope, key, {self.of_pair: scope.index_constant(n)}) for n, key in keys])
