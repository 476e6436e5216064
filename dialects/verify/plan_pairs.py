"""In-place pairs of a plan: which result of a kernel may lie where one of its operands does."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.implementation.queries import absorbed_chain, chain_pairs, named_offer, saved_problem
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.verify.contracted_reads import calls_library
from fuse_opt.dialects.verify.kernel_reads import KernelReads
from fuse_opt.dialects.verify.plan_contents import Content, PlanError, byte_size, made_at, name_of

_REMEDY = "run infer-inplace and plan-memory"


def check_pair(
    reads: KernelReads,
    contents: Mapping[SSAValue, Content],
    last_use: Mapping[SSAValue, int],
    pair: tuple[int, int],
    step: int,
) -> None:
    """A result, by its number, may take over an operand: nobody reads that later, and the kernel reads it before it writes.

    `contents` says what each value's memory holds, `last_use` the last step that uses a value. Raises PlanError.
    """
    kernel, (result, operand) = reads.kernel, pair
    value, taken = kernel.results[result], kernel.operands[operand]
    old = contents[taken]
    about = f"'fused.kernel' {name_of(value)} of step {step} takes over {name_of(taken)} {made_at(old)}"
    if byte_size(value) is None or byte_size(value) != byte_size(taken):
        sizes = f"{byte_size(value)} and {byte_size(taken)}"
        raise PlanError(f"{about}, but they differ in size: {sizes}; {_REMEDY}", kernel)
    if old.buffer is not None and not old.buffer.writable:
        reason = "it is not donated, or no kernel made it"
        raise PlanError(f"{about}, which must not be overwritten: {reason}; {_REMEDY}", kernel)
    last = last_use.get(old.value, -1)
    if last > step:
        raise PlanError(f"{about}, which is still read at step {last}; {_REMEDY}", kernel)
    same = frozenset(n for n, other in enumerate(kernel.operands) if contents[other] is old)
    if calls_library(kernel):
        _check_offered(kernel, result, operand, same, about)
    elif (reason := reads.clash(result, same)) is not None:
        raise PlanError(f"{about}, but {reason}; {_REMEDY}", kernel)


def check_unread(kernel: KernelOp) -> None:
    """The operands whose memory may be another value's are read by nothing inside. Raises PlanError."""
    if not (numbers := ints(kernel.unread)):
        return
    offer = named_offer(kernel)
    for number in numbers:
        uses = list(kernel.block.args[number].uses)
        ops = [use.operation for use in uses]
        if offer is None or not all(
            isinstance(op, GraphOp) and use.index in offer.ignored(lambda op=op: Site.of(op))
            for op, use in zip(ops, uses, strict=True)
        ):
            raise PlanError(
                f"'fused.kernel' property 'unread': operand {number} is read by what runs the kernel; run select-implementation",
                kernel,
            )


def check_saved(kernel: KernelOp) -> None:
    """What a kernel says to be left beside its op's results is left by what runs it. Raises PlanError."""
    if (reason := saved_problem(kernel)) is not None:
        numbers = list(ints(kernel.saved))
        raise PlanError(
            f"'fused.kernel' property 'saved': what runs the kernel does not leave results {numbers}: {reason}; run unfuse",
            kernel,
        )


def _check_offered(kernel: KernelOp, result: int, operand: int, same: frozenset[int], about: str) -> None:
    """A library call may run in place where its implementation says so, on an array that it is given once."""
    op = kernel.block.first_op
    offer = named_offer(kernel)
    if offer is not None and len(same) == 1 and (links := absorbed_chain(kernel, offer)) is not None:
        if result == 0 and operand in chain_pairs(kernel, offer, links):
            return
        raise PlanError(f"{about}, but it is a library call that does not offer it; {_REMEDY}", kernel)
    if not isinstance(op, GraphOp) or not isinstance(op.next_op, YieldOp) or list(kernel.yielded()) != list(op.results):
        raise PlanError(f"{about}, but it is a library call with other ops beside it; {_REMEDY}", kernel)
    places = [k for k, value in enumerate(op.operands) if value is kernel.block.args[operand]]
    if len(same) > 1 or len(places) > 1:
        raise PlanError(f"{about}, but it is a library call that has it as two operands; {_REMEDY}", kernel)
    offer = find_offer(op.name, None if kernel.implementation is None else kernel.implementation.data)
    if offer is None or not places or (result, places[0]) not in offer.pairs(lambda: Site.of(op)):
        raise PlanError(f"{about}, but it is a library call that does not offer it; {_REMEDY}", kernel)
