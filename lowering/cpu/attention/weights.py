"""The pass between the two products of attention, over rows of scores that are in a cache, in their place."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.attention import OWN
from fuse_opt.dialects.analysis.loop_body import LoopBody, Store
from fuse_opt.dialects.analysis.result_places import result_axes
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, linearize
from fuse_opt.lowering.cpu.matmul.epilogue import Sums
from fuse_opt.lowering.cpu.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.row_stages import KeptRow, early_stores, plan_kept_rows, plan_stages
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope


class WeightRows(StageLoops):
    """Rows of scores become rows of weights where they are; scopes around must know the matrix of the batch."""

    def __init__(
        self, loop_body: LoopBody, product: Contraction, raw: SSAValue, scores: Sums, memory: KernelBuffers, root: Scope
    ) -> None:
        nodes = KernelNodes(loop_body)
        rows = nodes.loop(loop_body.rows)
        self.batch, self.row, _ = result_axes(product)
        whole = Dim("score_row", self.batch.extent * self.row.extent)
        nodes.flatten_rows(rows, whole)
        nodes.split_dim(whole, self.batch, self.row)
        columns = nodes.loop(loop_body.columns)
        nodes.finish()
        super().__init__(nodes, memory, root.block.args[: len(memory.types)], root)
        self.local = Dim("tile_row", scores.rows)
        place = linearize(tuple(map(as_expr, columns)), [dim.extent for dim in columns])
        self.scores = RowBuffer(scores.memory, as_expr(self.local) * scores.step + place)
        whole_rows = [store for store in loop_body.stores if not store.per_row]
        self.once = [store for store in loop_body.stores if store.per_row]
        self.stages = plan_stages(nodes, whole_rows, columns, in_place=True)
        for kept in plan_kept_rows(nodes, self.stages):
            row = kept.source.left[kept.node] = self._row_buffer(kept)
            for reader in kept.readers:
                reader.taken[kept.node] = row
        for stage in self.stages:
            for load in loop_body.loads():
                if load.value is raw:
                    stage.taken[load] = self.scores

    def seen(self, columns: IndexExpr) -> int | None:
        """What is added to a row's number in its matrix to give how many keys it sees; None where that is not all."""
        found = self.nodes.space.apply(columns)
        return found.constant if found.coefficients() == {self.row: 1} else None

    @property
    def work(self) -> int:
        """Simple operations of a row."""
        return sum(extent(stage.dims) * self.stage_work(stage) for stage in self.stages)

    def emit(self, scope: Scope, first: SSAValue, count: SSAValue) -> None:
        """So many rows from the first on, which are those of the scores."""
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "row"
        inner = Scope(scope, block)
        inner.indices = {self.local: block.args[0], self.row: inner.add(arith.AddiOp(first, block.args[0]))}
        for stage in self.stages:
            if stage is self.stages[-1]:
                self.emitter.emit(early_stores(self.nodes, self.once, stage), inner)
            self.build_stage(stage, inner)
        self.emitter.emit([store.node for store in self.once], inner)
        self.store(self.once, inner)
        block.add_op(scf.YieldOp())
        scope.block.add_op(self.loop(block, self.root.index_constant(0), count))

    def store(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:
            if store.result == OWN:
                value = self.emitter.value(store.node, scope)
                place = scope.index(self.scores.position)
                scope.block.add_op(memref.StoreOp.get(value, self.scores.memory, [place]))
            else:
                super().store([store], scope)

    def _row_buffer(self, kept: KeptRow) -> RowBuffer:
        alloca = memref.AllocaOp.get(value_type(dtype(kept.node.value)), 64, [extent(kept.dims)])
        memory = self.root.add(alloca)
        memory.name_hint = f"{kept.node.value.name_hint or 'kept'}_row"
        return RowBuffer(memory, kept.position)
