"""What opaque ops read in kernels for which code is generated, for the plan verifier: shared with no planner."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import BlockArgument, Operation, OpResult

from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp


def is_product(kernel: KernelOp) -> bool:
    """Whether code is generated for the kernel's opaque ops: it names it, and its schedule is of that kind."""
    kind, name = kernel.schedule_kind(), kernel.implementation
    if kind is None or name is None:
        return False
    offers = (find_offer(op.name, name.data) for op in kernel.block.ops if isinstance(op, OpaqueOp))
    return any(offer is not None and offer.kind == kind for offer in offers)


def calls_library(kernel: KernelOp) -> bool:
    """Whether somebody else's code runs the kernel, or a part of it."""
    if is_product(kernel):
        return False
    return kernel.implementation is not None or any(isinstance(op, OpaqueOp) for op in kernel.block.ops)


class ContractedReads:
    """
    The parts of a kernel of opaque ops: the pass behind the last of these, and `stored`, the results of that pass: those that
    follow from the last one, and those that have to do with none, which are computed where these are.
    """

    def __init__(self, kernel: KernelOp) -> None:
        ops = list(kernel.block.ops)
        self.kernel = kernel
        opaque = [op for op in ops if isinstance(op, OpaqueOp)]
        front = _needed(ops, {value.op for op in opaque for value in op.operands if isinstance(value, OpResult)})
        last: set[Operation] = {op for op in opaque if op not in front}
        following = _following(ops, last)
        beside = set(ops) - front - _following(ops, opaque)
        self.stored = [number for number, value in enumerate(kernel.yielded()) if value.owner in following | beside]
        yielded = {value.op for number in self.stored if isinstance(value := kernel.yielded()[number], OpResult)}
        behind = _needed(ops, yielded - front - last, front | last)
        self.behind = [op for op in ops if op in behind]

    def clash(self, result: int, operands: frozenset[int]) -> str | None:
        """
        Why the result must not be written over operands, as far as what is not behind is concerned: what is contracted is read by
        many instances, for other elements than the one that each of them stores.
        """
        elsewhere = [op for op in self.kernel.block.ops if op not in self.behind and not isinstance(op, YieldOp)]
        read = {value.index for op in elsewhere for value in op.operands if isinstance(value, BlockArgument)}
        if read & operands:
            return "reads it as a part of what is contracted, by other instances, too"
        if result not in self.stored:
            return "stores it in front of what is contracted"
        if any(isinstance(op, StructuredOp) and op.COMBINE for op in self.behind):
            return "is not one pass: a reduction is behind what is contracted"
        return None


def _following(ops: Sequence[Operation], first: Collection[Operation]) -> set[Operation]:
    """Ops that are given, and all that use what they make."""
    found = set(first)
    for op in ops:
        if any(value.owner in found for value in op.operands):
            found.add(op)
    return found


def _needed(
    ops: Sequence[Operation], wanted: Collection[Operation], known: Collection[Operation] = ()
) -> set[Operation]:
    """Ops that are wanted, and all that they need, but for what is known."""
    found = set(wanted)
    for op in reversed(ops):
        if op in found:
            found.update(value.op for value in op.operands if isinstance(value, OpResult) and value.op not in known)
    return found
