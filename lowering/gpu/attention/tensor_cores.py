"""Attention of f16 and bf16 on tensor cores: each warp has rows of queries, whose scores, weights and sums stay in registers.

A warp has `tiles` times 16 queries. Products are `mma.m16n8k16` with sums in f32; what one gives of a row lies in four lanes, as
the next one takes it. While a tile of keys and their values is gone over, the next one is copied to shared memory (as in
FlashAttention-2, Dao 2023). Weights are rounded to the type of the values before they meet them; their total is that of weights
as they were. Sums so far are scaled where a tile has a new maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import e, inf, log2

from xdsl.dialects import arith, math, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.gpu.attention.blocks import TensorBlock
from fuse_opt.lowering.gpu.attention.matrices import SIDE
from fuse_opt.lowering.gpu.attention.parts import TILE
from fuse_opt.lowering.gpu.attention.scores import unscaled_scores
from fuse_opt.lowering.gpu.attention.tensor_products import LANES, TensorProducts
from fuse_opt.lowering.gpu.context import Grid
from fuse_opt.lowering.gpu.scope import KernelScope, Values, less, loop, named, unrolled, when
from fuse_opt.lowering.gpu.split import Phase
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope

LOWEST = -3.4028234663852886e38
"""What a maximum begins with, so that powers of scores of -inf are 0 while there is no other one."""


class TensorAttention(TensorProducts):
    """What a block of threads does."""

    def __init__(
        self, online: OnlineSoftmax, block: TensorBlock, buffers: KernelBuffers, kernel: KernelScope, vectors: bool
    ) -> None:
        super().__init__(online, block, buffers, kernel)
        self.vectors = vectors
        self.by = self.scored_as.scale * log2(e)
        """Makes powers of two of exponentials; what `scores_of` left out of scores joins it."""
        self.joins = self.by <= 1 and self.scored_as.products != unscaled_scores(online).products
        """Whether maxima are kept times `by`, as no score times it is beyond f32."""
        rows, kind = block.tiles * 2, self.element.attribute
        self.largest = kernel.registers(kind, rows, "largest")
        self.totals = kernel.registers(kind, rows, "totals")
        self.factors = kernel.registers(kind, rows, "factors")

    def build(self) -> Phase:
        kernel = self.kernel
        place = (as_expr(self.m) * self.j.extent + as_expr(self.j)) * 4 + as_expr(self.half) * 2
        blocks = self.start(place + as_expr(self.of_pair), self.vectors)
        self.find_lanes()
        self._clear()
        tiles = self.tiles()
        self.query_copy.build(kernel, self.queries, self.first)
        self.go_over(tiles)
        self._finish()
        note = (
            f"attention on tensor cores: {self.block.warps} warps have {self.block.tiles * SIDE} queries each, "
            f"{self.block.keys} keys at a time"
        )
        return Phase(kernel, Grid(blocks, (self.threads, 1)), note, tuple(self.parts.aligned))

    def go_over(self, tiles: SSAValue) -> None:
        """All tiles of keys; queries are on their way."""
        kernel, index = self.kernel, self.kernel.index_constant
        self.copy_tile(kernel, index(0))
        if self.keeps:
            self.arrive(kernel)
            self.keep_queries()
        loop(kernel, (index(0), tiles, index(1)), (), lambda s, _: self._one_tile(s, tiles), (TILE, "tile"))

    def keep_queries(self) -> None:
        unrolled(self.kernel, self.kk, (), lambda inner, _: self.load_queries(inner), "depth_of_16")

    def _clear(self) -> None:
        zero, low = self.kernel.constant(0.0, self.element), self.kernel.constant(LOWEST, self.element)
        self.fill(self.kernel, zero, self.sums, self.m.extent * self.n.extent * 4)
        self.fill(self.kernel, low, self.largest, self.m.extent * 2)
        self.fill(self.kernel, zero, self.totals, self.m.extent * 2)

    def _one_tile(self, scope: Scope, tiles: SSAValue) -> Values:
        """Some keys: their scores, their weights, what their values add."""
        number = scope.dim_value(TILE)
        self.arrive(scope)
        self.following(scope, number, tiles, self.copy_tile)
        first = named(self.first_key(scope, number), "first_key")
        keys, values = (self.staged(scope, tile, number) for tile in (self.keys, self.values))

        def compute(inner: Scope, _: Values) -> Values:
            self.multiply_keys(inner, keys)
            self.mask(inner, first)
            self.each_row(inner, self.raise_largest)
            self.rescale(inner)
            self.multiply_values(inner, values, first)
            return ()

        works = self._works(scope, first)
        if works is None:
            return compute(scope, ())
        when(scope, works, (), compute)
        return ()

    def _works(self, scope: Scope, first: SSAValue) -> SSAValue | None:
        """Whether the warps that multiply together have rows that see keys of the tile; None where they are sure to have."""
        found: SSAValue | None = None
        if exact_quotient(self.of.first.rows, self.block_rows) is None:
            found = less(scope, self.team, self.of.first.rows)
        if (further := self.seen_after()) is not None:
            last = scope.index_constant(self.team_rows - 1 + further)
            sees = scope.add(arith.CmpiOp(first, scope.add(arith.AddiOp(self.team, last)), "slt"))
            found = sees if found is None else scope.add(arith.AndIOp(found, sees))
        return found

    def weigh(self, row: Scope, steps: Dim, first: SSAValue) -> None:
        """The weights of a row's keys of 16, two in a register."""
        largest = self.without_factors(row)
        for number in range(2):
            inner = Scope(row, row.block, {self.j: row.index(as_expr(steps) * 2 + number)})
            place = self.share_place(steps) + as_expr(self.half) + number * 2
            self.pair_of_keys(inner, first, lambda outer, keys, place=place: self._shares(outer, keys, largest, place))

    def without_factors(self, row: Scope) -> SSAValue:
        """Weights in the row's scope are powers alone from here on; the maximum that they are relative to."""
        for each in self.online.factors:
            row.values[each.node] = row.constant(1.0, self.element)
        return row.add(memref.LoadOp.get(self.largest, [row.index(self.m_half)]))

    def raise_largest(self, row: Scope) -> None:
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

    def rescale(self, scope: Scope) -> None:
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
                    at = inner.index(self.sum_place(number))
                    value = inner.add(arith.MulfOp(inner.add(memref.LoadOp.get(self.sums, [at])), factor))
                    inner.block.add_op(memref.StoreOp.get(value, self.sums, [at]))
                return ()

            unrolled(row, self.n, (), pair, "columns_of_8")

        def every(inner: Scope, _: Values) -> Values:
            self.each_row(inner, scale)
            return ()

        when(scope, changed, (), every)

    def sum_place(self, number: int) -> IndexExpr:
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
        """The weights of two keys side by side."""
        both = self.warp.pair(outer, *self.weights_of(outer, scopes, largest))
        outer.block.add_op(memref.StoreOp.get(both, self.shares, [outer.index(target)]))

    def weights_of(self, outer: Scope, scopes: list[Scope], largest: SSAValue) -> list[SSAValue]:
        """The weights of keys; their sum joins the row's total."""
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
        return weights

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
            places = [scope.index(self.sum_place(number)) for number in range(2)]
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
