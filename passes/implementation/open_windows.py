"""Make convolutions of few products an element sums that kernels compute, where that takes less time than a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation

from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.decisions.choices import Choices
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.implementation.costs import called_seconds, pass_seconds
from fuse_opt.passes.implementation.replaced_calls import ReplacedCallsPass
from fuse_opt.passes.remarks import remark


@dataclass(frozen=True)
class OpenWindowsPass(ReplacedCallsPass):
    """A convolution whose elements are short sums becomes a kernel of these, which fusion knows as any other.

    ```mlir
    %r = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>, groups = 96 : i64} : (tensor<32x96x56x56xf32>, ...) -> ...
    ```
    becomes
    ```mlir
    %r = fused.kernel(%x_1 = %x : ..., %w_1 = %w : ...) -> (tensor<32x96x56x56xf32>) { graph.pad, then by taps: graph.slice, ... }
    ```
    Only for devices, where it is a depthwise one of f32 by small windows, and no library takes it, or the cheapest call takes
    more time than a pass over its operands and its result and the operations of that, as far as implementations and the
    device's file say. On CPUs it is code of the program anyway.

    Requires: nothing; what is of unknown extents, or lies in another order than row-major, stays. Ensures: the same sums,
    in the order of the taps.
    """

    name = "open-windows"

    def replaced(self, op: OpaqueOp, machine: Device, choices: Choices) -> Sequence[Operation]:
        builder = GraphBuilder()
        if (result := op.as_sums(builder)) is None:
            return ()
        called = called_seconds(op, machine)
        computed = sum(prod(shape(inner.results[0])) for inner in builder.ops if not _is_view(inner))
        moved = pass_seconds((*op.operands, *op.results), machine)
        own = max(moved, machine.launch + machine.work_seconds(computed))
        numbers = {"us": round(own * 1e6, 1), "called_us": -1 if called is None else round(called * 1e6, 1)}
        wanted = any(choices.told(op)) if choices.replays else called is None or own < called
        if not wanted or not choices.take(op, "sums"):
            remark(
                self.name, op, "called", "stays a call: code of the program would take no less time", numbers=numbers
            )
            builder.discard()
            return ()
        remark(self.name, op, "opened", "is sums that a kernel computes, in less time than a call", numbers=numbers)
        builder.replace(op, result)
        return builder.ops


def _is_view(op: Operation) -> bool:
    return isinstance(op, StructuredOp) and op.is_view()
