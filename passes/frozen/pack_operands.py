"""Have calls of libraries read frozen operands in the panels that they would have, which are made once."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Region, SSAValue

from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.analysis.prepared import called_functions, frozen_arguments
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.graph.movement.layouts import ToLayoutOp
from fuse_opt.dialects.implementation.offers import BackendFault, Offer
from fuse_opt.dialects.implementation.queries import named_offer
from fuse_opt.dialects.implementation.selection import machine_refusal, packs_of, workspace_of
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.types.encodings import EncodingPart
from fuse_opt.passes.frozen.prepare_function import PrepareFunction
from fuse_opt.passes.remarks import RefusedError, remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class PackOperandsPass(RewritePass):
    """A kernel that a library runs reads what `@f.prepare` made of a frozen operand, in the panels that the library would have.

    ```mlir
    %y = fused.kernel(%a = %x : !x, %b = %w : tensor<64x64x3x3xf32, #graph.order<2, 3, 1, 0>>) ...
        attributes {implementation = "onednn.conv"} { ... graph.conv %a, %b ...
    ```
    becomes
    ```mlir
    %y = fused.kernel(%a = %x : !x, %b = %w_packed : tensor<64x64x3x3xf32, #graph.encoding<#graph.order<2, 3, 1, 0>,
        #graph.panel<axis = 3, width = 64>>>) ... attributes {implementation = "onednn.conv"} { ... graph.conv %a, %b ...
    ```
    The implementation that the kernel names is asked how it would have the operand (`pack` of its offer), for which its library
    may be loaded; without one nothing changes. It has to take its op so, and the workspace is that of the packed one.

    Requires: nothing. Run it on kernels, behind select-implementation and before plan-memory. For programs of CPUs.
    """

    name = "pack-operands"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in called_functions(op):
            if frozen_arguments(function) and function.body.first_block is function.body.last_block:
                self._pack_all(function)

    def _pack_all(self, function: FuncOp) -> None:
        second = PrepareFunction(function)
        made: dict[tuple[SSAValue, EncodingPart], SSAValue] = {}
        for kernel in list(function.body.block.ops):
            if not isinstance(kernel, KernelOp) or (offer := named_offer(kernel)) is None or offer.pack is None:
                continue
            try:
                self._visit(kernel, offer, second, made)
            except BackendFault as fault:
                raise RefusedError(str(fault), kernel) from fault
        if made:
            second.finish()

    def _visit(
        self,
        kernel: KernelOp,
        offer: Offer,
        second: PrepareFunction,
        made: dict[tuple[SSAValue, EncodingPart], SSAValue],
    ) -> None:
        wanted = packs_of(kernel, offer, second.values)
        for number, encoding in wanted.items():
            argument = dispatched_ops(kernel)[0].operands[number]
            if not isinstance(argument, BlockArgument) or argument.uses.get_length() != 1:
                continue
            operand = kernel.operands[argument.index]
            if operand not in second.values or not _takes(kernel, offer, argument, encoding):
                continue
            if (packed := made.get((operand, encoding))) is None:
                given = second.give(_turned(second, kernel, operand, encoding), f"{operand.name_hint or 'w'}_packed")
                packed = made[operand, encoding] = given
            _read(kernel, argument, packed)
            kernel.set_workspace(workspace_of(kernel, offer))
            message = f"reads operand {number} of '{offer.op}' in panels that '{second.prepare.sym_name.data}' makes"
            remark(self.name, kernel, "packed", message, numbers={"bytes": byte_size(packed) or 0})


def _takes(kernel: KernelOp, offer: Offer, argument: BlockArgument, encoding: EncodingPart) -> bool:
    """Whether the implementation runs the kernel with an operand in that encoding, by its own word and its library's."""
    copy = kernel.clone()
    turned = ToLayoutOp.of(copy.operands[argument.index], encoding)
    _read(copy, copy.block.args[argument.index], turned.results[0])
    op = dispatched_ops(copy)[0]
    taken = offer.refusal(Site.of(op)) is None and machine_refusal(copy, offer) is None
    copy.erase()
    turned.erase()
    return taken


def _turned(second: PrepareFunction, kernel: KernelOp, operand: SSAValue, encoding: EncodingPart) -> SSAValue:
    """What a kernel of the second function makes of the operand."""
    source = second.values[operand]
    block = Block(arg_types=[source.type])
    block.args[0].name_hint = source.name_hint
    turned = ToLayoutOp.of(block.args[0], encoding)
    turned.location = kernel.location
    block.add_ops([turned, YieldOp.create(operands=turned.results)])
    copy = KernelOp([source], [turned.results[0].type], Region(block))
    copy.location = kernel.location
    second.add(copy)
    return copy.results[0]


def _read(kernel: KernelOp, argument: BlockArgument, value: SSAValue) -> None:
    """Has the kernel read a value in the place of what an argument of its body is."""
    new = kernel.block.insert_arg(value.type, argument.index)
    new.name_hint = argument.name_hint
    argument.replace_all_uses_with(new)
    index = new.index
    kernel.block.erase_arg(argument)
    kernel.operands = [value if number == index else operand for number, operand in enumerate(kernel.operands)]
