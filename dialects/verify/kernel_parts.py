"""Which ops of a kernel can only run together, for the plan verifier: shared with no planner."""

from __future__ import annotations

from math import prod

from xdsl.ir import BlockArgument, OpResult, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import shape


class Parts:
    """Which ops of a kernel depend on each other, as values that stand for them."""

    def __init__(self, kernel: KernelOp) -> None:
        self.kernel = kernel
        self._above: dict[SSAValue, SSAValue] = {}
        self._read: dict[SSAValue, set[int]] = {}
        ops = [op for op in kernel.block.ops if op.results]
        for op in ops:
            for value in op.operands:
                if isinstance(value, OpResult) and value.op.operands:  # what is made from nothing connects nothing
                    self._above[self.top(value)] = self.top(op.results[0])
        for op in ops:
            for value in op.operands:
                if isinstance(value, BlockArgument):
                    self._read.setdefault(self.top(op.results[0]), set()).add(value.index)
        self.tops = [self.top(value) for value in kernel.yielded()]
        """By result."""

    def top(self, value: SSAValue) -> SSAValue:
        while (above := self._above.get(value, value)) is not value:
            self._above[value] = value = self._above.get(above, above)
        return value

    def reads(self, result: int) -> set[int]:
        """The operands that a result is made of; it may be one of them itself."""
        pending = [self.kernel.yielded()[result]]
        seen = set(pending)
        for value in pending:
            fresh = [v for v in value.op.operands if v not in seen] if isinstance(value, OpResult) else []
            seen.update(fresh)
            pending += fresh
        return {value.index for value in seen if isinstance(value, BlockArgument)}

    def family(self, start: SSAValue) -> set[SSAValue]:
        """The parts that run with one: they read a common operand as large as any of their results."""
        largest: dict[SSAValue, int] = {}
        for top, value in zip(self.tops, self.kernel.results, strict=True):
            largest[top] = max(largest.get(top, 0), prod(shape(value)))
        shared: list[set[SSAValue]] = []
        for number, value in enumerate(self.kernel.operands):
            size = prod(shape(value))
            shared.append({top for top, n in largest.items() if number in self._read.get(top, ()) and 1 < size >= n})
        family, grown = {start}, True
        while grown:
            before = len(family)
            family.update(top for tops in shared if tops & family for top in tops)
            grown = len(family) > before
        return family
