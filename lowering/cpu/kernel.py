"""A kernel as a function of loops over flat buffers: its tasks `[begin, end)` are rows, or elements of a pointwise kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, Store
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype, may_rows_be_long
from fuse_opt.dialects.types.extents import estimate, may_exceed, most
from fuse_opt.dialects.types.index_expr import Dim, constant
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.lowering.cpu.deferred_rows import DeferredRows
from fuse_opt.lowering.cpu.prefetch import asking_stage, prefetch_next_row
from fuse_opt.lowering.hints import LIMITS, PADDED, WORK
from fuse_opt.lowering.kernel.buffers import KernelBuffers, Parameter, Scratch
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import SHORTEST_SPLIT, extent
from fuse_opt.lowering.kernel.loop_splitting import Fixed, outside_caches, part_bounds, part_length, task_parts
from fuse_opt.lowering.kernel.row_stages import (
    LARGEST_ROW,
    KeepRules,
    KeptRow,
    early_stores,
    move_store,
    plan_lent_rows,
    plan_stages,
)
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.nontemporal_stores import FEWEST, WIDTH
from fuse_opt.lowering.loops.vector_widths import WIDTH as LAST_VECTOR
from fuse_opt.lowering.loops.vector_widths import padded

FEWEST_TASKS = 32
"""Tasks below which long rows of elements are cut."""
SHORTEST_LOOP = 8
"""Elements; a shorter innermost dimension is written out, and one of so many bytes, for which there are no vectors."""
MOST_WRITTEN_OUT = 400
"""Simple operations of an iteration that is written out."""
IN_REGISTERS = 128
"""Elements up to which loops over a row are written out by compilers, which keep it in registers then."""
CHUNK_MULTIPLE = 64
"""Elements; chunks of a pointwise loop begin at multiples, so that no two threads write one cache line."""


@dataclass(frozen=True, slots=True)
class KernelLoops:
    """A kernel's function with what a caller needs: which buffers, how many tasks, how many make a chunk."""

    body: Block
    parameters: tuple[Parameter, ...]
    shared: frozenset[int]
    """Parameters whose memory another one has, too."""
    tasks: Extent
    grain: int
    helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]
    sizes: tuple[Size, ...] = ()
    """What the function takes between its buffers and the bounds of its tasks."""
    limits: tuple[tuple[Size, int], ...] = ()
    """Sizes with the largest numbers that the function has room for."""
    work: tuple[Size, int] | None = None
    """Simple operations of a task, where only a call knows how many, and how many are worth a thread."""

    def size_arguments(self) -> dict[SSAValue, Size]:
        """The arguments that are sizes."""
        *given, _, _ = self.body.args
        return dict(zip(given[len(given) - len(self.sizes) :], self.sizes, strict=True))


def build_kernel_loops(kernel: KernelOp, loop_body: LoopBody, storages: Sequence[Hashable]) -> KernelLoops:
    """The loops of a kernel; `storages` name the memory of each operand and result: equal ones are one buffer."""
    memory = KernelBuffers(kernel, [loop_body], storages)
    root = Scope(None, kernel_block(memory))
    *buffers, begin, end = root.block.args
    loops = PassLoops(loop_body, memory, buffers, root, (begin, end))
    root.block.add_op(func.ReturnOp())
    parameters, sizes = tuple(memory.parameters), tuple(root.sizes)
    limits = tuple(root.limits.items())
    made = KernelLoops(root.block, parameters, memory.shared, loops.tasks, loops.grain, root.helpers, sizes, limits)
    return replace(made, work=sized_work(loops.work, memory.chunk))


def sized_work(work: Extent, chunk: int) -> tuple[Size, int] | None:
    return (work, chunk) if isinstance(work, Size) else None


def kernel_block(memory: KernelBuffers) -> Block:
    """An empty block that takes the buffers, and the first task and the one after the last."""
    block = Block(arg_types=[*memory.types, INDEX, INDEX])
    for argument, hint in zip(block.args, [*memory.hints, "begin", "end"], strict=True):
        argument.name_hint = hint
    return block


def launch_of(root: Scope, memory: KernelBuffers, scratch: Sequence[Scratch], tasks: Extent, grain: int) -> KernelLoops:
    """A whole function as one of several launches of a kernel, without the buffers that it does not use."""
    block = root.block
    block.add_op(func.ReturnOp())
    parameters = [*memory.parameters, *(Parameter(None, None, each) for each in scratch)]
    kept = [number for number in range(len(parameters)) if block.args[number].first_use is not None]
    for argument in [block.args[number] for number in range(len(parameters)) if number not in kept]:
        block.erase_arg(argument)
    shared = frozenset(place for place, number in enumerate(kept) if number in memory.shared)
    known = tuple(root.sizes), tuple(root.limits.items())
    return KernelLoops(block, tuple(parameters[n] for n in kept), shared, tasks, grain, root.helpers, *known)


def launch_root(memory: KernelBuffers, scratch: Sequence[Scratch]) -> tuple[Scope, Sequence[SSAValue]]:
    """The outermost scope of one of several launches, and its buffers of scratch memory."""
    block = kernel_block(memory)
    for number, each in enumerate(scratch):
        argument = block.insert_arg(each.type, len(memory.types) + number)
        argument.name_hint = each.name
    return Scope(None, block), block.args[len(memory.types) : len(memory.types) + len(scratch)]


def _element_work(loop_body: LoopBody) -> int:
    """Simple operations of an element of a pointwise kernel."""
    return sum(body_cost(node.op) if node.op else 1 for node in loop_body.nodes) + len(loop_body.stores)


def _longest_written_out(loop_body: LoopBody) -> int:
    """Elements of an innermost dimension up to which it is written out."""
    widest = max((dtype(node.value).itemsize for node in loop_body.nodes), default=1)
    longest = SHORTEST_LOOP - 1 if widest > 1 else SHORTEST_LOOP
    return min(longest, MOST_WRITTEN_OUT // max(_element_work(loop_body), 1))


def _shortest_split(loop_body: LoopBody) -> int:
    """The least number of elements of an innermost loop that a dimension is split for: of any where all are written out."""
    written_out = not loop_body.is_row and _longest_written_out(loop_body) >= SHORTEST_LOOP - 1
    return 2 if written_out else SHORTEST_SPLIT


class PassLoops(DeferredRows):
    """The loops of one pass, put into a scope that is its outermost, for the tasks within the bounds."""

    def __init__(
        self,
        loop_body: LoopBody,
        memory: KernelBuffers,
        arguments: Sequence[SSAValue],
        root: Scope,
        bounds: tuple[SSAValue, SSAValue],
    ) -> None:
        super().__init__(KernelNodes(loop_body, _shortest_split(loop_body)), memory, arguments, root)
        self.tasks: Extent = 1
        self.nested = True
        self.begin, self.end = bounds
        self._asks: tuple[Stage, Sequence[Stage], Dim] | None = None
        """The stage that asks for the next row, those of which it asks for what they take, and what counts rows."""
        self.work: Extent = self._build_rows() if loop_body.is_row else self._build_pointwise()
        """Simple operations of a task."""

    @property
    def grain(self) -> int:
        """How many tasks make a chunk."""
        multiple = 1 if self.nested else CHUNK_MULTIPLE
        grain = -(-self.memory.chunk // max(estimate(self.work), 1))
        return -(-grain // multiple) * multiple

    def _build_pointwise(self) -> Extent:
        """Merged dimensions but the innermost make the tasks; a lone dimension is cut into tasks itself."""
        nodes, loop_body = self.nodes, self.loop_body
        dims = nodes.loop(loop_body.rows)
        work = _element_work(loop_body)
        if len(dims) <= 1:
            nodes.finish()
            self.tasks = extent(dims)
            self.nested = False
            counted = dims[0] if dims else Dim("i", 1)
            stage = Stage((counted,), stores=list(loop_body.stores))
            self.build_stage(stage, self.root, {counted: (self.begin, self.end)})
            return work
        *outer, inner = dims
        if not may_exceed(inner.extent, _longest_written_out(loop_body)):
            return self._build_written_out(outer, inner) * work
        rows = extent(outer)
        part = inner.extent
        if not isinstance(part, Size):
            splits = min(-(-FEWEST_TASKS // max(estimate(rows), 1)), part * work // self.memory.chunk)
            part = part_length(part, splits, 64)
        blocks = -(-inner.extent // part)
        task = Dim("row", rows)
        nodes.flatten_rows(outer, task)
        nodes.finish()
        self.tasks = rows * blocks
        scope = self._open_tasks(task)
        digits = task_parts(scope, self.root, scope.indices[task], (rows, blocks))
        scope.indices = {task: digits[0]}
        bounds = {inner: part_bounds(scope, digits[1], part, inner.extent)}
        self.build_stage(Stage((inner,), stores=list(loop_body.stores)), scope, bounds)
        self._close_tasks(scope)
        return work * (part if isinstance(part, Size) else min(part, estimate(inner.extent)))

    def _build_written_out(self, outer: Sequence[Dim], inner: Dim) -> Extent:
        """The elements of a short innermost dimension one by one, in a loop over the next; gives the elements of a task."""
        nodes, stores = self.nodes, list(self.loop_body.stores)
        *rest, middle = outer
        task = Dim("row", extent(rest))
        if rest:
            nodes.flatten_rows(rest, task)
        nodes.finish()
        scope = self._open_tasks(task) if rest else self.root
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "i"
        body = Scope(scope, block, {middle: block.args[0]})
        copies = [Fixed(body, {inner: constant(value)}) for value in range(inner.extent)]
        for copy in copies:
            self.emitter.emit([store.node for store in stores], copy)
        for copy in copies:
            self.store(stores, copy)
        block.add_op(scf.ReduceOp())
        if not rest:
            self.tasks, self.nested = middle.extent, False
            self.root.block.add_op(self.parallel(block, self.begin, self.end))
            return inner.extent
        self.tasks = task.extent
        scope.block.add_op(self.parallel(block, *self.bounds_of(middle, {})))
        self._close_tasks(scope)
        return inner.extent * middle.extent

    def _build_rows(self) -> Extent:
        """A task is one row: loops in order, then what is stored once for the row."""
        nodes, loop_body = self.nodes, self.loop_body
        rows = nodes.loop(loop_body.rows)
        self.tasks = extent(rows)
        task = Dim("row", self.tasks)
        nodes.flatten_rows(rows, task)
        columns = nodes.loop(loop_body.columns)
        nodes.finish()
        self.rows_have_room = True
        whole = [store for store in loop_body.stores if not store.per_row]
        once = [store for store in loop_body.stores if store.per_row]
        late = self.memory.in_place(loop_body, whole) or self._streams(whole, columns)
        stages = plan_stages(nodes, whole, columns, late)
        self._keep_rows(stages, late)
        overlap = not self.memory.nontemporal and self.overlaps(stages, self.memory.overlap)
        if self.memory.next_row != "left" and (asking := asking_stage(self, stages, overlap)) is not None:
            self._asks = asking, [stage for stage in stages if stage.dims == asking.dims], task
        # whatever the schedule says of rows and stores, which leave bits as they are
        self.waits_for_memory = outside_caches(loop_body) and not self.overlaps(stages, "modelled")
        bounds, host = (self.begin, self.end), self.host(stages) if self.memory.deferred else None
        if host is not None:
            self.build_deferred(task, bounds, stages, once, host)
        elif overlap:
            self.build_pipelined(task, bounds, stages, once)
        else:
            self._build_stages(task, stages, once)
        loops = sum(extent(stage.dims) * self.stage_work(stage) for stage in stages)
        return loops + sum(body_cost(node.op) for node in loop_body.nodes if node.op and not node.op.COMBINE)

    def ask_ahead(self, stage: Stage, scope: Scope, first: Dim, count: int) -> None:
        if self._asks is not None and stage is self._asks[0]:
            _, stages, row = self._asks
            prefetch_next_row(self, stages, scope, (row, stage.dims[-1], first), count)

    def _keep_rows(self, stages: list[Stage], late: bool) -> None:
        """Chooses what stages hand on in rows: in those of results, or in memory of the function's own."""
        lends, lent = not self.memory.nontemporal, self.memory.lent
        rules = KeepRules(long_rows=may_rows_be_long(), lends=lends, lent=lent)
        found, lenders = plan_lent_rows(self.nodes, stages, rules, not late)
        for kept in found:
            is_apart = self._is_apart(kept)
            row = None if late or (is_apart and not self._is_stored_early(kept)) else self._row_of_result(kept, stages)
            if row is None or is_apart:
                row = self._result_row(lenders[kept]) if kept in lenders else self._row_buffer(kept)
                kept.source.left[kept.node] = row
            for reader in kept.readers:
                reader.taken[kept.node] = row

    def _build_stages(self, task: Dim, stages: Sequence[Stage], once: Sequence[Store]) -> None:
        scope = self._open_tasks(task)
        for stage in stages:
            if stage is stages[-1]:
                self.emitter.emit(early_stores(self.nodes, once, stage), scope)
            self.build_stage(stage, scope)
        self.emitter.emit([store.node for store in once], scope)
        self.store(once, scope)
        self._close_tasks(scope)

    def _streams(self, stores: Sequence[Store], columns: Sequence[Dim]) -> bool:
        """Whether a row of the results goes past the caches, in a loop of its own that finds its operands in them."""
        if not self.memory.nontemporal or not columns or columns[-1].extent < FEWEST * WIDTH:
            return False
        return extent(columns) * max((dtype(store.node.value).itemsize for store in stores), default=1) <= LARGEST_ROW

    def _row_buffer(self, kept: KeptRow) -> RowBuffer:
        element, count = dtype(kept.node.value), cast("Extent", extent(kept.dims))
        capacity, limit = most(count), LARGEST_ROW // element.compute.itemsize
        is_limited = isinstance(count, Size) and capacity > limit
        if isinstance(count, Size) and is_limited:
            capacity = self.root.limits[count] = limit
        beside = LAST_VECTOR - 1 if isinstance(count, Size) else 0  # a last vector begins at any element
        alloca = memref.AllocaOp.get(value_type(element), 64, [padded(capacity + beside)])
        if isinstance(count, Size):
            alloca.attributes[PADDED] = UnitAttr()
        memory = self.root.add(alloca)
        memory.name_hint = f"{kept.node.value.name_hint or 'kept'}_row"
        return RowBuffer(memory, kept.position)

    def _is_apart(self, kept: KeptRow) -> bool:
        """Whether a row is too short to be read back from a result, as it ends within a vector: a load of a whole one waits for
        stores of less, and a masked load for any."""
        count = extent(kept.dims)
        if isinstance(count, Size) or count % LAST_VECTOR == 0:
            return False
        return count * dtype(kept.node.value).compute.itemsize < self.memory.lent

    def _is_stored_early(self, kept: KeptRow) -> bool:
        """
        Whether a row that is not read back from a result is stored there where it is computed all the same, next to loads, not
        beside the other results, unless compilers keep the whole row in registers.
        """
        return extent(kept.dims) > IN_REGISTERS and not self.memory.nontemporal

    def _row_of_result(self, kept: KeptRow, stages: Sequence[Stage]) -> RowBuffer | None:
        """The row of a result that the kept scalar is stored to anyway."""
        store = move_store(self.nodes, kept, stages)
        if store is None:
            return None
        return self._result_row(store)

    def _result_row(self, store: Store) -> RowBuffer:
        return RowBuffer(self.arguments[self.memory.targets[store.result]], self.nodes.space.apply(store.address))

    def _open_tasks(self, task: Dim) -> Scope:
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = task.name
        return Scope(self.root, block, {task: block.args[0]})

    def _close_tasks(self, scope: Scope) -> None:
        scope.block.add_op(scf.YieldOp())
        self.root.block.add_op(self.loop(scope.block, self.begin, self.end))


def kernel_function(name: str, loops: KernelLoops, comment: str) -> func.FuncOp:
    """The function of a kernel: private, with what a launcher must know as attributes."""
    arguments: tuple[BlockArgument, ...] = tuple(loops.body.args)
    attributes = None
    if loops.shared:
        alias = DictionaryAttr({"fused.alias": UnitAttr()})
        attributes = ArrayAttr(alias if k in loops.shared else DictionaryAttr({}) for k in range(len(arguments)))
    function = func.FuncOp(name, ([a.type for a in arguments], []), Region(loops.body), "private", arg_attrs=attributes)
    function.attributes["fused.comment"] = StringAttr(comment)
    tasks = loops.tasks
    function.attributes["fused.tasks"] = SizeAttr(tasks) if isinstance(tasks, Size) else IntegerAttr(tasks, i64)
    function.attributes["fused.grain"] = IntegerAttr(loops.grain, i64)
    if loops.work is not None:
        work, chunk = loops.work
        function.attributes[WORK] = ArrayAttr([SizeAttr(work), IntegerAttr(chunk, i64)])
    if loops.limits:
        limits = (ArrayAttr([SizeAttr(size), SizeAttr(most)]) for size, most in loops.limits)
        function.attributes[LIMITS] = ArrayAttr(limits)
    return function
