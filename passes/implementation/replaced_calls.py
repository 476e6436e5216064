"""What passes share that put other ops in place of calls of a device, and make kernels of those that call nothing themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.fusion.engine.outline import build_kernel_each
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class ReplacedCallsPass(DevicePass, RewritePass, ABC):
    """Only for devices: on CPUs opaque ops are code of the program anyway. What carries a directive stays."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        machine = self.machine(op)
        if machine.platform == "cpu":
            return
        with choosing(self.name, op) as choices:
            for block in sweep_functions(op):
                calls = [inner for inner in block.ops if isinstance(inner, OpaqueOp) and not directives(inner)]
                made = [self.replaced(inner, machine, choices) for inner in calls]
                if kernels := [ops for ops in made if ops and not calls_of(ops)]:
                    build_kernel_each(block, kernels)

    @abstractmethod
    def replaced(self, op: OpaqueOp, machine: Device, choices: Choices) -> Sequence[Operation]:
        """The ops that it became; none where it stays."""


def calls_of(ops: Sequence[Operation]) -> list[OpaqueOp]:
    return [op for op in ops if isinstance(op, OpaqueOp)]
