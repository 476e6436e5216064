"""Memory asked for ahead of loops over lanes, where what they read lies behind all caches.

Prefetchers of processors follow several short rows at a time badly, and stores to accumulators fill the queues that would
let loads run ahead. So a task goes along memory, and asks for what comes next (Callahan, Kennedy and Porterfield 1991:
software prefetching).
"""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim, constant
from fuse_opt.lowering.cpu.stage import StageLoops
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.loop_splitting import Fixed, flat_memory
from fuse_opt.lowering.kernel.scope import Scope

AHEAD_BYTES = 16 << 10
"""How far ahead: what memory delivers to a core in a few times its latency, and a small part of a second level cache."""
STRETCH_BYTES = 2 << 10
"""Of rows that an iteration takes together."""
SHORTEST_BYTES, LONGEST_BYTES = 1 << 10, 4 << 10
"""Of rows to ask for at once. Along shorter ones an iteration goes on where the one before ended, longer ones are streams."""


def rows_at_a_time(loads: Sequence[ScalarNode], lanes: int, most: int) -> int:
    """How many rows of so many lanes an iteration takes, a power of two up to `most`; 0 where prefetching does not help."""
    size = lanes * max((dtype(node.value).itemsize for node in loads), default=0)
    if size * most < SHORTEST_BYTES or size > LONGEST_BYTES:
        return 0
    return min(most, 1 << max(STRETCH_BYTES // size, 1).bit_length() - 1)


def prefetch_rows(
    loops: StageLoops, loads: Sequence[ScalarNode], scope: Scope, rows: tuple[Dim, Dim, int], lane: Dim, distance: int
) -> None:
    """
    Asks for what comes after some elements of all lanes, where that is one stretch of memory. `rows`: the dimension they
    are along, what counts their first one, and how many there are; `distance`: how far ahead, in bytes.
    """
    dim, counter, step = rows
    for node in loads:
        address, size = loops.nodes.addresses[node], dtype(node.value).itemsize
        factors = address.coefficients() or {}
        if factors.get(lane) != 1 or factors.get(dim) != lane.extent:
            continue
        ahead = max(distance // (lane.extent * size) // step, 1) * step
        place = Fixed(scope, {dim: as_expr(counter) + ahead, lane: constant(0)}).index(address)
        buffer = flat_memory(scope.root, loops.emitter.buffers[node.value])
        arguments = [buffer, place, scope.root.index_constant(step * lane.extent)]
        scope.call_for_effect(f"fo_prefetch_{dtype(node.value).name}", arguments)
