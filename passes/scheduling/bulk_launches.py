"""Group launches of generated kernels into segments that need no synchronisation inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.contractions.generated_products import PRODUCT_KINDS
from fuse_opt.dialects.analysis.kernel_access import is_library, kernel_access
from fuse_opt.dialects.analysis.storage import aliased_operand, byte_size, functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.options import check_counts
from fuse_opt.passes.remarks import remark

_JOINED = "joined"
"""What is chosen for a launch that is in the segment of those before it."""


@dataclass(frozen=True)
class BulkLaunchesPass(ModulePass):
    """Numbers the segments of each function: runs of generated kernels with nothing between that must be run apart.

    ```mlir
    %a = fused.kernel(...) -> (tensor<8xf32>) { ... graph.exp ... }
    %b = fused.kernel(...) -> (tensor<8xf32>) { ... graph.tanh ... }
    %c = fused.kernel(...) -> (tensor<8x8xf32>) { ... graph.matmul ... }
    %d = fused.kernel(...) -> (tensor<8x8xf32>) { ... graph.exp ... }
    ```
    becomes
    ```mlir
    %a = fused.kernel(...) -> (tensor<8xf32>) attributes {segment = 0 : i64} { ... graph.exp ... }
    %b = fused.kernel(...) -> (tensor<8xf32>) attributes {segment = 0 : i64} { ... graph.tanh ... }
    %c = fused.kernel(...) -> (tensor<8x8xf32>) { ... graph.matmul ... }
    %d = fused.kernel(...) -> (tensor<8x8xf32>) attributes {segment = 1 : i64} { ... graph.exp ... }
    ```
    A library call, a kernel that runs op by op (schedule kind "reference") and an op outside of kernels that computes
    end a segment and are in none; views that move nothing and constants launch nothing and end none. A product, attention or
    convolution is a generated kernel where its schedule says so.

    Threads meet once at the end of a segment, and inside only where a launch needs what others made: the remark of a segment
    gives its launches, the bytes that they read and write, and the longest chain of launches that need each other. Each launch
    that joins those before it is a decision.

    Requires: nothing; where `schedule-kernels` has run, its kinds decide. Ensures: a generated kernel is in one segment.
    """

    name = "bulk-launches"

    max_launches: int = 0
    """The most launches in a segment: 0 for no limit, 1 to synchronise after each."""

    max_bytes: int = 0
    """The most bytes that the launches of a segment read and write, but for a single one of more: 0 for no limit."""

    def __post_init__(self) -> None:
        check_counts(self)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                for number, segment in enumerate(self._segments(function, choices)):
                    self._number(segment, number)

    def _number(self, segment: Sequence[KernelOp], number: int) -> None:
        for kernel in segment:
            kernel.segment = int_value(number)
        message, count, moved = f"begins segment {number}", len(segment), sum(map(_moved_bytes, segment))
        depth = _depth(segment)
        remark(self.name, segment[0], "segment", message, segment=number, launches=count, bytes=moved, depth=depth)

    def _segments(self, function: FuncOp, choices: Choices) -> Iterator[list[KernelOp]]:
        run: list[KernelOp] = []
        moved = 0
        for op in function.body.block.ops:
            if isinstance(op, KernelOp) and not _is_apart(op):
                size = _moved_bytes(op) if self.max_bytes else 0
                if not self._joins(op, len(run), moved + size, choices):
                    if run:
                        yield run
                    run, moved = [], 0
                run.append(op)
                moved += size
            elif run and not _launches_nothing(op):
                yield run
                run, moved = [], 0
        if run:
            yield run

    def _joins(self, kernel: KernelOp, launches: int, moved: int, choices: Choices) -> bool:
        """Whether a launch is in the segment of so many before it, with which so many bytes are moved. Raises DecisionError."""
        step = choices.told_one(kernel, _JOINED)
        if not launches:
            if step is not None:
                raise step.decision.choice_error("nothing right before it is launched, whose segment it could join")
            return False
        wanted = launches != self.max_launches and (moved <= self.max_bytes or not self.max_bytes)
        return (step is not None if choices.replays else wanted) and choices.take(kernel, _JOINED)


def _moved_bytes(kernel: KernelOp) -> int:
    """What a kernel reads and writes; of unknown extents nothing."""
    return sum(estimate(byte_size(value) or 0) for value in (*kernel.operands, *kernel.results))


def _depth(segment: Sequence[KernelOp]) -> int:
    """How many of the kernels, at most, need one another's results in turn."""
    depths: dict[Operation, int] = {}
    origins: dict[SSAValue, Operation | None] = {}
    for kernel in segment:
        before = [_origin(operand, origins) for operand in kernel.operands]
        depths[kernel] = 1 + max((depths.get(op, 0) for op in before if op is not None), default=0)
    return max(depths.values())


def _origin(value: SSAValue, known: dict[SSAValue, Operation | None]) -> Operation | None:
    """The op that a value comes from, past views that move nothing; None for an argument."""
    seen: list[SSAValue] = []
    while value not in known:
        seen.append(value)
        op = value.op if isinstance(value, OpResult) else None
        viewed = None if op is None else aliased_operand(op)
        if viewed is None:
            known[value] = op
        else:
            value = viewed
    known.update(dict.fromkeys(seen, known[value]))
    return known[value]


def _is_apart(kernel: KernelOp) -> bool:
    """Whether a kernel is in no segment; it then carries none, and a remark says why."""
    if (reason := _runs_apart(kernel)) is None:
        return False
    kernel.segment = None
    remark(BulkLaunchesPass.name, kernel, "apart", f"is in no segment: {reason}")
    return True


def _runs_apart(kernel: KernelOp) -> str | None:
    """Why a kernel cannot share a segment with others; None for generated kernels."""
    if kernel.schedule_kind() in PRODUCT_KINDS:
        return None
    if is_library(kernel):
        return "it is a library call"
    if kernel.schedule_kind() == "reference":
        return "its schedule runs it op by op"
    access = kernel_access(kernel)
    return None if access.scheme is not None else f"it runs op by op, as it {access.message}"


def _launches_nothing(op: Operation) -> bool:
    """Whether an op between kernels costs no launch: a view that moves nothing, a constant, the end."""
    if isinstance(op, ReturnOp) or aliased_operand(op) is not None:
        return True
    if isinstance(op, GraphOp) and op.stored_value() is not None:
        return True
    return isinstance(op, StructuredOp) and not op.operands
