"""Products that differ in where they begin in an operand share a function, which has the place as an argument.

A recurrent layer that is unrolled multiplies a slice of its input at each step: without this each step has a function, of which
generating and compiling take their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.products import MATMUL
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.graph.bases.movement import SlicingOp, Span
from fuse_opt.dialects.interfaces.properties import shape_attribute
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.extents import is_number, substitute, symbols
from fuse_opt.dialects.types.size import Extent, SizeRefusal, symbol
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
    """Of kernels, with the storages of their operands and results, those products that another one differs from in starts alone."""
    found: defaultdict[Hashable, list[tuple[Hashable, AnyStart, KernelOp]]] = defaultdict(list)
    for kernel, memory in kernels:
        if kernel.schedule_kind() == MATMUL and (general := _with_any_start(kernel)) is not None:
            found[kernel_key(general.kernel, memory)].append((kernel_key(kernel, memory), general, kernel))
    groups = [group for group in found.values() if len({key for key, _, _ in group}) > 1]
    return {kernel: general for group in groups for _, general, kernel in group}


def _with_any_start(kernel: KernelOp) -> AnyStart | None:
    """The kernel with symbols for the starts of slices that take a part of an axis; None where there is no such one."""
    if not any(map(_has_free_start, kernel.block.ops)):
        return None
    operands = Block(arg_types=[value.type for value in kernel.operands]).args
    copy = kernel.clone(dict(zip(kernel.operands, operands, strict=False)))
    copy.operands = operands
    copy.location = kernel.location
    found = AnyStart(copy)
    for op in copy.block.ops:
        if isinstance(op, SlicingOp) and _has_free_start(op):
            _free_starts(op, found.values)
    return found


def _has_free_start(op: Operation) -> bool:
    """Whether an op is a slice of a part of an axis, all known."""
    if not isinstance(op, SlicingOp) or not op.is_view() or not op.has_numbers():
        return False
    try:
        spans = op.spans()
    except SizeRefusal:
        return False  # who generates it says why
    extents = shape(op.operands[0])
    return all(span.step == 1 and span.count for span in spans) and any(map(_is_part, spans, extents))


def _is_part(span: Span, extent: Extent) -> bool:
    """Whether these are some positions of an axis."""
    return all(map(is_number, (span.start, span.count, extent))) and span.count < extent


def _free_starts(op: SlicingOp, values: dict[str, int]) -> None:
    starts: list[Extent] = []
    stops: list[Extent] = []
    for (start, stop, _), span, extent in zip(op.stated(), op.spans(), shape(op.operands[0]), strict=True):
        if not _is_part(span, extent):
            starts.append(start)
            stops.append(stop)
            continue
        name = f"{_PREFIX}{len(values)}"
        values[name] = span.start
        starts.append(symbol(name, 0, extent - span.count))
        stops.append(starts[-1] + span.count)
    op.starts, op.stops = shape_attribute(starts), shape_attribute(stops)
