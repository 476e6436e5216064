"""Sums and squares about their means on a GPU, and maxima and sums of exponentials below them, by one way through memory.

A thread takes elements in batches that it holds in registers: their squares are taken about their own mean, and batches
are joined as Chan, Golub and LeVeque (1983, algorithms for computing the sample variance) join parts. Above a thread no
pair has to be joined: once the mean of all is known, a part's squares about it are those about its own mean and its count
times the distance of the two means squared, and these are added up like any sum. Sums of exponentials are those below the
largest element so far, in batches for which that is known first; `lowering/kernel/running_maximum.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import arith, math, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, DType
from fuse_opt.dialects.types.extents import exact_quotient, largest, may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.gpu.context import GpuLimits
from fuse_opt.lowering.gpu.reduce import combine
from fuse_opt.lowering.gpu.scope import Values, combined_index, loop, named, store_at, unrolled
from fuse_opt.lowering.gpu.stages import HELD_TURNS, Columns, RowStages
from fuse_opt.lowering.gpu.vectors import HeldVectors, VectorMover
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import extent
from fuse_opt.lowering.kernel.moments import Moments, find_moments, float_of
from fuse_opt.lowering.kernel.running_maximum import Running, find_running, only_scales
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import Scope

SMALLEST, LARGEST = 8, 16
"""Elements of a batch: joining one with those before takes about ten operations and a division."""
RESIDENT = 1536
"""Threads that a processor runs of a kernel with 40 registers."""


def plan_moments(stages: Sequence[Stage]) -> Moments:
    """Those of the first two stages."""
    found = find_moments(stages[:2])
    return found if found and may_exceed(extent(stages[0].dims), 1) else {}


def batch_units(columns: Columns, limits: GpuLimits, resident: int = RESIDENT) -> int:
    """
    Elements or vectors of a batch: as many as loads must be under way, of so many threads on a processor, and enough to be worth
    joining.
    """
    nodes = columns.nodes
    loaded = sum(dtype(p.value).itemsize for p in nodes.loop_body.loads() if nodes.varies(p, columns.dims))
    units = max(SMALLEST // columns.width, 1)
    while units * columns.width < LARGEST and loaded * columns.width * units * resident < limits.bytes_in_flight:
        units *= 2
    return units


def build_moments(rows: RowStages, stages: Sequence[Stage], scope: Scope) -> None:
    """Makes the reductions of the first two stages known where one way through memory is enough for both."""
    if moments := plan_moments(stages):
        _define(MomentsOfRow(rows, stages[0], moments), scope)
    elif may_exceed(extent(stages[0].dims), 1) and (running := find_running(stages[:2])):
        _define(RunningOfRow(rows, stages[0], running), scope)


def build_running(rows: RowStages, stages: Sequence[Stage], scope: Scope) -> None:
    """The same of maxima and sums of exponentials alone, where the first stage leaves elements for those after both."""
    is_left = len(stages) > 1 and not stages[1].left and may_exceed(extent(stages[0].dims), 1)
    if is_left and (running := find_running(stages[:2])):
        _define(RunningOfRow(rows, stages[0], running), scope)


def _define(row: MomentsOfRow | RunningOfRow, scope: Scope) -> None:
    for node, value in row.total(scope, row.reduce(scope)).items():
        row.rows.emitter.define(node, value, scope)


@dataclass
class _BatchesOfRow(ABC):
    """Reductions of a row by batches of elements that a thread holds in registers."""

    rows: RowStages
    stage: Stage
    pairs: Moments | Running
    """What is reduced in one way with a reduction of the stage, by what."""
    totals: list[ScalarNode] = field(init=False)
    kind: DType = field(init=False)

    def __post_init__(self) -> None:
        self.totals = list(self.stage.reductions)
        self.kind = dtype(self.totals[0].value).compute

    @abstractmethod
    def starts(self, scope: Scope) -> Values:
        """What `reduce` gives where there are no elements."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Of these values."""

    @abstractmethod
    def joined(self, scope: Scope, before: Values, batch: Batch) -> list[SSAValue]:
        """What was known before with one more batch."""

    def reduce(self, scope: Scope) -> Values:
        """What this thread's elements come to."""
        columns = self.rows.flattened(self.stage.dims)
        constant, threads = scope.index_constant, self.rows.team.threads
        start, end, _ = self.rows.bounds(scope, columns)
        held = self.rows.held_by(self.stage)
        resident = threads if self.stage.left else RESIDENT  # a row in shared memory leaves no room for another
        units = HELD_TURNS if held is not None else batch_units(columns, self.rows.parts.schedule.limits, resident)
        each, length = units * threads, self.rows.counted(columns)
        is_whole = (
            exact_quotient(length, each) is not None and exact_quotient(columns.counted.extent, length) is not None
        )
        rest = units > 1 and not is_whole
        last = scope.add(arith.SubiOp(end, constant((units - 1) * threads)))
        values: Values = [*self.starts(scope), *([start] if rest else [])]
        if held is not None and self.rows.held is not None:
            middle = constant(self.rows.held.counted)
            values = self._loop(scope, (start, middle, constant(each)), values, columns, units, held)
            start = scope.add(arith.AddiOp(start, middle))
        values = self._loop(scope, (start, last, constant(each)), values, columns, units)
        if rest:
            *values, next_ = values
            values = self._loop(scope, (next_, end, constant(threads)), values, columns, 1)
        return values

    def _loop(
        self,
        scope: Scope,
        bounds: tuple[SSAValue, SSAValue, SSAValue],
        values: Values,
        columns: Columns,
        units: int,
        held: HeldVectors | None = None,
    ) -> Values:
        """Batches of so many units; where the last of the values is an index, it becomes that of the next unit."""
        place = Dim("batch", cast(int, largest(columns.counted.extent, 2)))
        names = [*self.names, "next"]

        def batch(inner: Scope, before: Values) -> Values:
            known = len(names) - 1
            found = self._batch(inner, columns, units, inner.dim_value(place), held)
            after = self.joined(inner, before[:known], found)
            if len(before) > known:
                after.append(inner.add(arith.AddiOp(inner.dim_value(place), bounds[2])))
            return after

        return loop(scope, bounds, values, batch, (place, "first"), names[: len(values)])

    def _batch(
        self, scope: Scope, columns: Columns, units: int, first: SSAValue, held: HeldVectors | None = None
    ) -> Batch:
        """What the totals are of a batch, and the thread's own memory in which its elements are."""
        kernel, threads = self.rows.parts.kernel, self.rows.team.threads
        unit, width = Dim("unit", units), columns.width
        memories = [
            kernel.registers(value_type(self.kind), units * width, f"{total.operands[0].value.name_hint or 'x'}_batch")
            for total in self.totals
        ]
        plan = self.rows.vectors_of(self.stage, columns)
        mover = None if plan is None else VectorMover(self.rows.parts, plan, unit if units > 1 else None, held)
        taken = {} if mover is None else dict(mover.taken)
        local = Stage(self.stage.dims, self.totals, taken=taken, left=self.stage.left)
        position = columns.position(unit)

        def at(inner: Scope) -> None:
            place = combined_index(inner, inner.dim_value(unit), threads, first, "column")
            inner.indices[columns.counted] = first if units == 1 else place

        def load(inner: Scope, _: Values) -> Values:
            at(inner)
            if mover is not None:
                mover.load(inner)
            return ()

        def element(inner: Scope, values: Values) -> Values:
            columns.emitter.emit(local.roots(), inner, local)
            found: list[SSAValue] = []
            for total, memory, value in zip(self.totals, memories, values, strict=True):
                x = columns.emitter.reduced_element(total, inner)
                store_at(inner, x, memory, inner.index(position))
                found.append(combine(inner, total, value, x))
            return found

        def several(inner: Scope, values: Values) -> Values:
            at(inner)
            if columns.plan is None:
                return element(inner, values)
            return unrolled(inner, columns.plan.inner, values, element, "lane", hints)

        hints = ["batch"] * len(self.totals)
        if mover is not None:
            unrolled(scope, unit, (), load, "unit")
        starts = [self.rows.initial(total) for total in self.totals]
        return Batch(unrolled(scope, unit, starts, several, "unit", hints), memories, units * width)

    def sum_of(
        self, scope: Scope, memory: SSAValue, size: int, term: Callable[[Scope, SSAValue], SSAValue]
    ) -> SSAValue:
        """Of a term of each element of a batch."""
        place = Dim("element", size)

        def element(inner: Scope, values: Values) -> Values:
            x = inner.add(memref.LoadOp.get(memory, [inner.dim_value(place)]))
            return [inner.add(arith.AddfOp(values[0], term(inner, x)))]

        return unrolled(scope, place, [scope.constant(0.0, self.kind)], element, "element", ["batch_sum"])[0]


@dataclass(frozen=True)
class Batch:
    """Elements of a thread: what the reductions of a stage are of them, their memory, their number."""

    results: Values
    memories: Values
    size: int


@dataclass
class MomentsOfRow(_BatchesOfRow):
    """
    The sums of a stage of a row, and the squares about their means of the next one. What a thread's elements come to: how many
    they are, one over that or 0, then a sum and squares about their mean for each total.
    """

    @property
    def names(self) -> list[str]:
        return ["count", "inverse", *(name for _ in self.totals for name in ("sum", "squares"))]

    def starts(self, scope: Scope) -> Values:
        return [scope.constant(0.0, self.kind)] * (2 + 2 * len(self.totals))

    def total(self, scope: Scope, partials: Values) -> dict[ScalarNode, SSAValue]:
        """What sums and squares are over all threads of the row, known to each of them."""
        count, inverse, *pairs = partials
        reducer = self.rows.team.reducer
        sums = dict(zip(self.totals, reducer.total(scope, self.totals, pairs[::2]), strict=True))
        scale = self._inverse_of_all(scope)
        squares: dict[ScalarNode, SSAValue] = {}
        for total, part, about in zip(self.totals, pairs[::2], pairs[1::2], strict=True):
            mean = scope.add(arith.MulfOp(sums[total], scale))
            squares[total] = about_mean(scope, (part, about), (count, inverse), mean)
        nodes = list(self.pairs)
        found = reducer.total(scope, nodes, [named(squares[self.pairs[p]], "squares") for p in nodes])
        return {**sums, **dict(zip(nodes, found, strict=True))}

    def _inverse_of_all(self, scope: Scope) -> SSAValue:
        """One over how many elements all threads have."""
        columns, one = self.rows.flattened(self.stage.dims), scope.constant(1.0, self.kind)
        length = self.rows.counted(columns)
        if isinstance(length, int) and exact_quotient(columns.counted.extent, length) is not None:
            return scope.constant(1.0 / (length * columns.width), self.kind)
        first, end = self.rows.part_bounds(scope, columns)
        units = scope.add(arith.SubiOp(end, first))
        if isinstance(length, Size) and length != columns.counted.extent:  # a part may be empty
            units = scope.add(arith.MaxSIOp(units, scope.index_constant(1)))
        elements = scope.add(arith.MuliOp(units, scope.index_constant(columns.width)))
        return scope.add(arith.DivfOp(one, float_of(scope, elements, self.kind)))

    def joined(self, scope: Scope, before: Values, batch: Batch) -> list[SSAValue]:
        size, width = batch.size, scope.constant
        count, inverse, *pairs = before
        more = scope.add(arith.AddfOp(count, width(size, self.kind)))
        smaller = scope.add(arith.DivfOp(width(1.0, self.kind), more))
        share = scope.add(arith.MulfOp(scope.add(arith.MulfOp(count, width(size, self.kind))), smaller))
        after: list[SSAValue] = [more, smaller]
        for sum_, memory, part, about in zip(batch.results, batch.memories, pairs[::2], pairs[1::2], strict=True):
            mean = sum_ if size == 1 else scope.add(arith.MulfOp(sum_, width(1.0 / size, self.kind)))
            squares = about if size == 1 else scope.add(arith.AddfOp(about, self._squares(scope, memory, mean, size)))
            apart = scope.add(arith.SubfOp(mean, scope.add(arith.MulfOp(part, inverse))))
            between = scope.add(arith.MulfOp(scope.add(arith.MulfOp(apart, share)), apart))
            after += [scope.add(arith.AddfOp(part, sum_)), scope.add(arith.AddfOp(squares, between))]
        return after

    def _squares(self, scope: Scope, memory: SSAValue, mean: SSAValue, size: int) -> SSAValue:
        """Of a batch about its mean."""

        def square(inner: Scope, x: SSAValue) -> SSAValue:
            apart = inner.add(arith.SubfOp(x, mean))
            return inner.add(arith.MulfOp(apart, apart))

        return self.sum_of(scope, memory, size, square)


@dataclass
class RunningOfRow(_BatchesOfRow):
    """The maxima of a stage of a row, and the sums of exponentials below them of the next one; both, of a thread's elements."""

    is_near: bool = field(init=False)
    """Whether the sums may have approximated terms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        loop_body = self.rows.nodes.loop_body
        self.is_near = self.kind is F32 and all(only_scales(loop_body, node) for node in self.pairs)

    @property
    def names(self) -> list[str]:
        return [name for _ in self.totals for name in ("largest", "sum")]

    def starts(self, scope: Scope) -> Values:
        zero = scope.constant(0.0, self.kind)
        return [value for total in self.totals for value in (self.rows.initial(total), zero)]

    def joined(self, scope: Scope, before: Values, batch: Batch) -> list[SSAValue]:
        after: list[SSAValue] = []
        values = zip(self.totals, batch.results, batch.memories, before[::2], before[1::2], strict=True)
        for total, found, memory, old, sum_ in values:
            largest = combine(scope, total, old, found)
            below = self._finite(scope, total, largest)
            kept = scope.add(arith.MulfOp(sum_, _power(scope, old, below)))
            terms = self.sum_of(scope, memory, batch.size, lambda inner, x, below=below: self._term(inner, x, below))
            after += [largest, scope.add(arith.AddfOp(kept, terms))]
        return after

    def _term(self, scope: Scope, x: SSAValue, below: SSAValue) -> SSAValue:
        """What an element adds to a sum that only scales what is rounded to 16 bits, or to any other."""
        if not self.is_near:
            return _power(scope, x, below)
        element = self.kind.attribute
        return scope.call("fo_fast_exp_f32", [scope.add(arith.SubfOp(x, below))], element)

    def _finite(self, scope: Scope, total: ScalarNode, largest: SSAValue) -> SSAValue:
        """A maximum, or 0 where all so far are minus infinity: they add nothing to what others of the row may be."""
        least = scope.add(arith.CmpfOp(largest, self.rows.initial(total), "oeq"))
        return scope.add(arith.SelectOp(least, scope.constant(0.0, self.kind), largest))

    def total(self, scope: Scope, partials: Values) -> dict[ScalarNode, SSAValue]:
        """What both are over all threads of the row, known to each of them."""
        reducer, own = self.rows.team.reducer, dict(zip(self.totals, partials[::2], strict=True))
        sums = dict(zip(self.totals, partials[1::2], strict=True))
        largest = dict(zip(self.totals, reducer.total(scope, self.totals, partials[::2]), strict=True))
        scaled: list[SSAValue] = []
        for each in self.pairs.values():
            factor = _power(scope, own[each], largest[each])
            scaled.append(named(scope.add(arith.MulfOp(sums[each], factor)), "sum"))
        nodes = list(self.pairs)
        return {**largest, **dict(zip(nodes, reducer.total(scope, nodes, scaled), strict=True))}


def _power(scope: Scope, x: SSAValue, below: SSAValue) -> SSAValue:
    """exp(x - below)."""
    return scope.add(math.ExpOp(scope.add(arith.SubfOp(x, below))))


def about_mean(
    scope: Scope, part: tuple[SSAValue, SSAValue], counts: tuple[SSAValue, SSAValue], mean: SSAValue
) -> SSAValue:
    """Squares about a mean, where the part's sum, its squares about its own mean, its count and one over that are known."""
    (total, about), (count, inverse) = part, counts
    apart = scope.add(arith.SubfOp(scope.add(arith.MulfOp(total, inverse)), mean))
    return scope.add(arith.AddfOp(about, scope.add(arith.MulfOp(scope.add(arith.MulfOp(apart, count)), apart))))
