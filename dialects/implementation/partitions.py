"""Backends that run parts of a graph as a whole: what they say of themselves, as data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from typing import cast

from fuse_opt.dialects.implementation.offers import BackendFault, forget_with
from fuse_opt.dialects.implementation.site import Machine, Site
from fuse_opt.dialects.implementation.subgraph import Subgraph


@dataclass(frozen=True)
class PartitionOffer:
    """What a backend says of parts of a graph; all functions are pure and see types and properties, never elements."""

    backend: str
    accepts: Callable[[Site], str | None]
    """Why an op is not for it, as a code for remarks; None where it is."""
    review: Callable[[Subgraph], Collection[int] | None] | None = None
    """The numbers of the nodes of a part that it keeps: fewer are grouped anew, none declines; None for all of them."""
    seconds: Callable[[Subgraph, Machine], float] | None = None
    """What a call of a part takes; who does not know is given every part of enough ops."""
    workspace: Callable[[Subgraph], int] | None = None
    """Bytes for values inside, which the plan gives it; without it the memory inside is its own."""
    planned: bool = False
    """Whether values inside have slots of the plan, each of its own, and a call gets their arrays."""

    differentiable: bool = True
    """Whether it takes parts in the forward part of training; gradients are always those of the ops' meaning."""

    def refusal(self, site: Site) -> str | None:
        """The code of why an op is not for it. Raises BackendFault."""
        found = self._ask("accepts", lambda: self.accepts(site))
        if found is None or (isinstance(found, str) and found):
            return found
        raise self._fault("accepts", "None or a reason", found)

    def kept(self, part: Subgraph) -> frozenset[int]:
        """The nodes of a part that it keeps. Raises BackendFault."""
        every = frozenset(range(len(part.nodes)))
        found = None if self.review is None else self._ask("review", lambda: self.review and self.review(part))
        if found is None:
            return every
        if isinstance(found, Collection):
            kept = {*cast("Collection[object]", found)}
            if kept <= every:
                return frozenset(n for n in every if n in kept)
        raise self._fault("review", f"None or numbers below {len(every)}", cast("object", found))

    def call_seconds(self, part: Subgraph, machine: Machine) -> float | None:
        """What a call of the part takes, where it says so. Raises BackendFault."""
        if self.seconds is None:
            return None
        found = self._ask("seconds", lambda: self.seconds and self.seconds(part, machine))
        if isinstance(found, int | float) and 0 <= found < inf:
            return float(found)
        raise self._fault("seconds", "0 or more seconds", found)

    def workspace_bytes(self, part: Subgraph) -> int:
        """Bytes for values inside that the plan is to give it; 0 without. Raises BackendFault."""
        if self.workspace is None:
            return 0
        found = self._ask("workspace", lambda: self.workspace and self.workspace(part))
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**63:
            return found
        raise self._fault("workspace", "0 or more bytes", found)

    def _ask(self, what: str, ask: Callable[[], object]) -> object:
        try:
            return ask()
        except Exception as error:
            raise BackendFault(f"backend '{self.backend}', {what} raised {type(error).__name__}: {error}") from error

    def _fault(self, what: str, expected: str, found: object) -> BackendFault:
        return BackendFault(f"backend '{self.backend}', answer of {what}: expected {expected}, got {found!r}")


_OFFERS: dict[str, PartitionOffer] = {}


def register_partition_offer(offer: PartitionOffer) -> None:
    """Makes it known. Raises ValueError where the backend has another one, or wants its memory in two ways."""
    if offer.planned and offer.workspace is not None:
        raise ValueError(f"backend '{offer.backend}' asks for a workspace beside planned values; leave one out")
    if _OFFERS.setdefault(offer.backend, offer) != offer:
        raise ValueError(f"backend '{offer.backend}' takes partitions already, by another offer; register one")


forget_with(lambda backend: _OFFERS.pop(backend, None))


def partition_offer(backend: str) -> PartitionOffer | None:
    """That of a backend."""
    return _OFFERS.get(backend)


def partition_backends() -> tuple[str, ...]:
    """The backends that take partitions, in the order of registration."""
    return tuple(_OFFERS)
