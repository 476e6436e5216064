"""A launch that copies an operand of narrow floats as elements of sums, for tiles that read it where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import count_loop, parallel_loop, plus, times
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch
from fuse_opt.lowering.kernel.scope import Scope

STRETCH = 4096
"""Elements that a task widens."""


def widened(value: SSAValue, sums: DType, memory: KernelBuffers, scratch: Sequence[Scratch]) -> KernelLoops:
    """The launch that fills the first scratch memory, a stretch in each task."""
    root, (wide, *_) = launch_root(memory, scratch)
    operand = root.block.args[memory.sources[value]]
    size = prod(shape(value))

    def put(inner: Scope, place: SSAValue) -> None:
        value = inner.add(memref.LoadOp.get(operand, [place]))
        value = inner.add(arith.ExtFOp(value, sums.attribute))
        inner.block.add_op(memref.StoreOp.get(value, wide, [place]))

    def stretch(task: Scope, number: SSAValue) -> None:
        first = times(task, number, STRETCH)
        last = task.add(arith.MinSIOp(plus(task, first, root.index_constant(STRETCH)), root.index_constant(size)))
        parallel_loop(task, "place", (first, last), put)

    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), stretch)
    return launch_of(root, memory, scratch, -(-size // STRETCH), -(-WORK_PER_CHUNK // (4 * STRETCH)))
