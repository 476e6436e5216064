"""Implementations of opaque ops as data: what each offers to passes, by op and name. Functions to run are lowering's.

    register_offer(Offer("mine.sort", "mylib.sort", inplace=((0, 0),)))

An implementation that says nothing offers nothing: its results are in memory of their own, and it takes in no other op.
Whoever has functions to run registers their offers with them; `load_with` names what is loaded before the first question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.interfaces.op import FusionKind, OpaqueOp


@dataclass(frozen=True, slots=True)
class PointwiseOffer:
    """Which pointwise ops an implementation takes in, before or behind its op, where they have as many elements."""

    kind: FusionKind = FusionKind.BROADCAST
    """The least fusible kind of op among them."""
    max_ops: int = 64
    """How many of them at most."""
    operands: Literal["any", "bias", "none"] = "any"
    """What else they may read: anything, at most vectors along the last axis, or only the op's result (or operand)."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an implementation `name` of the op `op` can do besides running it."""

    op: str
    name: str
    inplace: tuple[tuple[int, int], ...] = ()
    """Pairs (result, operand) of the op: the result may be written over the operand's storage. All of them hold at once."""
    epilogue: PointwiseOffer | None = None
    """What may follow the op in its kernel; only where the op has one result."""
    prologue: PointwiseOffer | None = None
    """What may come before the op in its kernel."""
    priority: int = 0
    """The default of an op is the offer of the highest priority, of equal ones that registered first."""
    workspace: int = 0
    """Bytes that a call takes besides its operands and results."""
    generated: bool = False
    """It is code of the program itself, for kernels whose schedule says so, and no function to call."""
    trace: Callable[[Sequence[SSAValue], Collection[Operation]], object] | None = None
    """For generated code: raises Unschedulable where ops that give these results cannot be one kernel of it."""
    accepts: Callable[[OpaqueOp], bool] | None = None
    """Whether it runs an op of that name; None: it runs them all."""


_OFFERS: dict[str, list[Offer]] = {}
_WAITING: list[Callable[[], object]] = []
_LOADED: set[Callable[[], object]] = set()


def load_with(loader: Callable[[], object]) -> None:
    """Has a function called, once, before the next question; it imports or builds what registers offers."""
    if loader not in _LOADED:
        _LOADED.add(loader)
        _WAITING.append(loader)


def _load() -> None:
    while _WAITING:
        _WAITING.pop(0)()


def register_offer(offer: Offer) -> None:
    """Makes an offer known. Raises ValueError where the op has another one of that name."""
    _load()  # those before come first among equals
    known = _OFFERS.setdefault(offer.op, [])
    if (same := next((o for o in known if o.name == offer.name), None)) is not None:
        if same != offer:
            raise ValueError(
                f"'{offer.op}' has an implementation '{offer.name}' already, with another offer; rename it"
            )
        return
    known.append(offer)
    known.sort(key=lambda o: -o.priority)  # stable


def offers_of(op: str) -> tuple[Offer, ...]:
    """The offers for an op, the default first."""
    _load()
    return tuple(_OFFERS.get(op, ()))


def default_offer(op: str) -> Offer | None:
    """The offer of the implementation that is called for an op when none is named; None when there is none."""
    return next((offer for offer in offers_of(op) if not offer.generated), None)


def find_offer(op: str, name: str | None) -> Offer | None:
    """The offer called `name` for an op, or its default one."""
    if name is None:
        return default_offer(op)
    return next((offer for offer in offers_of(op) if offer.name == name), None)


def known_implementations() -> tuple[str, ...]:
    """The names of all implementations, sorted."""
    _load()
    return tuple(sorted({offer.name for offers in _OFFERS.values() for offer in offers}))
