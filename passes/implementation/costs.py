"""What ops take where code of the program runs them: estimates that backends' own figures are compared with."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.implementation.site import Machine, Site
from fuse_opt.dialects.implementation.switch import offers_at
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp


def alone_seconds(op: GraphOp, machine: Machine) -> float:
    """What an op takes by itself: by the cheapest implementation, or as a pass over memory."""
    known = called_seconds(op, machine) if isinstance(op, OpaqueOp) else None
    return pass_seconds((*op.operands, *op.results), machine) if known is None else known


def called_seconds(op: OpaqueOp, machine: Machine) -> float | None:
    """What an op takes by the cheapest implementation that says so; None where there is none."""
    return _least_seconds(op, op, machine)


def decomposed_seconds(op: CompositeOp, machine: Machine) -> float:
    """
    What a composite takes as the ops of its decomposition: its opaque ones, and one pass over what it reads and makes. Values
    that fusable ops make or alone read are left out, and so is the launch beside such ops: fusion makes one kernel of them,
    which keeps values out of memory, and a call of the whole op cannot. Code of the program for all of it at once says itself
    what it takes.
    """
    if (whole := _least_seconds(op, op, machine, composite=True)) is not None:
        return whole
    total = 0.0
    waiting: list[CompositeOp] = [op]
    while waiting:
        for inner in waiting.pop().expansion().block.ops:
            if isinstance(inner, CompositeOp):
                waiting.append(inner)
            elif isinstance(inner, OpaqueOp):
                total += _least_seconds(inner, op, machine) or 0.0
    made = [value for value in op.operands if not isinstance(value.owner, StructuredOp | CompositeOp)]
    read = [value for value in op.results if not _are_fusable({use.operation for use in value.uses})]
    if len(made) + len(read) < len(op.operands) + len(op.results):
        return total + machine.move_seconds(_nbytes((*made, *read)))
    return total + pass_seconds((*made, *read), machine)


def _are_fusable(readers: Collection[Operation]) -> bool:
    return bool(readers) and all(isinstance(reader, StructuredOp | CompositeOp) for reader in readers)


def _least_seconds(
    op: OpaqueOp | CompositeOp, place: Operation, machine: Machine, composite: bool = False
) -> float | None:
    """By the cheapest of the implementations that take an op and are allowed at a place; None where none says."""
    site = Site.of(op, machine)
    offers = [
        offer
        for offer in offers_at(place, op.name, machine.platform)
        if offer.composite is composite and offer.refusal(site) is None
    ]
    return min((seconds for offer in offers if (seconds := offer.seconds(site)) is not None), default=None)


def pass_seconds(values: Collection[SSAValue], machine: Machine) -> float:
    """What a kernel takes that goes over values once."""
    return machine.launch + machine.move_seconds(_nbytes(values))


def _nbytes(values: Collection[SSAValue]) -> int:
    return sum(byte_size(value) or 0 for value in values)
