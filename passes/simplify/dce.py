"""Remove ops without effects whose results nobody uses, and kernel results and operands that are not needed."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from fuse_opt.dialects.analysis.kernel_access import library_op
from fuse_opt.dialects.fused import KernelOp, PartitionOp, YieldOp
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class DcePass(RewritePass):
    """One sweep from the last op to the first: whatever is dead then has no living user left."""

    name = "dce"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for region in op.regions:
            _clean_region(region)


def _clean_region(region: Region) -> None:
    for block in region.blocks:
        for op in reversed(list(block.ops)):
            if _is_dead(op):
                Rewriter.erase_op(op)
                continue
            if isinstance(op, PartitionOp):
                continue
            if isinstance(op, KernelOp):
                op = _without_dead_results(op)
            for inner in op.regions:
                _clean_region(inner)
            if isinstance(op, KernelOp):
                _drop_unused_operands(op)


def _is_dead(op: Operation) -> bool:
    """Whether nobody would miss the op; one that a person asked to keep live is never dead."""
    if "keep_live" in op.attributes:
        return False
    return (
        op.has_trait(Pure(), value_if_unregistered=False)
        and not any(result.uses for result in op.results)
        and bool(op.results)
    )


def _without_dead_results(kernel: KernelOp) -> KernelOp:
    """The kernel with only the results that are used; a new one, without decisions, when any was not."""
    # A library writes every result of its op, so each of them needs memory.
    keep = "keep_live" in kernel.attributes or library_op(kernel) is not None
    living = [keep or bool(result.uses) for result in kernel.results]
    if all(living):
        return kernel
    kept = [result for result, lives in zip(kernel.results, living, strict=True) if lives]
    yielded = [value for value, lives in zip(kernel.yielded(), living, strict=True) if lives]
    terminator = kernel.block.last_op
    assert isinstance(terminator, YieldOp)
    terminator.operands = yielded
    new = KernelOp(kernel.operands, [r.type for r in kept], kernel.detach_region(kernel.body), dict(kernel.attributes))
    new.location = kernel.location
    parent = kernel.parent
    assert isinstance(parent, Block)
    parent.insert_op_before(new, kernel)
    for old, fresh in zip(kept, new.results, strict=True):
        fresh.name_hint = old.name_hint
        old.replace_all_uses_with(fresh)
    Rewriter.erase_op(kernel)
    return new


def _drop_unused_operands(kernel: KernelOp) -> None:
    unused = [argument for argument in kernel.block.args if not argument.uses]
    if not unused:
        return
    kernel.operands = [o for o, a in zip(kernel.operands, kernel.block.args, strict=True) if a.uses]
    for argument in reversed(unused):
        kernel.block.erase_arg(argument)
    kernel.drop_decisions()
