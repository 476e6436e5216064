"""What of its buffers a task of a kernel touches: interval arithmetic over the kernel's indices.

An index is kept as `step * task + r` with r in `[low, high]`. Every load and store of a buffer must be in
`[step * task, step * (task + 1))` for one step, else nothing is known of the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType
from xdsl.ir import BlockArgument, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.program import NUMPY_NAMES


@dataclass(frozen=True, slots=True)
class _Form:
    step: int
    low: int
    high: int

    def __add__(self, other: _Form) -> _Form:
        return _Form(self.step + other.step, self.low + other.low, self.high + other.high)

    def times(self, factor: int) -> _Form:
        low, high = sorted((self.low * factor, self.high * factor))
        return _Form(self.step * factor, low, high)

    @property
    def constant(self) -> int | None:
        return self.low if not self.step and self.low == self.high else None


def task_slices(kernel: func.FuncOp) -> tuple[int | None, ...]:
    """By buffer of a kernel, which ends in the bounds of its tasks: the bytes of each task, or None."""
    buffers = [argument for argument in kernel.body.block.args if isinstance(argument.type, MemRefType)]
    forms = _Forms(kernel)
    return tuple(_slice(buffer, forms) for buffer in buffers)


def _slice(buffer: SSAValue, forms: _Forms) -> int | None:
    assert isa(buffer.type, MemRefType)
    element = dtype_of(buffer.type.element_type)
    steps: set[int] = set()
    for use in buffer.uses:
        match use.operation:
            case memref.LoadOp() | memref.StoreOp() as access if use.operation.memref is buffer:
                pass
            case _:
                return None
        form = forms.of(access.indices[0]) if len(access.indices) == 1 else None
        if form is None or not 0 <= form.low <= form.high < form.step:
            return None
        steps.add(form.step)
    if len(steps) != 1 or element is None:
        return None
    return steps.pop() * np.dtype(NUMPY_NAMES[element.name]).itemsize


class _Forms:
    """The indices of a kernel, each as a form where it is one."""

    def __init__(self, kernel: func.FuncOp) -> None:
        self._tasks = kernel.body.block.args[-2:]
        self._known: dict[SSAValue, _Form | None] = {}

    def of(self, value: SSAValue) -> _Form | None:
        pending = [value]
        while pending:
            needed = [v for v in _inputs(pending[-1]) if v not in self._known]
            if needed and pending[-1] not in self._known:
                pending += needed
                continue
            last = pending.pop()
            if last not in self._known:
                self._known[last] = self._form(last)
        return self._known[value]

    def _form(self, value: SSAValue) -> _Form | None:
        if isinstance(value, BlockArgument):
            return self._variable(value)
        op = value.owner
        if isinstance(op, arith.ConstantOp):
            number = op.value.value.data if isinstance(op.value, IntegerAttr) else None
            return None if number is None else _Form(0, number, number)
        operands = [self._known[operand] for operand in _inputs(value)]
        if len(operands) != 2 or (lhs := operands[0]) is None or (rhs := operands[1]) is None:
            return None
        match op:
            case arith.AddiOp():
                return lhs + rhs
            case arith.SubiOp():
                return lhs + rhs.times(-1)
            case arith.MuliOp():
                if (factor := rhs.constant) is not None:
                    return lhs.times(factor)
                return None if lhs.constant is None else rhs.times(lhs.constant)
            case _:
                return None

    def _variable(self, value: BlockArgument) -> _Form | None:
        bounds = _bounds(value)
        if bounds is None:
            return None
        lower, upper, step = bounds
        if self._are_tasks(lower, upper):
            return _Form(1, 0, 0) if (by := self._known[step]) is not None and by.constant == 1 else None
        first, last = self._known[lower], self._known[upper]
        if first is None or last is None or first.step != last.step:
            return None
        return _Form(first.step, first.low, max(last.high - 1, first.low))

    def _are_tasks(self, lower: SSAValue, upper: SSAValue) -> bool:
        """Whether a loop within these bounds counts tasks: all, or a block of them that a loop around it begins."""
        begin, end = self._tasks
        if isinstance(lower, BlockArgument) and isinstance(upper.owner, arith.MinSIOp) and upper.owner.rhs is end:
            outer = _bounds(lower)
            return outer is not None and outer[0] is begin and outer[1] is end
        return lower is begin and upper is end


def _bounds(value: BlockArgument) -> tuple[SSAValue, SSAValue, SSAValue] | None:
    """Lower bound, upper bound and step of a loop's variable."""
    match value.owner.parent_op():
        case scf.ForOp() as loop if value.index == 0:
            return loop.lb, loop.ub, loop.step
        case scf.ParallelOp() as loop if value.index < len(loop.lowerBound):
            return loop.lowerBound[value.index], loop.upperBound[value.index], loop.step[value.index]
        case _:
            return None


def _inputs(value: SSAValue) -> tuple[SSAValue, ...]:
    """What the form of a value is made from."""
    if isinstance(value, BlockArgument):
        return _bounds(value) or ()
    owner = value.owner
    return (owner.lhs, owner.rhs) if isinstance(owner, arith.AddiOp | arith.SubiOp | arith.MuliOp) else ()
