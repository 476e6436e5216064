"""The stages of launches over lanes: rows that lie side by side, a block of which is a task.

The innermost loop runs over the lanes of a block; what is known of each of them is in buffers of the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.fused.knobs import AHEAD, ROWS_AT_A_TIME
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import is_number, may_exceed
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, dimension
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.prefetch import AHEAD_BYTES, prefetch_rows, rows_at_a_time
from fuse_opt.lowering.cpu.split_reduction import Phase, PhasedKernel
from fuse_opt.lowering.hints import FILLED
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.loop_splitting import (
    SECOND_LEVEL_CACHE,
    Fixed,
    is_moved,
    outside_caches,
    part_bounds,
    task_parts,
)
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.nontemporal_stores import LINE
from fuse_opt.lowering.loops.vector_widths import padded

MOST_AT_A_TIME = 8
"""Elements of a lane that one iteration takes."""
MOST_STREAMS = 8
"""Lines of memory that an iteration goes along; at equal distances they compete for the same places of a cache."""
MOST_WORK_AT_A_TIME = 128
"""Simple operations of an iteration."""
NARROW_BYTES = 1200
"""Of a row, up to which one at a time is faster: sums over columns of 64, 128, 192 and 256 f32 took .85 to 1.0 of the time in the
third level cache, of 73, 100 and 139 1.1 to 1.3 times; beyond it of 16 to 300 .3 to .9, of 400 1.2 to 2 times (Zen 4)."""
FEW_STREAMS = 2
"""Operands of which that is so: sums of products of 64, 73, 139 and 256 took .4 to .97 of the time there, .91 to 1.1 in it."""
HALF_OF_CACHES = 16 << 20
"""Bytes of which a third level cache that others use, too, does not keep all."""


@dataclass
class Geometry:
    """How rows and what is reduced are cut into tasks."""

    outer: Dim
    lane: Dim
    width: int
    """Lanes of a block."""
    inner: int = 1
    """Rows that are neighbours: `outer` counts so many for each place of the dimensions around them."""

    @property
    def blocks(self) -> int:
        return -(-self.lane.extent // self.width) if self.width else 0

    @property
    def local(self) -> IndexExpr:
        """The number of a lane in its block."""
        return as_expr(self.lane if self.blocks == 1 else Dim("lane", self.width))

    @property
    def row(self) -> IndexExpr:
        return dimension(self.outer.name, self.outer.extent) * self.lane.extent + as_expr(self.lane)

    @property
    def rows(self) -> int:
        return self.outer.extent * self.lane.extent


class OuterVectorStages(Phase):
    """A launch over blocks of lanes: its tasks, the loops over lanes, and those of stages around them."""

    def __init__(self, phased: PhasedKernel, nodes: KernelNodes, geometry: Geometry) -> None:
        super().__init__(phased, nodes)
        self.geometry = geometry
        self.known: dict[ScalarNode, RowBuffer] = {}
        """What is in memory for each lane of a block."""
        self.task = Scope(self.root, Block(arg_types=[INDEX]))
        self.task.block.args[0].name_hint = "task"
        self.first = self.last = self.root.index_constant(0)
        self.far = geometry.blocks == 1 and outside_caches(self.loop_body)
        ahead = AHEAD.count(phased.kernel)
        self.ahead = ahead if ahead is not None and geometry.blocks == 1 else AHEAD_BYTES if self.far else 0
        """How many bytes ahead memory is asked for; 0 where the processor does that alone."""

    def _open(self, splits: int) -> SSAValue:
        """Takes a task apart; gives the number of the part to reduce."""
        geometry = self.geometry
        task, block = self.task, self.task.block
        digits = task_parts(task, self.root, block.args[0], (geometry.outer.extent, splits, geometry.blocks))
        lane = geometry.lane.extent
        task.indices = {geometry.outer: digits[0], Dim("split", splits): digits[1]}
        self.first, self.last = part_bounds(task, digits[2], geometry.width, lane)
        self.first.name_hint = self.first.name_hint or "first"
        return digits[1]

    def _close(self, work: Extent, splits: int) -> None:
        """`work`: simple operations for a lane."""
        geometry = self.geometry
        self.task.block.add_op(scf.YieldOp())
        self.root.block.add_op(self.loop(self.task.block, self.begin, self.end))
        tasks = geometry.outer.extent * splits * geometry.blocks
        self.kernel.finish(self, tasks, work * geometry.width)

    def _open_lanes(self, parent: Scope) -> Scope:
        """A loop over the lanes of the block."""
        geometry = self.geometry
        block = Block(arg_types=[INDEX])
        lane = block.args[0]
        lane.name_hint = "lane"
        scope = Scope(parent, block, {geometry.lane: lane})
        if may_exceed(geometry.blocks, 1):
            scope.indices[Dim("lane", geometry.width)] = scope.add(arith.SubiOp(lane, self.first))
        return scope

    def _close_lanes(self, scope: Scope) -> None:
        assert scope.parent is not None
        scope.block.add_op(scf.ReduceOp())
        scope.parent.block.add_op(self.parallel(scope.block, self.first, self.last))

    def _buffer(self, node: ScalarNode, count: int, name: str, filled: bool = False) -> SSAValue:
        """
        Memory of the function for so many scalars of each lane of a block; whole vectors of single ones. `filled`: a loop over
        lanes that reads nothing else writes them before others read them.
        """
        kind = value_type(dtype(node.value))
        size = padded(self.geometry.width) if count == 1 else count * self.geometry.width
        alloca = memref.AllocaOp.get(kind, 64, [size])
        if filled and not is_number(self.geometry.lane.extent):
            alloca.attributes[FILLED] = UnitAttr()
        memory = self.root.add(alloca)
        memory.name_hint = f"{node.value.name_hint or 'value'}_{name}"
        return memory

    def _load(self, row: RowBuffer, scope: Scope) -> SSAValue:
        return scope.add(memref.LoadOp.get(row.memory, [scope.index(row.position)]))

    def _put(self, value: SSAValue, row: RowBuffer, scope: Scope) -> None:
        scope.block.add_op(memref.StoreOp.get(value, row.memory, [scope.index(row.position)]))

    def _build_stage(self, stage: Stage, bounds: Mapping[Dim, tuple[SSAValue, SSAValue]]) -> None:
        """The loops of a stage around those over lanes; its reductions are in memory then, not rounded yet."""
        self._settle(self._to_settle(stage))
        stage.taken.update(self.known)
        scope = self._open_lanes(self.task)
        for node in stage.reductions:
            row = self.known[node] = RowBuffer(self._buffer(node, 1, "lanes", filled=True), self.geometry.local)
            self._put(self.initial(node), row, scope)
        if stage.reductions:
            self._close_lanes(scope)
        if not stage.dims:
            self._build_lanes(stage, self.task, [{}])
        else:
            self._build_loops(stage, bounds)

    def _build_loops(self, stage: Stage, bounds: Mapping[Dim, tuple[SSAValue, SSAValue]]) -> None:
        """The loops of a stage around those over lanes."""
        scopes = [self.task]
        for dim in stage.dims[:-1]:
            block = Block(arg_types=[INDEX])
            self.name(block.args, dim, stage)
            scopes.append(Scope(scopes[-1], block, {dim: block.args[0]}))
        self._build_innermost(stage, scopes[-1], bounds)
        for scope, dim in zip(scopes[:0:-1], stage.dims[-2::-1], strict=True):
            assert scope.parent is not None
            scope.block.add_op(scf.YieldOp())
            scope.parent.block.add_op(self.loop(scope.block, *self.bounds_of(dim, bounds)))

    def _build_innermost(self, stage: Stage, parent: Scope, bounds: Mapping[Dim, tuple[SSAValue, SSAValue]]) -> None:
        """The loop over the last dimension: several of its elements at a time, then those left over."""
        dim = stage.dims[-1]
        lower, upper = self.bounds_of(dim, bounds)
        unroll = min(self._unroll(stage), max(dim.extent, 1)) if is_number(dim.extent) else self._unroll(stage)
        middle, is_left = upper, may_exceed(dim.extent % unroll, 0)
        if is_left:
            whole = self.root.index_constant(dim.extent // unroll * unroll)
            middle = self.task.add(arith.MinSIOp(upper, whole)) if dim in bounds else whole
        self._build_loop(stage, parent, (lower, middle), unroll)
        if is_left:
            self._build_loop(stage, parent, (middle, upper), 1)

    def _build_loop(self, stage: Stage, parent: Scope, bounds: tuple[SSAValue, SSAValue], step: int) -> None:
        dim = stage.dims[-1]
        first = Dim(f"{dim.name}_first", dim.extent)
        block = Block(arg_types=[INDEX])
        self.name(block.args, dim, stage)
        scope = Scope(parent, block, {first: block.args[0]})
        loads = self._loads(stage)
        if self.ahead and rows_at_a_time(loads, self.geometry.width, step):
            prefetch_rows(self, loads, scope, (dim, first, step), self.geometry.lane, self.ahead)
        self._build_lanes(stage, scope, [{dim: as_expr(first) + number} for number in range(step)])
        block.add_op(scf.YieldOp())
        parent.block.add_op(self.loop(block, *bounds, step=step))

    def _open_copies(
        self, stage: Stage, parent: Scope, places: Iterable[Mapping[Dim, IndexExpr]]
    ) -> tuple[Scope, list[Fixed]]:
        """A loop over lanes with the stage's elements at these places."""
        scope = self._open_lanes(parent)
        self.emitter.emit(self._taken_by_lane(stage), scope, stage)
        copies = [Fixed(scope, place) for place in places]
        for copy in copies:
            self.emitter.emit(stage.roots(), copy, stage)
        return scope, copies

    def _build_lanes(self, stage: Stage, parent: Scope, places: Iterable[Mapping[Dim, IndexExpr]]) -> None:
        """A loop over lanes that does the elements at these places."""
        scope, copies = self._open_copies(stage, parent, places)
        for node in stage.reductions:
            row = self.known[node]
            value = self.tree(scope, node, [self.emitter.reduced_element(node, copy) for copy in copies])
            value = self.combine(scope, node, self._load(row, scope), value)
            self._put(value, row, scope)
        for copy in copies:
            self.store(stage.stores, copy)
        self._close_lanes(scope)

    def _unroll(self, stage: Stage) -> int:
        """How many elements of a lane an iteration takes: with more of them, accumulators are loaded less often."""
        if (given := self.kernel.entry(ROWS_AT_A_TIME)) is not None:
            return given
        return 1 if self._is_narrow_stream(stage) else self._most_at_a_time(stage)

    def _most_at_a_time(self, stage: Stage) -> int:
        work, loads = self.stage_work(stage), self._loads(stage)
        streams = len(loads) + len(stage.stores) + len(stage.left)
        most = max(min(MOST_STREAMS // max(streams, 1), MOST_WORK_AT_A_TIME // max(work, 1)), 1)
        most = min(1 << (most.bit_length() - 1), MOST_AT_A_TIME)
        return rows_at_a_time(loads, self.geometry.width, most) or most if self.far else most

    def _is_narrow_stream(self, stage: Stage) -> bool:
        """
        Whether the stage only adds up short rows that lie one behind the other, behind the second level cache: whole lines of
        one operand, or what a third level cache does not hold either. Processors find what is next in one stretch of memory
        sooner than in several rows of it.
        """
        lane, dim, loads = self.geometry.lane, stage.dims[-1], self._loads(stage)
        if self.geometry.blocks != 1 or not is_number(lane.extent) or not 1 <= len(loads) <= FEW_STREAMS:
            return False
        if not stage.reductions or stage.stores or stage.left:
            return False
        factors = [self.nodes.addresses[node].coefficients() or {} for node in loads]
        if any(each.get(lane) != 1 or each.get(dim) != lane.extent for each in factors):
            return False
        nbytes = lane.extent * max(dtype(node.value).itemsize for node in loads)
        least = SECOND_LEVEL_CACHE if nbytes % LINE == 0 and len(loads) == 1 else HALF_OF_CACHES
        return nbytes <= NARROW_BYTES and is_moved(self.loop_body, least)

    def _loads(self, stage: Stage) -> list[ScalarNode]:
        """What an element of a lane takes from memory and others of the lane do not."""
        needed: dict[ScalarNode, None] = {}
        stack = stage.roots()
        while stack:
            if (node := stack.pop()) not in needed:
                needed[node] = None
                stack.extend(() if node in stage.taken else node.operands)
        return [node for node in needed if node.op is None and self.nodes.varies(node, stage.dims)]

    def _to_settle(self, stage: Stage) -> list[ScalarNode]:
        """What the stage's elements need of a lane that is no plain load: computed once, not for each element."""
        fixed = self._fixed_in_lane(stage) if stage.dims else []
        return [
            p for p in fixed if p not in self.known and p.op is not None and self.nodes.varies(p, [self.geometry.lane])
        ]

    def _taken_by_lane(self, stage: Stage) -> list[ScalarNode]:
        """What all elements of a lane take from one place in memory."""
        return [node for node in self._fixed_in_lane(stage) if node in self.known]

    def _fixed_in_lane(self, stage: Stage) -> list[ScalarNode]:
        """The scalars that vary with no loop of the stage, but which what varies needs."""
        found: list[ScalarNode] = []
        seen: set[ScalarNode] = set()
        stack = stage.roots()
        while stack:
            node = stack.pop()
            if node in seen or (node in stage.taken and node not in self.known):
                continue
            seen.add(node)
            if node not in self.known and self.nodes.varies(node, stage.dims):
                stack.extend(node.operands)
            else:
                found.append(node)
        return found

    def _settle(self, wanted: Sequence[ScalarNode]) -> None:
        """Computes scalars of each lane and keeps them in memory."""
        if not wanted:
            return
        scope = self._open_lanes(self.task)
        self.emitter.emit(wanted, scope, Stage((), taken=self.known))
        rows = {node: RowBuffer(self._buffer(node, 1, "lanes"), self.geometry.local) for node in wanted}
        for node, row in rows.items():
            value = self.emitter.value(node, scope)
            self._put(value, row, scope)
        self._close_lanes(scope)
        self.known.update(rows)

    def _round(self, reduced: Sequence[ScalarNode]) -> None:
        """Rounds what was reduced as the IR says."""
        narrow = [node for node in reduced if dtype(node.value).compute is not dtype(node.value)]
        if not narrow:
            return
        scope = self._open_lanes(self.task)
        for node in narrow:
            row = self.known[node]
            self.emitter.define(node, self._load(row, scope), scope)
            value = self.emitter.value(node, scope)
            self._put(value, row, scope)
        self._close_lanes(scope)
