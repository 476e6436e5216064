"""A pointwise kernel on a GPU: a grid as large as the result, each thread a vector of neighbours, or several a block apart.

Full blocks go through vectors and ask nothing. The last block goes element by element and looks where the result ends.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import cast

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.extents import ceiling_quotient, exact_quotient
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.gpu.context import GpuLimits, GpuParts, Grid, usual
from fuse_opt.lowering.gpu.scope import Values, combined_index, less, loop, unrolled, when
from fuse_opt.lowering.gpu.vectors import VectorMover, VectorPlan, plan_vectors, vector_memories, widest_vector
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import extent
from fuse_opt.lowering.kernel.scope import Scope

THREADS = 128
"""Of a block. Measured on an H200 beside 256 and 512: 1 to 5 % less time."""
UNROLL = 4
"""Elements of a thread in a large kernel without vectors: the loads that are under way together."""
LARGE = 1 << 20
"""Elements from which on there are enough threads when each takes UNROLL of them."""
FEWEST_THREADS = 128
"""Of a processor: a vector must leave work for so many."""
FULL_WAVES = 2
"""Times that the grid must fill the device for a thread to take several vectors."""
MOST_WORK = 8192
"""Simple operations of a vector, which are all written out."""
RESIDENT = 1536
"""Threads that a processor runs of a kernel with 40 registers."""
REUSED = 8
"""Times that an element is read from which on caches have it: its loads are not memory's."""


def build_pointwise(parts: GpuParts, threads: int | None = None) -> Grid:
    """Emits the pass with so many threads in a block; gives its grid."""
    threads = threads or parts.schedule.threads or THREADS
    nodes = parts.nodes
    dims = nodes.loop(nodes.loop_body.rows)
    count = extent(dims)
    element = dims[0] if len(dims) == 1 else Dim("i", count)
    vectors = KernelNodes(nodes.loop_body)
    for each in (nodes, vectors):
        if len(dims) > 1:
            each.flatten_rows(dims, element)
    nodes.finish()
    scalars = _Elements(parts, element, threads)
    width = _width(parts, count) if parts.vectors else 1
    if width > 1:
        outer, inner = Dim("vector", cast(int, ceiling_quotient(count, width))), Dim("lane", width)
        vectors.split_dim(element, outer, inner)
        vectors.finish()
        plan = plan_vectors(vectors, inner, vectors.loop_body.loads(), vectors.loop_body.stores)
        unroll = _unroll(parts, plan, count)
        if plan.stores and usual(count) >= threads * width * unroll:
            return _build_vectors(replace(parts, nodes=vectors), scalars, plan, outer, unroll)
    return scalars.build()


def _width(parts: GpuParts, size: Extent) -> int:
    count = usual(size)
    loop_body, limits = parts.nodes.loop_body, parts.schedule.limits
    width = widest_vector(loop_body.loads(), loop_body.stores)
    if parts.schedule.vector is not None:
        return min(parts.schedule.vector, width)
    work = sum(1 if node.op is None else body_cost(node.op) for node in loop_body.nodes)
    while width > 1 and (count < limits.processors * FEWEST_THREADS * width or work * width > MOST_WORK):
        width //= 2
    return width


def _unroll(parts: GpuParts, plan: VectorPlan, size: Extent) -> int:
    """Vectors of a thread: as many as loads must be under way, where the grid still fills the device."""
    count = usual(size)
    if parts.schedule.unroll is not None:
        return parts.schedule.unroll
    limits: GpuLimits = parts.schedule.limits
    own = [node for node in plan.loads if usual(prod(shape(node.value))) * REUSED > count]
    loaded = sum(dtype(node.value).itemsize for node in own) * plan.width
    unroll, wave = 1, limits.processors * limits.processor_threads * plan.width
    while loaded and unroll < 4 and loaded * unroll * RESIDENT < limits.bytes_in_flight:
        if count < FULL_WAVES * wave * unroll * 2:
            break
        unroll *= 2
    return unroll


def _build_vectors(parts: GpuParts, scalars: _Elements, plan: VectorPlan, outer: Dim, unroll: int) -> Grid:
    kernel, threads = parts.kernel, scalars.threads
    count, turn = scalars.element.extent, Dim("turn", unroll)
    mover = VectorMover(parts, plan, turn if unroll > 1 else None)
    emitter = parts.emitter(plan.nodes)
    stage = Stage((plan.inner,), stores=list(plan.nodes.loop_body.stores), taken=dict(mover.taken))
    first = combined_index(kernel, kernel.block_number(), threads * unroll, kernel.thread(), "first")

    def at(scope: Scope) -> None:
        index = first if unroll == 1 else combined_index(scope, scope.dim_value(turn), threads, first, "vector")
        scope.indices[outer] = index

    def load(scope: Scope, _: Values) -> Values:
        at(scope)
        mover.load(scope)
        return ()

    def element(scope: Scope, _: Values) -> Values:
        emitter.emit(stage.roots(), scope, stage)
        parts.store(mover.keep(scope, stage.stores), emitter, scope)
        return ()

    def compute(scope: Scope, _: Values) -> Values:
        at(scope)
        unrolled(scope, plan.inner, (), element, "lane")
        mover.store(scope)
        return ()

    def vectors(scope: Scope, _: Values) -> Values:
        for part in (load, compute):
            unrolled(scope, turn, (), part, "turn")
        return ()

    each = threads * unroll * plan.width
    full, is_whole = count // each, exact_quotient(count, each) is not None
    parts.takes_vectors(vector_memories(parts, plan))
    if not is_whole:
        inside = less(kernel, kernel.block_number(), full)
        when(kernel, inside, (), vectors, otherwise=lambda scope, _: scalars.several(scope, unroll * plan.width, True))
    else:
        vectors(kernel, ())
    vectors_of_thread = "a vector" if unroll == 1 else f"{unroll} vectors"
    parts.notes.append(f"pointwise, {threads} threads, {vectors_of_thread} of {plan.width} elements each")
    return Grid(ceiling_quotient(count, each), (threads, 1))


class _Elements:
    """The pass element by element."""

    def __init__(self, parts: GpuParts, element: Dim, threads: int) -> None:
        self.parts, self.element, self.threads = parts, element, threads
        self.stage = Stage((element,), stores=list(parts.nodes.loop_body.stores))
        self.emitter = parts.emitter(parts.nodes)

    def build(self) -> Grid:
        kernel, threads, count = self.parts.kernel, self.threads, self.element.extent
        if usual(count) < LARGE:
            index = combined_index(kernel, kernel.block_number(), threads, kernel.thread(), "i")
            self._at(kernel, index, exact_quotient(count, threads) is None)
            self.parts.notes.append(f"pointwise, {threads} threads, an element each")
            return Grid(ceiling_quotient(count, threads), (threads, 1))
        each = threads * UNROLL
        if exact_quotient(count, each) is None:
            full = count // each
            inside = less(kernel, kernel.block_number(), full)
            self._first(kernel, UNROLL)
            when(
                kernel,
                inside,
                (),
                lambda scope, _: self.several(scope, UNROLL, False),
                otherwise=lambda scope, _: self.several(scope, UNROLL, True),
            )
        else:
            self.several(kernel, UNROLL, False)
        self.parts.notes.append(f"pointwise, {threads} threads, {UNROLL} elements each")
        return Grid(ceiling_quotient(count, each), (threads, 1))

    def several(self, scope: Scope, elements: int, guarded: bool = False) -> Values:
        """Emits so many elements of each thread, a block apart."""
        threads = self.threads
        first, turn = self._first(scope, elements), Dim("turn", elements)

        def one(inner: Scope, _: Values) -> Values:
            self._at(inner, combined_index(inner, inner.indices[turn], threads, first, "i"), guarded)
            return ()

        bounds = (scope.index_constant(0), scope.index_constant(elements), scope.index_constant(1))
        return loop(scope, bounds, (), one, (turn, "turn"))

    def _first(self, scope: Scope, elements: int) -> SSAValue:
        key = ("first element", elements)
        if (found := scope.find(key)) is not None:
            return found[0]
        kernel = self.parts.kernel
        made = combined_index(scope, kernel.block_number(), self.threads * elements, kernel.thread(), "first")
        scope.values[key] = made
        return made

    def _at(self, scope: Scope, index: SSAValue, guarded: bool) -> None:
        indices = {self.element: index}
        if guarded:
            when(scope, less(scope, index, self.element.extent), (), self._compute, indices)
        else:
            scope.indices.update(indices)
            self._compute(scope, ())

    def _compute(self, scope: Scope, _: Values) -> Values:
        self.emitter.emit(self.stage.roots(), scope)
        self.parts.store(self.stage.stores, self.emitter, scope)
        return ()
