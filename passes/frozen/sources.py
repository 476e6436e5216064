"""Which frozen arguments a value is made from, and how many bytes these have."""

from __future__ import annotations

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments, prepared_of
from fuse_opt.dialects.analysis.storage import byte_size


class Sources:
    """Sets of frozen arguments, as bits of an integer: of values that follow from frozen arguments and constants alone."""

    def __init__(self, function: FuncOp) -> None:
        self._numbers = frozen_arguments(function)
        arguments = function.body.block.args
        self._sizes = [byte_size(arguments[number]) or 0 for number in self._numbers]
        self._of: dict[SSAValue, int] = {arguments[number]: 1 << bit for bit, number in enumerate(self._numbers)}
        self._sums: dict[int, int] = {}
        if (prepared := prepared_of(function)) is not None:
            self._of.update(self._of_prepared(prepared.function, [arguments[number] for number in prepared.arguments]))

    def _of_prepared(self, prepare: FuncOp, arguments: list[SSAValue]) -> dict[SSAValue, int]:
        inner: dict[SSAValue, int] = {value: 1 << bit for bit, value in enumerate(prepare.body.block.args)}
        for op in prepare.body.block.ops:
            if isinstance(op, ReturnOp):
                return {value: inner[given] for value, given in zip(arguments, op.operands, strict=True)}
            made_from = 0
            for operand in op.operands:
                made_from |= inner[operand]
            inner.update(dict.fromkeys(op.results, made_from))
        return {}

    def follow(self, op: Operation) -> None:
        """Knows the results of an op from now on, if it knows all of its operands."""
        made_from = 0
        for operand in op.operands:
            if operand not in self._of:
                return
            made_from |= self._of[operand]
        self._of.update(dict.fromkeys(op.results, made_from))

    def covers(self, op: Operation) -> bool:
        """Whether the op's results are known."""
        return bool(op.results) and all(result in self._of for result in op.results)

    def nbytes(self, value: SSAValue) -> int | None:
        """Bytes of the frozen arguments that a known value is made from; None where it is made of constants alone."""
        if not (made_from := self._of[value]):
            return None
        if made_from not in self._sums:
            self._sums[made_from] = sum(size for bit, size in enumerate(self._sizes) if made_from >> bit & 1)
        return self._sums[made_from]
