"""Orders of places, verified: each is acyclic, and which places may share a byte follows from what no order keeps apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from fuse_opt.dialects.types.size import Extent
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.dialects.verify.plan_contents import Content, PlanError


@dataclass(frozen=True, slots=True)
class Places:
    """What a plan for any sizes says."""

    nbytes: tuple[Extent, ...]
    apart: tuple[int, ...]
    """By place the others that no byte is shared with, in no order, as bits."""
    bounds: frozenset[frozenset[int]]


def read_places(function: FuncOp, entries: dict[str, Attribute]) -> Places:
    """Raises PlanError for what makes no sense, and for orders with a cycle."""
    given = _items(entries.get("places"))
    places = [entry.data for entry in given if isinstance(entry, SizeAttr)]
    orders = [_numbers(one) for one in _items(entries.get("orders"))]
    bounds = [_numbers(one) for one in _items(entries.get("bounds"))]
    about = "'func.func' attribute fused.arena"
    if len(places) < len(given) or "size" in entries or not orders or None in orders or None in bounds:
        wanted = (
            "places (sizes in bytes), orders and bounds (lists of arrays) without size and lower_bound, or these alone"
        )
        raise PlanError(f"{about}: expected {wanted}, got {entries}; run plan-memory", function)
    known = [numbers for numbers in (*orders, *bounds) if numbers is not None]
    if any(not 0 <= number < len(places) for numbers in known for number in numbers):
        raise PlanError(
            f"{about}: orders and bounds are about places 0 to {len(places) - 1}; run plan-memory", function
        )
    apart = [(1 << len(places)) - 1] * len(places)
    for number, order in enumerate(order for order in orders if order is not None):
        if len(order) % 2:
            raise PlanError(f"{about}: order {number}: expected pairs of places; run plan-memory", function)
        joined = _joined(order, len(places))
        if isinstance(joined, int):
            message = f"order {number}: its pair {joined} has a place above that an earlier pair has below"
            raise PlanError(f"{about}: {message}; run plan-memory", function)
        apart = [a & b for a, b in zip(apart, joined, strict=True)]
    return Places(tuple(places), tuple(apart), frozenset(frozenset(b) for b in bounds if b is not None))


def _joined(order: Sequence[int], count: int) -> list[int] | int:
    """
    By place all that are above or below it; or the number of a pair out of order. Pairs are in the order in which offsets follow
    from one another, which no cycle has.
    """
    below, has_been_below = [0] * count, [False] * count
    for pair, (low, high) in enumerate(zip(order[::2], order[1::2], strict=True)):
        has_been_below[low] = True
        if has_been_below[high]:
            return pair
        below[high] |= below[low] | 1 << low
    joined = list(below)
    for place, lower in enumerate(below):
        for other in range(count):
            if lower >> other & 1:
                joined[other] |= 1 << place
    return joined


@dataclass
class PlaceBytes:
    """Which content each place holds: what is written to one may lie over all that are not apart from it."""

    places: Places
    owners: dict[int, Content] = field(default_factory=dict[int, Content])

    def overlapping(self, start: int, end: int) -> Iterator[tuple[int, int, Content]]:
        """The owner of one place."""
        if (owner := self.owners.get(start)) is not None:
            yield start, end, owner

    def write(self, content: Content, start: int, end: int) -> None:
        """`start` is a place, `end` the number behind it."""
        kept = self.places.apart[start]
        for other in list(self.owners):
            if not kept >> other & 1:
                self.owners[other] = content
        self.owners[start] = content

    def may_overlap(self, a: int, b: int) -> bool:
        return a == b or not self.places.apart[a] >> b & 1


def _items(attribute: Attribute | None) -> Sequence[Attribute]:
    return cast("ArrayAttr[Attribute]", attribute).data if isinstance(attribute, ArrayAttr) else ()


def _numbers(attribute: Attribute) -> Sequence[int] | None:
    if not isinstance(attribute, DenseArrayBase):
        return None
    return [int(number) for number in cast("DenseArrayBase[Attribute]", attribute).iter_values()]  # pyright: ignore
