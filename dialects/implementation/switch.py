"""Which backends may run ops: a list on the module, from what a person says.

    module attributes {graph.backends = ["fuse", "numpy"]} { ... }

Without the attribute all do that are registered, but for optional ones, which a person's files bring. What a person says is
a text such as `mkl,-numpy`: names add, names behind a minus remove, `none` removes all, and `reference` all but the functions
that the reference calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation

from fuse_opt.dialects.gpu.kernels import DEVICE
from fuse_opt.dialects.implementation.offers import Offer, Platform, all_offers, default_offer, offers_of
from fuse_opt.dialects.implementation.partitions import partition_backends

BACKENDS = "graph.backends"
"""The attribute of a module."""
NONE, REFERENCE = "none", "reference"


def known_backends() -> tuple[str, ...]:
    """The names of all backends, sorted."""
    return tuple(sorted({*(offer.backend for offer in all_offers()), *partition_backends()}))


def default_backends() -> tuple[str, ...]:
    """Those that may run ops where nothing is said, sorted."""
    return tuple(sorted({offer.backend for offer in all_offers() if not offer.optional}))


def _reference_backends() -> set[str]:
    """Those whose functions the reference calls where nothing is named."""
    found = (default_offer(offer.op) for offer in all_offers())
    return {offer.backend for offer in found if offer is not None}


def chosen_backends(words: Iterable[str]) -> tuple[str, ...]:
    """The backends that are left, sorted, by the words of a person. Raises ValueError for one that nobody registered."""
    known = known_backends()
    found = set(default_backends())
    for word in words:
        name = word.removeprefix("-")
        if word == NONE:
            found = set[str]()
        elif word == REFERENCE:
            found = _reference_backends()
        elif name not in known:
            raise ValueError(f"unknown backend '{name}'; expected one of {', '.join(known)}, '{REFERENCE}' or '{NONE}'")
        elif word.startswith("-"):
            found.discard(name)
        else:
            found.add(name)
    return tuple(sorted(found))


def allowed_backends(op: Operation) -> Collection[str] | None:
    """What the module that holds the op says; None where that is nothing, and those that are no one's option may run it."""
    found = _top(op).attributes.get(BACKENDS)
    if not isinstance(found, ArrayAttr):
        return None
    names = cast("ArrayAttr[Attribute]", found).data
    return [name.data for name in names if isinstance(name, StringAttr)]


def allow_backends(module: ModuleOp, names: Sequence[str]) -> None:
    """Writes the list; none where it is the default."""
    if set(names) == set(default_backends()):
        module.attributes.pop(BACKENDS, None)
    else:
        module.attributes[BACKENDS] = ArrayAttr(StringAttr(name) for name in names)


def platform_of(op: Operation) -> Platform:
    """What the module that holds the op is made for: "cuda" where it names a GPU (see gpu-attach-device), else "cpu"."""
    return "cuda" if DEVICE in _top(op).attributes else "cpu"


def allowed_offers(op: Operation, platform: str | None = None) -> tuple[Offer, ...]:
    """The offers for an op, on its module's platform or another one, by backends that the module allows, the default first."""
    return offers_at(op, op.name, platform)


def offers_at(place: Operation, name: str, platform: str | None = None) -> tuple[Offer, ...]:
    """The same for an op of that name, if it stood at a place."""
    return _allowed(place, offers_of(name), platform)


def allowed_composites(place: Operation) -> tuple[Offer, ...]:
    """The offers to run several ops at once, of all ops, that are allowed at a place."""
    return _allowed(place, (offer for offer in all_offers() if offer.composite), None)


def _allowed(place: Operation, offers: Iterable[Offer], platform: str | None) -> tuple[Offer, ...]:
    allowed, wanted = allowed_backends(place), platform_of(place) if platform is None else platform
    there = (offer for offer in offers if offer.platform == wanted)
    return tuple(o for o in there if (not o.optional if allowed is None else o.backend in allowed))


def _top(op: Operation) -> Operation:
    while (parent := op.parent_op()) is not None:
        op = parent
    return op
