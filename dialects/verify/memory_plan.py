"""Verifies memory plans by replaying them, with no code of those that make them, nor of what these ask.

Every byte of the arena remembers the value that was written to it last. A kernel must find its operands' bytes as their
own, must not write where it reads (but in declared in-place pairs), and leaves its results' bytes as theirs; what
the program returns must be there at the end. Memory outside of the arena is replayed in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.fused import KernelOp, OutlinedOp, PartitionOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.verify.kernel_reads import KernelReads
from fuse_opt.dialects.verify.plan_contents import (
    ArenaBytes,
    Buffer,
    Content,
    PlanError,
    byte_range,
    called,
    counted_bytes,
    made_at,
    name_of,
    place_of,
    same_memory,
)
from fuse_opt.dialects.verify.plan_orders import PlaceBytes, Places
from fuse_opt.dialects.verify.plan_pairs import check_pair, check_saved, check_unread
from fuse_opt.dialects.verify.plan_slots import Arena, place_result, place_workspace, read_arena
from fuse_opt.dialects.verify.sample_points import moves_nothing


def verify_plans(module: Operation) -> None:
    """Verifies the plan of every function of a module. Raises PlanError."""
    pending = [module]
    while pending:
        op = pending.pop()
        if isinstance(op, FuncOp):
            verify_plan(op)
        else:
            nested = [inner for region in op.regions for block in region.blocks for inner in block.ops]
            pending.extend(reversed(nested))


def verify_plan(function: FuncOp, *, complete: bool = False, exact: bool = False) -> None:
    """Replays a function's plan. Raises PlanError.

    A function without slots has no plan and passes. One in which kernels without slots stand beside others was
    rewritten since it was planned and cannot run as it is; it passes, too, unless a `complete` plan is asked for.
    An `exact` plan is as its planner left it: no byte larger than its slots need, and with the true lower bound.
    """
    kernels = [op for block in function.body.blocks for op in block.ops if isinstance(op, OutlinedOp)]
    with_slots = [kernel for kernel in kernels if kernel.slots is not None]
    if complete and len(with_slots) < len(kernels):
        bare = next(kernel for kernel in kernels if kernel.slots is None)
        raise PlanError("'fused.kernel' has no slots; run plan-memory", bare)
    if not with_slots:
        if complete and kernels and "fused.arena" not in function.attributes:
            raise PlanError("'func.func' has no fused.arena; run plan-memory", function)
        return
    if function.body.blocks.first is not function.body.blocks.last:
        raise PlanError("'func.func' of several blocks has a memory plan; plans are for one block", function)
    arena = read_arena(function, with_slots[0])
    if len(with_slots) == len(kernels):
        replay = _Replay(function, arena)
        replay.run()
        if exact:
            replay.check_exact()


class _Replay:
    def __init__(self, function: FuncOp, arena: Arena) -> None:
        self.arena = arena
        self.block = function.body.block
        self.bytes = ArenaBytes() if arena.places is None else PlaceBytes(arena.places)
        self.content: dict[SSAValue, Content] = {}
        self.buffers: list[Buffer] = []
        self.keeps: list[Content] = []
        self.highest = 0
        self.contents: list[Content] = []
        """What is written to the arena."""
        self.steps = 0
        for value, known in zip(self.block.args, _argument_attributes(function), strict=True):
            donated = "graph.donated" in known
            content = self._outside(value, -1, Buffer(donated, True))
            if not donated or "keep_live" in known or "no_inplace" in known:
                self.keeps.append(content)
        self.last_use = self._last_uses()

    def _last_uses(self) -> dict[SSAValue, int]:
        """The last step that uses a value or a view of it, by the value that is no view."""
        last: dict[SSAValue, int] = {}
        root: dict[SSAValue, SSAValue] = {}
        for step, op in enumerate(self.block.ops):
            for value in _uses(op):
                last[root.get(value, value)] = step
            if moves_nothing(op):
                root[op.results[0]] = root.get(op.operands[0], op.operands[0])
        return last

    def run(self) -> None:
        last = self.block.last_op
        assert last is not None
        for step, op in enumerate(self.block.ops):
            self.steps = step
            for value in _uses(op):
                self._read(value, step, op)
            if isinstance(op, OutlinedOp):
                self._run_kernel(op, step)
            elif moves_nothing(op):
                self.content[op.results[0]] = self.content[op.operands[0]]
                if "keep_live" in op.attributes:
                    self.keeps.append(self.content[op.operands[0]])
            else:
                for value in op.results:
                    self._outside(value, step, Buffer(False, True))
            if isinstance(op, ReturnOp):
                self._return(op)
        for content in self.keeps:
            self._check_holds(content, self.steps, last, "must be kept to the end")
        self._check_provided()

    def check_exact(self) -> None:
        """The arena is no larger than its slots, and the bound is the most bytes of it in use at any step."""
        function = self.block.parent_op()
        assert function is not None
        if self.arena.places is not None:
            self._check_bounds(self.arena.places, function)
            return
        size = self._rounded(self.highest)
        if size != self.arena.size:
            message = f"size is {self.arena.size}, the slots take up {size}; run plan-memory"
            raise PlanError(f"'func.func' attribute fused.arena: {message}", function)
        change: dict[tuple[int, int], int] = {}
        for content, end in self._ends():
            begin, behind = (content.step, -1), (end, -1)
            if content.inner is not None:
                begin, behind = (content.step, content.inner[0]), (content.step, content.inner[1] + 1)
            change[begin] = change.get(begin, 0) + self._rounded(content.nbytes)
            change[behind] = change.get(behind, 0) - self._rounded(content.nbytes)
        bound = max(accumulate(change[step] for step in sorted(change)), default=0)
        if bound != self.arena.bound:
            message = f"lower_bound is {self.arena.bound}, the program has {bound}; run plan-memory"
            raise PlanError(f"'func.func' attribute fused.arena: {message}", function)

    def _ends(self) -> Iterator[tuple[Content, int]]:
        """What is written to the arena, and the step from which on it is not in use."""
        kept = set(self.keeps)
        for content in self.contents:
            end = self.steps + 1 if content in kept else max(content.last_read, content.step) + 1
            yield content, end - content.taken_over

    def _check_bounds(self, places: Places, function: Operation) -> None:
        """The bounds are all sets of places in use at once that are not part of another."""
        alive: dict[int, set[int]] = {content.step: set() for content in self.contents}
        for content, end in self._ends():
            for step in range(content.step, end):
                if step in alive and content.start is not None:
                    alive[step].add(content.start)
        sets = {frozenset(found) for found in alive.values()}
        wanted = frozenset(one for one in sets if not any(one < other for other in sets))
        if wanted != places.bounds:
            message = f"bounds are {_sorted(places.bounds)}, the program has {_sorted(wanted)}; run plan-memory"
            raise PlanError(f"'func.func' attribute fused.arena: {message}", function)

    def _rounded(self, nbytes: int) -> int:
        return -(-nbytes // self.arena.alignment) * self.arena.alignment

    def _outside(self, value: SSAValue, step: int, buffer: Buffer) -> Content:
        content = Content(value, step, counted_bytes(value), None, buffer)
        buffer.holds = content
        buffer.first = buffer.first or content
        self.content[value] = content
        return content

    def _read(self, value: SSAValue, step: int, op: Operation) -> None:
        if (content := self.content.get(value)) is None:
            return
        content.last_read = step
        self._check_holds(content, step, op, "is read")
        if not isinstance(op, GraphOp | OutlinedOp | ReturnOp):  # it may use the memory later
            self.keeps.append(content)

    def _check_holds(self, content: Content, step: int, op: Operation, what: str) -> None:
        """The bytes are those of the content: nothing was written over it."""
        writer: Content | None = None
        if content.buffer is not None:
            writer = content.buffer.holds
        elif content.start is not None and content.nbytes:
            end = content.start + content.nbytes
            found = (owner for _, _, owner in self.bytes.overlapping(content.start, end) if owner is not content)
            writer = next(found, content)
        if writer is not None and writer is not content:
            raise PlanError(
                f"{name_of(content.value)}{place_of(content)} {made_at(content)} {what} at step {step}, but "
                f"{called(writer)}{place_of(writer)} overwrote it at step {writer.step}; run plan-memory",
                op,
            )

    def _run_kernel(self, kernel: OutlinedOp, step: int) -> None:
        slots = ints(kernel.slots)
        if len(slots) != len(kernel.results):
            message = f"{len(slots)} slots for {len(kernel.results)} results; run plan-memory"
            raise PlanError(f"'fused.kernel' has {message}", kernel)
        pairs = dict(kernel.inplace_pairs())
        if isinstance(kernel, KernelOp):
            check_unread(kernel)
            check_saved(kernel)
            reads = KernelReads(kernel)
            for result, operand in pairs.items():
                check_pair(reads, self.content, self.last_use, (result, operand), step)
        written: list[Content] = []
        for number, (value, slot) in enumerate(zip(kernel.results, slots, strict=True)):
            old = self.content[kernel.operands[pairs[number]]] if number in pairs else None
            content = self._take(place_result(self.arena, kernel, value, slot, old, step), old)
            if old is not None:
                old.taken_over = True
            self._check_disjoint(kernel, content, old, written, step)
            written.append(content)
        if (workspace := place_workspace(self.arena, kernel, step)) is not None:
            self._take(workspace, None)
            self._check_disjoint(kernel, workspace, None, written, step)
            self.contents.append(workspace)
            self.bytes.write(workspace, *byte_range(workspace))
        if isinstance(kernel, PartitionOp):
            self._run_inside(kernel, written, step)
        for content in written:
            self.content[content.value] = content
            if content.buffer is not None:
                content.buffer.holds = content
                content.buffer.first = content.buffer.first or content
            elif content.start is not None and content.nbytes:
                self.contents.append(content)
                self.bytes.write(content, content.start, content.start + content.nbytes)
        marked = [op for op in kernel.block.ops if "keep_live" in op.attributes]
        for content, inner in zip(written, kernel.yielded(), strict=True):
            if ("keep_live" in kernel.attributes and not marked) or inner.owner in marked:
                self.keeps.append(content)

    def _take(self, content: Content, old: Content | None) -> Content:
        """Notes where a content was placed: how high in the arena, or in which new buffer."""
        if content.start is not None:
            self.highest = max(self.highest, content.start + content.nbytes)
        elif content.buffer is not None and (old is None or content.buffer is not old.buffer):
            self.buffers.append(content.buffer)
        return content

    def _run_inside(self, partition: PartitionOp, written: Sequence[Content], step: int) -> None:
        """Values inside, in order: none over what the partition reads or returns, or over one that a later op reads."""
        values, slots = partition.values_inside(), ints(partition.inner_slots)
        if len(slots) != len(values):
            message = f"{len(slots)} inner_slots for {len(values)} values inside at step {step}; run plan-memory"
            raise PlanError(f"'fused.partition' has {message}", partition)
        ops = partition.ops()
        reads = {value: number for number, op in enumerate(ops) for value in op.operands}
        made: dict[SSAValue, int] = {value: number for number, op in enumerate(ops) for value in op.results}
        alive: list[Content] = []
        for value, slot in zip(values, slots, strict=True):
            if slot < 0:
                raise PlanError(
                    f"'fused.partition' inner slot {slot} of {name_of(value)}: expected an offset", partition
                )
            content = self._take(place_result(self.arena, partition, value, slot, None, step), None)
            content.inner = (made[value], max(reads.get(value, -1), made[value]))
            alive = [other for other in alive if other.inner and other.inner[1] >= made[value]]
            self._check_disjoint(partition, content, None, [*written, *alive], step)
            alive.append(content)
            if content.nbytes:
                self.contents.append(content)
                self.bytes.write(content, *byte_range(content))

    def _check_disjoint(
        self, kernel: OutlinedOp, content: Content, old: Content | None, written: Sequence[Content], step: int
    ) -> None:
        """A kernel may be half done when it writes: no result lies over an operand or another result."""
        if old is not None and any(same_memory(content, other) and other.nbytes for other in written):
            raise PlanError(
                f"'fused.kernel' of step {step} takes over {name_of(old.value)} {made_at(old)} twice; run infer-inplace",
                kernel,
            )
        if content.start is None:
            return
        end = content.start + content.nbytes
        others = [self.content[value] for value in _uses(kernel) if value in self.content]
        for other in (*(o for o in others if o is not old), *written):
            if other.start is None or not self._may_overlap(content.start, end, other):
                continue
            if other.nbytes and content.nbytes:
                raise PlanError(
                    f"'fused.kernel' writes {called(content)}{place_of(content)} at step {step} over "
                    f"{called(other)}{place_of(other)} {made_at(other)}, which is in use at the same step; "
                    "run plan-memory",
                    kernel,
                )

    def _may_overlap(self, start: int, end: int, other: Content) -> bool:
        """Whether what lies from `start` to `end` may share a byte with another content of the arena."""
        assert other.start is not None
        if isinstance(self.bytes, PlaceBytes):
            return self.bytes.may_overlap(start, other.start)
        return other.start < end and start < other.start + other.nbytes

    def _return(self, op: ReturnOp) -> None:
        for value in op.operands:
            content = self.content.get(value)
            if content is None:
                continue
            if content.start is not None:
                about = f"{name_of(value)}{place_of(content)} of step {content.step}"
                message = f"{about} is returned at step {self.steps}, but lies in the arena"
                raise PlanError(f"'func.func' {message}; expected slot -1", op)
            assert content.buffer is not None
            content.buffer.provided = True

    def _check_provided(self) -> None:
        for buffer in self.buffers:
            content = buffer.first
            if not buffer.provided and content is not None and content.nbytes:
                owner = content.value.owner
                assert isinstance(owner, Operation)
                message = "has slot -1 but is not returned and takes over nothing: it has no memory; run plan-memory"
                raise PlanError(f"'fused.kernel' {name_of(content.value)} of step {content.step} {message}", owner)


def _uses(op: Operation) -> Sequence[SSAValue]:
    """What an op needs the elements of."""
    if isinstance(op, OutlinedOp):
        unread = set(ints(op.unread))
        return [value for number, value in enumerate(op.operands) if number not in unread]
    if isinstance(op, GraphOp | ReturnOp):
        return op.operands
    return [value for inner in op.walk() for value in inner.operands]


def _sorted(sets: Iterable[frozenset[int]]) -> list[list[int]]:
    return sorted(map(sorted, sets))


def _argument_attributes(function: FuncOp) -> list[frozenset[str]]:
    count = len(function.body.block.args)
    if function.arg_attrs is None:
        return [frozenset()] * count
    return [frozenset(entry.data) for entry in function.arg_attrs.data]
