"""The pass between the products of attention's gradient: weights of a block of scores, while a cache has these."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention_gradients import AttentionGradient
from fuse_opt.dialects.analysis.loop_body import Store
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums, block_place
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


class GradientWeights(BlockEpilogue):
    """Weights take the place of scores in blocks; scopes around must know the part."""

    def __init__(self, of: AttentionGradient, blocks: Sequence[Sums], memory: KernelBuffers, root: Scope) -> None:
        """`blocks` are as many as there are scores, or weights; all begin at 0."""
        first = of.scores[0]
        super().__init__(of.weights, of.places, first.product, first.raw, memory, root)
        self.raws = {each.raw: block for each, block in zip(of.scores, blocks, strict=False)}
        self.blocks = blocks

    def block_value(self, value: SSAValue, sums: Sums, row: Scope, inner: Scope) -> SSAValue | None:
        if (block := self.raws.get(value)) is None:
            return None
        return inner.add(memref.LoadOp.get(block.memory, [inner.index(block_place(sums))]))

    def store(self, stores: Sequence[Store], scope: Scope) -> None:
        at = scope.index(block_place(self.blocks[0]))
        values = [(self.emitter.value(store.node, scope), self.blocks[store.result]) for store in stores]
        for value, block in values:
            scope.block.add_op(memref.StoreOp.get(value, block.memory, [at]))

    def note_rows(self, scope: Scope, count: SSAValue, flag: SSAValue) -> None:
        """Puts 0 where the flag is unless all numbers that a row has for itself, not for its columns, are finite."""
        sums, zero = self.blocks[0], self.root.index_constant(0)
        loads = [load for load in self.loop_body.loads() if load.value not in self.raws]
        loads = [load for load in loads if self.column not in self.nodes.addresses[load].dims()]

        def numbers(row: Scope) -> None:
            for load in loads:
                self.emitter.emit([load], row)
                value = self.emitter.value(load, row)
                if isinstance(value.type, AnyFloat):
                    none = row.add(arith.SubfOp(value, value))  # NaN of what is not finite
                    is_finite = row.add(arith.CmpfOp(none, none, "oeq"))
                    known = row.add(memref.LoadOp.get(flag, [zero]))
                    row.block.add_op(memref.StoreOp.get(row.add(arith.SelectOp(is_finite, known, zero)), flag, [zero]))

        self.over_rows(scope, sums, zero, count, numbers)
