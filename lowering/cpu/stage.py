"""One stage of a pass as a loop nest: the innermost loop is parallel, those around it carry the stage's reductions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import MemRefType, UnitAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.loop_body import ScalarNode, Store
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.dialects.types.extents import estimate, is_decided, may_exceed, most
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.hints import REGISTER, ROLLED
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import ElementEmitter, KernelNodes, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import Fixed
from fuse_opt.lowering.kernel.nan_analysis import extrema_without_nan
from fuse_opt.lowering.kernel.scalar_to_arith import emit_combine
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.block_conversions import is_widened
from fuse_opt.lowering.loops.masked_tails import HIDDEN_BITS, NARROWEST, WIDTH, padded

LANES = 64
"""Accumulators of a reduction side by side: enough vectors that none waits for another, few enough for registers."""
SHORT_LANES = 16
"""The same of a loop that does not fill `LANES` twice: a wide vector, or two. Fewer elements than these that are left over
have an accumulator of their own: a wide load behind narrow stores waits for them."""
SHORTEST = 5
"""Elements of a loop that has accumulators side by side, some of which join nothing."""
FEWEST_LANES = 4
"""Accumulators that are joined one by one."""
LIGHT_WORK = 16
"""Simple operations of an iteration next to which it counts that it waits for the one before, and that gcc joins what a loop
over bytes reduces one element after the other, 64 of them."""
PAIRED_WORK = 8
"""Simple operations of an iteration that stands twice in a loop, once for each of two vectors of accumulators."""
LONG_WORK = 1 << 15
"""Simple operations of a loop next to which it does not count how its accumulators are joined, as no iteration is light."""

Range = tuple[SSAValue, SSAValue]
Accumulators = Sequence[Sequence[SSAValue]]
"""Vectors of accumulators, each of which has one for each reduction of a stage."""
Bounds = Mapping[Dim, tuple[SSAValue, SSAValue]]
"""By dimension: its first value and the one after the last, where these are not 0 and the extent."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A stage without reductions over the same dimension as another one, and the scope that knows what it needs."""

    stage: Stage
    scope: Scope


class StageLoops:
    """Builds the stages of one pass in the function whose outermost scope is `root`."""

    def __init__(self, nodes: KernelNodes, memory: KernelBuffers, arguments: Sequence[SSAValue], root: Scope) -> None:
        self.nodes = nodes
        self.loop_body = nodes.loop_body
        self.memory = memory
        self.arguments = arguments
        self.root = root
        self.emitter = ElementEmitter(nodes, {v: arguments[number] for v, number in memory.sources.items()})
        self.without_nan = extrema_without_nan(nodes.loop_body)
        self.rows_have_room = False
        """Whether rows whose extents are sizes lie in memory of the function's own, with room for whole vectors."""

    def build_stage(self, stage: Stage, outer: Scope, bounds: Bounds | None = None) -> None:
        """The loops of a stage, put into the outer scope, in which its reductions are known from then on."""
        for node, result in zip(stage.reductions, self.reduce_stage(stage, outer, bounds), strict=True):
            self.emitter.define(node, result, outer)

    def reduce_stage(
        self, stage: Stage, outer: Scope, bounds: Bounds | None = None, beside: Beside | None = None
    ) -> Sequence[SSAValue]:
        """The loops of a stage; gives what its reductions come to within the bounds, in their compute types.

        Another stage may share the innermost loop of one that has accumulators in memory."""
        accumulators: Sequence[SSAValue] = [self.initial(node) for node in stage.reductions]
        if not stage.dims:
            return self._reduce_once(stage, outer, accumulators)
        bounds = bounds or {}
        lanes = self.lanes(stage)
        memories: Accumulators = self._accumulators(stage, outer, lanes, bounds) if lanes else []
        apart = not lanes or self._has_short_rest(stage, bounds, lanes)
        carried = accumulators if apart else []
        scopes: list[Scope] = [outer]
        starts: list[Sequence[SSAValue]] = []
        for dim in stage.dims[:-1]:
            block = Block(arg_types=[INDEX, *(value.type for value in carried)])
            self.name(block.args, dim, stage)
            starts.append(carried)
            carried = block.args[1:]
            scopes.append(Scope(scopes[-1], block, {dim: block.args[0]}))
        if lanes:
            results: Sequence[SSAValue] = self._accumulate(stage, scopes[-1], bounds, memories, lanes, carried, beside)
        else:
            results = self._reduce_innermost(stage, scopes[-1], bounds, carried)
        for scope, dim, start in zip(scopes[:0:-1], stage.dims[-2::-1], reversed(starts), strict=True):
            self.name(results, None, stage)
            scope.block.add_op(scf.YieldOp(*results))
            assert scope.parent is not None
            loop = self.loop(scope.block, *self.bounds_of(dim, bounds), start)
            scope.parent.block.add_op(loop)
            results = loop.results
        if lanes:
            pairs = zip(stage.reductions, memories[0], strict=True)
            folded = [self._folded(outer, node, memory, lanes) for node, memory in pairs]
            if not apart:
                return folded
            joined = zip(stage.reductions, folded, results, strict=True)
            return [self.combine(outer, node, *pair) for node, *pair in joined]
        return results

    def _reduce_innermost(
        self, stage: Stage, outer: Scope, bounds: Bounds, start: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        """The innermost loop of a stage as a parallel one that carries its reductions."""
        last = stage.dims[-1]
        block = Block(arg_types=[INDEX])
        self.name(block.args, last, stage)
        scope = Scope(outer, block, {last: block.args[0]})
        self.emitter.emit(stage.roots(), scope, stage)
        elements = [self.emitter.reduced_element(node, scope) for node in stage.reductions]
        self.store(stage.stores, scope)
        pairs = zip(stage.reductions, elements, strict=True)
        block.add_op(scf.ReduceOp(elements, [_combiner(node, element) for node, element in pairs]))
        loop = self.parallel(block, *self.bounds_of(last, bounds), start)
        outer.block.add_op(loop)
        return loop.results

    def lanes(self, stage: Stage) -> int:
        """How many accumulators in memory each reduction of the stage has; 0 where a carried one does.

        With one, each iteration of a light loop waits for the one before, and compilers join what a vector of sums comes to
        one after the other, for which a short row waits longer than for its elements. And an extremum takes a combiner of
        its own, with which not every compiler makes vectors of a loop."""
        if not stage.reductions:
            return 0
        narrowest = min(dtype(node.value).compute.itemsize for node in stage.reductions)
        many, few = (LANES, SHORT_LANES) if narrowest > 1 else (4 * LANES, LANES)
        if not _takes_extremum(stage) and (work := self.stage_work(stage)) > LIGHT_WORK:
            if work * estimate(extent(stage.dims)) > LONG_WORK:
                return 0
            many = few
        length = estimate(stage.dims[-1].extent)
        if narrowest > 1 and isinstance(stage.dims[-1].extent, Size):
            many = few  # gcc has more than one vector of them in memory, where it does not know how many iterations there are
        if self.memory.lanes is not None and length >= 2 * self.memory.lanes:
            return self.memory.lanes
        if length >= 2 * many:
            return many
        if self._may_overlap(stage):
            return max(few, self._vector(stage)) if length >= few else 0
        return few if length >= (SHORTEST if few == WIDTH and self._has_masks(stage) else 2 * few) else 0

    def _vector(self, stage: Stage) -> int:
        """Lanes of a whole vector of the narrowest elements in memory, as far as the loop has them: of fewer gcc 12 makes vectors
        of two numbers."""
        widened = self._widened(stage)
        known = (node for node in self.nodes_of(stage) if node not in widened)
        loads = (node for node in known if node.op is None and node not in stage.taken)
        values = [*(node.value for node in loads), *(store.node.value for store in stage.stores)]
        lanes = WIDTH * NARROWEST // min((dtype(value).itemsize for value in values), default=NARROWEST)
        return lanes if WIDTH < lanes <= stage.dims[-1].extent else WIDTH

    def _has_short_rest(self, stage: Stage, bounds: Bounds, lanes: int) -> bool:
        """Whether so few elements are left over that they have accumulators of their own. An extremum's would not be a
        vector."""
        last = stage.dims[-1]
        if last in bounds or isinstance(last.extent, Size) or _takes_extremum(stage) or self._has_masks(stage):
            return False
        return 0 < last.extent % lanes < SHORT_LANES and not self._overlaps(stage, bounds)

    def _overlaps(self, stage: Stage, bounds: Bounds) -> bool:
        """Whether what is left over of the stage's loop is a vector that overlaps the one before."""
        return stage.dims[-1] not in bounds and self._may_overlap(stage)

    def _may_overlap(self, stage: Stage) -> bool:
        """Whether there are no masks for the stage's elements, and what iterations store is nothing that they read, so that they
        may run twice."""
        length = stage.dims[-1].extent
        if isinstance(length, Size) or length < WIDTH or (self._has_masks(stage) and self._reaches_arrays(stage)):
            return False
        written = {self.arguments[self.memory.targets[store.result]] for store in stage.stores}
        written |= {row.memory for row in stage.left.values()}
        read = {row.memory for row in stage.taken.values()}
        return written.isdisjoint(read) and not self.memory.in_place(self.loop_body, stage.stores)

    def _reaches_arrays(self, stage: Stage) -> bool:
        """Whether an iteration reads or writes more than memory of the function's own: only then there are masks."""
        return bool(stage.stores) or self.loads_arrays(stage, self._widened(stage))

    def loads_arrays(self, stage: Stage, own: Collection[ScalarNode] = ()) -> bool:
        """Whether an iteration reads more than memory of the function's own, or keeps something elsewhere."""
        rows = [row.memory for row in (*stage.taken.values(), *stage.left.values())]
        known = (node for node in self.nodes_of(stage) if node not in own)
        loads = any(node.op is None and node not in stage.taken for node in known)
        return loads or any(memory in self.arguments for memory in rows)

    def _has_masks(self, stage: Stage) -> bool:
        """Whether what is left over of the stage's loop can be a masked vector: no element in memory is narrow, or is widened."""
        return self._narrow(stage) <= self._widened(stage) and all(
            dtype(store.node.value).itemsize >= NARROWEST for store in stage.stores
        )

    def _narrow(self, stage: Stage) -> set[ScalarNode]:
        """What an iteration reads of memory that is narrow."""
        read = (node for node in self.nodes_of(stage) if node in stage.taken or node.op is None)
        return {node for node in read if dtype(node.value).itemsize < NARROWEST}

    def _widened(self, stage: Stage) -> set[ScalarNode]:
        """The booleans that become words before a loop of few iterations, as all else in memory is no narrower."""
        narrow, last = self._narrow(stage), stage.dims[-1]
        if not narrow or isinstance(last.extent, Size) or not is_widened(last.extent):
            return set()
        for node in narrow:
            factors = self.nodes.space.apply(node.address).coefficients() or {}
            if node in stage.taken or dtype(node.value) is not BOOL or factors.get(last, 0) != 1:
                return set()
        return narrow if all(dtype(store.node.value).itemsize >= NARROWEST for store in stage.stores) else set()

    def _accumulators(self, stage: Stage, outer: Scope, lanes: int, bounds: Bounds) -> Accumulators:
        """
        Those of the stage's reductions; two vectors for each where these are registers and joined once: none waits for the one
        before.
        """
        last = stage.dims[-1]
        kinds = (dtype(node.value).compute for node in stage.reductions)
        are_vectors = lanes == WIDTH and all(kind.itemsize == NARROWEST for kind in kinds)
        in_registers = are_vectors and isinstance(last.extent, Size) and last not in bounds
        many = 2 if in_registers and len(stage.dims) == 1 else 1
        return [[self._accumulator(outer, node, lanes, in_registers) for node in stage.reductions] for _ in range(many)]

    def _accumulator(self, outer: Scope, node: ScalarNode, lanes: int, in_registers: bool) -> SSAValue:
        """Memory for the accumulators of a reduction, which start from what is neutral to it."""
        initial = self.initial(node)
        alloca = memref.AllocaOp.get(initial.type, 64, [lanes])
        if in_registers:
            alloca.attributes[REGISTER] = UnitAttr()
        memory = self.root.add(alloca)
        memory.name_hint = f"{node.value.name_hint or 'value'}_lanes"
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        block.add_op(memref.StoreOp.get(initial, memory, [block.args[0]]))
        self._end_lanes(block, outer, lanes)
        return memory

    def _accumulate(
        self,
        stage: Stage,
        outer: Scope,
        bounds: Bounds,
        memories: Accumulators,
        lanes: int,
        carried: Sequence[SSAValue],
        beside: Beside | None,
    ) -> Sequence[SSAValue]:
        """The innermost loop of a stage, so many neighbours at a time, then those left over; gives what the carried
        accumulators of these come to."""
        last, constant = stage.dims[-1], self.root.index_constant
        lower, upper = self.bounds_of(last, bounds)
        first = Dim(f"{last.name}_first", last.extent)
        if last in bounds:
            rest = outer.add(arith.RemSIOp(outer.add(arith.SubiOp(upper, lower)), constant(lanes)))
            middle = outer.add(arith.SubiOp(upper, rest))
        else:
            whole = self._whole_vectors(last.extent, lanes)
            rest, middle = constant(last.extent - whole), constant(whole)
        if is_paired := len(memories) > 1 and beside is None and self.stage_work(stage) <= PAIRED_WORK:
            lower = self._join_pairs(stage, outer, first, memories, lanes, (lower, middle))
        block = Block(arg_types=[INDEX])
        self.name(block.args, last, stage)
        scope = Scope(outer, block, {first: block.args[0]})
        self.ask_ahead(stage, scope, first, lanes)
        if beside is not None:  # first, as what it reads in row buffers may be overwritten
            self.join_beside(beside, block, first, lanes)
        turns: Accumulators = () if is_paired else memories[1:]
        self._join_lanes(stage, scope, first, memories[0], constant(lanes), turns=turns)
        block.add_op(scf.YieldOp())
        loop = self.loop(block, lower, middle, step=lanes)
        loop.attributes[ROLLED] = UnitAttr()
        if last in bounds or may_exceed(last.extent, lanes - 1):
            outer.block.add_op(loop)
        for others in memories[1:]:  # before what is left over is joined: a short row does not wait for it then
            for node, memory, other in zip(stage.reductions, memories[0], others, strict=True):
                self._join_halves(outer, node, memory, lanes, (other, 0))
        has_rest = may_exceed(last.extent % lanes, 0)
        if beside is not None:
            self.rest_beside(beside, (middle, upper), lanes)
        if carried:
            return self._reduce_innermost(stage, outer, {**bounds, last: (middle, upper)}, carried)
        if self.rows_have_room and self._may_compute_beyond(stage):
            self._join_with_room(stage, outer, first, memories[0], lanes, (middle, upper), last in bounds)
            return []
        if self._overlaps(stage, bounds):
            width = min(self._vector(stage), lanes)
            short = last.extent % lanes % width
            if whole := last.extent % lanes - short:
                self._join_at(stage, outer, first, memories[0], middle, constant(whole))
            if short and self._has_room(stage):
                begin = constant(last.extent - short)
                self._join_at(
                    stage, outer, first, memories[0], begin, constant(width), self._lanes_of((1 << short) - 1)
                )
            elif short:
                begin = constant(last.extent - width)
                self._join_at(
                    stage, outer, first, memories[0], begin, constant(width), self._lanes_of(-1 << width - short)
                )
        elif last in bounds or has_rest:
            self._join_at(stage, outer, first, memories[0], middle, rest)
        return []

    def _join_pairs(
        self, stage: Stage, outer: Scope, first: Dim, memories: Accumulators, lanes: int, bounds: Range
    ) -> SSAValue:
        """
        A loop of which an iteration joins so many neighbours for each of the accumulators: moves of these and counting took
        longer than a few operations. Gives where what is left over begins, for the first of them.
        """
        (lower, middle), step, constant = bounds, lanes * len(memories), self.root.index_constant
        pairs = outer.add(arith.AndIOp(middle, constant(-step)))
        block = Block(arg_types=[INDEX])
        self.name(block.args, stage.dims[-1], stage)
        scope = Scope(outer, block, {first: block.args[0]})
        self.ask_ahead(stage, scope, first, step)
        for number, memory in enumerate(memories):
            begin = scope.add(arith.AddiOp(block.args[0], constant(number * lanes))) if number else block.args[0]
            self._join_at(stage, scope, first, memory, begin, constant(lanes))
        block.add_op(scf.YieldOp())
        loop = self.loop(block, lower, pairs, step=step)
        loop.attributes[ROLLED] = UnitAttr()
        outer.block.add_op(loop)
        return pairs

    def join_beside(self, beside: Beside, block: Block, first: Dim, lanes: int) -> None:
        """So many neighbours of a stage in the block of another one's loop, which counts the first of them."""
        scope = Scope(beside.scope, block, {first: block.args[0]})
        self._join_lanes(beside.stage, scope, first, [], self.root.index_constant(lanes))

    def rest_beside(self, beside: Beside, bounds: Range, lanes: int) -> None:
        """What that loop leaves over of it, within the bounds."""
        last = beside.stage.dims[-1]
        if not may_exceed(last.extent % lanes, 0):
            return
        begin, upper = bounds
        if self._overlaps(beside.stage, {}) and last.extent % lanes < WIDTH:
            begin = self.root.index_constant(last.extent - WIDTH)
        self._reduce_innermost(beside.stage, beside.scope, {last: (begin, upper)}, [])

    def _whole_vectors(self, length: Extent, lanes: int) -> Extent:
        """
        How many elements of a loop are joined so many at a time. Of a size something is always left over, if only as many: no row
        asks whether there is.
        """
        if may_exceed(length % lanes, 0) and isinstance(length, Size) and _is_never_empty(length):
            return (length - 1) // lanes * lanes
        return length // lanes * lanes

    def ask_ahead(self, stage: Stage, scope: Scope, first: Dim, count: int) -> None:
        """Asks for memory that comes into use later than so many neighbours from `first` on, in the scope of their loop."""

    def _may_compute_beyond(self, stage: Stage) -> bool:
        """Whether nothing that is computed of what lies behind a row of an unknown extent does harm: numbers are of floats."""
        own = isinstance(stage.dims[-1].extent, Size) and not self._reaches_arrays(stage)
        return own and all(dtype(node.value).is_float for node in self.nodes_of(stage))

    def _has_room(self, stage: Stage) -> bool:
        """
        Whether rows, which are all that the stage reads or keeps, lie in memory of the function's own, one or two of them, with
        room for a whole last vector: one that overlaps the one before would be loaded from what two stores wrote, and wait.
        """
        if self._reaches_arrays(stage) or self._widened(stage) or len(stage.dims) != 1:
            return False
        room = padded(most(stage.dims[-1].extent))
        return all(dtype(node.value).is_float for node in self.nodes_of(stage)) and all(
            _elements(row.memory) in (room, 2 * room) for row in (*stage.taken.values(), *stage.left.values())
        )

    def _join_with_room(
        self,
        stage: Stage,
        outer: Scope,
        first: Dim,
        memories: Sequence[SSAValue],
        lanes: int,
        bounds: Range,
        bounded: bool,
    ) -> None:
        """What is left over of a loop, a vector at a time; of the last one accumulators join what is within the bounds."""
        (middle, upper), constant = bounds, self.root.index_constant
        is_left = not bounded and _is_never_empty(stage.dims[-1].extent)
        count = outer.add(arith.SubiOp(upper, middle))
        if is_left:
            before = outer.add(arith.AndIOp(outer.add(arith.SubiOp(count, constant(1))), constant(WIDTH - 1)))
            rest = outer.add(arith.AddiOp(before, constant(1)))
        else:
            rest = outer.add(arith.AndIOp(count, constant(WIDTH - 1)))
        whole = outer.add(arith.SubiOp(upper, rest))
        if lanes > WIDTH:
            block = Block(arg_types=[INDEX])
            self.name(block.args, stage.dims[-1], stage)
            self._join_lanes(stage, Scope(outer, block, {first: block.args[0]}), first, memories, constant(WIDTH))
            block.add_op(scf.YieldOp())
            outer.block.add_op(self.loop(block, middle, whole, step=WIDTH))
        inner = outer if is_left else Scope(outer, Block())
        bit = inner.add(arith.ShLIOp(constant(1), rest))
        bits = inner.call(HIDDEN_BITS, [inner.add(arith.SubiOp(bit, constant(1)))], INDEX)
        self._join_at(stage, inner, first, memories, whole, constant(WIDTH), bits)
        if is_left:
            return
        inner.block.add_op(scf.YieldOp())
        is_rest = outer.add(arith.CmpiOp(rest, constant(0), "ne"))
        outer.block.add_op(scf.IfOp(is_rest, [], Region(inner.block)))

    def _join_at(
        self,
        stage: Stage,
        outer: Scope,
        first: Dim,
        memories: Sequence[SSAValue],
        begin: SSAValue,
        count: SSAValue,
        lanes: SSAValue | None = None,
    ) -> None:
        scope = Fixed(outer, {})
        scope.indices[first] = begin
        self._join_lanes(stage, scope, first, memories, count, lanes)

    def _join_lanes(
        self,
        stage: Stage,
        outer: Scope,
        first: Dim,
        memories: Sequence[SSAValue],
        count: SSAValue,
        lanes: SSAValue | None = None,
        turns: Accumulators = (),
    ) -> None:
        """
        A parallel loop over neighbours from `first` on, each of which joins an accumulator of its own; of `lanes` those
        whose bits are set. With `turns` vectors of accumulators take turns: each moves to the place of the one before.
        """
        last, lane = stage.dims[-1], Dim("lane", first.extent)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        scope = Fixed(Scope(outer, block, {lane: block.args[0]}), {last: as_expr(first) + as_expr(lane)})
        self.emitter.emit(stage.roots(), scope, stage)
        for number, (node, memory) in enumerate(zip(stage.reductions, memories, strict=True)):
            element = self.emitter.reduced_element(node, scope)
            known = scope.add(memref.LoadOp.get(memory, [block.args[0]]))
            joined = self.combine(scope, node, known, element)
            if lanes is not None:
                joined = scope.add(arith.SelectOp(self._is_set(scope, lanes, block.args[0]), joined, known))
            for following in (others[number] for others in turns):
                moved = scope.add(memref.LoadOp.get(following, [block.args[0]]))
                block.add_op(memref.StoreOp.get(moved, memory, [block.args[0]]))
                memory = following
            block.add_op(memref.StoreOp.get(joined, memory, [block.args[0]]))
        self.store(stage.stores, scope)
        self._end_lanes(block, outer, count)

    def _lanes_of(self, bits: int) -> SSAValue:
        """Lanes as bits that compilers do not know."""
        if (hidden := self.root.values.get((HIDDEN_BITS, bits))) is None:
            known = self.root.index_constant(bits)
            hidden = self.root.values[HIDDEN_BITS, bits] = self.root.call(HIDDEN_BITS, [known], INDEX)
        return hidden

    def _is_set(self, scope: Scope, bits: SSAValue, lane: SSAValue) -> SSAValue:
        bit = scope.add(arith.AndIOp(scope.add(arith.ShRSIOp(bits, lane)), self.root.index_constant(1)))
        return scope.add(arith.CmpiOp(bit, self.root.index_constant(0), "ne"))

    def _folded(self, outer: Scope, node: ScalarNode, memory: SSAValue, lanes: int) -> SSAValue:
        """All accumulators joined: by halves while these are vectors, then in a tree."""
        constant = self.root.index_constant
        while lanes > FEWEST_LANES:
            lanes //= 2
            self._join_halves(outer, node, memory, lanes, (memory, lanes))
        values = [outer.add(memref.LoadOp.get(memory, [constant(number)])) for number in range(lanes)]
        while len(values) > 1:
            half = len(values) // 2
            values = [self.combine(outer, node, *pair) for pair in zip(values[:half], values[half:], strict=True)]
        return values[0]

    def _join_halves(
        self, outer: Scope, node: ScalarNode, memory: SSAValue, lanes: int, other: tuple[SSAValue, int]
    ) -> None:
        """Joins so many accumulators with others, which are in some memory from some place on."""
        block = Block(arg_types=[INDEX])
        lane = place = block.args[0]
        lane.name_hint = "lane"
        scope = Scope(outer, block)
        if other[1]:
            place = scope.add(arith.AddiOp(lane, self.root.index_constant(other[1])))
        halves = [scope.add(memref.LoadOp.get(memory, [lane])), scope.add(memref.LoadOp.get(other[0], [place]))]
        block.add_op(memref.StoreOp.get(self.combine(scope, node, *halves), memory, [lane]))
        self._end_lanes(block, outer, lanes)

    def _end_lanes(self, block: Block, outer: Scope, count: SSAValue | int) -> None:
        block.add_op(scf.ReduceOp())
        constant = self.root.index_constant
        outer.block.add_op(self.parallel(block, constant(0), constant(count) if isinstance(count, int) else count))

    def _reduce_once(self, stage: Stage, scope: Scope, accumulators: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """A loop of one iteration, without the loop."""
        self.emitter.emit(stage.roots(), scope, stage)
        elements = [self.emitter.reduced_element(node, scope) for node in stage.reductions]
        self.store(stage.stores, scope)
        pairs = zip(stage.reductions, accumulators, elements, strict=True)
        return [self.combine(scope, node, start, element) for node, start, element in pairs]

    def stage_work(self, stage: Stage) -> int:
        """Simple operations for an element of the stage."""
        work = len(stage.stores) + len(stage.reductions) + len(stage.left)
        for node in self.nodes_of(stage):
            work += 1 if node in stage.taken or node.op is None else body_cost(node.op)
        return work

    def nodes_of(self, stage: Stage) -> list[ScalarNode]:
        """What varies in the stage's loops, down to what is loaded."""
        found: dict[ScalarNode, None] = {}
        stack = stage.roots()
        while stack:
            node = stack.pop()
            if node in found or not self.nodes.varies(node, stage.dims):
                continue
            found[node] = None
            if node not in stage.taken and node.op is not None:
                stack.extend(node.operands)
        return list(found)

    def initial(self, node: ScalarNode) -> SSAValue:
        """What a reduction starts from, which is neutral to it."""
        assert node.op is not None
        return self.root.constant(node.op.initial(), node.op.body().dtype)

    def combine(self, scope: Scope, node: ScalarNode, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Two values of a reduction joined."""
        assert node.op is not None
        if node in self.without_nan:
            further = arith.CmpfOp(rhs, lhs, "ogt" if node.op.COMBINE == "max" else "olt")
            return scope.add(arith.SelectOp(scope.add(further), rhs, lhs))
        return emit_combine(scope, node.op.COMBINE, node.op.body().dtype, lhs, rhs)

    def store(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:
            address = self.nodes.space.apply(store.address)
            self.emitter.store(store.node, self.arguments[self.memory.targets[store.result]], address, scope)

    def name(self, values: Sequence[SSAValue], dim: Dim | None, stage: Stage) -> None:
        hints = [node.value.name_hint for node in stage.reductions]
        for value, hint in zip(values, hints if dim is None else [loop_name(dim), *hints], strict=False):
            value.name_hint = hint

    def bounds_of(self, dim: Dim, bounds: Bounds) -> Range:
        """First value and the one after the last."""
        return bounds.get(dim) or (self.root.index_constant(0), self.root.index_constant(dim.extent))

    def parallel(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = ()
    ) -> scf.ParallelOp:
        return scf.ParallelOp([lower], [upper], [self.root.index_constant(1)], Region(block), start)

    def loop(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = (), step: int = 1
    ) -> scf.ForOp:
        return scf.ForOp(lower, upper, self.root.index_constant(step), list(start), Region(block))


def loop_name(dim: Dim) -> str:
    return {"i": "i", "r": "row", "c": "column"}.get(dim.name[:1], "i")


def _elements(memory: SSAValue) -> int | None:
    """Of memory of the function's own; None of other memory, and of what has several dimensions."""
    owner, kind = memory.owner, memory.type
    if not isinstance(owner, memref.AllocaOp) or not isa(kind, MemRefType) or len(kind.get_shape()) != 1:
        return None
    return kind.get_shape()[0]


def _is_never_empty(length: Extent) -> bool:
    return is_decided(lambda: length >= 1)


def _takes_extremum(stage: Stage) -> bool:
    return any(node.op is not None and node.op.COMBINE in ("max", "min") for node in stage.reductions)


def _combiner(node: ScalarNode, element: SSAValue) -> Region:
    assert node.op is not None
    block = Block(arg_types=[element.type, element.type])
    scope = Scope(None, block)
    joined = emit_combine(scope, node.op.COMBINE, node.op.body().dtype, *block.args)
    block.add_op(scf.ReduceReturnOp(joined))
    return Region(block)
