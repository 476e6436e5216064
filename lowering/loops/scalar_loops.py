"""Loops that compilers make wrong vectors of, as loops without vectors.

In loops of 4 or 8 iterations (8 or 16 bytes) marked as loops over lanes, which read elements of 1 or 2 bytes of one buffer both
side by side and at steps of 5, 6, 7, 9 and more, gcc 12 stores values that are nowhere in the buffer (its pass ivopts; x86-64
with any vectors): `y[8 * i + k] = x[i + 7 * k]; z[8 * i + k] = x[8 * i + k]`.

In loops that read several, but not all, of each four elements backwards, it takes whole vectors from the first ones on, and so
what lies behind the last element: `y[2 * i] = x[n - 4 * i]; y[2 * i + 1] = x[n + 1 - 4 * i]`.
"""

from __future__ import annotations

from collections import Counter

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.strip_mining import constant, is_within, iterations, neighbours, one_by_one
from fuse_opt.lowering.loops.vector_widths import NARROWEST

MOST_BYTES = 16
"""Of the elements of a buffer that a loop reads side by side."""


def leave_scalar(body: Block) -> None:
    """Rewrites the function of a kernel in place."""
    for loop in inner_of(body, scf.ParallelOp):
        if len(loop.body.block.args) != 1 or loop.initVals:
            continue
        if _reads_two_ways(loop) or _reads_parts_backwards(loop.body.block):
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


def _reads_parts_backwards(block: Block) -> bool:
    """Whether several elements of each few of a buffer are read, but not all, from the last ones on."""
    found: Counter[tuple[SSAValue, int]] = Counter()
    for op in block.ops:
        if isinstance(op, memref.LoadOp) and len(op.indices) == 1:
            factor = _factor(op.indices[0], block)
            if factor is not None and factor < -2:
                found[op.memref, factor] += 1
    return any(1 < count < -factor for (_, factor), count in found.items())


def _factor(position: SSAValue, block: Block) -> int | None:
    """How often a position has the loop's counter; None where that is not seen."""
    if position is block.args[0]:
        return 1
    if not is_within(position, block):
        return 0
    match position.owner:
        case arith.AddiOp(lhs=lhs, rhs=rhs) | arith.SubiOp(lhs=lhs, rhs=rhs):
            a, b = _factor(lhs, block), _factor(rhs, block)
            sign = 1 if isinstance(position.owner, arith.AddiOp) else -1
            return None if a is None or b is None else a + sign * b
        case arith.MuliOp(lhs=lhs, rhs=rhs) if (number := constant(rhs)) is not None:
            return None if (a := _factor(lhs, block)) is None else a * number
        case arith.MuliOp(lhs=lhs, rhs=rhs) if (number := constant(lhs)) is not None:
            return None if (a := _factor(rhs, block)) is None else a * number
        case arith.ConstantOp():
            return 0
        case _:
            return None
