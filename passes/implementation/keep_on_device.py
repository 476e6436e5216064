"""Put other ops in place of those that no implementation of a device takes, so that the host runs none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from fuse_opt.dialects.implementation.site import Machine, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.passes.decisions.choices import Choices
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.implementation.replaced_calls import ReplacedCallsPass, calls_of
from fuse_opt.passes.remarks import remark


@dataclass(frozen=True)
class KeepOnDevicePass(ReplacedCallsPass):
    """An op that no implementation takes on a device becomes others, as it says itself: calls of libraries, or a kernel.

    ```mlir
    %y = graph.matmul %x, %w {dtype = i32} : (tensor<64x768xi8>, tensor<768x96xi8>) -> tensor<64x96xi32>
    %z = graph.conv %a, %f {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 1, 1>} : ...
    ```
    becomes
    ```mlir
    %y = fused.kernel(%x_1 = %x : ..., %w_1 = %w : ...) -> (tensor<64x96xi32>) { graph.multiply of each pair, graph.sum, ... }
    %a_1 = graph.pad %a {pads = array<i64: 0, 0, 0, 0, 0, 0, 1, 1>} : ...
    %z = graph.conv %a_1, %f {strides = array<i64: 2, 2>} : ...
    ```
    Only for devices: code for CPUs takes them as they are.

    Requires: nothing; what is of unknown extents stays. Ensures: the same sums; of floats in another order where a kernel makes
    them. What no op can stand for stays, and `select-implementation` leaves it to the host with a remark.
    """

    name = "keep-on-device"

    def replaced(self, op: OpaqueOp, machine: Device, choices: Choices) -> Sequence[Operation]:
        if _is_taken(op, machine):
            return ()
        builder = GraphBuilder()
        if (result := op.otherwise(builder)) is None:
            return ()
        calls = calls_of(builder.ops)
        wanted = any(choices.told(op)) if choices.replays else all(_is_taken(call, machine) for call in calls)
        if not wanted or not choices.take(op, "otherwise"):
            builder.discard()
            return ()
        message = f"is {len(calls)} calls on other operands" if calls else "is sums that a kernel computes"
        remark(self.name, op, "otherwise", f"{message}: nothing takes it on the device as it is")
        builder.replace(op, result)
        return builder.ops


def _is_taken(op: OpaqueOp, machine: Machine) -> bool:
    """Whether any implementation that is allowed takes the op as it is."""
    site = Site.of(op, machine)
    return any(not offer.composite and offer.refusal(site) is None for offer in allowed_offers(op, machine.platform))
