"""Loops that compilers make wrong vectors of, as loops without vectors.

In loops of 4 or 8 iterations (8 or 16 bytes) marked as loops over lanes, which read elements of 1 or 2 bytes of one buffer both
side by side and at steps of 5, 6, 7, 9 and more, gcc 12 stores values that are nowhere in the buffer (its pass ivopts; x86-64
with any vectors): `y[8 * i + k] = x[i + 7 * k]; z[8 * i + k] = x[8 * i + k]`.
"""

from __future__ import annotations

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.strip_mining import iterations, neighbours, one_by_one
from fuse_opt.lowering.loops.vector_widths import NARROWEST

MOST_BYTES = 16
"""Of the elements of a buffer that a loop reads side by side."""


def leave_scalar(body: Block) -> None:
    """Rewrites the function of a kernel in place."""
    for loop in inner_of(body, scf.ParallelOp):
        if len(loop.body.block.args) == 1 and _reads_two_ways(loop) and not loop.initVals:
            made = one_by_one(loop)
            Rewriter.replace_op(loop, made, [])


def _reads_two_ways(loop: scf.ParallelOp) -> bool:
    """Whether a few narrow elements of a buffer are read side by side, and others of it otherwise."""
    count, block = iterations(loop), loop.body.block
    apart: set[SSAValue] = set()
    beside: set[SSAValue] = set()
    for op in block.ops:
        if not isinstance(op, memref.LoadOp) or count is None:
            continue
        assert isa(op.memref.type, MemRefType)
        found = dtype_of(op.memref.type.element_type)
        if found is not None and found.itemsize < NARROWEST and found.itemsize * count <= MOST_BYTES:
            (apart if neighbours(op.indices, block) is None else beside).add(op.memref)
    return not apart.isdisjoint(beside)
