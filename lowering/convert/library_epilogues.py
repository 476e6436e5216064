"""Kernels of an opaque op with pointwise ops: a library call and a launch behind it, or, where that cannot be, kernels apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, BlockArgument, Region, SSAValue

from fuse_opt.dialects.analysis.contractions.generated_products import COMPOSITE_KINDS, PRODUCT_KINDS
from fuse_opt.dialects.analysis.kernel_access import kernel_access, library_op
from fuse_opt.dialects.fused import NOT_IN_ARENA, KernelOp, YieldOp
from fuse_opt.dialects.implementation.offers import PointwiseOffer
from fuse_opt.dialects.implementation.queries import (
    absorbed_chain,
    called_implementation,
    named_kind,
    offer_for,
    offer_of,
    opaque_op,
)
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.implementation.switch import platform_of
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_array, ints
from fuse_opt.lowering.kernel.buffers import Parameter

EPILOGUE = "fused.epilogue"
"""The attribute of a library call whose implementation offers to run the next launch by parts, with its own result."""


@dataclass(frozen=True, slots=True)
class LibraryParts:
    """An opaque op, and what a launch behind it does over its result, in place."""

    op: OpaqueOp
    home: int
    """The kernel's result whose memory takes the op's result until the launch overwrites it."""
    epilogue: KernelOp
    """Not in the IR: the kernel's operands and, last, result `home` give the kernel's results."""
    offered: bool
    """The implementation asks for it."""

    def launch_memory(self, memory: Sequence[int]) -> list[int]:
        """The storages of the launch's operands and results, from those of the kernel's."""
        own = len(self.epilogue.operands) - 1
        return [*memory[:own], memory[own + self.home], *memory[own:]]

    def value_of(self, kernel: KernelOp, parameter: Parameter) -> SSAValue:
        """The value whose buffer the launch takes."""
        if parameter.operand is not None:
            return self.epilogue.operands[parameter.operand]
        assert parameter.result is not None
        return kernel.results[parameter.result]


def library_parts(kernel: KernelOp) -> LibraryParts | None:
    """The parts of a kernel that runs as a call and a launch; None for another one.

    The launch must read the op's result at the element that it then overwrites, whatever else it reads.
    """
    op = opaque_op(kernel)
    if op is None or len(op.results) != 1 or kernel.inplace is not None or library_op(kernel) is not None:
        return None
    raw = op.results[0]
    if raw in kernel.yielded() or not all(isinstance(value, BlockArgument) for value in op.operands):
        return None
    home = next((number for number, value in enumerate(kernel.results) if value.type == raw.type), None)
    if home is None:
        return None
    epilogue = _epilogue(kernel, op, home)
    access = kernel_access(epilogue)
    if access.scheme != "pointwise" or len(kernel.operands) not in access.replaceable[home]:
        return None
    offer = offer_of(kernel)
    return LibraryParts(
        op, home, epilogue, offer is not None and not offer.kind and isinstance(offer.epilogue, PointwiseOffer)
    )


def _epilogue(kernel: KernelOp, op: OpaqueOp, home: int) -> KernelOp:
    arguments = [*kernel.block.args, op.results[0]]
    block = Block(arg_types=[value.type for value in arguments])
    known: dict[SSAValue, SSAValue] = dict(zip(arguments, block.args, strict=True))
    for argument, value in zip(block.args, arguments, strict=True):
        argument.name_hint = value.name_hint
    _clone([inner for inner in kernel.ops() if inner is not op], known, block)
    block.add_op(YieldOp.create(operands=[known[value] for value in kernel.yielded()]))
    found = KernelOp([*kernel.operands, kernel.results[home]], kernel.result_types, Region(block))
    found.location = kernel.location
    return found


def _clone(ops: Sequence[GraphOp], known: dict[SSAValue, SSAValue], block: Block) -> None:
    for op in ops:
        copy = op.clone(known)
        block.add_op(copy)
        known.update(zip(op.results, copy.results, strict=True))
        copy.location = op.location


def split_library_kernels(function: func.FuncOp, is_generated: Callable[[KernelOp], bool]) -> None:
    """Puts what no call and launch can do into kernels apart: what opaque ops read, each of them, what they are read by.

    Kernels that name no implementation and that none offers to run are left to the reference, op by op. In-place pairs of code
    that is generated elsewhere go to the last of the kernels, which alone reads what they overwrite.
    """
    for kernel in [op for op in function.body.block.ops if isinstance(op, KernelOp)]:
        if kernel.schedule_kind() == "reference" or len(kernel.ops()) < 2 or is_generated(kernel):
            continue
        if kernel.saved is not None:
            continue
        if kernel.inplace is not None and named_kind(kernel) is None:
            continue
        if kernel.schedule_kind() in COMPOSITE_KINDS or kernel.inplace is not None:
            _split(kernel)
            continue
        if absorbed_chain(kernel) is not None:
            continue
        op, offer = opaque_op(kernel), offer_of(kernel)
        offered = offer is not None and bool(offer.epilogue or offer.prologue)
        named = called_implementation(kernel) is not None or kernel.schedule_kind() in PRODUCT_KINDS
        if op is None or not (named or offered):
            continue
        parts = library_parts(kernel)
        if parts is None:
            _split(kernel)
        else:
            parts.epilogue.drop_all_references()
    if platform_of(function) != "cpu":
        for op in function.body.block.ops:
            if isinstance(op, KernelOp) and op.schedule_kind() != "reference" and called_implementation(op) is None:
                _name_on_device(op)


def _split(kernel: KernelOp) -> None:
    """Kernels of what each opaque op reads, of it alone, and of what the kernel yields, in the place of the kernel."""
    outside: dict[SSAValue, SSAValue] = dict(zip(kernel.block.args, kernel.operands, strict=True))
    slots = dict(zip(kernel.yielded(), ints(kernel.slots), strict=True)) if kernel.slots is not None else {}
    for op in kernel.ops():
        if isinstance(op, OpaqueOp):
            for value in dict.fromkeys(op.operands):
                _part(kernel, [value], outside, slots)
            _part(kernel, op.results, outside, slots)
    rest = list(dict.fromkeys(value for value in kernel.yielded() if value not in outside))
    if (last := _part(kernel, rest, outside, slots)) is not None:
        _keep_pairs(kernel, rest, last)
    for old, inner in zip(kernel.results, kernel.yielded(), strict=True):
        old.replace_all_uses_with(outside[inner])
    kernel.detach()
    kernel.erase()


def _keep_pairs(kernel: KernelOp, made: Sequence[SSAValue], part: KernelOp) -> None:
    """Gives the part that makes these values the kernel's in-place pairs of them."""
    flat: list[int] = []
    for result, operand in kernel.inplace_pairs():
        value, taken = kernel.yielded()[result], kernel.operands[operand]
        if value in made and taken in part.operands:
            flat += [made.index(value), list(part.operands).index(taken)]
    part.inplace = int_array(flat) if flat else None


def _needed(kernel: KernelOp, values: Sequence[SSAValue], known: Collection[SSAValue]) -> list[GraphOp]:
    """The ops of the kernel that make the values from known ones, in order."""
    needed: set[SSAValue] = {value for value in values if value not in known}
    found: list[GraphOp] = []
    for op in reversed(kernel.ops()):
        if not needed.isdisjoint(op.results):
            found.append(op)
            needed.update(value for value in op.operands if value not in known)
    return found[::-1]


def _name_on_device(kernel: KernelOp) -> None:
    """Names what runs the op of a kernel of a module for a GPU, where all that was chosen is code for CPUs."""
    op = opaque_op(kernel)
    if op is None or (offer := offer_for(op)) is None:
        return
    kernel.implementation = StringAttr(offer.name)
    kernel.set_workspace(offer.workspace_bytes(Site.of(op)))


def _part(
    kernel: KernelOp, made: Sequence[SSAValue], outside: dict[SSAValue, SSAValue], slots: dict[SSAValue, int]
) -> KernelOp | None:
    """A kernel that makes the values, before the given one; `outside` learns of them. None where they are known."""
    ops = _needed(kernel, made, outside)
    if not ops:
        return None
    inside = {value for op in ops for value in op.results}
    used = list(dict.fromkeys(value for op in ops for value in op.operands if value not in inside))
    block = Block(arg_types=[value.type for value in used])
    known: dict[SSAValue, SSAValue] = dict(zip(used, block.args, strict=True))
    for value in used:
        known[value].name_hint = value.name_hint
    _clone(ops, known, block)
    block.add_op(YieldOp.create(operands=[known[value] for value in made]))
    part = KernelOp([outside[value] for value in used], [value.type for value in made], Region(block))
    part.location = kernel.location
    part.segment = kernel.segment
    if slots:
        part.slots = int_array([slots.get(value, NOT_IN_ARENA) for value in made])
    if any(isinstance(op, OpaqueOp) for op in ops):
        part.implementation = None if (name := called_implementation(kernel)) is None else StringAttr(name)
        if part.implementation is not None:
            part.workspace, part.workspace_slot = kernel.workspace, kernel.workspace_slot
            read = kernel.read_operands()
            unread = [
                number for number, value in enumerate(part.operands) if value in kernel.operands and value not in read
            ]
            part.unread = int_array(unread) if unread else None
    assert isinstance(kernel.parent, Block)
    kernel.parent.insert_op_before(part, kernel)
    for value, result in zip(made, part.results, strict=True):
        result.name_hint = value.name_hint
        outside[value] = result
    return part
