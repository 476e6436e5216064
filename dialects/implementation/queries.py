"""What an implementation offers to the kernel that it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import BlockArgument, Operation

from fuse_opt.dialects.analysis.contractions.generated_products import PRODUCT_KINDS, epilogue_operands
from fuse_opt.dialects.analysis.kernel_access import dispatched_ops, library_op
from fuse_opt.dialects.fused import USE_IMPLEMENTATION, KernelOp
from fuse_opt.dialects.implementation.chains import ChainOffer, Link, has_all_elements, kernel_chain
from fuse_opt.dialects.implementation.offers import Offer, find_offer
from fuse_opt.dialects.implementation.site import Saved, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import shape


def opaque_op(kernel: KernelOp) -> OpaqueOp | None:
    """The kernel's only opaque op; None when it has none or several."""
    found = [op for op in kernel.block.ops if isinstance(op, OpaqueOp)]
    return found[0] if len(found) == 1 else None


def wanted_implementation(op: Operation, inside: Sequence[Operation] | None = None) -> str | None:
    """
    What a person asks for by a directive on the op, on an op of the kernel, or on the kernel that holds it; `inside` are the
    dispatched ops of a kernel where those are known.
    """
    kernel = op if isinstance(op, KernelOp) else op.parent_op()
    if inside is None:
        inside = dispatched_ops(op) if isinstance(op, KernelOp) else [op]
    for one in (*inside, kernel):
        found = None if one is None else one.attributes.get(USE_IMPLEMENTATION)
        if isinstance(found, StringAttr):
            return found.data
    return None


def offer_for(op: OpaqueOp) -> Offer | None:
    """The first offer that takes the op alone, be it called or generated."""
    return _first_taker(op, lambda offer: not offer.chained)


def fusing_offer(op: OpaqueOp, name: str | None = None) -> Offer | None:
    """The offer called `name`, or else the first one that takes the op, with others, too: what fusion asks."""
    return find_offer(op.name, name) if name is not None else _first_taker(op, lambda offer: True)


def _first_taker(op: OpaqueOp, is_asked: Callable[[Offer], bool]) -> Offer | None:
    site = Site.of(op)
    offers = (offer for offer in allowed_offers(op) if not offer.composite and is_asked(offer))
    return next((offer for offer in offers if offer.refusal(site) is None), None)


def offer_of(kernel: KernelOp) -> Offer | None:
    """What the implementation of the only op that one runs of a kernel offers: the one that is named, or the default one."""
    ops = dispatched_ops(kernel)
    if len(ops) != 1:
        return None
    return find_offer(ops[0].name, None if kernel.implementation is None else kernel.implementation.data)


def named_offer(kernel: KernelOp) -> Offer | None:
    """What the implementation that a kernel names offers, for any op that it runs; None where it names none that is known."""
    if kernel.implementation is None:
        return None
    found = (find_offer(op.name, kernel.implementation.data) for op in dispatched_ops(kernel))
    return next((offer for offer in found if offer is not None), None)


def is_for_kind(kernel: KernelOp, kind: str) -> bool:
    """Whether what the kernel names, if anything, is generated code of a schedule kind."""
    return kernel.implementation is None or ((offer := named_offer(kernel)) is not None and offer.kind == kind)


def named_kind(kernel: KernelOp) -> str | None:
    """The schedule kind by which code is generated for the kernel whatever the target, as it names that and is scheduled so."""
    kind = kernel.schedule_kind()
    if kind not in PRODUCT_KINDS or kernel.implementation is None:
        return None
    return kind if is_for_kind(kernel, kind) else None


def called_implementation(kernel: KernelOp) -> str | None:
    """The function that the kernel names, for who calls one: None where it names none, or code that is generated."""
    offer, named = named_offer(kernel), kernel.implementation
    return None if named is None or (offer is not None and offer.kind) else named.data


def inplace_operands(kernel: KernelOp) -> tuple[frozenset[int], ...]:
    """By result of a kernel of opaque ops: the operands whose storage its implementation may write it to.

    Code that is generated overwrites what its epilogue alone reads, where the kernel names it. Of a library's, none where other
    ops share the kernel, as what they read may be overwritten before, unless the implementation runs them itself, and none
    where it leaves more than the op's results. None that is read twice.
    """
    if (kind := named_kind(kernel)) is not None:
        return epilogue_operands(kernel, kind)
    op, offer = library_op(kernel), offer_of(kernel)
    if op is None and offer is not None and (links := absorbed_chain(kernel, offer)):
        return (chain_pairs(kernel, offer, links),)
    if op is None or offer is None or kernel.saved is not None:
        return (frozenset[int](),) * len(kernel.results)
    allowed: list[set[int]] = [set() for _ in kernel.results]
    read = list(op.operands)
    for result, operand in offer.pairs(lambda: Site.of(op)):
        if result < len(allowed) and operand < len(read) and read.count(read[operand]) == 1:
            argument = read[operand]
            assert isinstance(argument, BlockArgument)  # the op is alone in the kernel
            allowed[result].add(argument.index)
    return tuple(map(frozenset, allowed))


def unread_operands(kernel: KernelOp, offer: Offer | None) -> tuple[int, ...]:
    """The kernel's operands that nothing inside reads, where an implementation runs its only op. Raises BackendFault."""
    ops = dispatched_ops(kernel)
    if offer is None or not offer.ignores or len(ops) != 1:
        return ()
    ignored = offer.ignored(lambda: Site.of(ops[0]))
    return tuple(
        argument.index
        for argument in kernel.block.args
        if argument.uses.get_length() and all(use.operation is ops[0] and use.index in ignored for use in argument.uses)
    )


def saved_beside(kernel: KernelOp) -> tuple[Saved, ...]:
    """What the implementation of a kernel leaves beside the results of its op."""
    if kernel.saved is None or len(main := dispatched_ops(kernel)) != 1:
        return ()
    found = (Saved.of(main[0], op) for op in kernel.saved_ops())
    return tuple(each for each in found if each is not None)


def saved_problem(kernel: KernelOp) -> str | None:
    """
    Why what a kernel says to be left beside its op's results is not, as a code; None where it is, or where nobody knows what the
    kernel names, which is no fault of a plan. Raises BackendFault.
    """
    if kernel.saved is None or (offer := named_offer(kernel)) is None:
        return None
    ops, saved = dispatched_ops(kernel), saved_beside(kernel)
    if len(ops) != 1 or len(saved) != len(kernel.saved_ops()):
        return "saves-nothing"
    reasons = (offer.save_refusal(Site.of(ops[0]), each) for each in saved)
    return next((reason for reason in reasons if reason is not None), None)


def absorbed_chain(kernel: KernelOp, offer: Offer | None = None) -> tuple[Link, ...] | None:
    """
    The chain behind the kernel's opaque op that an implementation, or the one that the kernel names, runs with it; None where
    it does not.
    """
    if offer is None:
        offer = None if kernel.implementation is None else offer_of(kernel)
    if offer is None or not isinstance(offer.epilogue, ChainOffer) or len(kernel.ops()) < 2:
        return None
    links = kernel_chain(kernel)
    return None if isinstance(links, str) or not links or offer.epilogue.refusal(links) is not None else links


def chain_pairs(kernel: KernelOp, offer: Offer, links: Sequence[Link]) -> frozenset[int]:
    """The operands over which the implementation of a chain may write its result, of those that the kernel reads once."""
    if not isinstance(offer.epilogue, ChainOffer) or offer.epilogue.overwrites is None:
        return frozenset()
    read = [value for op in kernel.block.ops for value in op.operands]
    steps = (links[number] for number in offer.epilogue.overwrites(links))
    chosen = (link.operand for link in steps if has_all_elements(link, shape(kernel.results[0])))
    return frozenset(n for n in chosen if n is not None and read.count(kernel.block.args[n]) == 1)


def implementation_counts(module: Operation) -> dict[str, int]:
    """By name, sorted: how many kernels of a module say that the implementation runs them."""
    named = (
        op.implementation.data for op in module.walk() if isinstance(op, KernelOp) and op.implementation is not None
    )
    return dict(sorted(Counter(named).items()))
