"""Which implementations can run a kernel with an opaque op, and what each would cost: answers, without a decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.generated_products import kind_problem
from fuse_opt.dialects.analysis.kernel_access import dispatched_ops, library_op, structure_now
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.analysis.numerics import Numerics, numerics_of
from fuse_opt.dialects.analysis.training import is_training
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.cost_table import CostTable, site_name
from fuse_opt.dialects.implementation.offers import Offer, PointwiseOffer, registry_state
from fuse_opt.dialects.implementation.queries import absorbed_chain, saved_beside
from fuse_opt.dialects.implementation.site import Machine, Site
from fuse_opt.dialects.implementation.switch import allowed_backends, allowed_offers, platform_of
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.types.encodings import EncodingPart

NEAR = 1.05
"""Costs are estimates: what is dearer by less than this does not come behind."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An implementation of the opaque op of a kernel: why it does not run it, or what that costs."""

    offer: Offer
    refusal: str = ""
    """A code; empty where it runs the kernel."""
    seconds: float | None = None
    """None where it does not say what it costs."""
    measured: float | None = None
    """What it took where a person measured it."""
    rate: float | None = None
    """Operations a second by which the seconds were worked out, where it has a rate."""


_CANDIDATES: dict[tuple[object, ...], tuple[Candidate, ...]] = {}
_KINDS: dict[tuple[object, ...], str] = {}
_REMEMBERED = 4096


def candidates(
    kernel: KernelOp, machine: Machine, numerics: Numerics, frozen: Collection[SSAValue]
) -> tuple[Candidate, ...]:
    """
    What is offered for the kernel's opaque ops on the machine's platform by backends that its module allows, the default
    first; nothing where it has none. They are within `numerics`, or what the module takes; a kernel that names one keeps it.
    `frozen` are values of which the caller says that they never change. The same object for kernels that compute the same.
    Raises BackendFault.
    """
    numerics = numerics_of(kernel, numerics)
    never = tuple(value in frozen for value in kernel.operands) if frozen else ()
    schedule = kernel.schedule_kind() if kernel.implementation is None else None
    key = (*_question(kernel), kernel.implementation, machine, numerics, never, schedule)
    if (found := _CANDIDATES.get(key)) is None:
        if len(_CANDIDATES) >= _REMEMBERED:
            _CANDIDATES.clear()
        found = _CANDIDATES[key] = _candidates(kernel, machine, numerics, frozen)
    return found


def _question(kernel: KernelOp) -> tuple[object, ...]:
    """What answers about a kernel depend on: offers, backends that are allowed, and what it computes."""
    allowed = allowed_backends(kernel)
    there = None if allowed is None else tuple(allowed)
    return registry_state(), there, platform_of(kernel), is_training(kernel), kernel.saved, structure_now(kernel)


def _candidates(
    kernel: KernelOp, machine: Machine, numerics: Numerics, frozen: Collection[SSAValue]
) -> tuple[Candidate, ...]:
    ops = dispatched_ops(kernel)
    inside = _inside(kernel, frozen)
    sites = [Site.of(op, machine, inside, saved=saved_beside(kernel)) for op in ops]
    found = (offer for op in ops for offer in allowed_offers(op, machine.platform))
    offers = dict.fromkeys(offer for offer in found if len(ops) > 1 or not offer.composite)
    return tuple(_judged(kernel, offer, sites, numerics) for offer in offers)


def _judged(kernel: KernelOp, offer: Offer, sites: Sequence[Site], numerics: Numerics) -> Candidate:
    named = None if kernel.implementation is None else kernel.implementation.data
    if not offer.is_within(numerics) and offer.name != named:
        return Candidate(offer, "numerics")
    if not offer.differentiable and is_training(kernel):
        return Candidate(offer, "training")
    if (
        (kind := kernel.schedule_kind()) is not None
        and kernel.implementation is None
        and kind != (offer.kind or "library")
    ):
        return Candidate(offer, "schedule")
    if offer.kind:
        problem = kind_problem(kernel, offer.kind) or _composite_problem(kernel, offer)
        refusal = offer.refusal_of_op(sites[0]) if problem is None else problem.code
    elif len(sites) > 1:
        refusal = "several-ops"
    elif offer.chained and absorbed_chain(kernel, offer) is None:
        refusal = "no-epilogue"
    else:
        refusal = offer.refusal(sites[0])
    if refusal is not None:
        return Candidate(offer, refusal)
    return Candidate(offer, "", _seconds(kernel, offer, sites), rate=offer.rate(sites[0]))


def _composite_problem(kernel: KernelOp, offer: Offer) -> Unschedulable | None:
    """Why code for several opaque ops, which differs between platforms, is not generated for a kernel of its kind."""
    if not offer.composite or offer.trace is None:
        return None
    try:
        offer.trace(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))
    except Unschedulable as problem:
        return problem
    return None


def _seconds(kernel: KernelOp, offer: Offer, sites: Sequence[Site]) -> float | None:
    """Of the opaque ops, and of the passes over memory that what is around them takes where it is a kernel of its own."""
    total = 0.0
    for site in sites:
        if (seconds := offer.seconds(site)) is None:
            return None
        total += seconds
    machine = sites[0].device
    beside = isinstance(offer.epilogue, PointwiseOffer) or library_op(kernel) is not None
    if offer.kind or beside or machine is None or absorbed_chain(kernel, offer) is not None:
        return total
    moved = 2 * sum(tensor.nbytes for site in sites for tensor in site.results)
    return total + machine.launch + machine.move_seconds(moved)


def with_times(
    found: Sequence[Candidate], kernel: KernelOp, frozen: Collection[SSAValue], table: CostTable
) -> tuple[Candidate, ...]:
    """The candidates with what a table says that they took."""
    site = site_name(kernel, frozen)
    return tuple(replace(one, measured=table.seconds(site, one.offer.name)) for one in found)


def best(found: Sequence[Candidate], preferred: Sequence[str] = ()) -> tuple[Candidate | None, Candidate | None]:
    """
    The candidate to take and the next best one: of those that run the kernel the first that is preferred (by its name or
    its backend), else the first that costs no more than NEAR times the least, where all say what they cost; but what Python
    calls comes behind a call of compiled code for the same that costs no more, either. Where all of them were measured, the
    first in that order that took no more than NEAR times the least.
    """
    able = [candidate for candidate in found if not candidate.refusal]
    order = [one for wanted in preferred for one in able if is_called(one.offer, wanted)]
    rest = _ranked([candidate for candidate in able if candidate not in order], lambda one: one.seconds)
    order += _ranked(rest, lambda one: one.measured)
    return (order[0] if order else None), (order[1] if len(order) > 1 else None)


def _ranked(able: Sequence[Candidate], seconds: Callable[[Candidate], float | None]) -> list[Candidate]:
    """
    Again and again the first that is near the least of what is left, or what compiled code calls in its place; as they are where
    not all have a time.
    """
    times = [(time, one) for one in able if (time := seconds(one)) is not None]
    if len(times) < len(able):
        return list(able)
    ranked: list[Candidate] = []
    while times:
        least = min(time for time, _ in times)
        near = [entry for entry in times if entry[0] <= NEAR * least]
        found = next((entry for entry in near if entry[1].offer.like == near[0][1].offer.name), near[0])
        times.remove(found)
        ranked.append(found[1])
    return ranked


def is_called(offer: Offer, wanted: str) -> bool:
    """Whether a word means an implementation: its name, or its backend's."""
    return wanted in (offer.name, offer.backend)


def workspace_of(
    kernel: KernelOp, offer: Offer, machine: Machine | None = None, frozen: Collection[SSAValue] = ()
) -> int:
    """Bytes that an implementation takes for the kernel's opaque op beside operands and results. Raises BackendFault."""
    ops = dispatched_ops(kernel)
    if not offer.takes_workspace or len(ops) != 1:
        return 0
    return offer.workspace_bytes(_site(kernel, ops[0], offer, machine, frozen))


def packs_of(kernel: KernelOp, offer: Offer, frozen: Collection[SSAValue]) -> dict[int, EncodingPart]:
    """By number of its only opaque op, how the implementation would have operands that never change. Raises BackendFault."""
    ops = dispatched_ops(kernel)
    return offer.packs(_site(kernel, ops[0], offer, None, frozen)) if offer.pack is not None and len(ops) == 1 else {}


def check_pairs(kernel: KernelOp, offer: Offer) -> None:
    """Raises BackendFault where what an implementation says of pairs in place is no answer: later passes ask it, too."""
    for op in dispatched_ops(kernel):
        offer.pairs(lambda op=op: Site.of(op))


def machine_refusal(
    kernel: KernelOp, offer: Offer, machine: Machine | None = None, frozen: Collection[SSAValue] = ()
) -> str | None:
    """Why what is behind an implementation does not run the kernel's opaque op on this machine. Raises BackendFault."""
    ops = dispatched_ops(kernel)
    if offer.probe is None or len(ops) != 1:
        return None
    return offer.machine_refusal(_site(kernel, ops[0], offer, machine, frozen))


def _site(kernel: KernelOp, op: GraphOp, offer: Offer, machine: Machine | None, frozen: Collection[SSAValue]) -> Site:
    """The op, with what the implementation runs behind it and leaves beside it."""
    links = absorbed_chain(kernel, offer) or ()
    return Site.of(op, machine, _inside(kernel, frozen), links, saved_beside(kernel))


def _inside(kernel: KernelOp, frozen: Collection[SSAValue]) -> set[SSAValue]:
    """The arguments of the kernel's body that never change."""
    return {argument for argument, value in zip(kernel.block.args, kernel.operands, strict=True) if value in frozen}


def generated_kind(kernel: KernelOp) -> str:
    """The schedule kind by which code is generated for a kernel with opaque ops, if it names one or none; else empty."""
    named = None if kernel.implementation is None else kernel.implementation.data
    key = (*_question(kernel), named)
    if (found := _KINDS.get(key)) is None:
        if len(_KINDS) >= _REMEMBERED:
            _KINDS.clear()
        found = (offer for op in dispatched_ops(kernel) for offer in allowed_offers(op) if offer.kind)
        offers = dict.fromkeys(o for o in found if named is not None or o.is_within("strict"))
        able = (o.kind for o in offers if named in (None, o.name) and _composite_problem(kernel, o) is None)
        found = _KINDS[key] = next((kind for kind in able if kind_problem(kernel, kind) is None), "")
    return found
