"""What to call a kernel, what to write above it, and when two kernels say the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.fused import KernelOp

_LONGEST_NAME = 48
_MOST_NAMED = 24


def kernel_name(kernel: KernelOp) -> str:
    """`kernel_` and the names of its ops, without their dialect."""
    name = "kernel"
    for short in dict.fromkeys(op.name.rpartition(".")[2] for op in kernel.ops() if op.operands):
        if len(name) + len(short) >= _LONGEST_NAME:
            return f"{name}_etc"
        name = f"{name}_{short}"
    return name


def kernel_comment(kernel: KernelOp) -> str:
    """The source ops and where they stand, one after another; equal places are said once."""
    parts: list[str] = []
    ops = [op for op in kernel.ops() if op.operands] or kernel.ops()
    place = ""
    for op in ops[:_MOST_NAMED]:
        here = _place(op)
        parts.append(op.name if here in ("", place) else f"{op.name} ({here})")
        place = here or place
    if len(ops) > _MOST_NAMED:
        parts.append(f"and {len(ops) - _MOST_NAMED} more")
    return ", ".join(parts)


def _place(op: Operation) -> str:
    location = op.location
    if not isinstance(location, FileLineColLoc):
        return ""
    return f"{location.filename.data}:{location.line.data}"


def kernel_key(kernel: KernelOp, memory: Sequence[int]) -> Hashable:
    """Equal for kernels whose loops are the same: ops, types, schedule, and which buffers are one."""
    numbers: dict[SSAValue, int] = {argument: number for number, argument in enumerate(kernel.block.args)}
    ops: list[Hashable] = []
    for op in kernel.block.ops:
        operands = tuple(numbers[operand] for operand in op.operands)
        types: tuple[Attribute, ...] = tuple(result.type for result in op.results)
        ops.append((op.name, frozenset(op.properties.items()), operands, types))
        for result in op.results:
            numbers[result] = len(numbers)
    first: dict[int, int] = {}
    pattern = tuple(first.setdefault(storage, position) for position, storage in enumerate(memory))
    kinds = tuple(argument.type for argument in kernel.block.args)
    return kinds, tuple(ops), kernel.schedule, pattern
