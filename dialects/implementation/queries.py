"""What an implementation offers to the kernel that it runs."""

from __future__ import annotations

from xdsl.ir import BlockArgument

from fuse_opt.dialects.analysis.kernel_access import library_op
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.generated import register_generated
from fuse_opt.dialects.implementation.offers import Offer, find_offer, load_with, offers_of
from fuse_opt.dialects.interfaces.op import OpaqueOp


def opaque_op(kernel: KernelOp) -> OpaqueOp | None:
    """The kernel's only opaque op; None when it has none or several."""
    found = [op for op in kernel.block.ops if isinstance(op, OpaqueOp)]
    return found[0] if len(found) == 1 else None


load_with(register_generated)


def offer_for(op: OpaqueOp, name: str | None = None) -> Offer | None:
    """The offer called `name`, or else the first one that takes the op, be it called or generated."""
    if name is not None:
        return find_offer(op.name, name)
    return next((offer for offer in offers_of(op.name) if offer.accepts is None or offer.accepts(op)), None)


def offer_of(kernel: KernelOp) -> Offer | None:
    """What the implementation of a kernel's only opaque op offers: the one that is named, or the default one."""
    if (op := opaque_op(kernel)) is None:
        return None
    return find_offer(op.name, None if kernel.implementation is None else kernel.implementation.data)


def inplace_operands(kernel: KernelOp) -> tuple[frozenset[int], ...]:
    """By result of a kernel that a library runs: the operands whose storage its implementation may write it to.

    None where other ops share the kernel: what they read may be overwritten before. None that the op reads twice.
    """
    op, offer = library_op(kernel), offer_of(kernel)
    if op is None or offer is None:
        return (frozenset[int](),) * len(kernel.results)
    allowed: list[set[int]] = [set() for _ in kernel.results]
    read = list(op.operands)
    for result, operand in offer.inplace:
        if result < len(allowed) and operand < len(read) and read.count(read[operand]) == 1:
            argument = read[operand]
            assert isinstance(argument, BlockArgument)  # the op is alone in the kernel
            allowed[result].add(argument.index)
    return tuple(map(frozenset, allowed))
