"""A kernel as a function of loops over flat buffers: its tasks `[begin, end)` are rows, or elements of a pointwise kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from ..dialects.fused import KernelOp
from ..dialects.graph_op import dtype
from ..dialects.index_expr import Dim
from ..dialects.pull import Point, Pulled, Store
from .kernel_buffers import KernelBuffers, Parameter
from .kernel_points import KernelPoints, PointEmitter, RowBuffer, Stage, body_cost
from .loop_builder import INDEX, Scope
from .loop_space import extent
from .row_stages import early_stores, plan_kept_rows, plan_stages
from .scalar_ops import emit_combine, value_type

WORK_PER_CHUNK = 12288 * 4
"""Simple operations that make it worth to hand a part of a loop to another thread; a light element has four."""
CHUNK_MULTIPLE = 64
"""Elements; chunks of a pointwise loop begin at multiples, so that no two threads write one cache line."""


@dataclass(frozen=True, slots=True)
class KernelLoops:
    """A kernel's function with what a caller needs: which buffers, how many tasks, how many make a chunk."""

    body: Block
    parameters: tuple[Parameter, ...]
    shared: frozenset[int]
    """Parameters whose memory another one has, too."""
    tasks: int
    grain: int
    helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]


def build_kernel_loops(kernel: KernelOp, pulled: Pulled, storages: Sequence[Hashable]) -> KernelLoops:
    """The loops of a kernel; `storages` name the memory of each operand and result: equal ones are one buffer."""
    builder = _Builder(kernel, pulled, storages)
    work = builder.build_rows() if pulled.is_row else builder.build_pointwise()
    multiple = 1 if builder.nested else CHUNK_MULTIPLE
    grain = -(-WORK_PER_CHUNK // max(work, 1))
    builder.root.block.add_op(func.ReturnOp())
    return KernelLoops(
        builder.root.block,
        tuple(builder.memory.parameters),
        builder.memory.shared,
        builder.tasks,
        -(-grain // multiple) * multiple,
        builder.root.helpers,
    )


class _Builder:
    def __init__(self, kernel: KernelOp, pulled: Pulled, storages: Sequence[Hashable]) -> None:
        self.points = KernelPoints(pulled)
        self.pulled = pulled
        self.tasks = 1
        self.nested = True
        self.memory = memory = KernelBuffers(kernel, pulled, storages)
        block = Block(arg_types=[*memory.types, INDEX, INDEX])
        for argument, hint in zip(block.args, [*memory.hints, "begin", "end"], strict=True):
            argument.name_hint = hint
        self.root = Scope(None, block)
        self.begin, self.end = block.args[-2:]
        buffers = {value: block.args[number] for value, number in memory.sources.items()}
        self.emitter = PointEmitter(self.points, buffers)

    def build_pointwise(self) -> int:
        """Merged dimensions but the innermost make the tasks; a lone dimension is cut into tasks itself."""
        points, pulled = self.points, self.pulled
        dims = points.loop(pulled.rows)
        work = sum(body_cost(point.op) if point.op else 1 for point in pulled.points) + len(pulled.stores)
        if len(dims) <= 1:
            points.finish()
            self.tasks = extent(dims)
            self.nested = False
            stage = Stage(dims, stores=list(pulled.stores))
            self._build_stage(stage, self.root, (self.begin, self.end))
            return work
        *outer, inner = dims
        self.tasks = extent(outer)
        task = Dim("row", self.tasks)
        points.flatten_rows(outer, task)
        points.finish()
        scope = self._open_tasks(task)
        self._build_stage(Stage((inner,), stores=list(pulled.stores)), scope)
        self._close_tasks(scope)
        return work * inner.extent

    def build_rows(self) -> int:
        """A task is one row: loops in order, then what is stored once for the row."""
        points, pulled = self.points, self.pulled
        rows = points.loop(pulled.rows)
        self.tasks = extent(rows)
        task = Dim("row", self.tasks)
        points.flatten_rows(rows, task)
        columns = points.loop(pulled.columns)
        points.finish()
        scope = self._open_tasks(task)
        whole = [store for store in pulled.stores if not store.per_row]
        once = [store for store in pulled.stores if store.per_row]
        stages = plan_stages(points, whole, columns, self.memory.in_place)
        for kept in plan_kept_rows(points, stages):
            count = extent(kept.dims)
            alloca = memref.AllocaOp.get(value_type(dtype(kept.point.value)), 64, [count])
            memory = self.root.add(alloca)
            memory.name_hint = f"{kept.point.value.name_hint or 'kept'}_row"
            row = RowBuffer(memory, kept.position)
            kept.source.left[kept.point] = row
            for reader in kept.readers:
                reader.taken[kept.point] = row
        for stage in stages:
            if stage is stages[-1]:
                self.emitter.emit(early_stores(points, once, stage), scope)
            self._build_stage(stage, scope)
        self.emitter.emit([store.point for store in once], scope)
        self._store(once, scope)
        self._close_tasks(scope)
        loops = sum(extent(stage.dims) * self._stage_work(stage) for stage in stages)
        return loops + sum(body_cost(point.op) for point in pulled.points if point.op and not point.op.COMBINE)

    def _stage_work(self, stage: Stage) -> int:
        work = len(stage.stores) + len(stage.reductions) + len(stage.left)
        seen: set[Point] = set()
        stack = stage.roots()
        while stack:
            point = stack.pop()
            if point in seen or not self.points.varies(point, stage.dims):
                continue
            seen.add(point)
            if point in stage.taken or point.op is None:
                work += 1
            else:
                work += body_cost(point.op)
                stack.extend(point.operands)
        return work

    def _open_tasks(self, task: Dim) -> Scope:
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = task.name
        return Scope(self.root, block, {task: block.args[0]})

    def _close_tasks(self, scope: Scope) -> None:
        scope.block.add_op(scf.YieldOp())
        step = self.root.index_constant(1)
        self.root.block.add_op(scf.ForOp(self.begin, self.end, step, [], Region(scope.block)))

    def _build_stage(self, stage: Stage, outer: Scope, bounds: tuple[SSAValue, SSAValue] | None = None) -> None:
        """The loops of a stage: the innermost one is parallel, those around it carry its reductions."""
        accumulators: Sequence[SSAValue] = [self._initial(point) for point in stage.reductions]
        if not stage.dims and bounds is None:
            self._build_once(stage, outer, accumulators)
            return
        scopes: list[Scope] = [outer]
        starts: list[Sequence[SSAValue]] = []
        for dim in stage.dims[:-1]:
            block = Block(arg_types=[INDEX, *(value.type for value in accumulators)])
            self._name(block.args, dim, stage)
            starts.append(accumulators)
            accumulators = block.args[1:]
            scopes.append(Scope(scopes[-1], block, {dim: block.args[0]}))
        block = Block(arg_types=[INDEX])
        self._name(block.args, stage.dims[-1] if stage.dims else Dim("i", 1), stage)
        inner = Scope(scopes[-1], block, {stage.dims[-1]: block.args[0]} if stage.dims else {})
        self.emitter.emit(stage.roots(), inner, stage)
        elements = [self.emitter.reduced_element(point, inner) for point in stage.reductions]
        self._store(stage.stores, inner)
        block.add_op(
            scf.ReduceOp(elements, [_combiner(point, e) for point, e in zip(stage.reductions, elements, strict=True)])
        )
        lower, upper = bounds or (self.root.index_constant(0), self.root.index_constant(stage.dims[-1].extent))
        step = self.root.index_constant(1)
        loop: Operation = scf.ParallelOp([lower], [upper], [step], Region(block), accumulators)
        scopes[-1].block.add_op(loop)
        for scope, dim, start in zip(scopes[:0:-1], stage.dims[-2::-1], reversed(starts), strict=True):
            self._name(loop.results, None, stage)
            scope.block.add_op(scf.YieldOp(*loop.results))
            end = self.root.index_constant(dim.extent)
            assert scope.parent is not None
            loop = scf.ForOp(self.root.index_constant(0), end, step, list(start), Region(scope.block))
            scope.parent.block.add_op(loop)
        for point, result in zip(stage.reductions, loop.results, strict=True):
            self.emitter.define(point, result, outer)

    def _build_once(self, stage: Stage, scope: Scope, accumulators: Sequence[SSAValue]) -> None:
        """A loop of one iteration, without the loop."""
        self.emitter.emit(stage.roots(), scope, stage)
        for point, start in zip(stage.reductions, accumulators, strict=True):
            assert point.op is not None
            element = self.emitter.reduced_element(point, scope)
            joined = emit_combine(scope, point.op.COMBINE, point.op.body().dtype, start, element)
            self.emitter.define(point, joined, scope)
        self._store(stage.stores, scope)

    def _initial(self, point: Point) -> SSAValue:
        assert point.op is not None
        return self.root.constant(point.op.initial(), point.op.body().dtype)

    def _store(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:
            address = self.points.space.apply(store.address)
            self.emitter.store(store.point, self.root.block.args[self.memory.targets[store.result]], address, scope)

    def _name(self, values: Sequence[SSAValue], dim: Dim | None, stage: Stage) -> None:
        hints = [point.value.name_hint for point in stage.reductions]
        for value, hint in zip(values, hints if dim is None else [_loop_name(dim), *hints], strict=False):
            value.name_hint = hint


def _loop_name(dim: Dim) -> str:
    return {"i": "i", "r": "row", "c": "column"}.get(dim.name[:1], "i")


def _combiner(point: Point, element: SSAValue) -> Region:
    assert point.op is not None
    block = Block(arg_types=[element.type, element.type])
    scope = Scope(None, block)
    joined = emit_combine(scope, point.op.COMBINE, point.op.body().dtype, *block.args)
    block.add_op(scf.ReduceReturnOp(joined))
    return Region(block)


def kernel_function(name: str, loops: KernelLoops, comment: str) -> func.FuncOp:
    """The function of a kernel: private, with what a launcher must know as attributes."""
    arguments: tuple[BlockArgument, ...] = tuple(loops.body.args)
    attributes = None
    if loops.shared:
        alias = DictionaryAttr({"fused.alias": UnitAttr()})
        attributes = ArrayAttr(alias if k in loops.shared else DictionaryAttr({}) for k in range(len(arguments)))
    function = func.FuncOp(name, ([a.type for a in arguments], []), Region(loops.body), "private", arg_attrs=attributes)
    function.attributes["fused.comment"] = StringAttr(comment)
    function.attributes["fused.tasks"] = IntegerAttr(loops.tasks, i64)
    function.attributes["fused.grain"] = IntegerAttr(loops.grain, i64)
    return function
