"""The pass between the two products of attention, over rows of scores that are in a cache, in their place.

Behind a mask of positions all columns of a row may be alike. Then the pass ends with the first of them, unless that one shows
that they count: a sum of it, or its weight, is not 0 (or NaN). Such rows, of which there are hardly any, are gone over again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.contractions.attention import MOST_SCORES, OWN
from fuse_opt.dialects.analysis.contractions.causal_masks import takes_any_number
from fuse_opt.dialects.analysis.contractions.result_places import result_axes
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, linearize
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.cpu.attention.late_factor import FACTOR, LateFactor
from fuse_opt.lowering.cpu.attention.panels import on_stack
from fuse_opt.lowering.cpu.matmul.epilogue import Sums
from fuse_opt.lowering.cpu.stages.loop_parts import Bounds
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import Fixed
from fuse_opt.lowering.kernel.row_stages import KeepRules, KeptRow, early_stores, plan_kept_rows, plan_stages
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.vector_widths import WIDTH, padded


class WeightRows(StageLoops):
    """Rows of scores become rows of weights where they are; scopes around must know the matrix of the batch."""

    def __init__(
        self,
        loop_body: LoopBody,
        product: Contraction,
        raw: SSAValue,
        scores: Sums,
        most_columns: int,
        memory: KernelBuffers,
        root: Scope,
        late: LateFactor | None = None,
    ) -> None:
        """`most_columns` are those that a row may have. With a `late` factor this is left in `factors`, row by row."""
        self.most_columns = most_columns
        loop_body = late.weights if late else loop_body
        nodes = KernelNodes(loop_body)
        rows = nodes.loop(loop_body.rows)
        self.batch, self.row, _ = result_axes(product)
        whole = Dim("score_row", self.batch.extent * self.row.extent)
        nodes.flatten_rows(rows, whole)
        nodes.split_dim(whole, self.batch, self.row)
        columns = nodes.loop(loop_body.columns)
        nodes.finish()
        super().__init__(nodes, memory, root.block.args[: len(memory.types)], root)
        self.rows_have_room = isinstance(product.columns, Size)
        self.scores_of = scores
        self.local = Dim("tile_row", scores.rows)
        place = linearize(tuple(map(as_expr, columns)), [dim.extent for dim in columns])
        self.scores = RowBuffer(scores.memory, as_expr(self.local) * scores.step + place)
        whole_rows = [store for store in loop_body.stores if not store.per_row]
        self.once = [store for store in loop_body.stores if store.per_row]
        self.stages = plan_stages(nodes, whole_rows, columns, in_place=True)
        for kept in plan_kept_rows(nodes, self.stages, KeepRules(largest=MOST_SCORES, room=2 * MOST_SCORES)):
            row = kept.source.left[kept.node] = self._row_buffer(kept)
            for reader in kept.readers:
                reader.taken[kept.node] = row
        for stage in self.stages:
            for load in loop_body.loads():
                if load.value is raw:
                    stage.taken[load] = self.scores
        self.factors: SSAValue | None = None
        if late is not None:
            maker = next(stage for stage in reversed(self.stages) if late.part in self.nodes_of(stage))
            maker.left[late.part] = self.scores
            self.factors = self._memory_of_rows("row_factors", late.part)

    def seen(self, columns: IndexExpr) -> int | None:
        """What is added to a row's number in its matrix to give how many keys it sees; None where that is not all."""
        found = self.nodes.space.apply(columns)
        return found.constant if found.coefficients() == {self.row: 1} else None

    @property
    def work(self) -> int:
        """Simple operations of a row."""
        return sum(extent(stage.dims) * self.stage_work(stage) for stage in self.stages)

    @property
    def can_end_early(self) -> bool:
        """Whether a row is gone over in loops over its columns, the last of which stores but the weights."""
        *others, last = self.stages
        stores = [store.result for stage in self.stages for store in stage.stores]
        return (
            stores == [OWN]
            and not any(stage.stores for stage in others)
            and not last.reductions
            and all(len(stage.dims) == 1 for stage in self.stages)
        )

    def lanes(self, stage: Stage) -> int:
        """As of all stages; where rows have room, what is left over of a loop is a vector of accumulators."""
        found = super().lanes(stage)
        return WIDTH if not found and self.rows_have_room and stage.reductions else found

    def _is_roomy(self, memory: SSAValue, room: int) -> bool:
        """Scores lie with room behind each row."""
        step = self.scores_of.step
        return super()._is_roomy(memory, room) or (
            memory is self.scores.memory and not isinstance(step, Size) and room <= step
        )

    def _may_overlap(self, stage: Stage) -> bool:
        """Nothing runs twice where a last vector has room of its own."""
        return super()._may_overlap(stage) or (self.scores in stage.left.values() and self._has_room(stage))

    def emit(self, scope: Scope, first: SSAValue, count: SSAValue, place: SSAValue | None = None) -> None:
        """So many rows from the first on, which are those of the scores from row `place` on, or else all of them."""
        self._over_rows(scope, first, count, self._whole_row, place)

    def emit_seen(self, scope: Scope, first: SSAValue, count: SSAValue, columns: SSAValue) -> SSAValue:
        """
        The same of so many leading columns, which with the first one that a mask hides are all but those that are like it.
        Gives how many columns got weights: these, or all where a row was gone over again.
        """
        columns_in = self.root.index_constant(extent(self.stages[0].dims))
        zero, one = self.root.index_constant(0), self.root.index_constant(1)
        most = self._memory("weighed", 1)
        scope.block.add_op(memref.StoreOp.get(columns, most, [zero]))
        again = self._memory("again", self.scores_of.rows)
        is_whole = scope.add(arith.CmpiOp(columns, columns_in, "eq"))

        def seen_row(row: Scope) -> None:
            counts = self._row(row, columns, is_whole)
            left = row.add(arith.SelectOp(counts, zero, one))
            row.block.add_op(memref.StoreOp.get(left, again, [row.dim_value(self.local)]))

        def repeated_row(row: Scope) -> None:
            repeats = row.add(memref.LoadOp.get(again, [row.dim_value(self.local)]))
            inner = Scope(row, Block(arg_types=[INDEX]))
            self._whole_row(inner)
            inner.block.add_op(memref.StoreOp.get(columns_in, most, [zero]))
            inner.block.add_op(scf.YieldOp())
            row.block.add_op(self.loop(inner.block, zero, repeats))

        self._over_rows(scope, first, count, seen_row)
        self._over_rows(scope, first, count, repeated_row)
        return scope.add(memref.LoadOp.get(most, [zero]))

    def _over_rows(
        self,
        scope: Scope,
        first: SSAValue,
        count: SSAValue,
        build: Callable[[Scope], None],
        place: SSAValue | None = None,
    ) -> None:
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "row"
        inner = Scope(scope, block)
        local = block.args[0] if place is None else inner.add(arith.AddiOp(place, block.args[0]))
        inner.indices = {self.local: local, self.row: inner.add(arith.AddiOp(first, block.args[0]))}
        build(inner)
        block.add_op(scf.YieldOp())
        scope.block.add_op(self.loop(block, self.root.index_constant(0), count))

    def _whole_row(self, row: Scope) -> None:
        for stage in self.stages:
            if stage is self.stages[-1]:
                self.emitter.emit(early_stores(self.nodes, self.once, stage), row)
            self.build_stage(stage, row, self._roomy_bounds(row, stage))
        self._finish_row(row)

    def _roomy_bounds(self, row: Scope, stage: Stage) -> Bounds | None:
        """Those of a stage's loop over all columns where they are not its own; of one key there is none."""
        for dim in stage.dims[-1:]:
            upper = self._with_room(row, stage, whole := self.root.index_constant(dim.extent))
            return None if upper is whole else {dim: (self.root.index_constant(0), upper)}
        return None

    def _row(self, row: Scope, columns: SSAValue, is_whole: SSAValue) -> SSAValue:
        """A row of so many columns; gives whether that was right, without which nothing is stored as its weights."""
        zero, one = self.root.index_constant(0), self.root.index_constant(1)
        last = row.add(arith.SubiOp(columns, one))
        counts: SSAValue | None = None
        for stage in self.stages:
            (dim,) = stage.dims
            hidden = Fixed(row, {})
            hidden.indices[dim] = last
            self.emitter.emit(stage.roots(), hidden, stage)
            for neutral in self._neutral(stage, hidden):
                counts = neutral if counts is None else row.add(arith.AndIOp(counts, neutral))
            upper = columns
            if stage is self.stages[-1]:
                assert counts is not None
                counts = row.add(arith.OrIOp(counts, is_whole))
                upper = row.add(arith.SelectOp(counts, columns, zero))
                self.emitter.emit(early_stores(self.nodes, self.once, stage), row)
            self.build_stage(stage, row, {dim: (zero, self._with_room(row, stage, upper))})
        self._finish_row(row)
        assert counts is not None
        return counts

    def _with_room(self, row: Scope, stage: Stage, columns: SSAValue) -> SSAValue:
        """Where a loop over so many columns ends: behind whole vectors, where rows have room for these."""
        own = all(store.result == OWN for store in stage.stores)
        if not self.rows_have_room or stage.reductions or not own or self.loads_arrays(stage):
            return columns
        last = row.add(arith.AddiOp(columns, self.root.index_constant(WIDTH - 1)))
        return row.add(arith.AndIOp(last, self.root.index_constant(-WIDTH)))

    def _neutral(self, stage: Stage, hidden: Scope) -> list[SSAValue]:
        """For each sum of a stage and each weight, whether the column adds nothing."""
        pairs = [
            (self.emitter.reduced_element(node, hidden), self.initial(node))
            for node in stage.reductions
            if not takes_any_number(node)
        ]
        for store in stage.stores:
            pairs.append((self.emitter.value(store.node, hidden), self.root.constant(0.0, dtype(store.node.value))))
        return [
            hidden.add(arith.CmpfOp(a, b, "oeq") if isinstance(a.type, AnyFloat) else arith.CmpiOp(a, b, "eq"))
            for a, b in pairs
        ]

    def _finish_row(self, row: Scope) -> None:
        self.emitter.emit([store.node for store in self.once], row)
        self.store(self.once, row)

    def _memory(self, name: str, count: int) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(INDEX, 64, [count]))
        memory.name_hint = name
        return memory

    def store(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:
            if store.result == OWN:
                value = self.emitter.value(store.node, scope)
                place = scope.index(self.scores.position)
                scope.block.add_op(memref.StoreOp.get(value, self.scores.memory, [place]))
            elif store.result == FACTOR:
                assert self.factors is not None
                value = self.emitter.value(store.node, scope)
                scope.block.add_op(memref.StoreOp.get(value, self.factors, [scope.dim_value(self.local)]))
            else:
                super().store([store], scope)

    def _memory_of_rows(self, name: str, like: ScalarNode) -> SSAValue:
        """Room for a number of each row."""
        return on_stack(self.root, self.scores_of.rows, name, dtype(like.value))

    def _row_buffer(self, kept: KeptRow) -> RowBuffer:
        count: Extent = extent(kept.dims)
        capacity = padded(self.most_columns) if isinstance(count, Size) else count
        alloca = memref.AllocaOp.get(value_type(dtype(kept.node.value)), 64, [capacity])
        memory = self.root.add(alloca)
        memory.name_hint = f"{kept.node.value.name_hint or 'kept'}_row"
        return RowBuffer(memory, kept.position)
