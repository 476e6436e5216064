"""Take kernels apart: their ops return to the function, for another round of fusion or for none."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.storage import forget_plan, functions_of
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class UnfusePass(RewritePass):
    """Inlines `fused.kernel` bodies; with `group`, only of kernels whose ops carry that `fuse_group`; with `only`, only of
    those that hold an op of such a name, given with or without its dialect.

    Decisions on the kernels (schedule, in-place pairs, slots) vanish with them, and what was decided about memory for the
    others of their function; directives on their ops stay.
    """

    name = "unfuse"
    group: str = ""
    """A `fuse_group`: kernels whose ops carry it are taken apart, and no others. Empty for all."""
    only: tuple[str, ...] = ()
    """Names of ops, with or without their dialect: kernels without any of them stay. Empty for all."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions_of(op):
            kernels = [inner for inner in function.body.block.ops if isinstance(inner, OutlinedOp)]
            chosen = [kernel for kernel in kernels if self._wanted(kernel)]
            for kernel in chosen:
                inline_kernel(kernel)
            if chosen:
                forget_plan(function)

    def _wanted(self, kernel: OutlinedOp) -> bool:
        if self.only and not any({op.name, op.name.partition(".")[2]} & {*self.only} for op in kernel.ops()):
            return False
        names = (op.attributes.get("fuse_group") for op in kernel.ops())
        return not self.group or any(isinstance(name, StringAttr) and name.data == self.group for name in names)


def inline_kernel(kernel: OutlinedOp) -> None:
    """Puts the kernel's ops in its place; what was planned for the function's memory no longer holds then."""
    parent = kernel.parent
    assert parent is not None
    inside: dict[SSAValue, SSAValue] = dict(zip(kernel.block.args, kernel.operands, strict=True))
    ops, yielded = kernel.ops(), list(kernel.yielded())
    for op in ops:
        op.detach()
        op.operands = [inside.get(value, value) for value in op.operands]
        parent.insert_op_before(op, kernel)
    for result, value in zip(kernel.results, yielded, strict=True):
        new = inside.get(value, value)
        if new.name_hint is None:
            new.name_hint = result.name_hint
        result.replace_all_uses_with(new)
    kernel.detach()
    kernel.erase(safe_erase=False)
