"""What runs a kernel, of which candidates, and how a kernel says so; a name that somebody wrote down is one that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr

from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import Offer, find_offer, known_implementations, offers_of
from fuse_opt.dialects.implementation.queries import inplace_operands
from fuse_opt.dialects.implementation.selection import Candidate, best
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.remarks import Number, RefusedError

Found = tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs a kernel, of which candidates; None where nothing does."""

    found: Found
    chosen: Candidate | None = None
    second: Candidate | None = None
    """The next best one, where that was compared."""
    workspace: int = 0
    unread: tuple[int, ...] = ()
    """Operands of the kernel that it does not read."""
    by_rule: bool = False
    """Whether it is a decision: neither a directive nor what the kernel names already."""

    @property
    def next_best(self) -> Candidate | None:
        """What would run it instead, also where a directive or the kernel's own word left nothing to compare."""
        others = [one for one in self.found if one is not self.chosen]
        return self.second or best(others)[0]

    def record(self) -> dict[str, Any]:
        """What the statistics of a program say of it, as data that JSON has; costs in seconds."""
        found: dict[str, Any] = {"implementation": None, "seconds": None, **_named(self.chosen)}
        found |= {"second": _named(self.next_best) or None}
        found |= {"refused": {one.offer.name: one.refusal for one in self.found if one.refusal}}
        return found | ({"workspace": self.workspace} if self.workspace else {})

    def numbers(self) -> dict[str, Number]:
        """What the remark says of it."""
        numbers: dict[str, Number] = {} if self.chosen is None else {**_microseconds("", self.chosen)}
        if self.second is not None:
            numbers |= {"second": self.second.offer.name, **_microseconds("second_", self.second)}
        numbers["candidates"] = len(self.found)
        if refused := refusals(self.found):
            numbers["refused"] = refused
        if self.workspace:
            numbers["workspace"] = self.workspace
        if self.unread:
            numbers["unread"] = ",".join(map(str, self.unread))
        if self.chosen is not None and self.chosen.rate is not None:
            numbers["gops"] = round(self.chosen.rate / 1e9, 1)
        return numbers


def check_preferred(pass_name: str, preferred: Sequence[str], op: ModuleOp) -> None:
    """Raises RefusedError for a word that is no implementation's name, and no backend's of one."""
    known = known_implementations() if preferred else ()
    for wanted in preferred:
        if not any(wanted in (name, name.partition(".")[0]) for name in known):
            names = ", ".join(known) or "none"
            raise RefusedError(f"'{pass_name}' option prefer: unknown '{wanted}'; expected one of {names}", op)


def name_nothing(kernel: KernelOp) -> None:
    """Takes back what a kernel says of who runs it."""
    kernel.set_workspace(0)
    kernel.set_unread(())
    kernel.implementation = kernel.saved = None


def write(kernel: KernelOp, offer: Offer) -> None:
    """Names the implementation; what was decided for another one is dropped: its schedule, pairs and slots."""
    kind = offer.kind or "library"
    if differs := kernel.schedule_kind() not in (None, kind):
        kernel.schedule = None
    kernel.implementation = StringAttr(offer.name)
    if kernel.inplace is None:
        return
    allowed = inplace_operands(kernel)
    if differs or (
        not offer.kind and any(operand not in allowed[result] for result, operand in kernel.inplace_pairs())
    ):
        kernel.inplace = None
        kernel.drop_places()


def check_known_for(kernel: KernelOp, name: str) -> None:
    """Raises RefusedError for an implementation that nobody registered for the kernel's ops: it is no wish."""
    ops = dispatched_ops(kernel)
    if any(find_offer(op.name, name) is not None for op in ops):
        return
    known = ", ".join(dict.fromkeys(offer.name for op in ops for offer in offers_of(op.name))) or "none"
    raise RefusedError(
        f"'fused.kernel' implementation \"{name}\" does not run '{ops[0].name}': expected one of {known}; "
        "remove the property or register the implementation", kernel
    )  # fmt: skip


def promised(op: GraphOp, name: str, found: Sequence[Candidate]) -> Candidate:
    """The candidate that a directive names. Raises RefusedError where there is none, or where it refuses."""
    chosen = next((one for one in found if one.offer.name == name), None)
    if chosen is not None and not chosen.refusal:
        return chosen
    known = ", ".join(one.offer.name for one in found) or "none"
    why = f"is not among what is allowed: {known}" if chosen is None else f"refuses it: {chosen.refusal}"
    raise RefusedError(f"'{op.name}' use_implementation \"{name}\" {why}; remove the directive or name another one", op)


def refusals(found: Sequence[Candidate]) -> str:
    """Why candidates do not run it, as remarks have it."""
    return ",".join(f"{one.offer.name}:{one.refusal}" for one in found if one.refusal)


def _named(candidate: Candidate | None) -> dict[str, Any]:
    if candidate is None:
        return {}
    measured = {} if candidate.measured is None else {"measured_seconds": candidate.measured}
    return {"implementation": candidate.offer.name, "seconds": candidate.seconds, **measured}


def _microseconds(prefix: str, candidate: Candidate) -> dict[str, Number]:
    """What it is said to cost, and what it took."""
    times = {"us": candidate.seconds, "measured_us": candidate.measured}
    return {f"{prefix}{name}": round(seconds * 1e6, 1) for name, seconds in times.items() if seconds is not None}
