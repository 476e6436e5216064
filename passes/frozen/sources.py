"""Which frozen arguments a value is made from, and how many bytes these have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments, prepared_of
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import KernelOp, directives
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import is_static


class Sources:
    """Sets of frozen arguments, as bits of an integer: of values that follow from frozen arguments and constants alone."""

    def __init__(self, function: FuncOp) -> None:
        arguments = function.body.block.args
        frozen = frozen_arguments(function)
        self._sizes = [byte_size(arguments[number]) or 0 for number in frozen]
        self._of: dict[SSAValue, int] = {arguments[number]: 1 << bit for bit, number in enumerate(frozen)}
        self._sums = {1 << bit: size for bit, size in enumerate(self._sizes)}
        """By set, the bytes of its arguments."""
        if (prepared := prepared_of(function)) is not None:
            self._of.update(self._of_prepared(prepared.function, [arguments[number] for number in prepared.arguments]))

    def _of_prepared(self, prepare: FuncOp, arguments: list[SSAValue]) -> dict[SSAValue, int]:
        inner: dict[SSAValue, int] = {value: 1 << bit for bit, value in enumerate(prepare.body.block.args)}
        for op in prepare.body.block.ops:
            if isinstance(op, ReturnOp):
                return {value: inner[given] for value, given in zip(arguments, op.operands, strict=True)}
            made_from = self._union([inner[operand] for operand in op.operands])
            inner.update(dict.fromkeys(op.results, made_from))
        return {}

    def follow(self, op: Operation) -> None:
        """Knows the results of an op from now on, if it knows all of its operands."""
        if all(operand in self._of for operand in op.operands):
            made_from = self._union([self._of[operand] for operand in op.operands])
            self._of.update(dict.fromkeys(op.results, made_from))

    def _union(self, sets: Sequence[int]) -> int:
        """One set of several. Its bytes are those of the largest of them and what the others add, which are few mostly."""
        union = 0
        for each in sets:
            union |= each
        if union and union not in self._sums:
            largest = max(sets, key=int.bit_count)
            self._sums[union] = self._sums[largest] + sum(self._sizes[bit] for bit in _bits(union ^ largest))
        return union

    def knows(self, value: SSAValue) -> bool:
        """Whether a value follows from frozen arguments and constants alone."""
        return value in self._of

    def nbytes_of(self, value: SSAValue) -> int:
        """Bytes of the frozen arguments that a value follows from; 0 where it follows from others, or from constants alone."""
        return self._sums.get(self._of.get(value, 0), 0)

    def covers(self, op: Operation) -> bool:
        """Whether the op's results are known."""
        return bool(op.results) and all(result in self._of for result in op.results)

    def nbytes(self, value: SSAValue) -> int | None:
        """Bytes of the frozen arguments that a known value is made from; None where it is made of constants alone."""
        made_from = self._of[value]
        return self._sums[made_from] if made_from else None


def may_move(op: Operation) -> bool:
    """Whether the op is one of ours of which nobody has decided anything, and its results have known sizes."""
    if not isinstance(op, GraphOp | KernelOp) or not all(map(is_static, (*op.operands, *op.results))):
        return False
    return not any(directives(inner) or _is_foreign(inner) for inner in with_body(op))


def with_body(op: Operation) -> Sequence[Operation]:
    """The op, and those of a kernel behind it."""
    return (op, *op.block.ops) if isinstance(op, KernelOp) else (op,)


def _is_foreign(op: Operation) -> bool:
    """Whether who calls the function runs the op, and nobody else can."""
    return isinstance(op, OpaqueOp) and op.RUN_BY_CALLER


def _bits(number: int) -> Iterator[int]:
    """The places of ones, the lowest first."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
