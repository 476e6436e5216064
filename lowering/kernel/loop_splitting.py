"""Loops cut into parts that are tasks, and parts of a loop's body for iterations that are written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.extents import ceiling_quotient, may_exceed
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.kernel.scope import Scope, buffer_type

SECOND_LEVEL_CACHE, OUTSIDE_CACHES = 2 << 20, 64 << 20
"""Bytes that the second level caches of most machines do not hold, and the third level ones."""


class Fixed(Scope):
    """A part of a scope in which some dimensions have values that are known, relative to other dimensions."""

    def __init__(self, parent: Scope, values: Mapping[Dim, IndexExpr]) -> None:
        super().__init__(parent, parent.block, {})
        self.fixed = values
        root = self.root
        self.indices = dict.fromkeys(values, root.index_constant(0))

    def index(self, expression: IndexExpr) -> SSAValue:
        return super().index(expression.substitute(self.fixed))


def outside_caches(loop_body: LoopBody) -> bool:
    """Whether a pass reads and stores more than caches hold."""
    return is_moved(loop_body, OUTSIDE_CACHES)


def is_moved(loop_body: LoopBody, nbytes: int) -> bool:
    """Whether what a pass reads and stores has so many bytes; not where that is unknown."""
    values = [*(node.value for node in loop_body.loads()), *(store.node.value for store in loop_body.stores)]
    moved = sum(prod(shape(value)) * dtype(value).itemsize for value in dict.fromkeys(values))
    return not isinstance(moved, Size) and moved >= nbytes


def flat_memory(root: Scope, memory: SSAValue) -> SSAValue:
    """The memory without its size, as helpers take it."""
    kind = memory.type
    assert isa(kind, MemRefType)
    flat = buffer_type(kind.element_type, DYNAMIC_INDEX)
    return root.made(("flat", memory), lambda: memref.CastOp.get(memory, flat))


def part_length(length: int, splits: int, multiple: int) -> int:
    """
    The length of the parts of a loop, which are as many as asked for at most; all but the last are multiples. Of a length that is
    a size the last ones may be empty.
    """
    if isinstance(length, Size):
        return cast(int, ceiling_quotient(ceiling_quotient(length, max(splits, 1)), multiple) * multiple)
    part = -(-length // min(max(splits, 1), max(length, 1)))
    return max(-(-part // multiple) * multiple, 1)


def task_parts(scope: Scope, root: Scope, task: SSAValue, extents: Sequence[Extent]) -> list[SSAValue]:
    """The digits of a task's number in the mixed radix of the extents."""
    digits: list[SSAValue] = []
    for place, size in enumerate(extents):
        below, digit = prod(extents[place + 1 :]), task
        if not may_exceed(size, 1):
            digit = root.index_constant(0)
        elif may_exceed(below, 1):
            digit = scope.add(arith.DivSIOp(digit, root.index_constant(below)))
        if may_exceed(size, 1) and any(may_exceed(other, 1) for other in extents[:place]):
            digit = scope.add(arith.RemSIOp(digit, root.index_constant(size)))
        digits.append(digit)
    return digits


def part_bounds(scope: Scope, number: SSAValue, part: Extent, length: Extent) -> tuple[SSAValue, SSAValue]:
    """Where part `number` of a loop begins and ends."""
    constant = scope.root.index_constant
    if not may_exceed(length, part):
        return constant(0), constant(length)
    first = scope.add(arith.MuliOp(number, constant(part)))
    last = scope.add(arith.AddiOp(first, constant(part)))
    if isinstance(part, Size) or may_exceed(length % part, 0):
        last = scope.add(arith.MinSIOp(last, constant(length)))
        last.name_hint = "last"
    return first, last
