"""The parts of a kernel that run side by side in one launch, each one pass of its own.

Ops are in one part when one needs the other's result; operands of the kernel connect nothing, and what is made from
nothing (constants) belongs to every part that reads it. Parts that read a common operand of full size are one, when
together they are one pass: it is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, trace, trace_kernel
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.extents import estimate

PACK = "pack"
"""The schedule kind of a kernel that runs as several parts."""
MOST_IN_ONE_PASS = 3
"""Parts of one size that one loop takes together; of more it would keep too many streams and too few rows in flight."""


def kernel_passes(kernel: KernelOp, kind: str | None) -> tuple[LoopBody, ...]:
    """
    The passes that the kernel runs as under a schedule kind, or under the best one for None: one pass, or the parts of a
    pack. Parts store numbers of the kernel's results. Raises Unschedulable.
    """
    if kind is not None and kind != PACK:
        return (trace_kernel(kernel),)
    parts = split_parts(kernel)
    if len(parts) < 2:
        if kind == PACK:
            raise Unschedulable("one-part", "is one part: there are none to run side by side")
        return (trace_kernel(kernel),)
    if kind == PACK:
        return _joined(kernel, parts)
    try:
        passes = _joined(kernel, parts)
    except Unschedulable:
        if whole := _whole(kernel):
            return whole
        raise
    return passes if len(passes) > MOST_IN_ONE_PASS else _whole(kernel) or passes


def _whole(kernel: KernelOp) -> tuple[LoopBody, ...]:
    """The kernel as one pass; nothing where it is none."""
    try:
        return (trace_kernel(kernel),)
    except Unschedulable:
        return ()


@dataclass(eq=False)
class Part:
    """Ops of a kernel that depend on each other, and the numbers of the kernel's results that they give."""

    ops: list[Operation] = field(default_factory=list[Operation])
    results: list[int] = field(default_factory=list[int])

    def members(self) -> list[Operation]:
        """The ops, with those made from nothing that they read."""
        made = [value.op for op in self.ops for value in op.operands if isinstance(value, OpResult)]
        return list(dict.fromkeys((*(op for op in made if not op.operands), *self.ops)))


def split_parts(kernel: KernelOp) -> list[Part]:
    """The parts of a kernel by what depends on each other, in the order of their first results."""
    parents: dict[SSAValue, SSAValue] = {}
    for op in kernel.block.ops:
        if not op.operands or not op.results:
            continue
        made = [v for v in op.operands if isinstance(v, OpResult) and v.op.operands]
        for value in (*op.results, *made):
            parents.setdefault(value, value)
            parents[_root(parents, value)] = _root(parents, op.results[0])
    parts: dict[SSAValue, Part] = {}
    for number, value in enumerate(kernel.yielded()):
        parts.setdefault(_root(parents, value), Part()).results.append(number)
        if value not in parents and isinstance(value, OpResult):
            parts[value].ops[:] = [value.op]
    for op in kernel.block.ops:
        if op.operands and op.results and (part := parts.get(_root(parents, op.results[0]))) is not None:
            part.ops.append(op)
    return list(parts.values())


def _root(parents: dict[SSAValue, SSAValue], value: SSAValue) -> SSAValue:
    while (parent := parents.get(value, value)) is not value:
        parents[value] = value = parents[parent]
    return value


def _joined(kernel: KernelOp, parts: Sequence[Part]) -> tuple[LoopBody, ...]:
    """The parts as passes; those that read the same large operand as one, where that is a pass. Raises Unschedulable."""
    results = kernel.yielded()
    passes: list[LoopBody] = []
    for family in _families(results, parts):
        together = Part([op for part in family for op in part.ops], sorted(n for part in family for n in part.results))
        try:
            passes.append(_traced(results, together))
        except Unschedulable:
            if len(family) == 1:
                raise
            passes.extend(_traced(results, part) for part in family)
    return tuple(passes)


def _traced(results: Sequence[SSAValue], part: Part) -> LoopBody:
    loop_body = trace([results[number] for number in part.results], dict.fromkeys(part.members()))
    return replace(loop_body, stores=tuple(replace(s, result=part.results[s.result]) for s in loop_body.stores))


def _families(results: Sequence[SSAValue], parts: Sequence[Part]) -> list[list[Part]]:
    """Parts that read a common operand with as many elements as any of their results, or more, of typical sizes."""
    families = {part: [part] for part in parts}
    readers: dict[SSAValue, Part] = {}
    for part in parts:
        largest = max(estimate(prod(shape(results[number]))) for number in part.results)
        for value in dict.fromkeys(value for op in part.ops for value in op.operands):
            if not isinstance(value, BlockArgument) or not 1 < estimate(prod(shape(value))) >= largest:
                continue
            first, second = families[readers.setdefault(value, part)], families[part]
            if first is not second:
                first.extend(second)
                families.update(dict.fromkeys(second, first))
    return list({id(family): family for family in families.values()}.values())
