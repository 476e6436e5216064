"""Attention of f32 by tiles in registers: a thread has some rows of queries, of which it computes every eighth score and four
columns of thirty-two.

Operands come from shared memory by vectors of four, each of which meets several others: for R rows and K keys of a thread, R + K
vectors are read for 4 R K multiply-adds. Values are copied while scores are computed, keys while the values are gone over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from xdsl.dialects import arith, math, memref, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.gpu.attention.blocks import GROUPS, LANES, VECTOR, RegisterBlock, vector_step
from fuse_opt.lowering.gpu.attention.parts import TILE
from fuse_opt.lowering.gpu.attention.scores import unscaled_scores
from fuse_opt.lowering.gpu.attention.tiled import THREADS, TiledAttention
from fuse_opt.lowering.gpu.attention.tiles import Tile
from fuse_opt.lowering.gpu.context import Grid
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, less, loop, named, unrolled, when
from fuse_opt.lowering.gpu.split import Phase
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope

TEAMS = WARP // LANES
"""Rows of a warp side by side; those of a thread are so many apart."""


class RegisterAttention(TiledAttention):
    """What a block of threads does."""

    def __init__(
        self, online: OnlineSoftmax, block: RegisterBlock, buffers: KernelBuffers, kernel: KernelScope, vectors: bool
    ) -> None:
        super().__init__(online, buffers, kernel, (block.rows * GROUPS, block.keys), unscaled_scores(online))
        of, self.vectors = online.of, vectors
        self.turn, self.j = Dim("turn", block.rows), Dim("own_key", block.keys // LANES)
        self.c = Dim("vector", -(-of.second.columns // (LANES * VECTOR)))
        self.i = Dim("of_vector", VECTOR)
        height, depth = block.rows * GROUPS, -(-of.first.depth // VECTOR) * VECTOR
        width = self.c.extent * LANES * VECTOR
        kind = self.element.attribute

        def tile(name: str, rows: int, columns: int, step: int) -> Tile:
            return Tile(kernel.shared(kind, rows * step, name), rows, columns, step)

        self.queries = tile("queries", height, depth, vector_step(depth))
        self.keys = tile("keys", block.keys, depth, vector_step(depth))
        self.values = tile("values", block.keys, width, width)
        self.shares = tile("shares", height, block.keys, block.keys + LANES)
        self.scores = kernel.registers(kind, block.rows * self.j.extent, "scores")
        self.sums = kernel.registers(kind, block.rows * self.c.extent * VECTOR, "sums")
        self.largest = kernel.registers(kind, block.rows, "largest")
        self.totals = kernel.registers(kind, block.rows, "totals")
        self.left = kernel.registers(kind, block.rows * VECTOR, "left")
        self.right = kernel.registers(kind, max(self.j.extent, self.c.extent) * VECTOR, "right")

    def build(self) -> Phase:
        kernel, index = self.kernel, self.kernel.index_constant
        blocks = self.start(as_expr(self.turn) * self.j.extent + as_expr(self.j), self.vectors)
        thread = kernel.thread()
        warp = kernel.add(arith.DivSIOp(thread, index(WARP)))
        group = kernel.add(arith.RemSIOp(kernel.add(arith.DivSIOp(thread, index(LANES))), index(TEAMS)))
        above = kernel.add(arith.MuliOp(warp, index(TEAMS * self.turn.extent)))
        self.first_own = kernel.add(arith.AddiOp(self.first, above))
        self.group = named(kernel.add(arith.AddiOp(above, group)), "group")
        self.lane = named(kernel.add(arith.RemSIOp(thread, index(LANES))), "lane")
        self.own_vector = kernel.add(arith.MuliOp(self.lane, index(VECTOR)))
        zero, low = kernel.constant(0.0, self.element), kernel.constant(-inf, self.element)
        self.fill(kernel, zero, self.sums, self.turn.extent * self.c.extent * VECTOR)
        self.fill(kernel, low, self.largest, self.turn.extent)
        self.fill(kernel, zero, self.totals, self.turn.extent)
        tiles = self.tiles()
        self.query_copy.build(kernel, self.queries, self.first)
        self._copy_keys(kernel, index(0))
        loop(kernel, (index(0), tiles, index(1)), (), lambda s, _: self._one_tile(s, tiles), (TILE, "tile"))
        self._finish()
        note = f"attention: {THREADS} threads have {self.block_rows} queries, {self.block_keys} keys at a time"
        return Phase(kernel, Grid(blocks, (THREADS, 1)), note, tuple(self.parts.aligned))

    def row_of(self, scope: Scope) -> SSAValue:
        return scope.add(arith.AddiOp(self.first, self._near(scope, self.group, self.turn, TEAMS)))

    def rows(self, scope: Scope, body: Callable[[Scope], None]) -> None:
        def row(inner: Scope, _: Values) -> Values:
            body(inner)
            return ()

        unrolled(scope, self.turn, (), row, "turn")

    def each_keys(self, scope: Scope, first: SSAValue, body: Callable[[Scope, list[Scope]], None]) -> None:
        """Every eighth key."""

        def one(inner: Scope, _: Values) -> Values:
            key = inner.add(arith.AddiOp(first, self._near(inner, self.lane, self.j, LANES)))
            body(inner, [self.at_key(inner, key, {})])
            return ()

        unrolled(scope, self.j, (), one, "own_key")

    def _near(self, scope: Scope, first: SSAValue, dim: Dim, step: int) -> SSAValue:
        """`first + dim * step`."""
        return scope.add(arith.AddiOp(first, scope.index(as_expr(dim) * step)))

    def _copy_keys(self, scope: Scope, tile: SSAValue) -> None:
        self.key_copy.build(scope, self.keys, self.first_key(scope, tile))

    def _one_tile(self, scope: Scope, tiles: SSAValue) -> Values:
        """Some keys: their scores, their weights, what their values add."""
        number = scope.dim_value(TILE)
        first = named(self.first_key(scope, number), "first_key")
        works: SSAValue | None = None
        if exact_quotient(self.of.first.rows, self.block_rows) is None:
            works = less(scope, self.first_own, self.of.first.rows)

        def weigh(inner: Scope, _: Values) -> Values:
            self._multiply_keys(inner)
            self.mask(inner, first)
            self.each_row(inner, lambda row: self._weigh(row, first))
            return ()

        def add(inner: Scope, _: Values) -> Values:
            self._multiply_values(inner)
            return ()

        self.arrive(scope)  # keys; values of the tile before have been gone over
        self.value_copy.build(scope, self.values, first)
        self._where(scope, works, weigh)
        self.arrive(scope)  # values and weights; keys have been gone over
        self.following(scope, number, tiles, self._copy_keys)
        self._where(scope, works, add)
        return ()

    def _where(self, scope: Scope, works: SSAValue | None, body: Callable[[Scope, Values], Values]) -> None:
        """What a warp does that has rows, as all have where it is not asked."""
        if works is None:
            body(scope, ())
        else:
            when(scope, works, (), body)

    def _vector(
        self, scope: Scope, tile: Tile, row: SSAValue, column: SSAValue, target: tuple[SSAValue, IndexExpr]
    ) -> None:
        """Four neighbours from shared memory to registers."""
        kind = VectorType(self.element.attribute, [VECTOR])
        value = scope.add(vector.LoadOp(tile.memory, [tile.place(scope, row, column)], kind))
        scope.block.add_op(vector.StoreOp(value, target[0], [scope.index(target[1])]))

    def _load(self, scope: Scope, memory: SSAValue, place: IndexExpr) -> SSAValue:
        return scope.add(memref.LoadOp.get(memory, [scope.index(place)]))

    def _add_product(self, scope: Scope, sum_: IndexExpr, left: IndexExpr, right: IndexExpr, sums: SSAValue) -> Values:
        a, b = self._load(scope, self.left, left), self._load(scope, self.right, right)
        found = scope.add(math.FmaOp(a, b, self._load(scope, sums, sum_)))
        scope.block.add_op(memref.StoreOp.get(found, sums, [scope.index(sum_)]))
        return ()

    def _steps(self, scope: Scope, name: str, count: int, body: Callable[[Scope, SSAValue], None]) -> None:
        """A loop by vectors over what is summed up."""
        dim, index = Dim(name, count), scope.index_constant

        def step(inner: Scope, _: Values) -> Values:
            body(inner, inner.dim_value(dim))
            return ()

        loop(scope, (index(0), index(count), index(VECTOR)), (), step, (dim, name))

    def _load_left(self, scope: Scope, tile: Tile, column: SSAValue) -> None:
        """A vector of each row of the thread."""

        def row(inner: Scope) -> None:
            near = self._near(inner, self.group, self.turn, TEAMS)
            self._vector(inner, tile, near, column, (self.left, as_expr(self.turn) * VECTOR))

        self.rows(scope, row)

    def _multiply_keys(self, scope: Scope) -> None:
        turn, j, i = as_expr(self.turn), as_expr(self.j), as_expr(self.i)
        self.fill(scope, scope.constant(0.0, self.element), self.scores, self.turn.extent * self.j.extent)

        def step(outer: Scope, at: SSAValue) -> None:
            self._load_left(outer, self.queries, at)

            def key(inner: Scope, _: Values) -> Values:
                near = self._near(inner, self.lane, self.j, LANES)
                self._vector(inner, self.keys, near, at, (self.right, j * VECTOR))
                return ()

            def add(inner: Scope, _: Values) -> Values:
                place = turn * self.j.extent + j
                return self._add_product(inner, place, turn * VECTOR + i, j * VECTOR + i, self.scores)

            unrolled(outer, self.j, (), key, "own_key")
            self._unrolled(outer, [(self.i, "of_vector"), (self.turn, "turn"), (self.j, "own_key")], add)

        self._steps(scope, "depth", self.queries.columns, step)

    def _unrolled(self, scope: Scope, dims: list[tuple[Dim, str]], body: Callable[[Scope, Values], Values]) -> None:
        """Loops in loops, all written out."""
        (dim, name), *others = dims

        def inner(scope: Scope, values: Values) -> Values:
            if not others:
                return body(scope, values)
            self._unrolled(scope, others, body)
            return ()

        unrolled(scope, dim, (), inner, name)

    def _multiply_values(self, scope: Scope) -> None:
        turn, c = as_expr(self.turn), as_expr(self.c)
        element = Dim("element", VECTOR)

        def step(outer: Scope, at: SSAValue) -> None:
            self._load_left(outer, self.shares, at)

            def key(inner: Scope, _: Values) -> Values:
                near = self._near(inner, at, self.i, 1)

                def some(scope: Scope, _: Values) -> Values:
                    column = self._near(scope, self.own_vector, self.c, LANES * VECTOR)
                    self._vector(scope, self.values, near, column, (self.right, c * VECTOR))
                    return ()

                def add(scope: Scope, _: Values) -> Values:
                    right = c * VECTOR + as_expr(element)
                    place = turn * (self.c.extent * VECTOR) + right
                    return self._add_product(scope, place, turn * VECTOR + as_expr(self.i), right, self.sums)

                unrolled(inner, self.c, (), some, "vector")
                self._unrolled(inner, [(self.turn, "turn"), (self.c, "vector"), (element, "element")], add)
                return ()

            unrolled(outer, self.i, (), key, "of_vector")

        self._steps(scope, "tile_key", self.block_keys, step)

    def _weigh(self, row: Scope, first: SSAValue) -> None:
        """The scores of a row become weights in shared memory; its sums so far are scaled to the new maximum."""
        add, place = row.add, [row.index(as_expr(self.turn))]
        before = add(memref.LoadOp.get(self.largest, place))

        def larger(inner: Scope, found: Values) -> Values:
            value = inner.add(memref.LoadOp.get(self.scores, [self.score_place(inner)]))
            return [self._larger(inner, found[0], value)]

        (largest,) = unrolled(row, self.j, [before], larger, "own_key", ["largest"])
        largest = self.across(row, largest, LANES, lambda a, b: self._larger(row, a, b))
        row.block.add_op(memref.StoreOp.get(largest, self.largest, place))
        is_lowest = add(arith.CmpfOp(largest, row.constant(-inf, self.element), "oeq"))
        shift = add(arith.SelectOp(is_lowest, row.constant(0.0, self.element), largest))
        factor = add(math.ExpOp(add(arith.SubfOp(before, shift))))
        self.emitter.define(self.online.shift, shift, row)
        for each in self.online.factors:
            row.values[each.node] = row.constant(1.0, self.element)
        total = add(arith.MulfOp(add(memref.LoadOp.get(self.totals, place)), factor))
        row.block.add_op(memref.StoreOp.get(total, self.totals, place))
        near_row = self._near(row, self.group, self.turn, TEAMS)
        self.each_keys(row, first, lambda outer, scopes: self._share(outer, scopes[0], near_row))
        sums = Dim("sum", self.c.extent * VECTOR)

        def scale(inner: Scope, _: Values) -> Values:
            at = inner.index(as_expr(self.turn) * sums.extent + as_expr(sums))
            value = inner.add(arith.MulfOp(inner.add(memref.LoadOp.get(self.sums, [at])), factor))
            inner.block.add_op(memref.StoreOp.get(value, self.sums, [at]))
            return ()

        unrolled(row, sums, (), scale, "sum")

    def _larger(self, scope: Scope, a: SSAValue, b: SSAValue) -> SSAValue:
        return scope.call("fo_larger_f32", [a, b], self.element.attribute)

    def _share(self, outer: Scope, key: Scope, near_row: SSAValue) -> None:
        """The weight of a key; its power joins the row's total."""
        self.emitter.emit([self.online.power, self.online.weight], key, self.scored)
        near = self._near(outer, self.lane, self.j, LANES)
        self.shares.store(key, self.emitter.value(self.online.weight, key), near_row, near)
        place = [outer.index(as_expr(self.turn))]
        power = self.emitter.value(self.online.power, key)
        total = key.add(arith.AddfOp(key.add(memref.LoadOp.get(self.totals, place)), power))
        key.block.add_op(memref.StoreOp.get(total, self.totals, place))

    def _finish(self) -> None:
        """The sums times the factors of their rows, and what follows."""
        vectors = self.stores_vectors(VECTOR)

        def row(scope: Scope) -> None:
            number, place = scope.values["row"], [scope.index(as_expr(self.turn))]
            own = scope.add(memref.LoadOp.get(self.totals, place))
            total = self.across(scope, own, LANES, self.combined(scope, "add"))
            inside = less(scope, number, self.of.first.rows)
            when(scope, inside, (), lambda there, _: results(there, total), {self.row: number})

        def results(scope: Scope, total: SSAValue) -> Values:
            largest = scope.add(memref.LoadOp.get(self.largest, [scope.index(as_expr(self.turn))]))
            self.finish_row(scope, largest, total)
            unrolled(scope, self.c, (), some, "vector")
            return ()

        def some(scope: Scope, _: Values) -> Values:
            first = self._near(scope, self.own_vector, self.c, LANES * VECTOR)
            place = (as_expr(self.turn) * self.c.extent + as_expr(self.c)) * VECTOR
            sums = [self._load(scope, self.sums, place + number) for number in range(VECTOR)]
            if vectors:
                inside = less(scope, first, self.of.second.columns)
                when(scope, inside, (), lambda there, _: whole(there, first, sums))
                return ()
            for number, value in enumerate(sums):
                column = scope.add(arith.AddiOp(first, scope.index_constant(number)))
                inside = less(scope, column, self.of.second.columns)
                when(scope, inside, (), lambda there, _, v=value: store(there, v), {self.column: column})
            return ()

        def whole(scope: Scope, first: SSAValue, sums: Sequence[SSAValue]) -> Values:
            self.store_vector(scope, first, sums)
            return ()

        def store(scope: Scope, value: SSAValue) -> Values:
            self.store_result(scope, value)
            return ()

        self.each_row(self.kernel, row)
