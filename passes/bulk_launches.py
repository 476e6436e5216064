"""Group launches of generated kernels into segments that need no synchronisation inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ..dialects.fused import KernelOp
from ..dialects.graph_op import GraphOp, StructuredOp, int_value
from ..dialects.kernel_access import is_library, kernel_access
from ..dialects.storage import aliased_operand, functions_of
from .remarks import RefusedError, remark


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
    end a segment and are in none; views that move nothing and constants launch nothing and end none.

    Requires: nothing; where `schedule-kernels` has run, its kinds decide. Ensures: a generated kernel is in one segment.
    """

    name = "bulk-launches"

    max_launches: int = 0
    """The most launches in a segment: 0 for no limit, 1 to synchronise after each."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.max_launches < 0:
            raise RefusedError(f"'{self.name}' option max-launches: expected 0 or more, got {self.max_launches}", op)
        for function in functions_of(op):
            for number, segment in enumerate(self._segments(function)):
                for kernel in segment:
                    kernel.segment = int_value(number)
                message = f"begins segment {number}"
                remark(self.name, segment[0], "segment", message, segment=number, launches=len(segment))

    def _segments(self, function: FuncOp) -> Iterator[list[KernelOp]]:
        run: list[KernelOp] = []
        for op in function.body.block.ops:
            if isinstance(op, KernelOp) and not _is_apart(op):
                run.append(op)
                ends = len(run) == self.max_launches
            else:
                ends = bool(run) and not _launches_nothing(op)
            if ends:
                yield run
                run = []
        if run:
            yield run


def _is_apart(kernel: KernelOp) -> bool:
    """Whether a kernel is in no segment; it then carries none, and a remark says why."""
    if (reason := _runs_apart(kernel)) is None:
        return False
    kernel.segment = None
    remark(BulkLaunchesPass.name, kernel, "apart", f"is in no segment: {reason}")
    return True


def _runs_apart(kernel: KernelOp) -> str | None:
    """Why a kernel cannot share a segment with others; None for generated kernels."""
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
