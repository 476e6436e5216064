"""Verifies memory plans by replaying them, with no code of those that make them, nor of what these ask.

Every byte of the arena remembers the value that was written to it last. A kernel must find its operands' bytes as their
own, must not write where it reads (but in declared in-place pairs), and leaves its results' bytes as theirs; what
the program returns must be there at the end. Memory outside of the arena is replayed in the same way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, DictionaryAttr, IntegerAttr, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import KernelOp, OutlinedOp, PartitionOp, YieldOp
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.implementation.queries import absorbed_chain, chain_pairs, named_offer
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.verify.contracted_reads import calls_library
from fuse_opt.dialects.verify.kernel_reads import KernelReads
from fuse_opt.dialects.verify.sample_points import moves_nothing

_WORKSPACE_ALIGNMENT = 64
"""Bytes: what a library may count on."""


class PlanError(VerifyException):
    """A memory plan is wrong, or not there; `op` is the op where it shows."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


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
    arena = _read_arena(function, with_slots[0])
    if len(with_slots) == len(kernels):
        replay = _Replay(function, arena)
        replay.run()
        if exact:
            replay.check_exact()


@dataclass(frozen=True, slots=True)
class _Arena:
    alignment: int
    size: int
    bound: int


def _read_arena(function: FuncOp, kernel: OutlinedOp) -> _Arena:
    attribute = function.attributes.get("fused.arena")
    if attribute is None:
        raise PlanError("'fused.kernel' has slots but its function has no fused.arena; run plan-memory", kernel)
    entries: Mapping[str, Attribute] = attribute.data if isinstance(attribute, DictionaryAttr) else {}
    alignment, size = _entry(entries.get("alignment")), _entry(entries.get("size"))
    bound = _entry(entries.get("lower_bound"))
    if alignment is None or size is None or bound is None or not isinstance(entries.get("method"), StringAttr):
        wanted = "alignment, lower_bound and size (64-bit integers) and method (a string)"
        raise PlanError(f"'func.func' attribute fused.arena: expected {wanted}, got {attribute}", function)
    if alignment < 1 or alignment & (alignment - 1):
        raise PlanError(f"'func.func' attribute fused.arena: alignment {alignment} is no power of two", function)
    if bound < 0 or size < bound:
        message = f"'func.func' attribute fused.arena: size {size} is below the lower bound {bound}"
        raise PlanError(f"{message}; run plan-memory", function)
    return _Arena(alignment, size, bound)


def _entry(attribute: Attribute | None) -> int | None:
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None


@dataclass(eq=False, slots=True)
class _Content:
    """What an op wrote, under all names that views give it, and where: `start` in the arena, or a buffer of its own."""

    value: SSAValue
    step: int
    nbytes: int
    start: int | None
    buffer: _Buffer | None
    last_read: int = -1
    taken_over: bool = False
    """Another content begins in its place at the step of its last read."""
    is_workspace: bool = False
    """It is no value but what the implementation of the kernel that makes the value works in, at that step."""
    inner: tuple[int, int] | None = None
    """Of a value inside of a partition: the number of the op that makes it, and that of the last one that reads it."""


@dataclass(eq=False, slots=True)
class _Buffer:
    """Memory outside of the arena, the content it holds now, and whether somebody provides it."""

    writable: bool
    provided: bool
    holds: _Content | None = None
    first: _Content | None = None


@dataclass
class _Bytes:
    """The arena's bytes as disjoint, sorted intervals, each of the content written to it last."""

    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    owners: list[_Content] = field(default_factory=list[_Content])

    def overlapping(self, start: int, end: int) -> Iterator[tuple[int, int, _Content]]:
        low = bisect_right(self.ends, start)
        high = bisect_left(self.starts, end)
        for at in range(low, high):
            yield self.starts[at], self.ends[at], self.owners[at]

    def write(self, content: _Content, start: int, end: int) -> None:
        low = bisect_right(self.ends, start)
        high = bisect_left(self.starts, end)
        starts, ends, owners = [start], [end], [content]
        if low < high and self.starts[low] < start:
            starts.insert(0, self.starts[low])
            ends.insert(0, start)
            owners.insert(0, self.owners[low])
        if low < high and self.ends[high - 1] > end:
            starts.append(end)
            ends.append(self.ends[high - 1])
            owners.append(self.owners[high - 1])
        self.starts[low:high], self.ends[low:high], self.owners[low:high] = starts, ends, owners


class _Replay:
    def __init__(self, function: FuncOp, arena: _Arena) -> None:
        self.arena = arena
        self.block = function.body.block
        self.bytes = _Bytes()
        self.content: dict[SSAValue, _Content] = {}
        self.buffers: list[_Buffer] = []
        self.keeps: list[_Content] = []
        self.highest = 0
        self.contents: list[_Content] = []
        """What is written to the arena."""
        self.steps = 0
        for value, known in zip(self.block.args, _argument_attributes(function), strict=True):
            donated = "graph.donated" in known
            content = self._outside(value, -1, _Buffer(donated, True))
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
                    self._outside(value, step, _Buffer(False, True))
            if isinstance(op, ReturnOp):
                self._return(op)
        for content in self.keeps:
            self._check_holds(content, self.steps, last, "must be kept to the end")
        self._check_provided()

    def check_exact(self) -> None:
        """The arena is no larger than its slots, and the bound is the most bytes of it in use at any step."""
        function = self.block.parent_op()
        assert function is not None
        size = self._rounded(self.highest)
        if size != self.arena.size:
            message = f"size is {self.arena.size}, the slots take up {size}; run plan-memory"
            raise PlanError(f"'func.func' attribute fused.arena: {message}", function)
        kept = set(self.keeps)
        change: dict[tuple[int, int], int] = {}
        for content in self.contents:
            end = self.steps + 1 if content in kept else max(content.last_read, content.step) + 1
            end -= content.taken_over
            begin, behind = (content.step, -1), (end, -1)
            if content.inner is not None:
                begin, behind = (content.step, content.inner[0]), (content.step, content.inner[1] + 1)
            change[begin] = change.get(begin, 0) + self._rounded(content.nbytes)
            change[behind] = change.get(behind, 0) - self._rounded(content.nbytes)
        bound = max(accumulate(change[step] for step in sorted(change)), default=0)
        if bound != self.arena.bound:
            message = f"lower_bound is {self.arena.bound}, the program has {bound}; run plan-memory"
            raise PlanError(f"'func.func' attribute fused.arena: {message}", function)

    def _rounded(self, nbytes: int) -> int:
        return -(-nbytes // self.arena.alignment) * self.arena.alignment

    def _outside(self, value: SSAValue, step: int, buffer: _Buffer) -> _Content:
        content = _Content(value, step, _byte_size(value) or 0, None, buffer)
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

    def _check_holds(self, content: _Content, step: int, op: Operation, what: str) -> None:
        """The bytes are those of the content: nothing was written over it."""
        writer: _Content | None = None
        if content.buffer is not None:
            writer = content.buffer.holds
        elif content.start is not None and content.nbytes:
            end = content.start + content.nbytes
            found = (owner for _, _, owner in self.bytes.overlapping(content.start, end) if owner is not content)
            writer = next(found, content)
        if writer is not None and writer is not content:
            raise PlanError(
                f"{_name(content.value)}{_place(content)} of step {content.step} {what} at step {step}, but "
                f"{_called(writer)}{_place(writer)} overwrote it at step {writer.step}; run plan-memory",
                op,
            )

    def _run_kernel(self, kernel: OutlinedOp, step: int) -> None:
        slots = ints(kernel.slots)
        if len(slots) != len(kernel.results):
            message = f"{len(slots)} slots for {len(kernel.results)} results; run plan-memory"
            raise PlanError(f"'fused.kernel' has {message}", kernel)
        pairs = dict(kernel.inplace_pairs())
        if isinstance(kernel, KernelOp):
            reads = KernelReads(kernel)
            for result, operand in pairs.items():
                self._check_pair(reads, step, result, operand)
        written: list[_Content] = []
        for number, (value, slot) in enumerate(zip(kernel.results, slots, strict=True)):
            old = self.content[kernel.operands[pairs[number]]] if number in pairs else None
            content = self._place_result(kernel, value, slot, old, step)
            if old is not None:
                old.taken_over = True
            self._check_disjoint(kernel, content, old, written, step)
            written.append(content)
        workspace = self._place_workspace(kernel, step)
        if workspace is not None:
            self._check_disjoint(kernel, workspace, None, written, step)
            self.contents.append(workspace)
            self.bytes.write(workspace, *_range(workspace))
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

    def _place_result(
        self, kernel: OutlinedOp, value: SSAValue, slot: int, old: _Content | None, step: int
    ) -> _Content:
        nbytes = _byte_size(value)
        if slot < 0:
            if slot != -1:
                raise PlanError(
                    f"'fused.kernel' slot {slot} of {_name(value)}: expected an offset, or -1, at step {step}", kernel
                )
            if old is not None and old.start is not None:
                message = (
                    f"takes over {_name(old.value)} of step {old.step} at {old.start}, but has no slot; expected that"
                )
                raise PlanError(f"'fused.kernel' {_name(value)} of step {step} {message}", kernel)
            if old is not None:
                return _Content(value, step, nbytes or 0, None, old.buffer)
            buffer = _Buffer(True, nbytes is None)
            self.buffers.append(buffer)
            return _Content(value, step, nbytes or 0, None, buffer)
        if nbytes is None:
            raise PlanError(f"'fused.kernel' {_name(value)} has a slot but no static shape", kernel)
        if old is not None and old.start != slot:
            place = "is outside of the arena" if old.start is None else f"is at {old.start}"
            message = f"takes over {_name(old.value)} of step {old.step}, which {place}, but its slot is {slot}"
            raise PlanError(f"'fused.kernel' {_name(value)} of step {step} {message}", kernel)
        unit = max(self.arena.alignment, _item_size(value))
        if slot % self.arena.alignment or slot % _item_size(value):
            raise PlanError(
                f"'fused.kernel' slot {slot} of {_name(value)} is no multiple of {unit}, at step {step}", kernel
            )
        if slot + nbytes > self.arena.size:
            message = f"{_name(value)} at {slot}..{slot + nbytes} is not inside of the arena of {self.arena.size} bytes"
            message += f" at step {step}"
            raise PlanError(f"'fused.kernel' {message}; run plan-memory", kernel)
        self.highest = max(self.highest, slot + nbytes)
        return _Content(value, step, nbytes, slot, None)

    def _run_inside(self, partition: PartitionOp, written: Sequence[_Content], step: int) -> None:
        """Values inside, in order: none over what the partition reads or returns, or over one that a later op reads."""
        values, slots = partition.values_inside(), ints(partition.inner_slots)
        if len(slots) != len(values):
            message = f"{len(slots)} inner_slots for {len(values)} values inside at step {step}; run plan-memory"
            raise PlanError(f"'fused.partition' has {message}", partition)
        ops = partition.ops()
        reads = {value: number for number, op in enumerate(ops) for value in op.operands}
        made: dict[SSAValue, int] = {value: number for number, op in enumerate(ops) for value in op.results}
        alive: list[_Content] = []
        for value, slot in zip(values, slots, strict=True):
            if slot < 0:
                raise PlanError(f"'fused.partition' inner slot {slot} of {_name(value)}: expected an offset", partition)
            content = self._place_result(partition, value, slot, None, step)
            content.inner = (made[value], max(reads.get(value, -1), made[value]))
            alive = [other for other in alive if other.inner and other.inner[1] >= made[value]]
            self._check_disjoint(partition, content, None, [*written, *alive], step)
            alive.append(content)
            if content.nbytes:
                self.contents.append(content)
                self.bytes.write(content, *_range(content))

    def _place_workspace(self, kernel: OutlinedOp, step: int) -> _Content | None:
        """What the implementation works in; None where it asks for nothing."""
        if not (nbytes := kernel.workspace_bytes()):
            return None
        if (slot := kernel.workspace_offset()) is None:
            message = (
                f"asks for a workspace of {nbytes} bytes at step {step}, but has no workspace_slot; run plan-memory"
            )
            raise PlanError(f"'fused.kernel' {message}", kernel)
        unit = max(self.arena.alignment, _WORKSPACE_ALIGNMENT)
        if slot % unit:
            message = f"workspace_slot {slot} is no multiple of {unit}, at step {step}; run plan-memory"
            raise PlanError(f"'fused.kernel' {message}", kernel)
        if slot + nbytes > self.arena.size:
            message = f"its workspace at {slot}..{slot + nbytes} is not inside of the arena of {self.arena.size} bytes"
            raise PlanError(f"'fused.kernel' {message} at step {step}; run plan-memory", kernel)
        self.highest = max(self.highest, slot + nbytes)
        return _Content(kernel.results[0], step, nbytes, slot, None, is_workspace=True)

    def _check_pair(self, reads: KernelReads, step: int, result: int, operand: int) -> None:
        kernel = reads.kernel
        value, taken = kernel.results[result], kernel.operands[operand]
        old = self.content[taken]
        about = f"'fused.kernel' {_name(value)} of step {step} takes over {_name(taken)} of step {old.step}"
        if _byte_size(value) is None or _byte_size(value) != _byte_size(taken):
            raise PlanError(f"{about}, but they differ in size: {_byte_size(value)} and {_byte_size(taken)}", kernel)
        if old.buffer is not None and not old.buffer.writable:
            raise PlanError(f"{about}, which must not be overwritten: it is not donated, or no kernel made it", kernel)
        last = self.last_use.get(old.value, -1)
        if last > step:
            raise PlanError(f"{about}, which is still read at step {last}; run infer-inplace and plan-memory", kernel)
        same = frozenset(n for n, other in enumerate(kernel.operands) if self.content[other] is old)
        if calls_library(kernel):
            self._check_offered(kernel, result, operand, same, about)
        elif (reason := reads.clash(result, same)) is not None:
            raise PlanError(f"{about}, but {reason}", kernel)

    def _check_offered(self, kernel: KernelOp, result: int, operand: int, same: frozenset[int], about: str) -> None:
        """A library call may run in place where its implementation says so, on an array that it is given once."""
        op = kernel.block.first_op
        offer = named_offer(kernel)
        if offer is not None and len(same) == 1 and (links := absorbed_chain(kernel, offer)) is not None:
            if result == 0 and operand in chain_pairs(kernel, offer, links):
                return
            raise PlanError(f"{about}, but it is a library call that does not offer it", kernel)
        if op is None or not isinstance(op.next_op, YieldOp) or list(kernel.yielded()) != list(op.results):
            raise PlanError(f"{about}, but it is a library call with other ops beside it", kernel)
        places = [k for k, value in enumerate(op.operands) if value is kernel.block.args[operand]]
        if len(same) > 1 or len(places) > 1:
            raise PlanError(f"{about}, but it is a library call that has it as two operands", kernel)
        offer = find_offer(op.name, None if kernel.implementation is None else kernel.implementation.data)
        if offer is None or not places or (result, places[0]) not in offer.inplace:
            raise PlanError(f"{about}, but it is a library call that does not offer it", kernel)

    def _check_disjoint(
        self, kernel: OutlinedOp, content: _Content, old: _Content | None, written: Sequence[_Content], step: int
    ) -> None:
        """A kernel may be half done when it writes: no result lies over an operand or another result."""
        if old is not None and any(_same_memory(content, other) and other.nbytes for other in written):
            raise PlanError(
                f"'fused.kernel' of step {step} takes over {_name(old.value)} of step {old.step} twice", kernel
            )
        if content.start is None:
            return
        end = content.start + content.nbytes
        others = [self.content[value] for value in kernel.operands if value in self.content]
        for other in (*(o for o in others if o is not old), *written):
            if other.start is None or other.start >= end or other.start + other.nbytes <= content.start:
                continue
            if other.nbytes and content.nbytes:
                raise PlanError(
                    f"'fused.kernel' writes {_called(content)}{_place(content)} at step {step} over "
                    f"{_called(other)}{_place(other)} of step {other.step}, which is in use at the same step; "
                    "run plan-memory",
                    kernel,
                )

    def _return(self, op: ReturnOp) -> None:
        for value in op.operands:
            content = self.content.get(value)
            if content is None:
                continue
            if content.start is not None:
                about = f"{_name(value)}{_place(content)} of step {content.step}"
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
                message = "has slot -1 but is not returned and takes over nothing: it has no memory"
                raise PlanError(f"'fused.kernel' {_name(content.value)} of step {content.step} {message}", owner)


def _same_memory(a: _Content, b: _Content) -> bool:
    if a.buffer is not None or b.buffer is not None:
        return a.buffer is b.buffer
    return a.start == b.start


def _uses(op: Operation) -> Sequence[SSAValue]:
    if isinstance(op, GraphOp | OutlinedOp | ReturnOp):
        return op.operands
    return [value for inner in op.walk() for value in inner.operands]


def _argument_attributes(function: FuncOp) -> list[frozenset[str]]:
    count = len(function.body.block.args)
    if function.arg_attrs is None:
        return [frozenset()] * count
    return [frozenset(entry.data) for entry in function.arg_attrs.data]


def _byte_size(value: SSAValue) -> int | None:
    if (type_ := _tensor(value)) is None or DYNAMIC_INDEX in type_.get_shape():
        return None
    return prod(type_.get_shape()) * _item_size(value)


def _item_size(value: SSAValue) -> int:
    type_ = _tensor(value)
    element = None if type_ is None else dtype_of(type_.element_type)
    return 1 if element is None else element.itemsize


def _tensor(value: SSAValue) -> AnyTensor | None:
    return tensor(value) if isinstance(value.type, TensorType) else None


def _name(value: SSAValue) -> str:
    if value.name_hint is not None:
        return f"%{value.name_hint}"
    if isinstance(value, OpResult):
        return f"result {value.index}"
    return f"argument {value.index}" if isinstance(value, BlockArgument) else "a value"


def _called(content: _Content) -> str:
    name, owner = _name(content.value), content.value.owner
    if content.inner is not None and isinstance(owner, Operation):
        return f"the result of '{owner.name}' inside of a partition"
    return f"the workspace of the kernel of {name}" if content.is_workspace else name


def _range(content: _Content) -> tuple[int, int]:
    assert content.start is not None
    return content.start, content.start + content.nbytes


def _place(content: _Content) -> str:
    return "" if content.start is None else f" (bytes {content.start}..{content.start + content.nbytes})"
