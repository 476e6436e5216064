"""What opaque ops read in kernels for which code is generated, for the plan verifier: shared with no planner."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import BlockArgument, Operation, OpResult

from fuse_opt.dialects.fused import KernelOp
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
    follow from the last one, and where no opaque op is in front of another all others, too, which are computed where these
    are, even if what is contracted is made of them. `elsewhere` are ops that others of its instances or another pass run.
    """

    def __init__(self, kernel: KernelOp) -> None:
        ops = list(kernel.block.ops)
        opaque = [op for op in ops if isinstance(op, OpaqueOp)]
        front = _needed(ops, {value.op for op in opaque for value in op.operands if isinstance(value, OpResult)})
        last: set[Operation] = {op for op in opaque if op not in front}
        following, results = _following(ops, last), kernel.yielded()
        is_one_pass = len(last) == len(opaque)
        self.stored = [n for n, value in enumerate(results) if is_one_pass or value.owner in following]
        yielded = {value.op for number in self.stored if isinstance(value := results[number], OpResult)}
        again = _needed(ops, yielded & front, last)
        behind = again | _needed(ops, yielded - front - last, front | last)
        self.behind = [op for op in ops if op in behind]
        used = _needed(ops, {value.op for value in results if isinstance(value, OpResult)})
        self.elsewhere = [op for op in ops if op in used and (op in front or op not in behind)]

    def clash(self, result: int, operands: frozenset[int]) -> str | None:
        """
        Why the result must not be written over operands, as far as what is not behind is concerned: what is contracted is read by
        many instances, for other elements than the one that each of them stores.
        """
        read = {value.index for op in self.elsewhere for value in op.operands if isinstance(value, BlockArgument)}
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
