"""Ops of sizes at numbers: what is checked element by element is so at some values of their symbols."""

from __future__ import annotations

from itertools import cycle
from typing import TypeVar

from xdsl.ir import Attribute, Block, Operation, SSAValue

from fuse_opt.dialects.interfaces.shapes import has_sizes, sizes, tensor
from fuse_opt.dialects.interfaces.symbols import change_sizes, is_tensor, stated_sizes
from fuse_opt.dialects.types.extents import evaluate, symbols
from fuse_opt.dialects.types.symbolic_shape import with_extents

_NUMBERS = (5, 3, 7, 4, 9)
"""By symbol, where it may be these; different ones, so that no two axes are alike by accident."""

_Op = TypeVar("_Op", bound=Operation)


def at_numbers(op: _Op) -> _Op:
    """The op, a kernel or a view, or one like it that stands by itself where some extents are sizes."""
    found = symbols([*(n for value in _values(op) if is_tensor(value) for n in sizes(value)), *stated_sizes(op)])
    if not found:
        return op
    numbers = {
        one.name: min(max(-(-number // one.multiple) * one.multiple, one.least), one.most)
        for one, number in zip(found, cycle(_NUMBERS))
    }

    def type_at(value: SSAValue) -> Attribute:
        if not is_tensor(value) or not has_sizes(value):
            return value.type
        return with_extents(tensor(value), [evaluate(extent, numbers) for extent in sizes(value)])

    operands = Block(arg_types=[type_at(value) for value in op.operands]).args
    copy = op.clone(dict(zip(op.operands, operands, strict=False)))
    copy.operands = operands
    change_sizes(copy, lambda extent: evaluate(extent, numbers))
    return copy


def _values(op: Operation) -> list[SSAValue]:
    inner = list(op.walk())
    blocks = [block for one in inner for region in one.regions for block in region.blocks]
    return [
        *op.operands,
        *(value for one in inner for value in one.results),
        *(value for block in blocks for value in block.args),
    ]
