"""Rows that are shorter than a vector, several of them in one.

    x = 5 rows of 3 elements, which lie side by side        x0 x1 x2 | x3 x4 x5 | ...
    sums of them, in every lane of a row:                   x0 x0 x0 | x3 x3 x3 | ...
                                                          + x1 x1 x1 | x4 x4 x4 | ...
                                                          + x2 x2 x2 | x5 x5 x5 | ...

A loop for each row takes longer than what it does, and how long a row is only a call knows: so lanes are moved by variable
permutations, of which an element of each row goes to all lanes of its row. Everything else is done lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import IntegerType, UnitAttr, f32, i32
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.cpu.kernel import KernelLoops, kernel_block
from fuse_opt.lowering.cpu.stages.loop_parts import LoopParts
from fuse_opt.lowering.hints import REGISTER
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.row_stages import plan_kept_rows, plan_stages
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.vector_widths import WIDTH

FIRST, PUT, SPREAD = "fo_first_f32", "fo_put_first_f32", "fo_spread_f32"
PACKED_LENGTH = "fo_packed_length"
"""What gives the length up to which rows are packed by the machine that the text is compiled for, or 0."""
LONGEST = WIDTH // 2
"""Elements of a row of which a vector has two."""


def build_packed_loops(kernel: KernelOp, loop_body: LoopBody, storages: Sequence[Hashable]) -> KernelLoops | None:
    """The loops of a kernel for rows of at most `LONGEST` elements; None where it has others than f32, or they lie elsewhere."""
    nodes = KernelNodes(loop_body)
    rows = nodes.loop(loop_body.rows)
    row = Dim("row", extent(rows))
    nodes.flatten_rows(rows, row)
    columns = nodes.loop(loop_body.columns)
    nodes.finish()
    memory = KernelBuffers(kernel, [loop_body], storages)
    is_wide = memory.register_bits >= WIDTH * F32.bits
    if not is_wide or memory.nontemporal or len(columns) != 1 or not isinstance(columns[0].extent, Size):
        return None
    if not all(dims == columns for dims in (nodes.loop(p.loop) for p in loop_body.nodes if p.op and p.op.COMBINE)):
        return None
    if not _are_packed(nodes, row, columns[0]):
        return None
    root = Scope(None, kernel_block(memory))
    *buffers, begin, end = root.block.args
    PackedRows(nodes, memory, buffers, root, (row, columns[0])).build(begin, end)
    root.block.add_op(func.ReturnOp())
    sizes, limits = tuple(root.sizes), tuple(root.limits.items())
    return KernelLoops(root.block, tuple(memory.parameters), memory.shared, row.extent, 1, root.helpers, sizes, limits)


def _are_packed(nodes: KernelNodes, row: Dim, column: Dim) -> bool:
    """Whether all that is read and stored are f32 that lie side by side along rows, along columns, or in both."""
    body = nodes.loop_body
    known = {_pattern(nodes.addresses[node], row, column) for node in body.loads()}
    stored = {(one.per_row, _pattern(nodes.space.apply(one.address), row, column)) for one in body.stores}
    values = [node for node in body.nodes if node.op is None or node.op.COMBINE] + [one.node for one in body.stores]
    return (
        known <= {"both", "row", "column", "none"}
        and stored <= {(False, "both"), (True, "row")}
        and not any(positions for positions in nodes.positions.values())
        and all(dtype(node.value) is F32 for node in values)
        and any(node.op is not None and node.op.COMBINE for node in body.nodes)
    )


def _pattern(address: IndexExpr, row: Dim, column: Dim) -> str:
    if (factors := address.coefficients()) is None or not set(factors) <= {row, column}:
        return "others"
    found = factors.get(row, 0), factors.get(column, 0)
    names = {(column.extent, 1): "both", (1, 0): "row", (0, 1): "column", (0, 0): "none"}
    return names.get(found, "others")


class PackedRows(LoopParts):
    """The loop over groups of rows."""

    def __init__(
        self,
        nodes: KernelNodes,
        memory: KernelBuffers,
        arguments: Sequence[SSAValue],
        root: Scope,
        dims: tuple[Dim, Dim],
    ) -> None:
        super().__init__(nodes, memory, arguments, root)
        self.row, self.column = dims
        self.lane = Dim("lane", WIDTH)
        self.length = root.index_constant(self.column.extent)
        self.known: dict[ScalarNode, RowBuffer] = {}
        """What is in memory for each lane."""
        self.group, self.rows, self.count = root, self.length, self.length
        """The body of the loop, and how many rows and lanes a group has there."""

    def build(self, begin: SSAValue, end: SSAValue) -> None:
        root, constant = self.root, self.root.index_constant
        step = root.add(arith.DivSIOp(constant(WIDTH), self.length))
        step.name_hint = "rows"
        self.first = self._lanes_of("first", lambda scope, lane: self._times(scope, self._quotient(scope, lane)))
        columns = {node for node in self.loop_body.loads() if self._pattern_of(node) == "column"}
        for node in columns:
            self._take_first(node, root, self.length, "column")
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "row"
        self.group = Scope(root, block, {self.row: block.args[0], self.column: constant(0)})
        left = self.group.add(arith.SubiOp(end, block.args[0]))
        self.rows = self.group.add(arith.MinSIOp(left, step))
        self.count = self.group.add(arith.MuliOp(self.rows, self.length))
        self.count.name_hint = "count"
        for node in self.loop_body.loads():
            if (pattern := self._pattern_of(node)) in ("both", "row"):
                self._take_first(node, self.group, self.count if pattern == "both" else self.rows, pattern)
        self._build_stages()
        block.add_op(scf.YieldOp())
        root.block.add_op(scf.ForOp(begin, end, step, [], Region(block)))

    def _build_stages(self) -> None:
        whole = [store for store in self.loop_body.stores if not store.per_row]
        once = [store for store in self.loop_body.stores if store.per_row]
        stages = plan_stages(self.nodes, whole, (self.column,), True)
        for kept in plan_kept_rows(self.nodes, stages):
            if dtype(kept.node.value) is F32:
                buffer = kept.source.left[kept.node] = self._buffer("kept")
                for reader in kept.readers:
                    reader.taken[kept.node] = buffer
        for stage in [*stages, *([Stage((), stores=once)] if once else [])]:
            self._build_stage(stage)

    def _build_stage(self, stage: Stage) -> None:
        stage.taken.update(self.known)
        scope = self._open_lanes(self.group)
        self.emitter.emit(stage.roots(), scope, stage)
        elements = [self.emitter.reduced_element(node, scope) for node in stage.reductions]
        values = [*elements, *(self.emitter.stored_value(store.node, scope) for store in stage.stores)]
        buffers = [self._buffer("values") for _ in values]
        for value, buffer in zip(values, buffers, strict=True):
            scope.block.add_op(memref.StoreOp.get(value, buffer.memory, [scope.index(buffer.position)]))
        self._close_lanes(scope)
        reduced = len(stage.reductions)
        for node, buffer in zip(stage.reductions, buffers[:reduced], strict=True):
            self.known[node] = self._reduce(node, buffer)
        for store, buffer in zip(stage.stores, buffers[reduced:], strict=True):
            self._put(store, buffer)

    def _reduce(self, node: ScalarNode, elements: RowBuffer) -> RowBuffer:
        """What the lanes of each row come to, in all of them."""
        found, each = self._buffer("lanes", register=True), self._buffer("each")
        scope = self._open_lanes(self.group)
        scope.block.add_op(memref.StoreOp.get(self.initial(node), found.memory, [scope.index(found.position)]))
        self._close_lanes(scope)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "column"
        inner = Scope(self.group, block)
        self._spread(inner, elements, self.first, block.args[0], each)
        scope = self._open_lanes(inner)
        place = [scope.index(found.position)]
        known, other = (scope.add(memref.LoadOp.get(one.memory, place)) for one in (found, each))
        scope.block.add_op(memref.StoreOp.get(self.combine(scope, node, known, other), found.memory, place))
        self._close_lanes(scope)
        block.add_op(scf.YieldOp())
        constant = self.root.index_constant
        self.group.block.add_op(scf.ForOp(constant(0), self.length, constant(1), [], Region(block)))
        return found

    def _put(self, store: Store, values: RowBuffer) -> None:
        memory = self.arguments[self.memory.targets[store.result]]
        count = self.count
        if store.per_row:
            starts = self._lanes_of("starts", self._times)
            spread, count = self._buffer("values"), self.rows
            self._spread(self.group, values, starts, self.root.index_constant(0), spread)
            values = spread
        address = self.group.index(self.nodes.space.apply(store.address))
        given = [flat_memory(self.root, values.memory), flat_memory(self.root, memory), address, count]
        self.group.call_for_effect(PUT, given)

    def _take_first(self, node: ScalarNode, scope: Scope, count: SSAValue, pattern: str) -> None:
        """Loads so many neighbours, and moves them to the lanes of their rows or columns."""
        buffer = self._buffer("lanes")
        address = self.nodes.addresses[node]
        place = Scope(scope, scope.block, {self.column: self.root.index_constant(0)}) if scope is self.root else scope
        given = [flat_memory(self.root, self.emitter.buffers[node.value]), place.index(address), count]
        scope.call_for_effect(FIRST, [*given, flat_memory(self.root, buffer.memory)])
        if pattern != "both":
            of_row = pattern == "row"
            lanes = self._lanes_of(pattern, self._quotient if of_row else self._remainder)
            spread = self._buffer("lanes")
            self._spread(scope, buffer, lanes, self.root.index_constant(0), spread)
            buffer = spread
        self.known[node] = buffer

    def _spread(self, scope: Scope, source: RowBuffer, lanes: SSAValue, step: SSAValue, target: RowBuffer) -> None:
        memory = [flat_memory(self.root, each) for each in (source.memory, lanes, target.memory)]
        scope.call_for_effect(SPREAD, [memory[0], memory[1], step, memory[2]])

    def _pattern_of(self, node: ScalarNode) -> str:
        return _pattern(self.nodes.addresses[node], self.row, self.column)

    def _lanes_of(self, name: str, number: Callable[[Scope, SSAValue], SSAValue]) -> SSAValue:
        """Numbers of lanes, in memory that is filled once."""
        key = ("lanes", name)
        if (found := self.root.values.get(key)) is None:
            alloca = memref.AllocaOp.get(i32, 64, [WIDTH])
            found = self.root.values[key] = self.root.add(alloca)
            found.name_hint = name
            scope = self._open_lanes(self.root)
            lane = scope.dim_value(self.lane)
            value = scope.add(arith.IndexCastOp(number(scope, lane), IntegerType(32)))
            scope.block.add_op(memref.StoreOp.get(value, found, [lane]))
            self._close_lanes(scope)
        return found

    def _quotient(self, scope: Scope, lane: SSAValue) -> SSAValue:
        return scope.add(arith.DivSIOp(lane, self.length))

    def _remainder(self, scope: Scope, lane: SSAValue) -> SSAValue:
        return scope.add(arith.RemSIOp(lane, self.length))

    def _times(self, scope: Scope, number: SSAValue) -> SSAValue:
        return scope.add(arith.MuliOp(number, self.length))

    def _buffer(self, name: str, register: bool = False) -> RowBuffer:
        alloca = memref.AllocaOp.get(f32, 64, [WIDTH])
        if register:
            alloca.attributes[REGISTER] = UnitAttr()
        memory = self.root.add(alloca)
        memory.name_hint = name
        return RowBuffer(memory, as_expr(self.lane))

    def _open_lanes(self, parent: Scope) -> Scope:
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        return Scope(parent, block, {self.lane: block.args[0]})

    def _close_lanes(self, scope: Scope) -> None:
        assert scope.parent is not None
        scope.block.add_op(scf.ReduceOp())
        constant = self.root.index_constant
        scope.parent.block.add_op(self.parallel(scope.block, constant(0), constant(WIDTH)))
