"""What loops of one pass are made of: what varies in them, what reductions start from and join, and what is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode, Store
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import ElementEmitter, KernelNodes, Stage, body_cost
from fuse_opt.lowering.kernel.nan_analysis import extrema_without_nan
from fuse_opt.lowering.kernel.scalar_to_arith import emit_combine
from fuse_opt.lowering.kernel.scope import Scope

Range = tuple[SSAValue, SSAValue]
Bounds = Mapping[Dim, tuple[SSAValue, SSAValue]]
"""By dimension: its first value and the one after the last, where these are not 0 and the extent."""


class LoopParts:
    """The function whose outermost scope is `root`, which loops of one pass are put into."""

    def __init__(self, nodes: KernelNodes, memory: KernelBuffers, arguments: Sequence[SSAValue], root: Scope) -> None:
        self.nodes = nodes
        self.loop_body = nodes.loop_body
        self.memory = memory
        self.arguments = arguments
        self.root = root
        self.emitter = ElementEmitter(nodes, {v: arguments[number] for v, number in memory.sources.items()})
        self.without_nan = extrema_without_nan(nodes.loop_body)
        self.rows_have_room = False
        """Whether rows whose extents are sizes lie in memory of the function's own, with room for whole vectors."""

    def loads_arrays(self, stage: Stage, own: Collection[ScalarNode] = ()) -> bool:
        """Whether an iteration reads more than memory of the function's own, or keeps something elsewhere."""
        rows = [row.memory for row in (*stage.taken.values(), *stage.left.values())]
        known = (node for node in self.nodes_of(stage) if node not in own)
        loads = any(node.op is None and node not in stage.taken for node in known)
        return loads or any(memory in self.arguments for memory in rows)

    def stage_work(self, stage: Stage) -> int:
        """Simple operations for an element of the stage."""
        work = len(stage.stores) + len(stage.reductions) + len(stage.left)
        for node in self.nodes_of(stage):
            work += 1 if node in stage.taken or node.op is None else body_cost(node.op)
        return work

    def nodes_of(self, stage: Stage) -> list[ScalarNode]:
        """What varies in the stage's loops, down to what is loaded."""
        found: dict[ScalarNode, None] = {}
        stack = stage.roots()
        while stack:
            node = stack.pop()
            if node in found or not self.nodes.varies(node, stage.dims):
                continue
            found[node] = None
            if node not in stage.taken and node.op is not None:
                stack.extend(node.operands)
        return list(found)

    def initial(self, node: ScalarNode) -> SSAValue:
        """What a reduction starts from, which is neutral to it."""
        assert node.op is not None
        return self.root.constant(node.op.initial(), node.op.body().dtype)

    def combine(self, scope: Scope, node: ScalarNode, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Two values of a reduction joined."""
        assert node.op is not None
        if node in self.without_nan:
            return self.further(scope, node, lhs, rhs)
        return emit_combine(scope, node.op.COMBINE, node.op.body().dtype, lhs, rhs)

    def further(self, scope: Scope, node: ScalarNode, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """The greater or lesser of two floats, of two zeros the first; `lhs` where either is NaN."""
        assert node.op is not None
        is_further = arith.CmpfOp(rhs, lhs, "ogt" if node.op.COMBINE == "max" else "olt")
        return scope.add(arith.SelectOp(scope.add(is_further), rhs, lhs))

    def store(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:
            address = self.nodes.space.apply(store.address)
            self.emitter.store(store.node, self.arguments[self.memory.targets[store.result]], address, scope)

    def name(self, values: Sequence[SSAValue], dim: Dim | None, stage: Stage) -> None:
        hints = [node.value.name_hint for node in stage.reductions]
        for value, hint in zip(values, hints if dim is None else [loop_name(dim), *hints], strict=False):
            value.name_hint = hint

    def bounds_of(self, dim: Dim, bounds: Bounds) -> Range:
        """First value and the one after the last."""
        return bounds.get(dim) or (self.root.index_constant(0), self.root.index_constant(dim.extent))

    def parallel(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = ()
    ) -> scf.ParallelOp:
        return scf.ParallelOp([lower], [upper], [self.root.index_constant(1)], Region(block), start)

    def loop(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = (), step: int = 1
    ) -> scf.ForOp:
        return scf.ForOp(lower, upper, self.root.index_constant(step), list(start), Region(block))


def loop_name(dim: Dim) -> str:
    return {"i": "i", "r": "row", "c": "column"}.get(dim.name[:1], "i")
