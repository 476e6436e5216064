"""Products that differ in where they begin in an operand share a function, which has the place as an argument.

A recurrent layer that is unrolled multiplies a slice of its input at each step: without this each step has a function, of which
generating and compiling take their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.products import MATMUL
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.partial_reads import PartialRead
from fuse_opt.dialects.types.extents import substitute, symbols
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.kernel.naming import kernel_key

_PREFIX = "\0start "
"""Of symbols that stand for starts; in no name that a program gives one."""


@dataclass(frozen=True, slots=True)
class AnyStart:
    """A kernel with symbols in the place of some starts of its slices."""

    kernel: KernelOp
    """It stands by itself: its operands are the arguments of a block without ops."""
    values: dict[str, int] = field(default_factory=dict[str, int])
    """Of these symbols in the kernel that it was made of."""

    def at(self, number: Callable[[Extent], SSAValue]) -> Callable[[Extent], SSAValue]:
        """What gives constants, for the kernel that this was made of."""
        return lambda extent: number(substitute(extent, self.values))


def are_starts(extents: Iterable[Extent]) -> bool:
    """Whether all that is not known of these are starts of slices."""
    return all(one.name.startswith(_PREFIX) for one in symbols(extents))


def shared_starts(kernels: Sequence[tuple[KernelOp, Sequence[int]]]) -> dict[KernelOp, AnyStart]:
    """Of kernels, with the storages of what they read and make, those products that differ from another one in starts alone."""
    found: defaultdict[Hashable, list[tuple[Hashable, AnyStart, KernelOp]]] = defaultdict(list)
    for kernel, memory in kernels:
        if kernel.schedule_kind() == MATMUL and (general := _with_any_start(kernel)) is not None:
            found[kernel_key(general.kernel, memory)].append((kernel_key(kernel, memory), general, kernel))
    groups = [group for group in found.values() if len({key for key, _, _ in group}) > 1]
    return {kernel: general for group in groups for _, general, kernel in group}


def _with_any_start(kernel: KernelOp) -> AnyStart | None:
    """The kernel with symbols for the starts of slices that take a part of an axis; None where there is no such one."""
    if not any(map(_has_known_starts, kernel.block.ops)):
        return None
    operands = Block(arg_types=[value.type for value in kernel.operands]).args
    copy = kernel.clone(dict(zip(kernel.operands, operands, strict=False)))
    copy.operands = operands
    copy.location = kernel.location
    names = map(f"{_PREFIX}{{}}".format, count())
    found = AnyStart(copy)
    for op in copy.block.ops:
        if isinstance(op, PartialRead) and op.has_known_starts():
            found.values.update(op.free_starts(lambda: next(names)))
    return found


def _has_known_starts(op: Operation) -> bool:
    return isinstance(op, PartialRead) and op.has_known_starts()
