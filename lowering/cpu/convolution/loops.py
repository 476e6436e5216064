"""A convolution as products of filters with what windows see, by tiles of sums in vector registers, without unfolding it.

Rows of a tile are filters, columns are neighbouring positions: the weight and the result are read and written where they
lie. A task is some rows of positions of a group's filters. It copies the rows of the input that their windows reach, with
zeros around them, or reads them where they lie; each tap reads this long row at a place of its own (an implicit product:
Chetlur et al. 2014, cuDNN, without a matrix of windows). Panel by panel, blocks of channels come in order, and what
follows is computed on a panel while a cache has it. The cut follows from extents alone: every number of threads gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from xdsl.dialects import func
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import convolution_of
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.lowering.cpu.convolution.filter_panels import FilterPanels
from fuse_opt.lowering.cpu.convolution.position_panels import PositionPanels
from fuse_opt.lowering.cpu.kernel import WORK_PER_CHUNK, KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.copies import count_loop
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


def build_convolution_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a convolution and pointwise ops. Raises Unschedulable."""
    convolution = convolution_of(kernel)
    passes = [convolution.epilogue, _operand(convolution.x), _operand(convolution.weight)]
    memory = KernelBuffers(kernel, passes, storages)
    root = Scope(None, kernel_block(memory))
    body = (FilterPanels if convolution.panel else PositionPanels)(convolution, memory, root)
    bounds = root.block.args[-2], root.block.args[-1]
    count_loop(root, "task", bounds, body.build)
    root.block.add_op(func.ReturnOp())
    grain = -(-WORK_PER_CHUNK * prod(body.counts) // max(convolution.contraction.operations, 1))
    return [KernelLoops(root.block, tuple(memory.parameters), memory.shared, prod(body.counts), grain, root.helpers)]


def _operand(value: SSAValue) -> LoopBody:
    """A pass that loads a value, so that the kernel has a buffer of it."""
    index = dimensions("i", shape(value))
    return LoopBody(index, shape(value), (), (), (ScalarNode(value, index, None),), ())
