"""When values are made and read, before there are kernels.

Ops that no loop holds, such as products, are calls; the first is at time 2, the second at 4 and so on, as the block lists
them. Loops between two calls are at the odd time between: an op that loops can hold is there behind the last call whose
result it needs, wherever the block lists it, since fusion brings it there. What is made and read at one time may never come to
memory; what is made before a call and read behind it is alive over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.storage import DONATED, argument_attributes
from fuse_opt.dialects.fused import RECOMPUTED, KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.memory.packing.live_bytes import live_bytes
from fuse_opt.passes.recompute.known_ops import Facts, facts_of, value_bytes


@dataclass(eq=False)
class Memory:
    """A value that has memory of its own, and the views of it that move nothing."""

    value: SSAValue
    nbytes: int | None
    made: int
    last: int
    """When it is read for the last time."""
    free: bool
    """It can be read at any time: the caller's, a constant, or kept to the end."""
    barred: bool
    """It may be overwritten, or its bytes are not known: nothing more may come to read it later."""
    names: list[SSAValue] = field(default_factory=list[SSAValue])
    """The value and its views."""


class Times:
    """The times of a function of one block."""

    def __init__(self, function: FuncOp, rows: bool = False, products: int = 0, before: Times | None = None) -> None:
        """
        With `rows` reductions may be computed again, and with `products` all calls but one in so many; with 1 all of them.
        `before` are those of the same function before ops were cloned: what they found of ops is not asked again.
        """
        self.function = function
        self._rows, self._products = rows, products
        self.block: Block = function.body.block
        self.place = {op: place for place, op in enumerate(self.block.ops)}
        known: dict[Operation, Facts] = {} if before is None else before._facts
        self._facts: dict[Operation, Facts] = {op: known.get(op) or facts_of(op) for op in self.place}
        self.time = self._times()
        self.end = 1 + max(self.time.values(), default=0)
        self.memory: dict[SSAValue, Memory] = {}
        self._readers: dict[SSAValue, list[Operation]] = {}
        for number, value in enumerate(self.block.args):
            donated = DONATED in argument_attributes(function, number)
            self._add(value, Memory(value, value_bytes(value), 0, 0, not donated, donated))
        for op in self.block.ops:
            self._read(op)
            self._add_results(op)

    def _times(self) -> dict[Operation, int]:
        """By op: its time. What needs no call, and clones, are computed when they are first read."""
        time: dict[Operation, int] = {}
        floating: list[Operation] = []
        now = 0
        for op in self.block.ops:
            if not isinstance(op, StructuredOp):
                now += 2
                time[op] = now
            elif self._facts[op].is_constant:
                time[op] = 0
            elif RECOMPUTED not in op.attributes and (
                after := max((time.get(maker, 0) for maker in _makers(op)), default=0)
            ):
                time[op] = after | 1
            else:
                floating.append(op)
        for op in reversed(floating):
            readers = (use.operation for use in op.results[0].uses)
            first = min((time[reader] for reader in readers if reader in time), default=now)
            time[op] = first if first % 2 else max(first - 1, 1)
        return time

    def _add(self, value: SSAValue, memory: Memory) -> None:
        self.memory[value] = memory
        memory.names.append(value)

    def _add_results(self, op: Operation) -> None:
        facts, time = self._facts[op], self.time[op]
        if facts.is_view:
            self._add(op.results[0], self.memory[op.operands[0]])
            return
        free = facts.is_constant or "keep_live" in op.attributes
        for value, nbytes in zip(op.results, facts.nbytes, strict=True):
            self._add(value, Memory(value, nbytes, time, time, free, nbytes is None))

    def _read(self, op: Operation) -> None:
        known = isinstance(op, GraphOp | KernelOp)
        is_view = self._facts[op].is_view
        for value in dict.fromkeys(op.operands if known or isinstance(op, ReturnOp) else _used(op)):
            if (memory := self.memory.get(value)) is None:
                continue
            self._readers.setdefault(value, []).append(op)
            if not is_view:
                memory.last = max(memory.last, self.time[op])
            if not known:
                memory.free |= not memory.barred
            elif "must_inplace" in op.attributes:
                memory.barred, memory.free = True, False

    def loads(self, whole: bool = False) -> dict[int, int]:
        """By call: the bytes of values that are alive over it; with `whole` of those, too, that it reads or makes."""
        memories = [each for each in dict.fromkeys(self.memory.values()) if not each.free and each.made < each.last]
        lives = ((each.made + (not whole), each.last + whole, each.nbytes or 0) for each in memories)
        return {at: load for at, load in enumerate(live_bytes(lives, self.end)) if at and not at % 2}

    def most(self) -> int:
        """The most bytes that are alive over a call, or that one reads and makes."""
        return max(self.loads(whole=True).values(), default=0)

    def readers(self, value: SSAValue) -> Sequence[Operation]:
        """The ops of the block that read a value by this name, in the block's order."""
        return self._readers.get(value, ())

    @cached_property
    def sure(self) -> set[SSAValue]:
        """Values that can be computed again from nothing but what can be read at any time."""
        found: set[SSAValue] = set()
        for op in self.block.ops:
            needed = (value for value in op.operands if value in self.memory and not self.memory[value].free)
            if self.can_repeat(op) and not self.memory[op.results[0]].barred and all(map(found.__contains__, needed)):
                found.update(op.results)
        return found

    def can_repeat(self, op: Operation | Block) -> bool:
        """Whether an op is one that loops compute, or a call, that may be computed again."""
        return isinstance(op, GraphOp) and self._may_repeat(op) and self._facts[op].is_repeatable

    def _may_repeat(self, op: GraphOp) -> bool:
        if isinstance(op, StructuredOp):
            return self._rows or not op.COMBINE
        return self._products == 1 or (self._products > 0 and self.time[op] // 2 % self._products != 0)


def _makers(op: Operation) -> Iterable[Operation]:
    return (value.op for value in op.operands if isinstance(value, OpResult))


def _used(op: Operation) -> list[SSAValue]:
    """The values that an op of an unknown kind and the ops nested in it use."""
    return [operand for inner in op.walk() for operand in inner.operands]
