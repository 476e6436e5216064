"""
Rows that are few and long: each is cut into parts that different tasks reduce, and the parts are joined in order. What is dear
to compute again stays in the row of a result in between, where caches hold all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from xdsl.dialects import memref, scf
from xdsl.ir import Block

from fuse_opt.dialects.analysis.loop_body import LoopBody, Store
from fuse_opt.dialects.fused import KernelOp, knobs
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.cpu.kernel import CHUNK_MULTIPLE, KernelLoops, build_kernel_loops
from fuse_opt.lowering.cpu.split_reduction import Phase, PhasedKernel, build_join
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, part_length, task_parts
from fuse_opt.lowering.kernel.row_stages import KeepRules, KeptRow, plan_lent_rows
from fuse_opt.lowering.kernel.scope import INDEX, Scope

SPLITS = 32
"""Parts of a row where the schedule does not say how many."""
LARGEST_KEPT = 1 << 20
"""Bytes of a result whose rows hold what was computed until a later launch reads it: more are computed again sooner than they
come back from behind the second level cache."""


def build_split_loops(kernel: KernelOp, loop_body: LoopBody, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """
    For each stage of the rows a launch over their parts, and one that joins what it reduced; stores that a row has once
    come last. A kernel that may overwrite what these read runs row by row.
    """
    phased = PhasedKernel(kernel, loop_body, storages)
    nodes = KernelNodes(loop_body)
    rows = nodes.loop(loop_body.rows)
    row = Dim("row", extent(rows))
    nodes.flatten_rows(rows, row)
    nodes.finish()
    stages = phased.stages(nodes)
    if phased.reads_early(nodes, stages):
        return [build_kernel_loops(kernel, loop_body, storages)]
    splits = phased.entry(knobs.SPLITS) or SPLITS
    kept = _kept_rows(phased, nodes, stages, row)
    for stage in stages:
        _build_parts(phased, nodes, stage, row, splits, kept)
        if stage.reductions and stage is not stages[-1]:
            build_join(phased, stage.reductions, ())
    joined, once = stages[-1].reductions if stages else [], phased.once()
    if joined or once:
        build_join(phased, joined, once)
    return phased.phases


def _kept_rows(phased: PhasedKernel, nodes: KernelNodes, stages: list[Stage], row: Dim) -> Mapping[KeptRow, Store]:
    """What stages hand on in the rows of the result, with the store to it."""
    stores = stages[-1].stores if stages else []
    if len(stores) != 1 or phased.memory.nontemporal or phased.memory.in_place(phased.loop_body, stores):
        return {}
    if row.extent * extent(stages[-1].dims) * dtype(stores[0].node.value).itemsize > LARGEST_KEPT:
        return {}
    _, lenders = plan_lent_rows(nodes, stages, KeepRules(largest=0, lends=True), may_lend=True)
    return lenders


def _build_parts(
    phased: PhasedKernel, nodes: KernelNodes, stage: Stage, row: Dim, splits: int, kept: Mapping[KeptRow, Store]
) -> None:
    """The launch that runs a stage part by part."""
    longest = max(stage.dims, key=lambda dim: dim.extent, default=Dim("i", 1))
    multiple = CHUNK_MULTIPLE if stage.dims and longest == stage.dims[-1] else 1
    part = part_length(longest.extent, splits, multiple)
    split = Dim("split", max(-(-longest.extent // part), 1))
    known = list(phased.partials)
    for node in stage.reductions:
        phased.add_partials(node, split.extent, row.extent)
    phase = Phase(phased, nodes)
    for each, store in kept.items():
        place = RowBuffer(phase.arguments[phased.memory.targets[store.result]], nodes.space.apply(store.address))
        if each.source is stage:
            stage.left[each.node] = place
        elif stage in each.readers:
            stage.taken[each.node] = place
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = "task"
    scope = Scope(phase.root, block)
    digits = task_parts(scope, phase.root, block.args[0], (row.extent, split.extent))
    scope.indices.update(zip((row, split), digits, strict=True))
    for node in known:
        scope.values[node] = scope.add(memref.LoadOp.get(phase.parts[node], [scope.index(as_expr(row))]))
        scope.values[node].name_hint = node.value.name_hint
    bounds = {longest: part_bounds(scope, digits[1], part, longest.extent)} if stage.dims else {}
    results = phase.reduce_stage(stage, scope, bounds)
    for node, result in zip(stage.reductions, results, strict=True):
        place = scope.index(phased.partials[node].position)
        block.add_op(memref.StoreOp.get(result, phase.parts[node], [place]))
    block.add_op(scf.YieldOp())
    phase.root.block.add_op(phase.loop(block, phase.begin, phase.end))
    others = extent(stage.dims) // max(longest.extent, 1)
    work = part * others * phase.stage_work(stage)
    phased.finish(phase, row.extent * split.extent, work)
