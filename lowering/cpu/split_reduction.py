"""Kernels of several launches: partial results in scratch memory, which later launches join in an order of their own.

How many partial results there are depends on the kernel alone, and each is made by one task. So the result is the same
for every number of threads, and however tasks are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import Knob
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant, dimension
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.kernel import KernelLoops, sized_work
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers, Parameter, Scratch
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import Fixed
from fuse_opt.lowering.kernel.row_stages import early_stores, plan_stages
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope

MOST = 4096
"""Parts of a row, or rows of a block; more would ask for much memory."""
AT_A_TIME = 8
"""Partial results of a row that are joined at a time: rounding errors grow with how many times that is."""
_ALIGNMENT = 64


@dataclass(eq=False)
class Partials:
    """The partial results of one reduction: `splits` times one of each row; the first of a row becomes the result."""

    node: ScalarNode
    splits: int
    rows: int
    scratch: Scratch

    @property
    def position(self) -> IndexExpr:
        """Where the partial result of dimension `split` for dimension `row` is."""
        return dimension("split", self.splits) * self.rows + dimension("row", self.rows)


class PhasedKernel:
    """What the launches of one kernel share."""

    def __init__(self, kernel: KernelOp, loop_body: LoopBody, storages: Sequence[Hashable]) -> None:
        self.kernel = kernel
        self.loop_body = loop_body
        self.memory = KernelBuffers(kernel, [loop_body], storages)
        self.partials: dict[ScalarNode, Partials] = {}
        self.phases: list[KernelLoops] = []
        self._bytes = 0

    def entry(self, knob: Knob) -> int | None:
        """A number that the kernel's schedule gives, as far as it is sensible."""
        found = knob.count(self.kernel)
        return None if found is None else min(found, MOST)

    def stages(self, nodes: KernelNodes) -> list[Stage]:
        """The stages of a row, and of all rows."""
        whole = [store for store in self.loop_body.stores if not store.per_row]
        return plan_stages(
            nodes, whole, nodes.loop(self.loop_body.columns), self.memory.in_place(self.loop_body, whole)
        )

    def once(self) -> list[Store]:
        return [store for store in self.loop_body.stores if store.per_row]

    def reads_early(self, nodes: KernelNodes, stages: Sequence[Stage]) -> list[ScalarNode]:
        """What is stored once for a row and must be read before the last stage, as that may overwrite it."""
        if not stages or not stages[-1].stores or not self.memory.in_place(self.loop_body, stages[-1].stores):
            return []
        return early_stores(nodes, self.once(), stages[-1])

    def add_partials(self, node: ScalarNode, splits: int, rows: int) -> Partials:
        kind = MemRefType(value_type(dtype(node.value)), [splits * rows])
        scratch = Scratch(self._bytes, kind, node.value.name_hint)
        size = splits * rows * dtype(node.value).compute.itemsize
        self._bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        found = self.partials[node] = Partials(node, splits, rows, scratch)
        return found

    def finish(self, phase: Phase, tasks: Extent, work: Extent) -> None:
        """Adds a launch of so many tasks, each of so many simple operations; buffers that it does not use are left out."""
        block = phase.root.block
        block.add_op(func.ReturnOp())
        kept: list[int] = []
        for number in range(len(phase.parameters)):
            argument = block.args[len(kept)]
            if argument.first_use is None:
                block.erase_arg(argument)
            else:
                kept.append(number)
        shared = frozenset(place for place, number in enumerate(kept) if number in self.memory.shared)
        parameters = tuple(phase.parameters[number] for number in kept)
        grain = -(-self.memory.chunk // max(estimate(work), 1))
        known = tuple(phase.root.sizes), tuple(phase.root.limits.items())
        loops = KernelLoops(block, parameters, shared, tasks, grain, phase.root.helpers, *known)
        self.phases.append(replace(loops, work=sized_work(work, self.memory.chunk)))


class Phase(StageLoops):
    """One launch under construction."""

    def __init__(self, kernel: PhasedKernel, nodes: KernelNodes) -> None:
        memory = kernel.memory
        scratch = [partials.scratch for partials in kernel.partials.values()]
        self.parameters = [*memory.parameters, *(Parameter(None, None, each) for each in scratch)]
        types: list[Attribute] = [*memory.types, *(each.type for each in scratch), INDEX, INDEX]
        block = Block(arg_types=types)
        names = [*memory.hints, *(f"{each.name or 'value'}_parts" for each in scratch), "begin", "end"]
        for argument, name in zip(block.args, names, strict=True):
            argument.name_hint = name
        *arguments, self.begin, self.end = block.args
        super().__init__(nodes, memory, arguments[: len(memory.types)], Scope(None, block))
        self.kernel = kernel
        self.parts = dict(zip(kernel.partials, arguments[len(memory.types) :], strict=True))

    def finals(self, row: IndexExpr) -> dict[ScalarNode, RowBuffer]:
        """Where the results of reductions that were joined before are, for a row."""
        return {node: RowBuffer(memory, row) for node, memory in self.parts.items()}

    def tree(self, scope: Scope, node: ScalarNode, values: Sequence[SSAValue]) -> SSAValue:
        """All of the values joined, neighbours first."""
        return in_pairs(values, partial(self.combine, scope, node))


def in_pairs(values: Sequence[SSAValue], join: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
    """All of the values joined, neighbours first."""
    waiting = list(values)
    while len(waiting) > 1:
        joined = [join(*pair) for pair in zip(waiting[::2], waiting[1::2], strict=False)]
        waiting = joined + waiting[2 * len(joined) :]
    return waiting[0]


def build_join(
    kernel: PhasedKernel,
    joined: Sequence[ScalarNode],
    stores: Sequence[Store],
    join: Callable[[Phase], None] | None = None,
) -> None:
    """The launch that joins the partial results of each row, by `join` where that is given, and stores what is once for a
    row."""
    narrow = [node for node in joined if dtype(node.value).compute is not dtype(node.value)]
    if not stores and not narrow and all(kernel.partials[node].splits < 2 for node in joined):
        return
    nodes = KernelNodes(kernel.loop_body)
    dims = nodes.loop(kernel.loop_body.rows)
    row = Dim("row", extent(dims))
    nodes.flatten_rows(dims, row)
    nodes.finish()
    phase = Phase(kernel, nodes)
    if join is not None:
        join(phase)
    else:
        for node in joined:
            _add_up(phase, kernel.partials[node], row)
    if stores or narrow:
        _settle(phase, row, joined, stores)
    kernel.finish(phase, row.extent, sum(kernel.partials[node].splits for node in joined) + 4 * len(stores))


def _add_up(phase: Phase, partials: Partials, row: Dim) -> None:
    """Joins the partial results, some neighbours at a time, all rows at a time."""
    splits = partials.splits
    if splits < 2:
        return
    whole = splits // AT_A_TIME * AT_A_TIME
    _join_parts(phase, partials, row, phase.root, list(map(constant, range(min(splits, AT_A_TIME)))))
    if whole > AT_A_TIME:
        first = Dim("split_first", splits)
        outer = _loop_scope(phase.root, first, "split")
        places = [as_expr(first) + number for number in range(AT_A_TIME)]
        _join_parts(phase, partials, row, outer, places, further=True)
        outer.block.add_op(scf.YieldOp())
        bounds = phase.root.index_constant(AT_A_TIME), phase.root.index_constant(whole)
        phase.root.block.add_op(phase.loop(outer.block, *bounds, step=AT_A_TIME))
    if 0 < whole < splits:
        _join_parts(phase, partials, row, phase.root, list(map(constant, range(whole, splits))), further=True)


def _join_parts(
    phase: Phase, partials: Partials, row: Dim, outer: Scope, places: Sequence[IndexExpr], *, further: bool = False
) -> None:
    """Joins these parts of each row, neighbours first; `further`: with what others before them came to."""
    inner = _loop_scope(outer, row, "row")
    memory, home = phase.parts[partials.node], inner.index(as_expr(row))
    split = Dim("split", partials.splits)
    positions = [Fixed(inner, {split: place}).index(partials.position) for place in places]
    values = [inner.add(memref.LoadOp.get(memory, [position])) for position in positions]
    joined = phase.tree(inner, partials.node, values)
    if further:
        joined = phase.combine(inner, partials.node, inner.add(memref.LoadOp.get(memory, [home])), joined)
    inner.block.add_op(memref.StoreOp.get(joined, memory, [home]))
    inner.block.add_op(scf.ReduceOp())
    outer.block.add_op(phase.parallel(inner.block, phase.begin, phase.end))


def _settle(phase: Phase, row: Dim, joined: Sequence[ScalarNode], stores: Sequence[Store]) -> None:
    """Rounds what was joined as the IR says, and stores what is once for a row."""
    scope = _loop_scope(phase.root, row, "row")
    finals = phase.finals(as_expr(row))
    for node in joined:
        home = finals.pop(node)
        value = scope.add(memref.LoadOp.get(home.memory, [scope.index(home.position)]))
        phase.emitter.define(node, value, scope)
        if scope.values[node] is not value:
            scope.block.add_op(memref.StoreOp.get(scope.values[node], home.memory, [scope.index(home.position)]))
    phase.emitter.emit([store.node for store in stores], scope, Stage((), taken=finals))
    phase.store(stores, scope)
    scope.block.add_op(scf.ReduceOp())
    phase.root.block.add_op(phase.parallel(scope.block, phase.begin, phase.end))


def _loop_scope(parent: Scope, dim: Dim, name: str) -> Scope:
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = name
    return Scope(parent, block, {dim: block.args[0]})
