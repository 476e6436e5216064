"""A pointwise kernel on a GPU: a grid as large as the result, each thread an element, or several a block apart."""

from __future__ import annotations

from xdsl.ir import SSAValue

from ..dialects.index_expr import Dim
from .gpu_parts import GpuParts, Grid
from .gpu_scope import Values, combined_index, less, loop, when
from .kernel_points import Stage
from .loop_builder import Scope
from .loop_space import extent

THREADS = 256
UNROLL = 4
"""Elements of a thread in a large kernel: the loads that are under way together."""
LARGE = 1 << 20
"""Elements from which on there are enough threads when each takes UNROLL of them."""


def build_pointwise(parts: GpuParts, threads: int = THREADS) -> Grid:
    """Emits the pass with so many threads in a block; gives its grid."""
    points, kernel = parts.points, parts.kernel
    dims = points.loop(points.pulled.rows)
    count = extent(dims)
    element = dims[0] if len(dims) == 1 else Dim("i", count)
    if len(dims) > 1:
        points.flatten_rows(dims, element)
    points.finish()
    stage = Stage((element,), stores=list(points.pulled.stores))
    emitter = parts.emitter(points)

    def compute(scope: Scope, _: Values) -> Values:
        emitter.emit(stage.roots(), scope)
        parts.store(stage.stores, emitter, scope)
        return ()

    def at(scope: Scope, index: SSAValue, guarded: bool) -> None:
        indices = {element: index}
        if guarded:
            when(scope, less(scope, index, count), (), compute, indices)
        else:
            scope.indices.update(indices)
            compute(scope, ())

    if count < LARGE:
        index = combined_index(kernel, kernel.block_number(), threads, kernel.thread(), "i")
        at(kernel, index, count % threads != 0)
        return Grid(-(-count // threads), (threads, 1))

    first = combined_index(kernel, kernel.block_number(), threads * UNROLL, kernel.thread(), "first")
    turn = Dim("turn", UNROLL)

    def several(scope: Scope, guarded: bool) -> Values:
        def one(inner: Scope, _: Values) -> Values:
            at(inner, combined_index(inner, inner.indices[turn], threads, first, "i"), guarded)
            return ()

        bounds = (scope.index_constant(0), scope.index_constant(UNROLL), scope.index_constant(1))
        return loop(scope, bounds, (), one, (turn, "turn"))

    full, rest = divmod(count, threads * UNROLL)
    if rest:
        inside = less(kernel, kernel.block_number(), full)
        when(kernel, inside, (), lambda s, _: several(s, False), otherwise=lambda s, _: several(s, True))
    else:
        several(kernel, False)
    return Grid(full + bool(rest), (threads, 1))
