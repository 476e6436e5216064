"""Memory asked for ahead of loops over lanes, where what they read lies behind all caches.

Prefetchers of processors follow several short rows at a time badly, and stores to accumulators fill the queues that would
let loads run ahead. So a task goes along memory, and asks for what comes next (Callahan, Kennedy and Porterfield 1991:
software prefetching).

Of the loops of a row some wait for memory and others compute, so that memory waits for these. One that computes asks for what the
next row needs: a row of each result, whose lines are read before they are stored to, and one of each operand where these lie
behind all caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.cpu.stages.lane_choice import LIGHT_WORK
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.loop_splitting import SECOND_LEVEL_CACHE, Fixed, flat_memory, is_moved, outside_caches
from fuse_opt.lowering.kernel.scope import Scope

AHEAD_BYTES = 16 << 10
"""How far ahead: what memory delivers to a core in a few times its latency, and a small part of a second level cache."""
STRETCH_BYTES = 2 << 10
"""Of rows that an iteration takes together."""
SHORTEST_BYTES, LONGEST_BYTES = 1 << 10, 4 << 10
"""Of rows to ask for at once. Along shorter ones an iteration goes on where the one before ended, longer ones are streams."""

MOST_BYTES = 20 << 10
"""Of rows that are asked for while the one before is computed, which a first level cache holds beside that one."""


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


def asking_stage(loops: StageLoops, stages: Sequence[Stage], overlap: bool) -> Stage | None:
    """
    The stage whose loop asks for the next row: behind the first, which waits for memory, the one that computes most. A light one
    has nothing to ask for that caches hold where the last loop of a row is one with the first of the next, and no operands alone.
    """
    body = loops.loop_body
    if not is_moved(body, SECOND_LEVEL_CACHE):
        return None
    able = [
        stage for stage in stages[1:] if stage.dims and loops.lanes(stage) and row_bytes(stage, loops) >= SHORTEST_BYTES
    ]
    found = max(able, key=loops.stage_work, default=None)
    is_light = found is not None and loops.stage_work(found) <= LIGHT_WORK
    is_enough = loops.memory.nontemporal or (overlap and not outside_caches(body))
    return None if is_light and is_enough else found


def row_bytes(stage: Stage, loops: StageLoops) -> int:
    """Of the widest elements that a stage has a row of; none where rows have unknown extents."""
    length = stage.dims[-1].extent
    return (
        0
        if isinstance(length, Size)
        else length * max([dtype(node.value).itemsize for node in loops.nodes_of(stage)], default=0)
    )


def prefetch_next_row(
    loops: StageLoops, stages: Sequence[Stage], scope: Scope, dims: tuple[Dim, Dim, Dim], count: int
) -> None:
    """
    Asks for so many elements of the row after this one, of each result and, where caches are too small, of each operand. `dims`:
    of rows, along a row, and what counts the first one of these elements.
    """
    row, along, first = dims
    asked: dict[tuple[SSAValue, IndexExpr], ScalarNode] = {}
    for stage in stages if not loops.memory.nontemporal else ():
        for store in stage.stores:
            buffer = loops.arguments[loops.memory.targets[store.result]]
            asked[buffer, loops.nodes.space.apply(store.address)] = store.node
    if outside_caches(loops.loop_body):
        for node in loops.loop_body.loads():
            asked[loops.emitter.buffers[node.value], loops.nodes.addresses[node]] = node
    this = Dim(f"this_{row.name}", row.extent)
    place = Fixed(scope, {row: as_expr(this) + 1, along: as_expr(first)})
    place.indices[this] = scope.dim_value(row)
    room, helper = MOST_BYTES, "fo_prefetch_near" if loops.memory.next_row == "asked" else "fo_prefetch_next"
    for (buffer, address), node in asked.items():
        factors, element = address.coefficients() or {}, dtype(node.value)
        nbytes = along.extent * element.itemsize
        if nbytes <= room and factors.get(along) == 1 and factors.get(row):
            room -= nbytes
            arguments = [flat_memory(scope.root, buffer), place.index(address), scope.root.index_constant(count)]
            scope.call_for_effect(f"{helper}_{element.name}", arguments)
