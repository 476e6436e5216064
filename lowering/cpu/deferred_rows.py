"""Rows one after the other, the last loop of each together with the one of the next that computes most: `stores = "deferred"`.

    row: maximum; powers and their sum; shares                maximum; powers and their sum of the first row
    row: maximum; powers and their sum; shares      becomes   maximum; powers and their sum beside the shares of the row before
    row: maximum; powers and their sum; shares                shares of the last row

Stores past the caches wait for memory, and arithmetic for none of it. So what a row keeps for its last loop lies in one of two
rows of memory in turn, and what its other loops came to is carried to the next row. The last loop goes along whole cache lines
of the result, wherever in one of them a row begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Region, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.loop_body import ScalarNode, Store
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.index_expr import Dim, constant
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.c.headers.functions import helper_names
from fuse_opt.lowering.cpu.pipelined_rows import PipelinedRows
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.cpu.stages.stage import Beside
from fuse_opt.lowering.kernel.element_emitter import RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.loop_splitting import Fixed, flat_memory
from fuse_opt.lowering.kernel.row_stages import nodes_below
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.nontemporal_stores import LINE

FEWEST = 128
"""Elements of a row whose loops are worth joining."""


@dataclass(frozen=True, slots=True)
class Deferred(Beside):
    """The last loop of the row before, which goes along whole cache lines: they begin so many elements behind the row's start."""

    offset: SSAValue


class DeferredRows(PipelinedRows):
    """Adds rows whose results are stored while the next row is computed."""

    def host(self, stages: Sequence[Stage]) -> Stage | None:
        """
        The stage beside which the last one of the row before may run: the one that computes most. None where the last one does
        more than store a row of results past the caches, which nothing reads, or where no loop has whole lines at a time.
        """
        if len(stages) < 2:
            return None
        *others, last = stages
        if (
            len(last.dims) != 1
            or last.reductions
            or not last.stores
            or self.memory.in_place(self.loop_body, last.stores)
        ):
            return None
        length, along = last.dims[-1].extent, last.dims[-1]
        if isinstance(length, Size) or length < FEWEST:
            return None
        for store in last.stores:
            factors = self.nodes.space.apply(store.address).coefficients()
            if factors is None or factors.get(along) != 1 or self._stream(store) not in helper_names():
                return None
        least = min(self._bytes(store) for store in last.stores)
        able = [stage for stage in others if stage.dims == last.dims and self._has_lines(stage, least)]
        return max(able, key=self.stage_work, default=None)

    def build_deferred(
        self, task: Dim, bounds: Range, stages: Sequence[Stage], once: Sequence[Store], host: Stage
    ) -> None:
        """The loop over rows within the bounds, and the last loop of the last row behind it."""
        *others, last = stages
        turn = Dim("turn", 2)
        self._take_turns(stages, turn)
        carried = self._reductions_of(last)
        start = [self.initial(node) for node in carried]
        block = Block(arg_types=[INDEX, *(value.type for value in start)])
        row, *values = block.args
        row.name_hint = task.name
        one = self.root.index_constant(1)
        scope = Scope(self.root, block, {task: row})
        scope.indices[turn] = scope.add(arith.AndIOp(row, one))
        before = Scope(self.root, block)
        known = before.add(arith.MaxSIOp(before.add(arith.SubiOp(row, one)), bounds[0]))
        known.name_hint = "before"
        before.indices |= {task: known, turn: before.add(arith.SubiOp(one, scope.indices[turn]))}
        self._define(carried, values, before)
        for stage in others:
            if stage is host:
                self._build_host(host, last, scope, before, (bounds[0], row))
            else:
                self.build_stage(stage, scope)
        self.emitter.emit([store.node for store in once], scope)
        self.store(once, scope)
        block.add_op(scf.YieldOp(*(self.emitter.value(node, scope) for node in carried)))
        loop = self.loop(block, *bounds, start)
        self.root.block.add_op(loop)
        self._last_row(task, turn, bounds, last, carried, loop.results)

    def _build_host(self, host: Stage, last: Stage, scope: Scope, before: Scope, bounds: Range) -> None:
        """The stage together with the last one of the row before, or alone where there is none."""
        shared, alone = Block(), Block()
        beside = Deferred(last, Scope(before, shared), self._first_line(last, before))
        for block, given in ((shared, beside), (alone, None)):
            results = self.reduce_stage(host, Scope(scope, block), beside=given)
            block.add_op(scf.YieldOp(*results))
        is_behind = scope.add(arith.CmpiOp(*bounds, "slt"))
        types = [self.initial(node).type for node in host.reductions]
        choice = scf.IfOp(is_behind, types, Region(shared), Region(alone))
        scope.block.add_op(choice)
        self._define(host.reductions, choice.results, scope)

    def _last_row(
        self,
        task: Dim,
        turn: Dim,
        bounds: Range,
        last: Stage,
        carried: Sequence[ScalarNode],
        values: Sequence[SSAValue],
    ) -> None:
        block, one = Block(), self.root.index_constant(1)
        scope = Scope(self.root, block)
        scope.indices[task] = scope.add(arith.SubiOp(bounds[1], one))
        scope.indices[turn] = scope.add(arith.AndIOp(scope.indices[task], one))
        self._define(carried, values, scope)
        self.build_stage(last, scope)
        block.add_op(scf.YieldOp())
        is_any = self.root.add(arith.CmpiOp(*bounds, "slt"))
        self.root.block.add_op(scf.IfOp(is_any, [], Region(block)))

    def join_beside(self, beside: Beside, block: Block, first: Dim, lanes: int) -> None:
        if not isinstance(beside, Deferred):
            super().join_beside(beside, block, first, lanes)
            return
        number, scope = self.root.index_constant, Scope(beside.scope, block)
        low = scope.add(arith.AddiOp(block.args[0], beside.offset))
        inner = Scope(scope, Block())
        self._store_block(beside.stage, inner, low, lanes)
        inner.block.add_op(scf.YieldOp())
        is_whole = scope.add(arith.CmpiOp(low, number(beside.stage.dims[-1].extent - lanes), "sle"))
        block.add_op(scf.IfOp(is_whole, [], Region(inner.block)))

    def rest_beside(self, beside: Beside, bounds: Range, lanes: int) -> None:
        if not isinstance(beside, Deferred):
            super().rest_beside(beside, bounds, lanes)
            return
        scope, number, last = beside.scope, self.root.index_constant, beside.stage.dims[-1]
        left = scope.add(arith.SubiOp(number(last.extent), beside.offset))
        behind = scope.add(arith.SubiOp(number(last.extent), scope.add(arith.AndIOp(left, number(lanes - 1)))))
        for part in ((number(0), beside.offset), (behind, number(last.extent))):
            self._reduce_innermost(beside.stage, scope, {last: part}, [])

    def _store_block(self, stage: Stage, scope: Scope, start: SSAValue, lanes: int) -> None:
        """So many neighbours from one on, of which results are whole lines where that one begins one."""
        along, lane, block = stage.dims[-1], Dim("lane", stage.dims[-1].extent), Block(arg_types=[INDEX])
        first, size = Dim(f"{along.name}_line", along.extent), self.root.index_constant(lanes)
        block.args[0].name_hint = "lane"
        outer = Scope(scope, scope.block, {first: start})
        inner = Fixed(Scope(outer, block, {lane: block.args[0]}), {along: as_expr(first) + as_expr(lane)})
        self.emitter.emit(stage.roots(), inner, stage)
        buffers = [self._block(store, lanes, f"block_{place}") for place, store in enumerate(stage.stores)]
        for store, buffer in zip(stage.stores, buffers, strict=True):
            block.add_op(memref.StoreOp.get(self.emitter.stored_value(store.node, inner), buffer, [block.args[0]]))
        self._end_lanes(block, scope, lanes)
        place = Fixed(outer, {along: as_expr(first)})
        for store, buffer in zip(stage.stores, buffers, strict=True):
            to = place.index(self.nodes.space.apply(store.address))
            source, target = (flat_memory(self.root, memory) for memory in (buffer, self._target(store)))
            arguments = [source, self.root.index_constant(0), target, to, size, size]
            scope.call_for_effect(self._stream(store), arguments)

    def _block(self, store: Store, lanes: int, name: str) -> SSAValue:
        """Memory for so many elements of a result."""
        kind = self._target(store).type
        assert isa(kind, MemRefType)

        def made() -> memref.AllocaOp:
            alloca = memref.AllocaOp.get(kind.element_type, LINE, [lanes])
            alloca.memref.name_hint = name
            return alloca

        return self.root.made((name, kind.element_type, lanes), made)

    def _first_line(self, last: Stage, before: Scope) -> SSAValue:
        """How many elements behind the start of the row before the first whole line of its result begins."""
        store = min(last.stores, key=self._bytes)
        step, number = LINE // self._bytes(store), self.root.index_constant
        start = Fixed(before, {last.dims[-1]: constant(0)}).index(self.nodes.space.apply(store.address))
        memory = flat_memory(self.root, self._target(store))
        name = self._stream(store).replace("fo_stream_block", "fo_line_offset")
        behind = before.call(name, [memory, start], INDEX)
        return before.add(arith.AndIOp(before.add(arith.SubiOp(number(step), behind)), number(step - 1)))

    def _take_turns(self, stages: Sequence[Stage], turn: Dim) -> None:
        """Gives what the last stage reads of a row memory for two rows, of which each has that of its turn."""
        for node, row in stages[-1].taken.items():
            alloca = row.memory.owner
            assert isinstance(alloca, memref.AllocaOp) and isa(row.memory.type, MemRefType)
            (count,) = row.memory.type.get_shape()
            twice = self.root.add(memref.AllocaOp.get(row.memory.type.element_type, LINE, [2 * count]))
            twice.name_hint = f"{node.value.name_hint or 'kept'}_rows"
            new = RowBuffer(twice, as_expr(turn) * count + row.position)
            for stage in stages:
                for mapping in (stage.taken, stage.left):
                    if mapping.get(node) is row:
                        mapping[node] = new
            alloca.detach()
            alloca.erase()

    def _reductions_of(self, last: Stage) -> list[ScalarNode]:
        """The reductions that the last stage's stores are made of, in the order of the kernel."""
        below = nodes_below([store.node for store in last.stores], last.taken)
        return [
            node for node in self.nodes.loop_body.nodes if node in below and node.op is not None and node.op.COMBINE
        ]

    def _define(self, nodes: Sequence[ScalarNode], values: Sequence[SSAValue], scope: Scope) -> None:
        for node, value in zip(nodes, values, strict=True):
            self.emitter.define(node, value, scope)

    def _has_lines(self, stage: Stage, nbytes: int) -> bool:
        """Whether the stage's loop takes so many neighbours at a time that elements of these bytes are whole lines."""
        lanes = self.lanes(stage)
        return lanes > 0 and lanes * nbytes % LINE == 0 and stage.dims[-1].extent >= lanes

    def _target(self, store: Store) -> SSAValue:
        return self.arguments[self.memory.targets[store.result]]

    def _bytes(self, store: Store) -> int:
        kind = self._target(store).type
        assert isa(kind, MemRefType)
        element = dtype_of(kind.element_type)
        assert element is not None
        return element.itemsize

    def _stream(self, store: Store) -> str:
        kind = self._target(store).type
        assert isa(kind, MemRefType)
        return f"fo_stream_block_{kind.element_type}"
