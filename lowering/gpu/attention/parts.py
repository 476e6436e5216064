"""What the kernels of attention on a GPU share: which queries a block has, which keys it goes over, and what its results are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.analysis.contractions.result_places import result_axes
from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import I32, DType
from fuse_opt.dialects.types.extents import ceiling_quotient
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.gpu.context import GpuParts
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, named
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import LoopSpace
from fuse_opt.lowering.kernel.scalar_to_arith import emit_combine
from fuse_opt.lowering.kernel.scope import Scope

TILE = Dim("tile", 1 << 31)
"""Counts the tiles of keys."""


class AttentionParts:
    """A kernel of attention under construction, by blocks of `rows` queries and tiles of `keys` keys."""

    def __init__(
        self, online: OnlineSoftmax, buffers: KernelBuffers, kernel: KernelScope, block: tuple[int, int]
    ) -> None:
        self.online, self.of, self.buffers, self.kernel = online, online.of, buffers, kernel
        self.element: DType = dtype(self.of.first_raw)
        self.block_rows, self.block_keys = block
        self.batch, self.row, self.column = result_axes(self.of.second)
        self.key = Dim("key", self.of.first.columns)

    def place(self, from_last: bool = False) -> Extent:
        """Finds the matrix and the first row of the block, from the last ones of a matrix on or the first; how many blocks
        there are."""
        kernel, constant = self.kernel, self.kernel.index_constant
        row_blocks = ceiling_quotient(self.of.second.rows, self.block_rows)
        number = kernel.block_number()
        kernel.indices[self.batch] = kernel.add(arith.DivSIOp(number, constant(row_blocks)))
        rows = kernel.add(arith.RemSIOp(number, constant(row_blocks)))
        if from_last:
            rows = kernel.add(arith.SubiOp(constant(row_blocks - 1), rows))
        self.first = named(kernel.add(arith.MuliOp(rows, constant(self.block_rows))), "first_row")
        return prod(self.of.first.batch) * row_blocks

    def prepare(
        self, products: Sequence[ScalarNode], scores: SSAValue, position: IndexExpr, vectors: bool = False
    ) -> None:
        """The passes of weights and results over the dimensions counted here; products, then scores, lie in registers."""
        nodes = KernelNodes(self.of.weights)
        rows = nodes.loop(self.of.weights.rows)
        whole = Dim("score_row", self.batch.extent * self.row.extent)
        nodes.flatten_rows(rows, whole)
        nodes.split_dim(whole, self.batch, self.row)
        nodes.flatten_rows(nodes.loop(self.of.weights.columns), self.key)
        nodes.finish()
        self.parts = GpuParts(nodes, self.buffers, self.kernel, vectors=vectors)
        self.emitter = self.parts.emitter(nodes)
        self.raw = Stage((), taken={node: RowBuffer(scores, position) for node in products})
        self.scored = Stage((), taken={self.online.score: RowBuffer(scores, position)})
        after = KernelNodes(self.of.epilogue)
        after.space = LoopSpace(self.of.places, ((self.batch, self.row, self.column),))
        after.finish()
        self.after = GpuParts(after, self.buffers, self.kernel)

    def seen_after(self) -> int | None:
        """How many keys further than its own number a row sees, where that is all that it may see."""
        if self.of.seen is None or not self.online.hides:
            return None
        seen = self.emitter.nodes.space.apply(self.of.seen)
        return seen.constant if seen.coefficients() == {self.row: 1} else None

    def tiles(self) -> SSAValue:
        """How many tiles of keys the queries of the block see."""
        keys, constant, add = self.block_keys, self.kernel.index_constant, self.kernel.add
        every = constant(ceiling_quotient(self.of.first.columns, keys))
        if (further := self.seen_after()) is None:
            return every
        last = add(arith.AddiOp(self.first, constant(self.block_rows - 1 + further + keys - 1)))
        count = add(arith.DivSIOp(add(arith.MaxSIOp(last, constant(0))), constant(keys)))
        return named(add(arith.MinSIOp(count, every)), "tiles")

    def across(
        self, scope: Scope, value: SSAValue, lanes: int, join: Callable[[SSAValue, SSAValue], SSAValue]
    ) -> SSAValue:
        """Joined over so many neighbouring lanes."""
        width, offset = scope.constant(WARP, I32), lanes // 2
        while offset:
            other = scope.add(gpu.ShuffleOp(value, scope.constant(offset, I32), width, gpu.ShuffleModeEnum.Xor))
            value = join(value, other)
            offset //= 2
        return value

    def combined(self, scope: Scope, primitive: str) -> Callable[[SSAValue, SSAValue], SSAValue]:
        return lambda a, b: emit_combine(scope, primitive, self.element, a, b)

    def finish_row(self, scope: Scope, largest: SSAValue, total: SSAValue) -> None:
        """Makes the factors of a row known, from its maximum and the sum of its powers."""
        if not self.online.is_safe:
            is_lowest = scope.add(arith.CmpfOp(largest, scope.constant(-inf, self.element), "oeq"))
            total = scope.add(arith.SelectOp(is_lowest, scope.constant(nan, self.element), total))
        self.emitter.define(self.online.largest, largest, scope)
        self.emitter.define(self.online.total, total, scope)
        self.emitter.emit([factor.node for factor in self.online.factors], scope)

    def results_of(self, scope: Scope, value: SSAValue) -> list[SSAValue]:
        """What follows from a sum of values at the row and column of the scope, as memory has it, for each store."""
        for factor in self.online.factors:
            by = self.emitter.value(factor.node, scope)
            value = scope.add(arith.DivfOp(value, by) if factor.divides else arith.MulfOp(value, by))
        emitter = self.after.emitter(self.after.nodes)
        for load in self.of.epilogue.loads():
            if load.value is self.of.second_raw:
                emitter.define(load, value, scope)
        stores = self.of.epilogue.stores
        emitter.emit([store.node for store in stores], scope)
        return [emitter.stored_value(store.node, scope) for store in stores]

    def targets(self) -> list[tuple[SSAValue, IndexExpr]]:
        """Where each store goes: a buffer, and a position by matrix, row and column."""
        return [
            (self.kernel.parameters[self.buffers.targets[store.result]], self.after.nodes.space.apply(store.address))
            for store in self.of.epilogue.stores
        ]

    def store_result(self, scope: Scope, value: SSAValue) -> None:
        """Stores what follows from a sum of values, at the row and column of the scope."""
        for found, (memory, address) in zip(self.results_of(scope, value), self.targets(), strict=True):
            scope.block.add_op(memref.StoreOp.get(found, memory, [scope.index(address)]))
