"""Sums, and squares about their means, of rows that lie side by side: one way through memory, accumulators in a cache.

A task goes through its part of what is reduced piece by piece. Elements of a piece are taken relative to a point near its
mean, the mean of eight of them, and both sums are moved to the mean afterwards; then the piece is joined with those before
(Chan, Golub and LeVeque 1983: algorithms for computing the sample variance). As the eight are elements of the piece,
squares about the point are at most 1 + n / 8 times those about the mean, n being the piece's length: 1.1 times where the
eight are like the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.fused.knobs import ROWS_AT_A_TIME
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant
from fuse_opt.lowering.cpu.outer_vector_stage import HALF_OF_CACHES, Geometry, OuterVectorStages
from fuse_opt.lowering.cpu.prefetch import prefetch_rows
from fuse_opt.lowering.cpu.split_reduction import Phase, PhasedKernel
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import is_moved, part_bounds
from fuse_opt.lowering.kernel.moments import Moments, float_of
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.vector_widths import WIDTH

LANE_BYTES = 6 << 10
"""Of the lanes of a task: three accumulators of each fit a first level cache twice. Rows of up to so many are one stream: 1,119
f32 in one took .85 to .92 of the time of two halves, 2,039 1.05."""
NARROWEST = 32
LONGEST_PIECE = 128
"""Elements of a lane in a piece."""
NEAR = 8
"""Elements of a piece whose mean is taken for the piece's at first."""
AT_A_TIME = 4
"""Elements of a lane that one iteration takes."""
REGISTER_BYTES = 512
"""Of the lanes of a task whose accumulators compilers keep in vector registers, where these are whole vectors; more rows at a
time would only crowd them."""


class MomentLanes(OuterVectorStages):
    """The launch over parts."""

    def __init__(self, phased: PhasedKernel, nodes: KernelNodes, geometry: Geometry, moments: Moments) -> None:
        super().__init__(phased, nodes, geometry)
        self.moments = moments
        self.about: dict[ScalarNode, RowBuffer] = {}
        """By sum: the points that elements are taken relative to."""

    def build_pieces(self, stage: Stage, longest: Dim, part: int, piece: int) -> None:
        """Leaves the sums of each part, and its squares about its mean; parts but the last are multiples of a piece."""
        splits, task = -(-longest.extent // part), self.task
        first, last = part_bounds(task, self._open(splits), part, longest.extent)
        self._settle(self._to_settle(stage))
        reduced = [*stage.reductions, *self.moments]
        self.about = {
            total: RowBuffer(self._buffer(total, 1, "near"), self.geometry.local) for total in stage.reductions
        }
        self.known.update({p: RowBuffer(self._buffer(p, 1, "lanes"), self.geometry.local) for p in reduced})
        stage.taken.update(self.known)
        scope = self._open_lanes(task)
        for node in reduced:
            self._put(self._zero(node), self._joined(node), scope)
        self._close_lanes(scope)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "start"
        self.task = Scope(task, block)
        end = task_end = self.task.add(arith.AddiOp(block.args[0], self.root.index_constant(piece)))
        if longest.extent % piece:
            end = self.task.add(arith.MinSIOp(task_end, last))
        self._ask_for_next(stage, longest, block.args[0], piece)
        self._build_piece(stage, longest, (block.args[0], end), piece)
        self._join(stage, longest, (block.args[0], end), first)
        block.add_op(scf.YieldOp())
        task.block.add_op(self.loop(block, first, last, step=piece))
        self.task = task
        elements = extent(stage.dims) // max(longest.extent, 1) * part
        self._close(elements * (self.stage_work(stage) + 4), splits)

    def _build_piece(self, stage: Stage, longest: Dim, bounds: Range, piece: int) -> None:
        """Accumulators of a piece: what the sum over it comes to, and its squares about the points near the means."""
        self._begin(stage, self._near(stage, longest, bounds, piece))
        self._build_loops(stage, {longest: bounds})

    def _near(self, stage: Stage, longest: Dim, bounds: Range, piece: int) -> list[dict[Dim, IndexExpr]]:
        """Where elements are that lie all over a piece; its last one again where it is shorter than others."""
        first, last = bounds
        number_of, short = self.root.index_constant, longest.extent % piece or piece
        fixed = {dim: constant(0) for dim in stage.dims if dim != longest}
        places: list[dict[Dim, IndexExpr]] = []
        for number in range(NEAR):
            offset, place = number * max(piece // NEAR, 1), first
            if number:
                place = self.task.add(arith.AddiOp(first, number_of(offset)))
            if offset >= short:
                place = self.task.add(arith.MinSIOp(place, self.task.add(arith.SubiOp(last, number_of(1)))))
            dim = Dim(f"near{number}", longest.extent)
            self.task.indices[dim] = place
            places.append({**fixed, longest: as_expr(dim)})
        return places

    def _ask_for_next(self, stage: Stage, longest: Dim, first: SSAValue, piece: int) -> None:
        """
        Asks for the elements near whose mean the next piece is to be, as they lie all over it: where caches do not hold them,
        processors follow the piece that is summed alone.
        """
        lane, loads = self.geometry.lane, self._loads(stage)
        if self.geometry.blocks != 1 or not is_number(lane.extent) or not is_moved(self.loop_body, HALF_OF_CACHES):
            return
        start = Dim(f"{longest.name}_start", longest.extent)
        self.task.indices[start] = first
        row = lane.extent * max((dtype(node.value).itemsize for node in loads), default=0)
        for number in range(NEAR):
            ahead = piece + number * max(piece // NEAR, 1)
            prefetch_rows(self, loads, self.task, (longest, start, 1), lane, ahead * row)

    def _begin(self, stage: Stage, near: Sequence[dict[Dim, IndexExpr]]) -> None:
        """Zeros in all accumulators; by sum, a point near its mean, and 0 where that is not finite."""
        scope, copies = self._open_copies(stage, self.task, near)
        for total, row in self.about.items():
            value = self.tree(scope, total, [self.emitter.reduced_element(total, copy) for copy in copies])
            mean = scope.add(arith.MulfOp(value, scope.constant(1 / NEAR, dtype(total.value).compute)))
            zero = self._zero(total)
            finite = scope.add(arith.CmpfOp(scope.add(arith.SubfOp(mean, mean)), zero, "oeq"))
            self._put(scope.add(arith.SelectOp(finite, mean, zero)), row, scope)
        for node in (*stage.reductions, *self.moments):
            self._put(self._zero(node), self.known[node], scope)
        self._close_lanes(scope)

    def _unroll(self, stage: Stage) -> int:
        size = max(dtype(node.value).compute.itemsize for node in stage.reductions)
        width = self.geometry.width
        in_registers = width % WIDTH == 0 and width * size <= REGISTER_BYTES and not self.far
        given = self.kernel.entry(ROWS_AT_A_TIME)
        if given is not None:
            return min(AT_A_TIME, given)
        return 1 if in_registers else min(AT_A_TIME, self._most_at_a_time(stage))

    def _build_lanes(self, stage: Stage, parent: Scope, places: Iterable[Mapping[Dim, IndexExpr]]) -> None:
        """A loop over lanes that adds the elements at these places, and their squares, relative to the points."""
        scope, copies = self._open_copies(stage, parent, places)
        for total in stage.reductions:
            about = self._load(self.about[total], scope)
            apart = [scope.add(arith.SubfOp(self.emitter.reduced_element(total, copy), about)) for copy in copies]
            self._add(total, self.tree(scope, total, apart), scope)
            for square in self._squares_of(total):
                self._add_squares(square, apart, scope)
        self._close_lanes(scope)

    def _join(self, stage: Stage, longest: Dim, bounds: Range, begin: SSAValue) -> None:
        """Joins a piece with what the part has come to from `begin` on."""
        first, last = bounds
        before, count = (self._elements(stage, longest, *pair) for pair in ((begin, first), (first, last)))
        scope = self._open_lanes(self.task)
        for total in stage.reductions:
            kind = dtype(total.value).compute
            number, one, zero = float_of(self.task, count, kind), self.task.constant(1.0, kind), self._zero(total)
            some = self.task.add(arith.MaxSIOp(before, self.root.index_constant(1)))
            inverses = [self.task.add(arith.DivfOp(one, n)) for n in (float_of(self.task, some, kind), number)]
            weight = self.task.add(arith.DivfOp(one, self.task.add(arith.AddfOp(inverses[0], inverses[1]))))
            nothing = self.task.add(arith.CmpiOp(before, self.root.index_constant(0), "eq"))
            scale = self.task.add(arith.SelectOp(nothing, zero, inverses[1]))
            apart = self._load(self.known[total], scope)
            inside = scope.add(arith.MulfOp(apart, scope.add(arith.MulfOp(apart, inverses[1]))))
            near = scope.add(arith.MulfOp(self._load(self.about[total], scope), number))
            added, had = scope.add(arith.AddfOp(near, apart)), self._load(self._joined(total), scope)
            means = [scope.add(arith.MulfOp(*pair)) for pair in ((had, inverses[0]), (added, scale))]
            between = scope.add(arith.SubfOp(means[1], means[0]))
            between = scope.add(arith.MulfOp(scope.add(arith.MulfOp(between, between)), weight))
            for square in self._squares_of(total):
                value = scope.add(arith.SubfOp(self._load(self.known[square], scope), inside))
                value = scope.add(arith.AddfOp(self._load(self._joined(square), scope), value))
                self._put(scope.add(arith.AddfOp(value, between)), self._joined(square), scope)
            self._put(scope.add(arith.AddfOp(had, added)), self._joined(total), scope)
        self._close_lanes(scope)

    def _elements(self, stage: Stage, longest: Dim, first: SSAValue, last: SSAValue) -> SSAValue:
        """How many elements of a lane are between two places of the longest dimension."""
        count, others = self.task.add(arith.SubiOp(last, first)), extent(stage.dims) // max(longest.extent, 1)
        return count if others == 1 else self.task.add(arith.MuliOp(count, self.root.index_constant(others)))

    def _squares_of(self, total: ScalarNode) -> list[ScalarNode]:
        return [square for square, of in self.moments.items() if of is total]

    def _joined(self, node: ScalarNode) -> RowBuffer:
        """Where the part's results are."""
        position = self.kernel.partials[node].position
        return RowBuffer(self.parts[node], position.substitute({Dim("row", self.geometry.rows): self.geometry.row}))

    def _zero(self, node: ScalarNode) -> SSAValue:
        return self.root.constant(0.0, dtype(node.value).compute)

    def _add_squares(self, node: ScalarNode, values: Sequence[SSAValue], scope: Scope) -> None:
        """
        Adds the squares of some values, by instructions that multiply and add: additions alone are what these loops wait for
        where processors have other units for them (.92 of the time on Zen 4).
        """
        first, *others = values
        if not others:
            row = self.known[node]
            self._put(self._plus_square(self._load(row, scope), first, scope), row, scope)
            return
        total = scope.add(arith.MulfOp(first, first))
        for value in others:
            total = self._plus_square(total, value, scope)
        self._add(node, total, scope)

    def _plus_square(self, total: SSAValue, value: SSAValue, scope: Scope) -> SSAValue:
        return scope.call(f"fo_mad_{value.type}", [value, value, total], value.type)

    def _add(self, node: ScalarNode, value: SSAValue, scope: Scope) -> None:
        row = self.known[node]
        self._put(scope.add(arith.AddfOp(self._load(row, scope), value)), row, scope)


def build_moments_join(kernel: PhasedKernel, phase: Phase, moments: Moments, part: int, longest: int) -> None:
    """Joins sums, and squares about their means, part by part; of each part `part` of `longest` elements but for the last."""
    some = next(iter(moments))
    partials = kernel.partials[some]
    if partials.splits < 2:
        return
    split, row = Dim("split", partials.splits), Dim("row", partials.rows)
    kind, constant = dtype(some.value), phase.root.index_constant
    outer = Scope(phase.root, Block(arg_types=[INDEX]))
    outer.block.args[0].name_hint = "split"
    outer.indices[split] = outer.block.args[0]
    before = outer.add(arith.MuliOp(outer.block.args[0], constant(part)))
    rest = outer.add(arith.SubiOp(constant(longest), before))
    size = outer.add(arith.MinSIOp(rest, constant(part)))
    counts = [float_of(outer, number, kind) for number in (before, size)]
    one = outer.constant(1.0, kind)
    inverses = [outer.add(arith.DivfOp(one, count)) for count in counts]
    weight = outer.add(arith.DivfOp(one, outer.add(arith.AddfOp(inverses[0], inverses[1]))))
    inner = Scope(outer, Block(arg_types=[INDEX]))
    inner.block.args[0].name_hint = "row"
    inner.indices[row] = inner.block.args[0]
    first, other = inner.index(as_expr(row)), inner.index(partials.position)
    sums = {total: _pair(phase, inner, total, (first, other)) for total in dict.fromkeys(moments.values())}
    for square, total in moments.items():
        means = [inner.add(arith.MulfOp(v, inverse)) for v, inverse in zip(sums[total], inverses, strict=True)]
        apart = inner.add(arith.SubfOp(means[1], means[0]))
        between = inner.add(arith.MulfOp(inner.add(arith.MulfOp(apart, apart)), weight))
        squares = _pair(phase, inner, square, (first, other))
        joined = inner.add(arith.AddfOp(inner.add(arith.AddfOp(squares[0], squares[1])), between))
        inner.block.add_op(memref.StoreOp.get(joined, phase.parts[square], [first]))
    for total, pair in sums.items():
        joined = inner.add(arith.AddfOp(pair[0], pair[1]))
        inner.block.add_op(memref.StoreOp.get(joined, phase.parts[total], [first]))
    inner.block.add_op(scf.ReduceOp())
    outer.block.add_op(phase.parallel(inner.block, phase.begin, phase.end))
    outer.block.add_op(scf.YieldOp())
    phase.root.block.add_op(phase.loop(outer.block, constant(1), constant(partials.splits)))


def _pair(phase: Phase, scope: Scope, node: ScalarNode, places: tuple[SSAValue, SSAValue]) -> tuple[SSAValue, SSAValue]:
    first, other = (scope.add(memref.LoadOp.get(phase.parts[node], [place])) for place in places)
    return first, other
