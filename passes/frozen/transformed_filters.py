"""Frozen filters that the second function transforms for convolutions by tiles of 2x2 positions."""

from __future__ import annotations

from xdsl.ir import Block, BlockArgument, Region, SSAValue

from fuse_opt.dialects.analysis.contractions.conv_kernels import packed_filters, winograd_kernel_of
from fuse_opt.dialects.analysis.contractions.packed_panels import filter_panel_width
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.transformed_weight import TransformedWeight
from fuse_opt.passes.frozen.prepare_function import PrepareFunction
from fuse_opt.passes.remarks import remark


class TransformedFilters:
    """What kernels of a function read in place of their filters."""

    def __init__(self, second: PrepareFunction, name: str) -> None:
        self.second, self.name = second, name
        self.known: dict[tuple[SSAValue, int], SSAValue] = {}
        """By operand and filters of a panel."""

    def visit(self, kernel: KernelOp) -> bool:
        """Has a kernel read transformed filters; whether it does from now on."""
        try:
            found = winograd_kernel_of(kernel)
        except Unschedulable:
            return False
        argument = found.of.weight
        kind = found.of.op.transformed_weight()
        if found.is_transformed or kind is None or not isinstance(argument, BlockArgument):
            return False
        operand = kernel.operands[argument.index]
        if operand not in self.second.values:
            return False
        op, windows = found.of.op, found.of.contraction
        width = filter_panel_width(windows, found.of.sums.itemsize)
        if (made := self.known.get((operand, width))) is None:
            made = self.second.give(
                self._made(kernel, op, kind, operand, width), f"{operand.name_hint or 'w'}_transformed"
            )
            self.known[operand, width] = made
        size = packed_filters(windows, width) * dtype(argument).itemsize
        message = (
            f"reads its filters as '{self.second.prepare.sym_name.data}' transforms them, for tiles of 2x2 positions"
        )
        remark(self.name, kernel, "packed", message, numbers={"width": width, "bytes": size})
        _read(kernel, op, kind, argument, made)
        return True

    def _made(
        self, kernel: KernelOp, op: OpaqueOp, kind: type[TransformedWeight], operand: SSAValue, width: int
    ) -> SSAValue:
        """What a kernel of the second function makes."""
        source = self.second.values[operand]
        block = Block(arg_types=[source.type])
        block.args[0].name_hint = source.name_hint
        build = GraphBuilder()
        found = kind.transforms_of(build, block.args[0], width)
        block.add_ops([*build.ops, YieldOp.create(operands=[found])])
        for inner in block.ops:
            inner.location = op.location
        made = KernelOp([source], [found.type], Region(block))
        made.location = kernel.location
        self.second.add(made)
        return made.results[0]


def _read(
    kernel: KernelOp, op: OpaqueOp, kind: type[TransformedWeight], argument: BlockArgument, value: SSAValue
) -> None:
    """Has the kernel's convolution read a weight of which the value has the transforms."""
    transforms = kernel.block.insert_arg(value.type, len(kernel.block.args))
    transforms.name_hint = value.name_hint
    kernel.operands = [*kernel.operands, value]
    build = GraphBuilder()
    seen = kind.seen(build, transforms, shape(argument)[0])
    for inner in build.ops:
        inner.location = op.location
        kernel.block.insert_op_before(inner, op)
    op.operands[1] = seen
    if not argument.uses:
        kernel.operands = [o for k, o in enumerate(kernel.operands) if k != argument.index]
        kernel.block.erase_arg(argument)
    implementation = kernel.implementation
    kernel.drop_decisions()
    kernel.implementation = implementation
