"""Fuse reductions with what feeds them and what reads them, when all of it is one pass over independent rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Unschedulable, trace
from fuse_opt.dialects.analysis.loop_order import choose_order
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.dialects.types import extents
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.passes.fusion.engine.cost_model import elements, estimate, total_work, work
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.rule_checks import refuse_loss
from fuse_opt.passes.fusion.engine.worklist import FusionPass


@dataclass
class RowRule:
    """The two together are one row kernel: softmax, layer norm, a prologue or an epilogue of a reduction."""

    answers: dict[tuple[Group, int, Group, int], Refusal] = field(
        default_factory=dict[tuple[Group, int, Group, int], Refusal]
    )

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        kinds = (producer.kind, consumer.kind)
        if FusionKind.REDUCTION not in kinds or max(kinds) > FusionKind.REDUCTION:
            return None
        key = (producer, producer.count, consumer, consumer.count)
        if key in self.answers:
            return self.answers[key]
        members = [producer, consumer]
        refusal = graph.refuse(members) or refuse_row(graph, members)
        if refusal is None:
            return members
        self.answers[key] = refusal
        return refusal


def refuse_row(graph: GroupGraph, members: list[Group]) -> Refusal | None:
    """Why the members together are no row kernel, or no good one."""
    loop_body = traced(graph, members)
    if isinstance(loop_body, Refusal):
        return loop_body
    return (
        _refuse_idle(graph, members, loop_body)
        or _refuse_strided(graph, members, loop_body)
        or _refuse_repeated(graph, members, loop_body)
    )


def traced(graph: GroupGraph, members: list[Group]) -> LoopBody | Refusal:
    """The loop body of the members together; why there is none."""
    try:
        return trace(graph.results(members), dict.fromkeys(op for group in members for op in group.ops))
    except Unschedulable as reason:
        return Refusal(reason.code, str(reason))


def _refuse_idle(graph: GroupGraph, members: list[Group], loop_body: LoopBody) -> Refusal | None:
    """Refuses to run parallel work in so few rows that processors without one cost more time than is saved.

    Rows that are cut, with nothing stored that waits for what they come to, or one result whose memory has what is handed on
    until then, keep all of them at work."""
    device, rows = graph.device, extents.estimate(prod(loop_body.row_extents))
    if rows >= device.processors or _is_one_pass(loop_body, "split"):
        return None
    if _is_cut(graph, members, loop_body):
        return None
    columns = extents.estimate(prod(loop_body.column_extents))
    lost = 0.0
    for group in members:
        before = (
            device.processors if group.kind < FusionKind.REDUCTION else min(elements(graph, group), device.processors)
        )
        count = max(elements(graph, group), rows * columns if group.kind == FusionKind.REDUCTION else 0)
        moved = sum(map(graph.nbytes, (*group.inputs, *group.outputs)))
        alone = device.work_seconds(total_work(group) * count) + device.move_seconds(moved)
        lost += alone * max(device.processors / max(rows, 1) - device.processors / max(before, 1), 0)
    gain = estimate(graph, members, 0).seconds
    if lost <= gain:
        return None
    message = f"{rows} rows of {columns} elements would leave processors idle: {lost * 1e6:.3g} us lost to save {gain * 1e6:.3g}"
    return Refusal("parallelism", message, {"rows": rows, "columns": columns}, f"{device.processors} rows")


def _is_cut(graph: GroupGraph, members: list[Group], loop_body: LoopBody) -> bool:
    """Whether rows will be cut, with one result, which stays in the caches from one loop over its elements to the next."""
    stores = sum(not store.per_row for store in loop_body.stores)
    kept = sum(map(graph.nbytes, graph.results(members)))
    if graph.device.gpu or stores != 1 or 4 * kept > graph.device.cache_bytes:
        return False
    return choose_order(loop_body).kind == "split"


def _refuse_strided(graph: GroupGraph, members: list[Group], loop_body: LoopBody) -> Refusal | None:
    """Refuses to store whole rows whose elements do not lie side by side.

    Where many rows are reduced side by side and nothing stored waits for what they come to, that is on the way; but other
    reductions of what is stored may do with copies of what makes it. On a GPU neighbours are threads side by side, whatever
    waits."""
    if graph.device.gpu and choose_order(loop_body).kind == "column":
        return None
    if not _is_reduced_elsewhere(graph, members) and _is_one_pass(loop_body, "column"):
        return None
    inner = [dim for index in loop_body.columns for dim in index.dims()][-1:]
    for store in loop_body.stores:
        factors = store.address.coefficients()
        if not store.per_row and inner and (factors is None or factors.get(inner[0], 0) != 1):
            return Refusal(
                "strided-row",
                "the reduced axes are not the last ones; rows would be stored element by element",
                flip="a reduction over the last axes",
            )
    return None


def _is_reduced_elsewhere(graph: GroupGraph, members: list[Group]) -> bool:
    """Whether a result of the members goes into a reduction that is none of them."""
    users = [use.operation for value in graph.results(members) for use in value.uses]
    groups = [graph.group_of.get(graph.top(user)) for user in users]
    return any(g is not None and g not in members and g.kind == FusionKind.REDUCTION for g in groups)


def _is_one_pass(loop_body: LoopBody, kind: str) -> bool:
    """Whether a schedule of the kind will be taken, and no element that is stored depends on what its row comes to."""
    late: set[ScalarNode] = set()
    for node in loop_body.nodes:
        if (node.op is not None and node.op.COMBINE) or not late.isdisjoint(node.operands):
            late.add(node)
    waits = any(not store.per_row and store.node in late for store in loop_body.stores)
    return not waits and choose_order(loop_body).kind == kind


def _refuse_repeated(graph: GroupGraph, members: list[Group], loop_body: LoopBody) -> Refusal | None:
    """
    Refuses when a costly value would be computed anew in many rows, or in many windows, though it is the same in all, and is not
    so already in a member.
    """
    added = _repeated(graph, loop_body)
    if not isinstance(added, int) or not added:
        return None if isinstance(added, int) else added
    refusal = refuse_loss(graph, estimate(graph, members, added))
    if refusal is None or not any(group.merged or isinstance(op, KernelOp) for group in members for op in group.ops):
        return refusal
    bodies = [traced(graph, [group]) for group in members if group.kind == FusionKind.REDUCTION]
    known = [_repeated(graph, body) for body in bodies if not isinstance(body, Refusal)]
    already = sum(work for work in known if isinstance(work, int))
    return refuse_loss(graph, estimate(graph, members, max(added - already, 0)))


def _repeated(graph: GroupGraph, loop_body: LoopBody) -> int | Refusal:
    """Operations on values that are computed more often than they have elements; why that is out of the question."""
    rows = extents.estimate(prod(loop_body.row_extents))
    of_row = frozenset(dim for index in loop_body.rows for dim in index.dims())
    of_elements = added = 0
    known: dict[frozenset[Dim], int] = {}
    for node in loop_body.nodes:
        if node.op is None:
            continue
        if (columns := known.get(node.dims)) is None:
            columns = known[node.dims] = extents.estimate(prod(dim.extent for dim in node.dims - of_row))
        times, once = rows * columns, extents.estimate(prod(shape(node.value)))
        if times <= once:
            continue
        cost = work(node.op)
        if node.op.COMBINE:
            cost = (cost + 1) * extents.estimate(prod(node.op.reduced_extents()))
        added += cost * (times - once)
        if times <= 2 * once:
            continue
        if not node.op.COMBINE and columns > 1:
            of_elements += cost
        if (together := max(cost, of_elements)) > graph.device.recompute_limit:
            message = f"'{node.op.name}' would run {times} times instead of {once}"
            numbers: dict[str, float] = {"work": together, "times": times}
            return Refusal(
                "recompute", message, numbers, f"at most {graph.device.recompute_limit} operations to repeat"
            )
    return added


@dataclass(frozen=True)
class FuseRowPass(FusionPass):
    """Reductions, what they read and what reads them become kernels that finish one row before the next.

    ```mlir
    %m = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<8x4xf32>) -> tensor<8x1xf32>
    %r = graph.subtract %x, %m : (tensor<8x4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
    ```
    becomes one kernel: a row of `%x` is read once from memory. Softmax and layer norm, written out, are one kernel each.

    Ensures: every kernel is one pass over independent rows; limits and directives hold. Needs nothing.
    """

    name = "fuse-row"

    def rule(self) -> Rule:
        return RowRule()
