"""By what an op is found again in a program that was edited elsewhere: what it is, and what is near it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.bare_ops import bare_source
from fuse_opt.dialects.analysis.kernel_key import meaning
from fuse_opt.dialects.fused import KernelOp, YieldOp

STEPS = 2
"""How far away what is near may be."""
_DIGITS = 12


class Neighbourhoods:
    """
    Checksums of ops, their types and attributes, with those of what they read and of what reads them, kernels or not. No names,
    places or numbers are in them.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[Operation, int], str] = {}
        self._behind: dict[tuple[Operation, int], str] = {}

    def clear(self) -> None:
        """Forgets what was seen: ops are others now."""
        self._before.clear()
        self._behind.clear()

    def of(self, op: Operation) -> str:
        """The checksum of an op."""
        return _digest(f"{self._read(op, STEPS)} {self._readers(op, STEPS)}")

    def _read(self, op: Operation, steps: int) -> str:
        if (op, steps) not in self._before:
            found = [meaning(op)]
            for value in map(bare_source, op.operands if steps else ()):
                maker = value.op if isinstance(value, OpResult) else None
                found.append(f"argument {value.type}" if maker is None else self._read(maker, steps - 1))
            self._before[op, steps] = _digest("\n".join(found))
        return self._before[op, steps]

    def _readers(self, op: Operation, steps: int) -> str:
        if (op, steps) not in self._behind:
            uses = ((value, use) for value in op.results if steps for use in _bare_uses(value))
            found = [f"{value.index} {place} {self._readers(reader, steps - 1)}" for value, (reader, place) in uses]
            self._behind[op, steps] = _digest("\n".join([meaning(op), *sorted(found)]))
        return self._behind[op, steps]


def _bare_uses(value: SSAValue) -> Iterator[tuple[Operation, int]]:
    """The ops that read a value, in kernels or outside, each with the number of the operand."""
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses:
            op = use.operation
            if isinstance(op, KernelOp):
                waiting.append(op.block.args[use.index])
            elif isinstance(op, YieldOp) and isinstance(kernel := op.parent_op(), KernelOp):
                waiting.append(kernel.results[use.index])
            else:
                yield op, use.index


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
