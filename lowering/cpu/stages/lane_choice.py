"""How many accumulators a reduction has side by side, and what becomes of the elements that are left over of them."""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.dialects.types.extents import estimate, is_decided, may_exceed, most
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.cpu.stages.loop_parts import Bounds, LoopParts
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import extent
from fuse_opt.lowering.kernel.loop_splitting import SECOND_LEVEL_CACHE, is_moved
from fuse_opt.lowering.loops.block_conversions import is_widened
from fuse_opt.lowering.loops.vector_widths import NARROWEST, WIDTH, padded

LANES = 64
"""Accumulators of a reduction side by side: enough vectors that none waits for another, few enough for registers."""
SHORT_LANES = 16
"""The same of a loop that does not fill `LANES` twice: a wide vector, or two. Fewer elements than these that are left over
have an accumulator of their own: a wide load behind narrow stores waits for them."""
EXTREMA = 32
"""Accumulators of an extremum where registers have 256 bits: of eight, beside a loop's constants, some were in memory."""
SHORTEST = 5
"""Elements of a loop that has accumulators side by side, some of which join nothing."""
LIGHT_WORK = 16
"""Simple operations of an iteration next to which it counts that it waits for the one before, and that gcc joins what a loop
over bytes reduces one element after the other, 64 of them."""
LONG_WORK = 1 << 15
"""Simple operations of a loop next to which it does not count how its accumulators are joined, as no iteration is light."""


MOST_STREAMED, MOST_SUMMED = 2048, 384
"""Elements of a row up to which one vector of accumulators is exact enough, as of longer ones 64 accumulators are, and up to
which it is faster where a third level cache holds rows."""


class LaneChoice(LoopParts):
    """What is asked of a stage before its loops are built."""

    waits_for_memory = False
    """Whether rows lie behind all caches, and their loops better run one after the other."""

    def lanes(self, stage: Stage) -> int:
        """How many accumulators in memory each reduction of the stage has; 0 where a carried one does.

        With one, each iteration of a light loop waits for the one before, and compilers join what a vector of sums comes to
        one after the other, for which a short row waits longer than for its elements. And an extremum takes a combiner of
        its own, with which not every compiler makes vectors of a loop."""
        if not stage.reductions:
            return 0
        if self.is_streamed(stage):
            return WIDTH
        narrowest = min(dtype(node.value).compute.itemsize for node in stage.reductions)
        many, few = (LANES, SHORT_LANES) if narrowest > 1 else (4 * LANES, LANES)
        if all(map(_is_extremum, stage.reductions)):
            many = EXTREMA if self._has_narrow_registers() and narrowest == NARROWEST else many
        elif not _takes_extremum(stage) and (work := self.stage_work(stage)) > LIGHT_WORK:
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

    def _has_narrow_registers(self) -> bool:
        """Whether a vector of accumulators is more than one register."""
        return self.memory.register_bits < 8 * NARROWEST * WIDTH

    def is_streamed(self, stage: Stage) -> bool:
        """
        Whether the stage's sums along rows that memory holds have one vector of accumulators, a register, in a loop of one load
        of each operand: by more loads, side by side or unrolled, processors find less well what to fetch next. Sums of products
        along rows of 97 to 701 took .67 to .93 of the time so, layer norms of 421 to 647 .67 to .86 (Zen 4).
        """
        if self.memory.lanes is not None or len(stage.dims) != 1:
            return False
        length, kinds = stage.dims[0].extent, (dtype(node.value).compute for node in stage.reductions)
        if not self.waits_for_memory and not self._is_short_and_summed(length):
            return False
        if isinstance(length, Size) or not 2 * WIDTH <= length <= MOST_STREAMED:
            return False
        if _takes_extremum(stage) or self.stage_work(stage) > LIGHT_WORK:
            return False
        return all(kind.is_float and kind.itemsize == NARROWEST for kind in kinds)

    def _is_short_and_summed(self, length: Extent) -> bool:
        """
        Whether the kernel does nothing but one sum along short rows that lie behind the second level cache: of products along 97
        to 300 elements it took .88 to .98 of the time with one register, means along 467 and 1346 1.04 and 1.07 times (Zen 4).
        """
        reductions = [node for node in self.loop_body.nodes if node.op is not None and node.op.COMBINE]
        if len(reductions) != 1 or not all(store.per_row for store in self.loop_body.stores):
            return False
        return not may_exceed(length, MOST_SUMMED) and is_moved(self.loop_body, SECOND_LEVEL_CACHE)

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
            self._is_roomy(row.memory, room) for row in (*stage.taken.values(), *stage.left.values())
        )

    def _is_roomy(self, memory: SSAValue, room: int) -> bool:
        """Whether all rows in some memory have room for so many elements."""
        return _elements(memory) in (room, 2 * room)

    def _whole_vectors(self, length: Extent, lanes: int) -> Extent:
        """
        How many elements of a loop are joined so many at a time. Of a size something is always left over, if only as many: no row
        asks whether there is.
        """
        if may_exceed(length % lanes, 0) and isinstance(length, Size) and is_never_empty(length):
            return (length - 1) // lanes * lanes
        return length // lanes * lanes


def _elements(memory: SSAValue) -> int | None:
    """Of memory of the function's own; None of other memory, and of what has several dimensions."""
    owner, kind = memory.owner, memory.type
    if not isinstance(owner, memref.AllocaOp) or not isa(kind, MemRefType) or len(kind.get_shape()) != 1:
        return None
    return kind.get_shape()[0]


def is_never_empty(length: Extent) -> bool:
    return is_decided(lambda: length >= 1)


def _takes_extremum(stage: Stage) -> bool:
    return any(map(_is_extremum, stage.reductions))


def _is_extremum(node: ScalarNode) -> bool:
    return node.op is not None and node.op.COMBINE in ("max", "min")
