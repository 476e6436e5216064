"""Accumulators side by side: each joins neighbours of its own, and all of them are joined at last."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.cpu.stages.lane_choice import LaneChoice, is_never_empty
from fuse_opt.lowering.cpu.stages.loop_parts import Bounds, Range
from fuse_opt.lowering.hints import REGISTER
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.loop_splitting import Fixed
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.vector_widths import HIDDEN_BITS, NARROWEST, WIDTH
from fuse_opt.lowering.made_ops import load_op, store_op

FEWEST_LANES = 4
"""Accumulators that are joined one by one."""
Accumulators = Sequence[Sequence[SSAValue]]
"""Vectors of accumulators, each of which has one for each reduction of a stage."""


class LaneJoins(LaneChoice):
    """Loops over lanes, each of which has an accumulator."""

    def _accumulators(self, stage: Stage, outer: Scope, lanes: int, bounds: Bounds) -> Accumulators:
        """
        Those of the stage's reductions; two vectors for each where these are registers and joined once: none waits for the one
        before.
        """
        last = stage.dims[-1]
        kinds = (dtype(node.value).compute for node in stage.reductions)
        are_vectors = lanes == WIDTH and all(kind.itemsize == NARROWEST for kind in kinds)
        of_size = are_vectors and isinstance(last.extent, Size) and last not in bounds
        in_registers = of_size or self.is_streamed(stage)
        many = 2 if of_size and len(stage.dims) == 1 else 1
        made = [[self._accumulator(node, lanes, in_registers) for node in stage.reductions] for _ in range(many)]
        self._start(stage, made[:1], outer, lanes)
        return made

    def _accumulator(self, node: ScalarNode, lanes: int, in_registers: bool) -> SSAValue:
        """Memory for the accumulators of a reduction."""
        alloca = memref.AllocaOp.get(self.initial(node).type, 64, [lanes])
        if in_registers:
            alloca.attributes[REGISTER] = UnitAttr()
        memory = self.root.add(alloca)
        memory.name_hint = f"{node.value.name_hint or 'value'}_lanes"
        return memory

    def _start(self, stage: Stage, memories: Accumulators, scope: Scope, lanes: int) -> None:
        """Accumulators start from what is neutral to their reductions."""
        for node, memory in (pair for each in memories for pair in zip(stage.reductions, each, strict=True)):
            block = Block(arg_types=[INDEX])
            block.args[0].name_hint = "lane"
            block.add_op(store_op(self.initial(node), memory, [block.args[0]]))
            self._end_lanes(block, scope, lanes)

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
        is_left = not bounded and is_never_empty(stage.dims[-1].extent)
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
        lowest: int = 0,
    ) -> None:
        scope = Fixed(outer, {})
        scope.indices[first] = begin
        self._join_lanes(stage, scope, first, memories, count, lanes, lowest=lowest)

    def _join_lanes(
        self,
        stage: Stage,
        outer: Scope,
        first: Dim,
        memories: Sequence[SSAValue],
        count: SSAValue,
        lanes: SSAValue | None = None,
        turns: Accumulators = (),
        lowest: int = 0,
    ) -> None:
        """
        A parallel loop over neighbours from `first` on, each of which joins an accumulator of its own, but for those before the
        `lowest`; of `lanes` those whose bits are set. With `turns` vectors of accumulators take turns: each moves to the place
        of the one before.
        """
        last, lane = stage.dims[-1], Dim("lane", first.extent)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        scope = Fixed(Scope(outer, block, {lane: block.args[0]}), {last: as_expr(first) + as_expr(lane)})
        self.emitter.emit(stage.roots(), scope, stage)
        for number, (node, memory) in enumerate(zip(stage.reductions, memories, strict=True)):
            element = self.emitter.reduced_element(node, scope)
            known = scope.add(load_op(memory, [block.args[0]]))
            joined = self.combine(scope, node, known, element)
            if lanes is not None:
                joined = scope.add(arith.SelectOp(self._is_set(scope, lanes, block.args[0]), joined, known))
            for following in (others[number] for others in turns):
                moved = scope.add(load_op(following, [block.args[0]]))
                block.add_op(store_op(moved, memory, [block.args[0]]))
                memory = following
            block.add_op(store_op(joined, memory, [block.args[0]]))
        self.store(stage.stores, scope)
        self._end_lanes(block, outer, count, lowest)

    def _join_short(
        self, stage: Stage, outer: Scope, first: Dim, memories: Sequence[SSAValue], short: int, width: int
    ) -> None:
        """
        The last elements of a row, fewer than a vector has: behind them where there is room for one, or the last ones of a
        vector that overlaps the one before. A register of the machine that all or none of them are in needs no mask.
        """
        extent, constant = stage.dims[-1].extent, self.root.index_constant
        has_room = self._has_room(stage)
        below, bits = (0, (1 << short) - 1) if has_room else (width - short, -1 << width - short)
        begin = constant(extent - short - below)
        step = min(self.memory.register_bits // (8 * NARROWEST), WIDTH) if width == WIDTH else width
        for lower, upper in ((lower, lower + step) for lower in range(0, width, step)):
            if lower < below + short and below < upper:
                is_whole = below <= lower and upper <= below + short
                lanes = None if is_whole else self._lanes_of(bits)
                self._join_at(stage, outer, first, memories, begin, constant(upper), lanes, lower)

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
        values = [outer.add(load_op(memory, [constant(number)])) for number in range(lanes)]
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
        halves = [scope.add(load_op(memory, [lane])), scope.add(load_op(other[0], [place]))]
        block.add_op(store_op(self.combine(scope, node, *halves), memory, [lane]))
        self._end_lanes(block, outer, lanes)

    def _end_lanes(self, block: Block, outer: Scope, count: SSAValue | int, lowest: int = 0) -> None:
        block.add_op(scf.ReduceOp())
        constant = self.root.index_constant
        upper = constant(count) if isinstance(count, int) else count
        outer.block.add_op(self.parallel(block, constant(lowest), upper))
