"""Kernels of sizes at numbers: what is checked element by element is so at some values of their symbols."""

from __future__ import annotations

from itertools import cycle

from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import has_sizes, sizes
from fuse_opt.dialects.interfaces.symbols import change_sizes, is_tensor
from fuse_opt.dialects.types.extents import evaluate, symbols

_NUMBERS = (5, 3, 7, 4, 9)
"""By symbol, where it may be these; different ones, so that no two axes are alike by accident."""


def at_numbers(kernel: KernelOp) -> KernelOp:
    """The kernel, or one like it that stands by itself where some extents are sizes."""
    values: list[SSAValue] = [value for op in kernel.walk() for value in op.results]
    values += kernel.block.args
    found = symbols(extent for value in values if is_tensor(value) and has_sizes(value) for extent in sizes(value))
    if not found:
        return kernel
    numbers = {
        one.name: min(max(-(-number // one.multiple) * one.multiple, one.least), one.most)
        for one, number in zip(found, cycle(_NUMBERS))
    }
    operands = Block(arg_types=[value.type for value in kernel.operands]).args
    copy = kernel.clone(dict(zip(kernel.operands, operands, strict=False)))
    copy.operands = operands
    change_sizes(copy, lambda extent: evaluate(extent, numbers))
    return copy
