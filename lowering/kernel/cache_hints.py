"""Loads and stores of what a kernel reads or writes once, which need not stay in caches: where a schedule says `cache = "once"`.

Only what lies in the device's memory, so arguments of the kernel, is told of; never a thread's or a block's own memory. An array
is read once where one place of the launches' text loads it, none stores it, and it is as large as the largest array of the
kernel: others are read again by other rows or blocks. Results are written once where no launch of the kernel reads their memory;
whether another kernel reads them is for who writes the entry to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import memref, vector
from xdsl.dialects.builtin import MemRefType, UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.lowering.hints import ONCE


def hint_caches(launches: Sequence[tuple[Block, Sequence[SSAValue]]]) -> None:
    """Marks such loads and stores of the launches of a kernel: bodies, with arguments that are the same memory in all of them."""
    count = len(launches[0][1])
    loads: list[list[Operation]] = [[] for _ in range(count)]
    stores: list[list[Operation]] = [[] for _ in range(count)]
    for body, arguments in launches:
        numbers = {memory: number for number, memory in enumerate(arguments)}
        for op in body.walk():
            match op:
                case memref.LoadOp() | memref.StoreOp():
                    memory = op.memref
                case vector.LoadOp() | vector.StoreOp():
                    memory = op.base
                case _:
                    continue
            if memory in numbers:
                found = loads if isinstance(op, memref.LoadOp | vector.LoadOp) else stores
                found[numbers[memory]].append(op)
    sizes = [_elements(memory) for memory in launches[0][1]]
    for read, written, size in zip(loads, stores, sizes, strict=True):
        once = read if len(read) == 1 and not written and size == max(sizes) else written if not read else []
        for op in once:
            op.attributes[ONCE] = UnitAttr()


def _elements(memory: SSAValue) -> int:
    kind = memory.type
    return prod(kind.get_shape()) if isa(kind, MemRefType) else 0
