"""The parts of a pack as one function of loops: a task is a stretch of one part, or several small parts.

Parts differ in how many rows or elements they have and in what one of them costs. So that tasks weigh about the same,
each is about as much work as is worth handing to another thread, and any one of them makes a chunk.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, scf
from xdsl.ir import Block, Operation, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent, NotANumber, Size
from fuse_opt.lowering.cpu.kernel import KernelLoops, PassLoops, kernel_block
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers
from fuse_opt.lowering.kernel.scope import INDEX, Scope

LEAST_SHARED = 16
"""Tasks from which on small parts, none of which would be shared alone, are shared with other threads."""


def build_horizontal_loops(kernel: KernelOp, passes: Sequence[LoopBody], storages: Sequence[Hashable]) -> KernelLoops:
    """The loops of a pack's parts; `storages` name the memory of each operand and result: equal ones are one buffer."""
    memory = KernelBuffers(kernel, passes, storages)
    root = Scope(None, kernel_block(memory))
    *buffers, begin, end = root.block.args
    parts = [_build_part(loop_body, memory, buffers, root) for loop_body in passes]
    pack = _Pack(root, begin, end, _make_shares([part for part in parts if part.tasks]))
    pack.build()
    root.block.add_op(func.ReturnOp())
    counts = pack.tasks, pack.grain
    known = tuple(root.sizes), tuple(root.limits.items())
    return KernelLoops(root.block, tuple(memory.parameters), memory.shared, *counts, root.helpers, *known)


def _build_part(loop_body: LoopBody, memory: KernelBuffers, buffers: Sequence[SSAValue], root: Scope) -> PassLoops:
    """A part in a block of its own, which takes the sizes that it asks for and the bounds of the part's own tasks."""
    scope = Scope(None, Block(arg_types=[INDEX, INDEX]))
    scope.helpers, scope.limits = root.helpers, root.limits
    begin, end = scope.block.args
    begin.name_hint, end.name_hint = "first", "last"
    return PassLoops(loop_body, memory, buffers, scope, (begin, end))


@dataclass(frozen=True)
class _Share:
    """Tasks of a pack that are one part's, `grain` of its own each, or one task that is all of several parts."""

    parts: list[PassLoops]
    tasks: int
    grain: int


def _make_shares(parts: Sequence[PassLoops]) -> list[_Share]:
    shares: list[_Share] = []
    small: list[PassLoops] = []
    room = 0
    for part in parts:
        tasks = _known(part.tasks)
        if tasks > part.grain:
            shares.append(_Share([part], -(-tasks // part.grain), part.grain))
            continue
        work = tasks * max(estimate(part.work), 1)
        if work > room:
            small, room = [], WORK_PER_CHUNK
            shares.append(_Share(small, 1, 0))
        small.append(part)
        room -= work
    return shares


def _known(tasks: Extent) -> int:
    if isinstance(tasks, Size):
        raise NotANumber(tasks)
    return tasks


class _Pack:
    """Puts the shares' loops into the function, each behind a test whether any of its tasks is asked for."""

    def __init__(self, root: Scope, begin: SSAValue, end: SSAValue, shares: Sequence[_Share]) -> None:
        self.root = root
        self.begin, self.end = begin, end
        self.shares = shares
        self.tasks: int = sum(share.tasks for share in shares)

    @property
    def grain(self) -> int:
        """How many tasks make a chunk."""
        shared = self.tasks >= LEAST_SHARED or any(share.tasks > 1 for share in self.shares)
        return 1 if shared else self.tasks

    def build(self) -> None:
        first = 0
        for share in self.shares:
            for part in share.parts:
                self._bind_tasks(part, share, first)
            last = first + share.tasks
            if (asked := self._is_asked(first, last)) is None:
                target = self.root.block
            else:
                target = Block()
                self.root.block.add_op(scf.IfOp(asked, [], Region(target)))
            for op in [op for part in share.parts for op in part.root.block.ops]:
                op.detach()
                target.add_op(op)
            if asked is not None:
                target.add_op(scf.YieldOp())
            first = last

    def _is_asked(self, first: int, last: int) -> SSAValue | None:
        """Whether a task from `first` on and before `last` is among those to do; None when one is anyhow."""
        root = self.root
        before = None if last == self.tasks else root.add(arith.CmpiOp(self.begin, root.index_constant(last), "slt"))
        after = None if first == 0 else root.add(arith.CmpiOp(self.end, root.index_constant(first), "sgt"))
        if before is None or after is None:
            return before or after
        return root.add(arith.AndIOp(before, after))

    def _bind_tasks(self, part: PassLoops, share: _Share, first: int) -> None:
        """Gives the part's loops their sizes and bounds: from tasks of the pack to its own."""
        scope, root = part.root, self.root
        made: list[Operation] = []

        def add(op: Operation, hint: str | None = None) -> SSAValue:
            made.append(op)
            op.results[0].name_hint = hint
            return op.results[0]

        if share.grain:
            start = add(arith.MaxSIOp(self.begin, root.index_constant(first)))
            start = add(arith.SubiOp(start, root.index_constant(first)))
            start = add(arith.MuliOp(start, root.index_constant(share.grain)), "first")
            stop = add(arith.SubiOp(self.end, root.index_constant(first)))
            stop = add(arith.MuliOp(stop, root.index_constant(share.grain)))
            stop = add(arith.MinSIOp(stop, root.index_constant(part.tasks)), "last")
        else:
            start, stop = root.index_constant(0), root.index_constant(part.tasks)
        sizes = map(root.size, scope.sizes)
        for argument, value in zip(list(scope.block.args), (*sizes, start, stop), strict=True):
            argument.replace_all_uses_with(value)
            scope.block.erase_arg(argument)
        if made and scope.block.first_op is not None:
            scope.block.insert_ops_before(made, scope.block.first_op)
