"""Attention of f16 and bf16 on tensor cores: each warp has rows of queries, whose scores, weights and sums stay in registers.

A warp has `tiles` times 16 queries. Products are `mma.m16n8k16` with sums in f32; what one gives of a row lies in four lanes, as
the next one takes it. While a tile of keys and their values is gone over, the next one is copied to shared memory (as in
FlashAttention-2, Dao 2023). Weights are rounded to the type of the values before they meet them; their total is that of weights
as they were. Sums so far are scaled where a tile has a new maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import e, inf, log2, prod

from xdsl.dialects import arith, math, memref
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import Attention
from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BF16, F16, F32
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant
from fuse_opt.lowering.gpu.attention.matrices import SIDE, Warp, padded
from fuse_opt.lowering.gpu.attention.parts import TILE
from fuse_opt.lowering.gpu.attention.scores import scores_of, unscaled_scores
from fuse_opt.lowering.gpu.attention.tiled import THREADS, WARPS, TiledAttention
from fuse_opt.lowering.gpu.attention.tiles import Tile
from fuse_opt.lowering.gpu.context import Grid
from fuse_opt.lowering.gpu.limits import GpuLimits
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, less, loop, named, unrolled, when
from fuse_opt.lowering.gpu.split import Phase
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope

LANES = 4
"""Lanes that share a row of what a product gives."""
MOST_SUMS = 128
"""Sums of a thread, which are registers."""
MOST_KEPT = 32
"""Registers that may hold queries."""
CHUNK = 8
"""Elements that rows lie further apart than they are long, so that 8 of them are in different banks."""
LOWEST = -3.4028234663852886e38
"""What a maximum begins with, so that powers of scores of -inf are 0 while there is no other one."""
_BLOCKS = ((2, 64), (1, 64), (1, 32), (1, 16))


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """Tiles of 16 queries of a warp, and keys of a tile."""

    tiles: int
    keys: int

    @property
    def rows(self) -> int:
        return self.tiles * SIDE * WARPS


def tensor_block(online: OnlineSoftmax, limits: GpuLimits, fast: bool) -> TensorBlock | None:
    """The block of threads for tensor cores; None where these do not compute what the ops say, or the device has none."""
    of = online.of
    if not limits.multiplies_matrices or not _is_narrow(of, fast):
        return None
    depth, width = padded(of.first.depth), padded(of.second.columns)
    for tiles, keys in _BLOCKS:
        block = TensorBlock(tiles, keys)
        size = 2 * (block.rows * (depth + CHUNK) + 2 * keys * (depth + width + 2 * CHUNK))
        blocks = prod(of.first.batch) * -(-of.second.rows // block.rows)
        smallest = tiles == 1 or (of.second.rows > block.rows // 2 and blocks >= limits.processors)
        if smallest and tiles * width // 2 <= MOST_SUMS and size <= limits.shared_memory:
            return block
    return None


def _is_narrow(of: Attention, fast: bool) -> bool:
    """Whether all operands have one type of 16 bits, to which results are rounded, too."""
    kinds = {dtype(access.value) for access in (of.queries, of.keys, of.values)}
    results = {dtype(store.node.value) for store in of.epilogue.stores}
    return len(kinds) == 1 and kinds <= {F16, BF16} and (fast or results == kinds) and dtype(of.first_raw) is F32


class TensorAttention(TiledAttention):
    """What a block of threads does."""

    def __init__(
        self, online: OnlineSoftmax, block: TensorBlock, buffers: KernelBuffers, kernel: KernelScope, vectors: bool
    ) -> None:
        super().__init__(online, buffers, kernel, (block.rows, block.keys), scores_of(online))
        of, self.block, self.vectors = online.of, block, vectors
        self.by = self.scored_as.scale * log2(e)
        """Makes powers of two of exponentials; what `scores_of` left out of scores joins it."""
        self.joins = self.by <= 1 and self.scored_as.products != unscaled_scores(online).products
        """Whether maxima are kept times `by`, as no score times it is beyond f32."""
        self.narrow = dtype(of.queries.value)
        self.warp = Warp(kernel, self.narrow.name)
        self.m, self.half, self.of_pair = Dim("rows_of_16", block.tiles), Dim("half", 2), Dim("of_pair", 2)
        self.j, self.n = Dim("keys_of_8", block.keys // 8), Dim("columns_of_8", padded(of.second.columns) // 8)
        self.kk = Dim("depth_of_16", padded(of.first.depth) // SIDE)
        depth, width = self.kk.extent * SIDE, self.n.extent * 8
        self.keeps = block.tiles * self.kk.extent * 4 <= MOST_KEPT
        """Whether queries stay in registers."""
        self.queries = self._tile("queries", block.rows, depth, 1)
        self.keys = self._tile("keys", block.keys, depth, 2)
        self.values = self._tile("values", block.keys, width, 2)
        tiles, kind = block.tiles, self.element.attribute
        self.scores = kernel.registers(kind, tiles * self.j.extent * 4, "scores")
        self.shares = kernel.registers(i32, tiles * 4, "shares")
        self.sums = kernel.registers(kind, tiles * self.n.extent * 4, "sums")
        self.largest = kernel.registers(kind, tiles * 2, "largest")
        self.totals = kernel.registers(kind, tiles * 2, "totals")
        self.factors = kernel.registers(kind, tiles * 2, "factors")
        self.query_parts = kernel.registers(i32, tiles * 4 * (self.kk.extent if self.keeps else 1), "query_parts")
        self.key_parts = kernel.registers(i32, 4, "key_parts")
        self.value_parts = kernel.registers(i32, 4, "value_parts")

    def _tile(self, name: str, rows: int, columns: int, stages: int) -> Tile:
        step = columns + CHUNK
        memory = self.kernel.shared(self.narrow.attribute, stages * rows * step, name)
        return Tile(memory, rows, columns, step)

    def build(self) -> Phase:
        kernel, index = self.kernel, self.kernel.index_constant
        self.m_half = as_expr(self.m) * 2 + as_expr(self.half)
        place = (as_expr(self.m) * self.j.extent + as_expr(self.j)) * 4 + as_expr(self.half) * 2
        blocks = self.start(place + as_expr(self.of_pair), self.vectors)
        self._lanes()
        self._clear()
        tiles = self.tiles()
        self.query_copy.build(kernel, self.queries, self.first)
        self._copy_tile(kernel, index(0))
        if self.keeps:
            self.arrive(kernel)
            unrolled(kernel, self.kk, (), lambda inner, _: self._load_queries(inner), "depth_of_16")
        loop(kernel, (index(0), tiles, index(1)), (), lambda s, _: self._one_tile(s, tiles), (TILE, "tile"))
        self._finish()
        note = (
            f"attention on tensor cores: {WARPS} warps have {self.block.tiles * SIDE} queries each, "
            f"{self.block.keys} keys at a time"
        )
        return Phase(kernel, Grid(blocks, (THREADS, 1)), note, tuple(self.parts.aligned))

    def _lanes(self) -> None:
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
        self.own_row = named(add(arith.AddiOp(self.first, add(arith.AddiOp(above, own)))), "own_row")
        self.own_pair = named(add(arith.MuliOp(part(lane, LANES, arith.RemSIOp), index(2))), "own_pair")
        low, high = part(lane, SIDE, arith.RemSIOp), add(arith.MuliOp(part(lane, SIDE, arith.DivSIOp), index(8)))
        self.query_lane = plus(add(arith.AddiOp(above, low)), self.queries.step, high)
        key = add(arith.AddiOp(high, part(lane, 8, arith.RemSIOp)))
        middle = part(part(lane, 8, arith.DivSIOp), 2, arith.RemSIOp)
        self.key_lane = plus(key, self.keys.step, add(arith.MuliOp(middle, index(8))))
        self.value_lane = plus(low, self.values.step, high)

    def _staged(self, scope: Scope, tile: Tile, number: SSAValue) -> Tile:
        """The half of shared memory that a tile of this number lies in."""
        stage = scope.add(arith.RemSIOp(number, scope.index_constant(2)))
        start = scope.add(arith.MuliOp(stage, scope.index_constant(tile.rows * tile.step)))
        return tile.starting(named(start, "stage"))

    def _copy_tile(self, scope: Scope, number: SSAValue) -> None:
        first = self.first_key(scope, number)
        self.key_copy.build(scope, self._staged(scope, self.keys, number), first)
        self.value_copy.build(scope, self._staged(scope, self.values, number), first)

    def _clear(self) -> None:
        zero, low = self.kernel.constant(0.0, self.element), self.kernel.constant(LOWEST, self.element)
        self.fill(self.kernel, zero, self.sums, self.m.extent * self.n.extent * 4)
        self.fill(self.kernel, low, self.largest, self.m.extent * 2)
        self.fill(self.kernel, zero, self.totals, self.m.extent * 2)

    def _load_queries(self, scope: Scope) -> Values:
        """Those of this warp at one place along the depth."""
        target = as_expr(self.m) * 4 + (as_expr(self.kk) * (4 * self.m.extent) if self.keeps else constant(0))
        place = as_expr(self.m) * (SIDE * self.queries.step) + as_expr(self.kk) * SIDE

        def load(inner: Scope, _: Values) -> Values:
            self.warp.load(inner, self.queries, self.query_lane, place, (self.query_parts, target))
            return ()

        unrolled(scope, self.m, (), load, "rows_of_16")
        return ()

    def _one_tile(self, scope: Scope, tiles: SSAValue) -> Values:
        """Some keys: their scores, their weights, what their values add."""
        number = scope.dim_value(TILE)
        self.arrive(scope)
        self.following(scope, number, tiles, self._copy_tile)
        first = named(self.first_key(scope, number), "first_key")
        self._multiply_keys(scope, self._staged(scope, self.keys, number))
        self.mask(scope, first)
        self.each_row(scope, self._raise)
        self._rescale(scope)
        self._multiply_values(scope, self._staged(scope, self.values, number), first)
        return ()

    def _multiply_keys(self, scope: Scope, keys: Tile) -> None:
        self.fill(scope, scope.constant(0.0, self.element), self.scores, self.m.extent * self.j.extent * 4)
        pairs = Dim("keys_of_16", self.j.extent // 2)

        def step(outer: Scope, _: Values) -> Values:
            if not self.keeps:
                self._load_queries(outer)

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

    def _multiply_values(self, scope: Scope, values: Tile, first: SSAValue) -> None:
        """The weights of 16 keys, what their values add, and then those of the next 16: one may go on while the other does."""
        steps, pairs = Dim("tile_keys_of_16", self.j.extent // 2), Dim("columns_of_16", self.n.extent // 2)

        def step(outer: Scope, _: Values) -> Values:
            self.each_row(outer, lambda row: self._weigh(row, steps, first))

            def some(inner: Scope, _: Values) -> Values:
                place = as_expr(steps) * (SIDE * values.step) + as_expr(pairs) * SIDE
                self.warp.load(inner, values, self.value_lane, place, (self.value_parts, constant(0)), turned=True)
                unrolled(inner, self.m, (), lambda each, _: add(each), "rows_of_16")
                return ()

            def add(inner: Scope) -> Values:
                for of_pair in range(2):
                    place = (as_expr(self.m) * self.n.extent + as_expr(pairs) * 2 + of_pair) * 4
                    left = (self.shares, as_expr(self.m) * 4)
                    self.warp.multiply(inner, (self.sums, place), left, (self.value_parts, of_pair * 2))
                return ()

            unrolled(outer, pairs, (), some, "columns_of_16")
            return ()

        unrolled(scope, steps, (), step, "tile_keys_of_16")

    def _weigh(self, row: Scope, steps: Dim, first: SSAValue) -> None:
        """The weights of a row's keys of 16, two in a register."""
        for each in self.online.factors:
            row.values[each.node] = row.constant(1.0, self.element)
        largest = row.add(memref.LoadOp.get(self.largest, [row.index(self.m_half)]))
        for number in range(2):
            inner = Scope(row, row.block, {self.j: row.index(as_expr(steps) * 2 + number)})
            place = as_expr(self.m) * 4 + as_expr(self.half) + number * 2
            self._pair(inner, first, lambda outer, keys, place=place: self._shares(outer, keys, largest, place))

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
            self._pair(inner, first, body)
            return ()

        unrolled(scope, self.j, (), pair, "keys_of_8")

    def _pair(self, scope: Scope, first: SSAValue, body: Callable[[Scope, list[Scope]], None]) -> None:
        """Two neighbouring keys of those that the scope is about."""
        place = scope.add(arith.AddiOp(self.own_pair, scope.index(as_expr(self.j) * 8)))
        start = scope.add(arith.AddiOp(first, place))
        keys = enumerate((start, scope.add(arith.AddiOp(start, scope.index_constant(1)))))
        body(scope, [self.at_key(scope, key, {self.of_pair: scope.index_constant(n)}) for n, key in keys])

    def _raise(self, row: Scope) -> None:
        """The maximum of a row with those of the tile, and the factor of what was made with the one before."""
        add, place = row.add, [row.index(self.m_half)]
        before = add(memref.LoadOp.get(self.largest, place))
        largest = self._larger(row, before, self._largest(row))
        distance = add(arith.SubfOp(before, largest))
        if not self.joins:
            distance = add(arith.MulfOp(distance, row.constant(self.by, self.element)))
        factor = row.call("fo_fast_exp2_f32", [distance], self.element.attribute)
        total = add(arith.MulfOp(add(memref.LoadOp.get(self.totals, place)), factor))
        kept = ((largest, self.largest), (factor, self.factors), (total, self.totals))
        row.block.add_ops([memref.StoreOp.get(value, memory, place) for value, memory in kept])

    def _power(self, scope: Scope, score: SSAValue, largest: SSAValue) -> SSAValue:
        """exp(score - largest); the difference first where a score times `by` might be no number of f32."""
        by = scope.constant(self.by, self.element)
        if self.joins:
            exponent = scope.add(math.FmaOp(score, by, scope.add(arith.NegfOp(largest))))
        else:
            exponent = scope.add(arith.MulfOp(scope.add(arith.SubfOp(score, largest)), by))
        return scope.call("fo_fast_exp2_f32", [exponent], self.element.attribute)

    def _rescale(self, scope: Scope) -> None:
        """The sums so far are scaled to new maxima, which most tiles have not."""
        one, changed = scope.constant(1.0, self.element), None
        for number in range(self.m.extent * 2):
            factor = scope.add(memref.LoadOp.get(self.factors, [scope.index_constant(number)]))
            differs = scope.add(arith.CmpfOp(factor, one, "une"))
            changed = differs if changed is None else scope.add(arith.OrIOp(changed, differs))
        assert changed is not None

        def scale(row: Scope) -> None:
            factor = row.add(memref.LoadOp.get(self.factors, [row.index(self.m_half)]))

            def pair(inner: Scope, _: Values) -> Values:
                for number in range(2):
                    at = inner.index(self._sum_place(number))
                    value = inner.add(arith.MulfOp(inner.add(memref.LoadOp.get(self.sums, [at])), factor))
                    inner.block.add_op(memref.StoreOp.get(value, self.sums, [at]))
                return ()

            unrolled(row, self.n, (), pair, "columns_of_8")

        def every(inner: Scope, _: Values) -> Values:
            self.each_row(inner, scale)
            return ()

        when(scope, changed, (), every)

    def _sum_place(self, number: int) -> IndexExpr:
        return (as_expr(self.m) * self.n.extent + as_expr(self.n)) * 4 + as_expr(self.half) * 2 + number

    def _larger(self, scope: Scope, a: SSAValue, b: SSAValue) -> SSAValue:
        return scope.call("fo_larger_f32", [a, b], self.element.attribute)

    def _largest(self, row: Scope) -> SSAValue:
        """The maximum of a row's scores in registers, as `largest` has it."""

        def larger(inner: Scope, found: Values) -> Values:
            value = found[0]
            for number in range(2):
                at = as_expr(self.m) * self.j.extent + as_expr(self.j)
                place = inner.index(at * 4 + as_expr(self.half) * 2 + number)
                value = self._larger(inner, value, inner.add(memref.LoadOp.get(self.scores, [place])))
            return [value]

        low = row.constant(-inf, self.element)
        (largest,) = unrolled(row, self.j, [low], larger, "keys_of_8", ["largest"])
        largest = self.across(row, largest, LANES, lambda a, b: self._larger(row, a, b))
        return row.add(arith.MulfOp(largest, row.constant(self.by, self.element))) if self.joins else largest

    def _shares(self, outer: Scope, scopes: list[Scope], largest: SSAValue, target: IndexExpr) -> None:
        """The weights of two keys; their sum joins the row's total."""
        weights: list[SSAValue] = []
        place = outer.index(self.m_half)
        for each in scopes:
            at = self.score_place(each)
            score = each.add(memref.LoadOp.get(self.scores, [at]))
            power = self._power(each, score, largest)
            self.emitter.define(self.online.power, power, each)
            self.emitter.emit([self.online.weight], each, self.scored)
            weights.append(self.emitter.value(self.online.weight, each))
            total = each.add(arith.AddfOp(each.add(memref.LoadOp.get(self.totals, [place])), power))
            each.block.add_op(memref.StoreOp.get(total, self.totals, [place]))
        both = self.warp.pair(outer, weights[0], weights[1])
        outer.block.add_op(memref.StoreOp.get(both, self.shares, [outer.index(target)]))

    def _finish(self) -> None:
        """The sums times the factors of their rows, and what follows."""
        vectors = self.stores_vectors(2)

        def row(scope: Scope) -> None:
            number, place = scope.values["row"], scope.index(self.m_half)
            own = scope.add(memref.LoadOp.get(self.totals, [place]))
            total = self.across(scope, own, LANES, self.combined(scope, "add"))
            inside = less(scope, number, self.of.first.rows)
            when(scope, inside, (), lambda there, _: results(there, total), {self.row: number})

        def results(scope: Scope, total: SSAValue) -> Values:
            largest = scope.add(memref.LoadOp.get(self.largest, [scope.index(self.m_half)]))
            if self.joins or self.scored_as.scale != 1:
                by = self.scored_as.scale / self.by if self.joins else self.scored_as.scale
                largest = scope.add(arith.MulfOp(largest, scope.constant(by, self.element)))
            is_lowest = scope.add(arith.CmpfOp(total, scope.constant(0.0, self.element), "oeq"))
            largest = scope.add(arith.SelectOp(is_lowest, scope.constant(-inf, self.element), largest))
            self.finish_row(scope, largest, total)
            count = -(-self.of.second.columns // 8)
            unrolled(scope, self.n, (), lambda inner, _: pair(inner), "columns_of_8", count=count)
            return ()

        def pair(scope: Scope) -> Values:
            start = scope.add(arith.AddiOp(self.own_pair, scope.index(as_expr(self.n) * 8)))
            places = [scope.index(self._sum_place(number)) for number in range(2)]
            sums = [scope.add(memref.LoadOp.get(self.sums, [place])) for place in places]
            if not vectors:
                for number, value in enumerate(sums):
                    column = scope.add(arith.AddiOp(start, scope.index_constant(number))) if number else start
                    inside = less(scope, column, self.of.second.columns)
                    when(scope, inside, (), lambda s, _, v=value: store(s, v), {self.column: column})
            elif self.of.second.columns % 8:
                inside = less(scope, start, self.of.second.columns)
                when(scope, inside, (), lambda there, _: both(there, start, sums))
            else:
                both(scope, start, sums)
            return ()

        def store(scope: Scope, value: SSAValue) -> Values:
            self.store_result(scope, value)
            return ()

        def both(scope: Scope, start: SSAValue, sums: Sequence[SSAValue]) -> Values:
            self.store_vector(scope, start, sums)
            return ()

        self.each_row(self.kernel, row)
