"""Orders of places: a plan for an arena whose values have any sizes.

A place is memory whose bytes are a size. An order says of places which lie below which; a place begins where the highest of
those right below it ends, so that no two places that an order has above one another share a byte, whatever the sizes are. A plan
may have several orders; a call takes the one with the smallest arena at its sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, IntegerAttr, IntegerType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.storage import ARENA, PLACES
from fuse_opt.dialects.interfaces.properties import int_array, int_value
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import Extent, Size, symbol
from fuse_opt.dialects.types.symbolic_shape import SizeAttr

ORDERS = "orders"
"""The entry of `fused.arena` that has the orders: of each the pairs (place below, place above), flat."""

BOUNDS = "bounds"
"""The entry that has sets of places whose values live at once."""

Order = tuple[tuple[int, int], ...]
"""Pairs (below, above); all that have a place above stand in front of those that have it below."""

_MOST = 2**63 - 1


def offsets_of(order: Order, nbytes: Sequence[int]) -> tuple[list[int], int]:
    """Where places of so many bytes begin, and where the last one ends."""
    offsets = [0] * len(nbytes)
    for below, above in order:
        if (end := offsets[below] + nbytes[below]) > offsets[above]:
            offsets[above] = end
    return offsets, max(map(int.__add__, offsets, nbytes), default=0)


@dataclass(frozen=True)
class PlaceOrders:
    """Places, their bytes as they are before they are rounded up to the alignment, and orders of them."""

    alignment: int
    places: tuple[Extent, ...]
    orders: tuple[Order, ...]
    bounds: tuple[tuple[int, ...], ...]
    """Sets of places that are in use at once, all that are not part of another: the arena is no smaller than one of them."""

    @staticmethod
    def of(function: FuncOp) -> PlaceOrders | None:
        """What a plan says; None where it has offsets, or there is none."""
        plan = function.attributes.get(ARENA)
        entries: Mapping[str, Attribute] = plan.data if isinstance(plan, DictionaryAttr) else {}
        places, orders, alignment = (entries.get(name) for name in (PLACES, ORDERS, "alignment"))
        if places is None:
            return None
        if not isa(places, ArrayAttr[SizeAttr]) or not isa(orders, ArrayAttr[DenseArrayBase[IntegerType]]):
            return None
        assert isinstance(alignment, IntegerAttr)
        flat = [order.get_values() for order in orders]
        pairs = tuple(tuple(zip(each[::2], each[1::2], strict=True)) for each in flat)
        sets = entries.get(BOUNDS)
        bounds = [each.get_values() for each in sets] if isa(sets, ArrayAttr[DenseArrayBase[IntegerType]]) else []
        return PlaceOrders(
            alignment.value.data, tuple(place.data for place in places), pairs, tuple(map(tuple, bounds))
        )

    def entries(self) -> dict[str, Attribute]:
        """The same in `fused.arena`."""
        flat = [int_array([place for pair in order for place in pair]) for order in self.orders]
        return {
            "alignment": int_value(self.alignment),
            PLACES: ArrayAttr(map(SizeAttr, self.places)),
            ORDERS: ArrayAttr(flat),
            BOUNDS: ArrayAttr(map(int_array, self.bounds)),
        }

    def rounded(self, nbytes: int) -> int:
        """Bytes of a place of so many."""
        return -(-nbytes // self.alignment) * self.alignment

    def at(self, values: Mapping[str, int]) -> tuple[list[int], int, int]:
        """By place its offset, the bytes of the arena and those that live at once, where symbols have these values."""
        nbytes = [self.rounded(evaluate(place, values)) for place in self.places]
        offsets, arena = min((offsets_of(order, nbytes) for order in self.orders), key=lambda found: found[1])
        return offsets, arena, max((sum(nbytes[place] for place in each) for each in self.bounds), default=0)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What programs call what `at` gives, as symbols."""
        return (*(f"place {number}" for number in range(len(self.places))), "arena bytes", "bytes at once")

    def symbols(self) -> list[Size]:
        """The symbols of these names."""
        return [symbol(name, 0, _MOST) for name in self.names]

    @property
    def bound(self) -> int:
        """The most bytes at once, a size that stands for a number as in `shape`."""
        return cast(int, self.symbols()[-1])

    def named(self, values: Mapping[str, int]) -> dict[str, int]:
        """The values of symbols, with those that follow for these."""
        offsets, arena, bound = self.at(values)
        return {**values, **dict(zip(self.names, (*offsets, arena, bound), strict=True))}
