"""Attention on a GPU: a block of threads has some queries and goes over all keys, tile by tile, with a running maximum.

Eight threads share a row: each has every eighth key of a tile and every eighth column of the sums. Scores and sums are
registers; queries, the tile of keys, then of values, and the weights lie in shared memory. Nothing else is written until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import inf

from xdsl.dialects import arith, math, memref
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.contractions.attention import attention_of
from fuse_opt.dialects.analysis.contractions.online_softmax import (
    ROW_THREADS,
    ROWS_AT_ONCE,
    OnlineSoftmax,
    online_softmax,
)
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.gpu.kernels import LEAST_BLOCKS
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.gpu.attention.blocks import group_block, register_block, tensor_block
from fuse_opt.lowering.gpu.attention.group_attention import GroupAttention
from fuse_opt.lowering.gpu.attention.parts import TILE, AttentionParts
from fuse_opt.lowering.gpu.attention.register_tiles import RegisterAttention
from fuse_opt.lowering.gpu.attention.tensor_cores import TensorAttention
from fuse_opt.lowering.gpu.attention.tiles import Tile, TileCopy, numbers
from fuse_opt.lowering.gpu.context import Grid, gpu_limits
from fuse_opt.lowering.gpu.kernel import GpuKernel, finished_kernels
from fuse_opt.lowering.gpu.scope import KernelScope, Values, less, loop, named, unrolled, when
from fuse_opt.lowering.gpu.split import Phase
from fuse_opt.lowering.kernel.buffers import KernelBuffers, operand_pass
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scalar_to_arith import emit_combine
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.loops.fast_math import is_fast

THREADS = ROWS_AT_ONCE * ROW_THREADS


def build_attention_kernel(
    kernel: KernelOp, memory: Sequence[Hashable], name: Callable[[], str], comment: str
) -> list[GpuKernel]:
    """The launch of a kernel of attention; arguments are those of `build_gpu_kernels`. Raises Unschedulable."""
    of = attention_of(kernel)
    operands = [operand_pass(access.value) for access in (of.queries, of.keys, of.values)]
    buffers = KernelBuffers(kernel, [of.weights, of.epilogue, *operands], memory)
    online, limits = online_softmax(of), gpu_limits(kernel)
    grouped, tensor = (find(online, limits, is_fast(kernel)) for find in (group_block, tensor_block))
    tiled = register_block(online, limits)
    at_once = grouped.at_once if grouped else tiled.at_once if tiled and not tensor else 0

    def build(vectors: bool) -> GpuKernel:
        scope = KernelScope(buffers.types)
        if grouped is not None:
            phase = GroupAttention(online, grouped, buffers, scope, vectors).build()
        elif tensor is not None:
            phase = TensorAttention(online, tensor, buffers, scope, vectors).build()
        elif tiled is not None:
            phase = RegisterAttention(online, tiled, buffers, scope, vectors).build()
        else:
            phase = _Block(online, buffers, scope).build()
        (found,) = finished_kernels(kernel, [phase], [], buffers, limits, comment)
        if at_once:
            found.function.attributes[LEAST_BLOCKS] = IntegerAttr(at_once, i64)
        return found

    found = build(True)
    if found.aligned:
        found = replace(found, unaligned=build(False))
    found.function.sym_name = StringAttr(name())
    return [found]


class _Block(AttentionParts):
    """What a block of threads does."""

    def __init__(self, online: OnlineSoftmax, buffers: KernelBuffers, kernel: KernelScope) -> None:
        super().__init__(online, buffers, kernel, (online.block.rows, online.block.keys))
        of, block = self.of, online.block
        self.turn = Dim("turn", block.rows // ROWS_AT_ONCE)
        """Counts the rows of a thread."""
        self.own_key = Dim("own_key", block.keys // ROW_THREADS)
        self.own_column = Dim("own_column", -(-of.second.columns // ROW_THREADS))
        step = of.first.depth | 1
        kind = self.element.attribute
        self.queries = Tile(kernel.shared(kind, block.rows * step, "queries"), block.rows, of.first.depth, step)
        size = block.keys * max(step, of.second.columns)
        self.keys = Tile(kernel.shared(kind, size, "keys"), block.keys, of.first.depth, step)
        self.values = Tile(self.keys.memory, block.keys, of.second.columns, of.second.columns)
        shares = kernel.shared(kind, block.rows * (block.keys + 1), "shares")
        self.shares = Tile(shares, block.rows, block.keys, block.keys + 1)
        self.scores = kernel.registers(kind, self.turn.extent * self.own_key.extent, "scores")
        self.sums = kernel.registers(kind, self.turn.extent * self.own_column.extent, "sums")
        self.largest = kernel.registers(kind, self.turn.extent, "largest")
        self.totals = kernel.registers(kind, self.turn.extent, "totals")

    def build(self) -> Phase:
        of, block, kernel = self.of, self.online.block, self.kernel
        blocks, constant = self.place(), kernel.index_constant
        thread = kernel.thread()
        self.group = named(kernel.add(arith.DivSIOp(thread, constant(ROW_THREADS))), "group")
        self.lane = named(kernel.add(arith.RemSIOp(thread, constant(ROW_THREADS))), "lane")
        loads = [load for load in of.weights.loads() if load.value is of.first_raw]
        self.prepare(loads, self.scores, as_expr(self.turn) * self.own_key.extent + as_expr(self.own_key))
        self._clear()
        self._copy(of.queries).build(kernel, self.queries, self.first, of.first.rows)
        tiles = self.tiles()
        loop(kernel, (constant(0), tiles, constant(1)), (), self._tile, (TILE, "tile"))
        self._finish()
        note = f"attention: {THREADS} threads have {block.rows} queries, {block.keys} keys at a time"
        return Phase(kernel, Grid(blocks, (THREADS, 1)), note, ())

    def _copy(self, access: OperandAccess) -> TileCopy:
        source = self.kernel.parameters[self.buffers.sources[access.value]]
        return TileCopy(self.kernel, THREADS, source, access, self.element)

    def _clear(self) -> None:
        zero, low = self.kernel.constant(0.0, self.element), self.kernel.constant(-inf, self.element)

        def row(scope: Scope, _: Values) -> Values:
            self._store(scope, low, self.largest, self.turn)
            self._store(scope, zero, self.totals, self.turn)
            unrolled(scope, self.own_column, (), lambda inner, _: self._set_sum(inner, zero), "own_column")
            return ()

        unrolled(self.kernel, self.turn, (), row, "turn")

    def _set_sum(self, scope: Scope, value: SSAValue) -> Values:
        self._store(scope, value, self.sums, self.turn, self.own_column)
        return ()

    def _place(self, scope: Scope, *dims: Dim) -> SSAValue:
        """Of an element in registers that the dimensions count."""
        expression = as_expr(dims[0])
        for dim in dims[1:]:
            expression = expression * dim.extent + as_expr(dim)
        return scope.index(expression)

    def _store(self, scope: Scope, value: SSAValue, memory: SSAValue, *dims: Dim) -> None:
        scope.block.add_op(memref.StoreOp.get(value, memory, [self._place(scope, *dims)]))

    def _load(self, scope: Scope, memory: SSAValue, *dims: Dim) -> SSAValue:
        return scope.add(memref.LoadOp.get(memory, [self._place(scope, *dims)]))

    def _own_row(self, scope: Scope) -> SSAValue:
        """In the block, the row that a turn of this thread is about."""
        turn = scope.add(arith.MuliOp(scope.dim_value(self.turn), scope.index_constant(ROWS_AT_ONCE)))
        return named(scope.add(arith.AddiOp(self.group, turn)), "own_row")

    def _tile(self, scope: Scope, _: Values) -> Values:
        """Some keys: their scores, their weights, what their values add."""
        of, block = self.of, self.online.block
        number = scope.dim_value(TILE)
        first = named(scope.add(arith.MuliOp(number, scope.index_constant(block.keys))), "first_key")
        scope.block.add_op(gpu.BarrierOp())
        turned = of.keys.transposed()
        self._copy(turned).build(scope, self.keys, first, of.first.columns)
        scope.block.add_op(gpu.BarrierOp())
        self._multiply_keys(scope)
        unrolled(scope, self.turn, (), lambda row, _: self._weigh(row, first), "turn")
        scope.block.add_op(gpu.BarrierOp())
        self._copy(of.values).build(scope, self.values, first, of.first.columns)
        scope.block.add_op(gpu.BarrierOp())
        self._multiply_values(scope)
        return ()

    def _multiply_keys(self, scope: Scope) -> None:
        """Scores in registers, summed up over the elements of queries and keys."""
        turns, own, depth = self.turn.extent, self.own_key.extent, Dim("depth", self.of.first.depth)
        zero = scope.constant(0.0, self.element)
        bounds = (scope.index_constant(0), scope.index_constant(depth.extent), scope.index_constant(1))

        def add(inner: Scope, sums: Values) -> Values:
            at = inner.dim_value(depth)
            left = [self.queries.load(inner, row, at) for row in numbers(scope, self.group, turns, ROWS_AT_ONCE)]
            right = [self.keys.load(inner, key, at) for key in numbers(scope, self.lane, own, ROW_THREADS)]
            pairs = [(a, b) for a in left for b in right]
            return [inner.add(math.FmaOp(a, b, c)) for (a, b), c in zip(pairs, sums, strict=True)]

        found = loop(scope, bounds, [zero] * (turns * own), add, (depth, "depth"), ["score"] * (turns * own))
        for place, value in enumerate(found):
            scope.block.add_op(memref.StoreOp.get(value, self.scores, [scope.index_constant(place)]))

    def _multiply_values(self, scope: Scope) -> None:
        """The sums in registers with the weighted values of a tile."""
        turns, own, key = self.turn.extent, self.own_column.extent, Dim("tile_key", self.online.block.keys)
        bounds = (scope.index_constant(0), scope.index_constant(key.extent), scope.index_constant(1))
        places = [scope.index_constant(place) for place in range(turns * own)]
        starts = [scope.add(memref.LoadOp.get(self.sums, [place])) for place in places]
        columns = numbers(scope, self.lane, own, ROW_THREADS)
        if self.of.second.columns % ROW_THREADS:
            most = scope.index_constant(self.of.second.columns - 1)
            columns = [*columns[:-1], scope.add(arith.MinSIOp(columns[-1], most))]

        def add(inner: Scope, sums: Values) -> Values:
            at = inner.dim_value(key)
            left = [self.shares.load(inner, row, at) for row in numbers(scope, self.group, turns, ROWS_AT_ONCE)]
            right = [self.values.load(inner, at, column) for column in columns]
            pairs = [(a, b) for a in left for b in right]
            return [inner.add(math.FmaOp(a, b, c)) for (a, b), c in zip(pairs, sums, strict=True)]

        found = loop(scope, bounds, starts, add, (key, "tile_key"), ["sum"] * len(starts))
        for place, value in zip(places, found, strict=True):
            scope.block.add_op(memref.StoreOp.get(value, self.sums, [place]))

    def _weigh(self, row: Scope, first: SSAValue) -> Values:
        """The scores of a thread's keys of a row become weights in shared memory; sums so far are scaled to the new maximum."""
        own_row = self._own_row(row)
        last = row.index_constant(self.of.first.rows - 1)
        row.indices[self.row] = row.add(arith.MinSIOp(row.add(arith.AddiOp(self.first, own_row)), last))
        low = row.constant(-inf, self.element)
        unrolled(row, self.own_key, (), lambda key, _: self._score(key, first), "own_key")
        before = self._load(row, self.largest, self.turn)
        (largest,) = unrolled(row, self.own_key, [before], self._larger, "own_key", ["largest"])
        largest = self.across(row, largest, ROW_THREADS, self.combined(row, "max"))
        self._store(row, largest, self.largest, self.turn)
        is_lowest = row.add(arith.CmpfOp(largest, low, "oeq"))
        shift = row.add(arith.SelectOp(is_lowest, row.constant(0.0, self.element), largest))
        factor = row.add(math.ExpOp(row.add(arith.SubfOp(before, shift))))
        total = row.add(arith.MulfOp(self._load(row, self.totals, self.turn), factor))
        self.emitter.define(self.online.shift, shift, row)
        for each in self.online.factors:
            row.values[each.node] = row.constant(1.0, self.element)
        (total,) = unrolled(
            row, self.own_key, [total], lambda key, sums: self._share(key, sums, first, own_row), "own_key", ["total"]
        )
        self._store(row, total, self.totals, self.turn)

        def scale(inner: Scope, _: Values) -> Values:
            value = self._load(inner, self.sums, self.turn, self.own_column)
            return self._set_sum(inner, inner.add(arith.MulfOp(value, factor)))

        unrolled(row, self.own_column, (), scale, "own_column")
        return ()

    def _key_of(self, scope: Scope, first: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The key that is looked at, in the tile and in the matrix; what is read for one behind the last is read for that."""
        own = scope.add(arith.MuliOp(scope.dim_value(self.own_key), scope.index_constant(ROW_THREADS)))
        near = scope.add(arith.AddiOp(self.lane, own))
        key = scope.add(arith.AddiOp(first, near))
        scope.indices[self.key] = scope.add(arith.MinSIOp(key, scope.index_constant(self.of.first.columns - 1)))
        return near, key

    def _score(self, scope: Scope, first: SSAValue) -> Values:
        """The score that the ops make of a product; -inf behind the last key."""
        _, key = self._key_of(scope, first)
        self.emitter.emit([self.online.score], scope, self.raw)
        value = self.emitter.value(self.online.score, scope)
        inside = less(scope, key, self.of.first.columns)
        value = scope.add(arith.SelectOp(inside, value, scope.constant(-inf, self.element)))
        self._store(scope, value, self.scores, self.turn, self.own_key)
        return ()

    def _larger(self, scope: Scope, found: Values) -> Values:
        value = self._load(scope, self.scores, self.turn, self.own_key)
        return [emit_combine(scope, "max", self.element, found[0], value)]

    def _share(self, scope: Scope, sums: Values, first: SSAValue, own_row: SSAValue) -> Values:
        near, _ = self._key_of(scope, first)
        self.emitter.emit([self.online.power, self.online.weight], scope, self.scored)
        self.shares.store(scope, self.emitter.value(self.online.weight, scope), own_row, near)
        return [scope.add(arith.AddfOp(sums[0], self.emitter.value(self.online.power, scope)))]

    def _finish(self) -> None:
        """The sums times the factors of their rows, and what follows."""

        def row(scope: Scope, _: Values) -> Values:
            number = scope.add(arith.AddiOp(self.first, self._own_row(scope)))
            own = self._load(scope, self.totals, self.turn)
            total = self.across(scope, own, ROW_THREADS, self.combined(scope, "add"))
            inside = less(scope, number, self.of.first.rows)
            when(scope, inside, (), lambda there, _: self._result_row(there, total), {self.row: number})
            return ()

        unrolled(self.kernel, self.turn, (), row, "turn")

    def _result_row(self, scope: Scope, total: SSAValue) -> Values:
        largest = self._load(scope, self.largest, self.turn)
        self.finish_row(scope, largest, total)

        def element(inner: Scope, _: Values) -> Values:
            own = inner.add(arith.MuliOp(inner.dim_value(self.own_column), inner.index_constant(ROW_THREADS)))
            column = inner.add(arith.AddiOp(self.lane, own))
            inside = less(inner, column, self.of.second.columns)
            when(inner, inside, (), self._result, {self.column: column})
            return ()

        unrolled(scope, self.own_column, (), element, "own_column")
        return ()

    def _result(self, scope: Scope, _: Values) -> Values:
        value = self._load(scope, self.sums, self.turn, self.own_column)
        self.store_result(scope, value)
        return ()
