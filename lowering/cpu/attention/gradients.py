"""Gradients of attention: scores of a block of rows and keys are made again, and all sums that they are in go on.

A task has the matrices that share keys. It goes block by block over the keys, whose panels are copied, and for each over the
rows that see one: two products give scores and what the gradient of a softmax takes, a pass makes weights of them, and products
of these are added to the sums of the keys, which end with the block, and to those of the rows, which are there until the last
block (Dao 2023, FlashAttention-2). Blocks come in order: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fuse_opt.dialects.analysis.contractions.attention_gradients import attention_gradient_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.lowering.cpu.attention.gradient_tiles import GradientTiles
from fuse_opt.lowering.cpu.attention.gradient_tiling import MOST_SUMS, choose_gradient_tiling
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import count_loop
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch, operand_pass
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type


def build_attention_gradient_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launch of a kernel of gradients of attention. Raises Unschedulable."""
    of = attention_gradient_of(kernel)
    operands = [operand_pass(access.value) for access in of.operands()]
    memory = KernelBuffers(kernel, [of.weights, *(each.epilogue for each in of.weighted), *operands], storages)
    element = dtype(of.scores[0].raw)
    tiling = choose_gradient_tiling(of, element.itemsize)
    size = of.parts * of.rows * sum(tiling.padded(each.product.columns) for each in of.weighted if each.by_row)
    scratch: list[Scratch] = []
    if size * element.itemsize > MOST_SUMS:
        scratch.append(Scratch(0, element_buffer_type(element, of.matrices * size), "row_sums"))
    root, shared = launch_root(memory, scratch)
    body = GradientTiles(of, tiling, memory, root, shared[0] if shared else None)
    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), body.build)
    grain = -(-WORK_PER_CHUNK * of.matrices // max(of.operations, 1))
    return [launch_of(root, memory, scratch, of.matrices, grain)]
