"""The stages of a row as loops of the threads that share it.

The stages follow each other; in each the threads stride over the columns, by elements or by vectors, and a stage that
reduces ends with the totals known to every thread. What is stored for every element is stored in the loop that knows it,
what is stored once for a row by one thread at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.loop_body import ScalarNode, Store
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import exact_quotient, may_exceed
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.gpu.context import GpuParts
from fuse_opt.lowering.gpu.reduce import Reducer, combine
from fuse_opt.lowering.gpu.scope import Body, Values, combined_index, less, loop, unroll_last, unrolled, when
from fuse_opt.lowering.gpu.vectors import HeldVectors, VectorMover, VectorPlan, plan_vectors, vector_memories
from fuse_opt.lowering.kernel.element_emitter import ElementEmitter, KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.row_stages import KeptRow, early_stores, nodes_below
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True)
class Team:
    """The threads that share a row, as one of them sees it."""

    reducer: Reducer
    number: SSAValue
    """Of this thread among them."""
    inside: SSAValue | None = None
    """Whether the row is one of this thread's to store; None where each is. Others compute along, for the barriers."""

    @property
    def threads(self) -> int:
        return self.reducer.threads


@dataclass(frozen=True)
class RowPart:
    """A part of the columns, a multiple of every vector's elements: its number and its length."""

    number: SSAValue
    length: Extent


@dataclass(frozen=True)
class Columns:
    """The columns of a stage as one dimension, or one of vectors and one within a vector."""

    nodes: KernelNodes
    emitter: ElementEmitter
    counted: Dim
    plan: VectorPlan | None

    @property
    def width(self) -> int:
        return 1 if self.plan is None else self.plan.width

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (self.counted,) if self.plan is None else (self.counted, self.plan.inner)

    def position(self, counted: Dim) -> IndexExpr:
        """Elements before one, where `counted` says how many vectors or elements are before it."""
        before = as_expr(counted) if may_exceed(counted.extent, 1) else IndexExpr()
        return before if self.plan is None else before * self.width + as_expr(self.plan.inner)


@dataclass(frozen=True)
class HeldRow:
    """
    The first columns of a row, `counted` vectors of them, as loads have them: a block's threads keep them in shared memory after
    the first stage that reads them, so that later ones read the rest alone again.
    """

    counted: int
    by_stage: Mapping[int, HeldVectors]
    """What each of the stages takes and leaves, by its id."""


HELD_TURNS = 4
"""Vectors that each thread has of what is held: so many, or twice as many ..."""
FEWEST_HELD = 4
"""Of a row that is so many times as long as what fits, or longer, nothing is held: a processor has room for two blocks then."""


@dataclass
class RowStages:
    """Emits the stages of the row that a team shares, in vectors of `width` elements where addresses allow it."""

    parts: GpuParts
    team: Team
    settle: bool
    """Whether all threads must have read before what belongs to the row is stored."""
    width: int = 1
    part: RowPart | None = None
    held: HeldRow | None = None
    together: int | None = None
    """Turns of a loop whose loads are to be under way together; None leaves it to the compiler."""
    _in_registers: bool = False
    _columns: dict[tuple[Dim, ...], Columns] = field(default_factory=dict[tuple[Dim, ...], Columns])

    def __post_init__(self) -> None:
        self.nodes = self.parts.nodes
        self.emitter = self.parts.emitter(self.nodes)

    def build(self, scope: Scope, stages: Sequence[Stage], once: Sequence[Store]) -> None:
        for stage in stages:
            if stage is stages[-1]:
                self.emitter.emit(early_stores(self.nodes, once, stage), scope)
            if all(scope.find(node) is not None for node in stage.reductions) and not stage.stores:
                continue  # known together with those of the stage before
            totals = self.total(stage, self.reduce(stage, scope), scope)
            for node, value in zip(stage.reductions, totals, strict=True):
                self.emitter.define(node, value, scope)
        self.store_once(scope, once)

    def store_once(self, scope: Scope, once: Sequence[Store]) -> None:
        """One thread stores what a row has once."""
        if not once:
            return
        self.emitter.emit([store.node for store in once], scope)
        if self.settle:
            scope.block.add_op(gpu.BarrierOp())
        self._when_first(scope, once)

    def total(self, stage: Stage, partials: Values, scope: Scope) -> Values:
        """What the partial results of all threads come to; each thread has all of a stage without columns."""
        if not stage.dims:
            return partials
        return self.team.reducer.total(scope, stage.reductions, partials)

    def keep(self, kept: Sequence[KeptRow], shared: bool) -> None:
        """Lets later stages take what an earlier one made: from a thread's own registers, or from shared memory."""
        self._in_registers = bool(kept) and not shared
        for row in kept:
            columns = self.flattened(row.dims)
            element = value_type(dtype(row.node.value))
            name = f"{row.node.value.name_hint or 'kept'}_row"
            if shared:
                memory = self.parts.kernel.shared_once((row.node, "kept"), element, extent(row.dims), name)
                place = RowBuffer(memory, columns.position(columns.counted))
            else:
                turns = self._turns(columns)
                if columns.counted.extent == self.team.threads and columns.width == 1:
                    continue  # one element of each thread: its value is known without memory
                memory = self.parts.kernel.registers(element, turns.extent * columns.width, name)
                place = RowBuffer(memory, columns.position(turns))
            row.source.left[row.node] = place
            for reader in row.readers:
                reader.taken[row.node] = place

    def hold(self, stages: Sequence[Stage], room: int) -> None:
        """Lets later stages take what fits into so many bytes of shared memory of the vectors that an earlier one loads, too."""
        reading = [stage for stage in stages if may_exceed(extent(stage.dims), 1)]
        if len(reading) < 2 or len({stage.dims for stage in reading}) > 1:
            return
        columns = self.flattened(reading[0].dims)
        readers: dict[ScalarNode, list[Stage]] = {}
        for stage in reading:
            plan = self.vectors_of(stage, columns)
            for node in () if plan is None else plan.loads:
                readers.setdefault(node, []).append(stage)
        nodes = [node for node, found in readers.items() if len(found) > 1]
        size = columns.width * sum(dtype(node.value).itemsize for node in nodes)
        turn = HELD_TURNS * self.team.threads
        counted = min(room // size, columns.counted.extent) // turn * turn if nodes else 0
        if counted * FEWEST_HELD < columns.counted.extent:
            return
        found: dict[int, HeldVectors] = {}
        for node in nodes:
            name = f"{node.value.name_hint or 'x'}_held"
            memory = self.parts.kernel.shared(dtype(node.value).attribute, counted * columns.width, name)
            row, (first, *others) = RowBuffer(memory, columns.position(columns.counted)), readers[node]
            for stage in reading:
                before = found.get(id(stage), HeldVectors())
                taken = {**before.taken, **({node: row} if stage in others else {})}
                left = {**before.left, **({node: row} if stage is first else {})}
                found[id(stage)] = HeldVectors(taken, left)
        self.held = HeldRow(counted, found)

    def held_by(self, stage: Stage) -> HeldVectors | None:
        """What a stage takes and leaves of what is held; None where it has nothing of it."""
        found = None if self.held is None else self.held.by_stage[id(stage)]
        return found if found is not None and (found.taken or found.left) else None

    def memories(self, stages: Sequence[Stage]) -> list[SSAValue]:
        """What must be aligned for vectors."""
        found: dict[SSAValue, None] = {}
        for stage in stages:
            if stage.dims and (plan := self.vectors_of(stage, self.flattened(stage.dims))) is not None:
                found |= dict.fromkeys(vector_memories(self.parts, plan))
        return list(found)

    def reduce(self, stage: Stage, scope: Scope) -> Values:
        """The loop of a stage; gives what this thread's elements come to."""
        starts = [self.initial(node) for node in stage.reductions]
        if not stage.dims:
            return self._build_once(stage, scope, starts)
        columns = self.flattened(stage.dims)
        if (held := self.held_by(stage)) is None or self.held is None:
            return self._loop(stage, scope, columns, starts, self.bounds(scope, columns))
        start, end, step = self.bounds(scope, columns)
        middle = scope.index_constant(self.held.counted)
        values = self._loop(stage, scope, columns, starts, (start, middle, step), held)
        if self.held.counted == columns.counted.extent:
            return values
        return self._loop(stage, scope, columns, values, (scope.add(arith.AddiOp(start, middle)), end, step))

    def _loop(
        self,
        stage: Stage,
        scope: Scope,
        columns: Columns,
        starts: Values,
        bounds: tuple[SSAValue, SSAValue, SSAValue],
        held: HeldVectors | None = None,
    ) -> Values:
        plan = self.vectors_of(stage, columns)
        mover = None if plan is None else VectorMover(self.parts, plan, held=held)
        taken = stage.taken if mover is None else {**mover.taken, **stage.taken}
        local = Stage(stage.dims, stage.reductions, stage.stores, taken, stage.left)
        hints = [node.value.name_hint for node in stage.reductions]

        def element(inner: Scope, values: Values) -> Values:
            columns.emitter.emit(local.roots(), inner, local)
            joined = [
                combine(inner, node, value, columns.emitter.reduced_element(node, inner))
                for node, value in zip(stage.reductions, values, strict=True)
            ]
            stores = stage.stores if mover is None else mover.keep(inner, stage.stores)
            self._store_inside(stores, columns.emitter, inner)
            return joined

        def vector(inner: Scope, values: Values) -> Values:
            if columns.plan is None:
                return element(inner, values)
            if mover is not None:
                mover.load(inner)
            results = unrolled(inner, columns.plan.inner, values, element, "lane", hints)
            if mover is not None:
                self._inside(inner, bool(mover.made), mover.store)
            return results

        if self._in_registers and (stage.taken or stage.left):
            return self._turn_loop(scope, columns, starts, vector, hints)
        name = "column" if columns.plan is None else "vector"
        results = loop(scope, bounds, starts, vector, (columns.counted, name), hints)
        if self.together is not None:
            unroll_last(scope, self.together)
        return results

    def bounds(self, scope: Scope, columns: Columns) -> tuple[SSAValue, SSAValue, SSAValue]:
        constant = scope.index_constant
        step = constant(self.team.threads)
        if self.part is None:
            return self.team.number, constant(columns.counted.extent), step
        first, end = self.part_bounds(scope, columns)
        return scope.add(arith.AddiOp(first, self.team.number)), end, step

    def counted(self, columns: Columns) -> Extent:
        """Elements or vectors of a part, or of the row; the last part may have fewer."""
        return columns.counted.extent if self.part is None else self.part.length // columns.width

    def part_bounds(self, scope: Scope, columns: Columns) -> tuple[SSAValue, SSAValue]:
        """Where the part begins and ends."""
        constant, last = scope.index_constant, columns.counted.extent
        if (part := self.part) is None:
            return constant(0), constant(last)
        length = self.counted(columns)
        first = scope.made(("part", length), lambda: arith.MuliOp(part.number, constant(length)))
        end = scope.add(arith.AddiOp(first, constant(length)))
        return first, scope.add(arith.MinSIOp(end, constant(last))) if exact_quotient(last, length) is None else end

    def _turns(self, columns: Columns) -> Dim:
        return Dim("turn", -(-columns.counted.extent // self.team.threads))

    def _turn_loop(
        self, scope: Scope, columns: Columns, starts: Values, body: Body, hints: Sequence[str | None]
    ) -> Values:
        """
        A loop that counts the vectors of a thread from 0, so that it can be unrolled and they be registers; behind it a last turn
        of those threads that have one more.
        """
        turns, counted, threads = self._turns(columns), columns.counted, self.team.threads
        name = "column" if columns.plan is None else "vector"

        def place(inner: Scope, turn_number: SSAValue) -> SSAValue:
            return combined_index(inner, turn_number, threads, self.team.number, name)

        def turn(inner: Scope, values: Values) -> Values:
            inner.indices[counted] = place(inner, inner.dim_value(turns))
            return body(inner, values)

        full = counted.extent // threads
        if full == turns.extent:
            return unrolled(scope, turns, starts, turn, "turn", hints)
        values = unrolled(scope, turns, starts, turn, "turn", hints, full) if full else starts
        last = scope.index_constant(full)
        own = place(scope, last)
        return when(scope, less(scope, own, counted.extent), values, body, {counted: own, turns: last})

    def _build_once(self, stage: Stage, scope: Scope, starts: Values) -> Values:
        """A row of one element: every thread computes it, one stores it and alone counts it."""
        self.emitter.emit(stage.roots(), scope, stage)
        partials = [
            combine(scope, node, start, self.emitter.reduced_element(node, scope))
            for node, start in zip(stage.reductions, starts, strict=True)
        ]
        self._when_first(scope, stage.stores)
        return partials

    def _when_first(self, scope: Scope, stores: Sequence[Store]) -> None:
        if not stores:
            return
        first = scope.add(arith.CmpiOp(self.team.number, scope.index_constant(0), "eq"))
        if self.team.inside is not None:
            first = scope.add(arith.AndIOp(first, self.team.inside))

        def store(inner: Scope, _: Values) -> Values:
            self.parts.store(stores, self.emitter, inner)
            return ()

        when(scope, first, (), store)

    def _store_inside(self, stores: Sequence[Store], emitter: ElementEmitter, scope: Scope) -> None:
        self._inside(scope, bool(stores), lambda inner: self.parts.store(stores, emitter, inner))

    def _inside(self, scope: Scope, stores: bool, store: Callable[[Scope], None]) -> None:
        """Stores something where the row is this thread's to store."""
        if not stores or self.team.inside is None:
            store(scope)
            return

        def guarded(inner: Scope, _: Values) -> Values:
            store(inner)
            return ()

        when(scope, self.team.inside, (), guarded)

    def flattened(self, dims: tuple[Dim, ...]) -> Columns:
        """The nodes in terms of one dimension that counts through all of a stage's, or of vectors of it."""
        if (found := self._columns.get(dims)) is None:
            found = self._columns[dims] = self._flatten(dims)
        return found

    def _flatten(self, dims: tuple[Dim, ...]) -> Columns:
        flat = dims[0] if len(dims) == 1 else Dim("column", extent(dims))
        vectors = self.width > 1 and exact_quotient(flat.extent, self.width) is not None
        if len(dims) == 1 and not vectors:
            return Columns(self.nodes, self.emitter, flat, None)
        nodes: KernelNodes = copy(self.nodes)
        if len(dims) > 1:
            nodes.flatten_rows(dims, flat)
        if not vectors:
            nodes.finish()
            return Columns(nodes, self.parts.emitter(nodes), flat, None)
        outer, inner = Dim("vector", flat.extent // self.width), Dim("lane", self.width)
        nodes.split_dim(flat, outer, inner)
        nodes.finish()
        loop_body = nodes.loop_body
        plan = plan_vectors(nodes, inner, loop_body.loads(), [store for store in loop_body.stores if not store.per_row])
        return Columns(nodes, self.parts.emitter(nodes), outer, plan)

    def vectors_of(self, stage: Stage, columns: Columns) -> VectorPlan | None:
        """The vectors that a stage moves."""
        if columns.plan is None:
            return None
        needed = nodes_below(stage.roots(), stage.taken)
        loads = [node for node in columns.plan.loads if node in needed]
        numbers = {store.result for store in stage.stores}
        stores = [store for store in columns.plan.stores if store.result in numbers]
        return replace(columns.plan, loads=loads, stores=stores) if loads or stores else None

    def initial(self, node: ScalarNode) -> SSAValue:
        """What a reduction starts from, which is neutral to it."""
        assert node.op is not None
        return self.parts.kernel.constant(node.op.initial(), node.op.body().dtype)
