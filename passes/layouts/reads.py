"""What lies between the variables of a layout problem: operands that one makes, or wants, in a layout of its choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import BlockArgument, Operation, SSAValue

from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.passes.layouts.choices import Choices, Layout, Layouts
from fuse_opt.passes.layouts.followed import Alike, Kind, Values
from fuse_opt.passes.layouts.quadratic_assignment import Matrix


@dataclass(eq=False, frozen=True, slots=True)
class Link:
    """How a value lies and how it is wanted, by what chooses about that; one object for all alike."""

    seconds: float
    """Of a conversion."""
    given: Sequence[int]
    """By alternative of its maker, how it lies; alone where nobody decides about that."""
    wanted: Sequence[int]
    """The same of its reader, how that wants it."""
    matrix: Matrix
    """What the value costs between each alternative of its maker and each of its reader."""
    turned: Matrix
    """The same by alternative of its reader."""

    @property
    def is_decided(self) -> bool:
        """Whether no choice has a say in it."""
        return len(self.given) == len(self.wanted) == 1

    @property
    def is_fitting(self) -> bool:
        """Whether the value lies as it is wanted whatever is chosen, so that there is nothing to know about it."""
        return len({*self.given, *self.wanted}) == 1


class Read(NamedTuple):
    """An operand that lies as a choice says: who makes it and who wants it, where these are variables."""

    op: Operation
    number: int
    value: SSAValue
    maker: int | None
    reader: int | None
    link: Link


Row = tuple[Operation, Sequence[SSAValue], Alike | None]
"""An op with its operands, and what it has in common with others where it may have a say in how they lie."""


@dataclass(eq=False)
class Reads:
    """Finds the operands of a function that lie as a choice says."""

    types: Values
    layouts: Layouts
    seconds: Callable[[Kind], float]
    """What a conversion takes."""
    frozen: Collection[SSAValue]
    """Values whose conversion costs nothing."""

    def __post_init__(self) -> None:
        self._links: dict[Hashable, Link | None] = {}
        """None where the value always lies as it is wanted."""
        self._alone: dict[int, tuple[int]] = {}

    def found(self, rows: Sequence[Row], variable_of: Sequence[int | None], lists: Sequence[Choices]) -> Iterable[Read]:
        """
        In the order of ops, of which each is a part of a variable or of none; a variable's choices are in the lists. Not those
        that always lie as they are wanted.
        """
        made: dict[int, tuple[int, int]] = {}  # by identity
        for (op, operands, alike), reader in zip(rows, variable_of, strict=True):
            ordered = range(len(operands)) if reader is None or alike is None else alike.ordered
            for number in ordered:
                value = operands[number]
                if (pair := made.get(id(value))) is None:
                    if reader is not None and (link := self._from_outside(value, lists[reader], number)) is not None:
                        yield Read(op, number, value, None, None if link.is_decided else reader, link)
                    continue
                maker, place = pair
                if maker == reader:
                    continue  # a group, which has its values in one order
                kind = self.types.kind(value)
                choices = None if reader is None else lists[reader]
                if kind.has_order and (link := self._between(kind, lists[maker], place, choices, number)) is not None:
                    yield Read(op, number, value, maker, reader, link)
            if reader is not None:
                for place, value in enumerate(op.results):
                    made[id(value)] = reader, place

    def _between(self, kind: Kind, maker: Choices, place: int, reader: Choices | None, number: int) -> Link | None:
        """The link of a value that a variable makes."""
        key = kind.number, id(maker), place, id(reader), number
        if key not in self._links:
            wanted = self._always(0) if reader is None else reader.operand(number)
            self._links[key] = _linked(self.seconds(kind), maker.result(place), wanted)
        return self._links[key]

    def _from_outside(self, value: SSAValue, reader: Choices, number: int) -> Link | None:
        """The link of a value that no variable makes."""
        kind, own = self.types.kind(value), self.layouts.number(as_it_is(value))
        is_free = bool(self.frozen) and value in self.frozen
        key = kind.number, own, id(reader), number, is_free
        if key not in self._links:
            wanted = reader.operand(number) if kind.has_order else self._always(0)
            self._links[key] = _linked(0.0 if is_free else self.seconds(kind), self._always(own), wanted)
        return self._links[key]

    def _always(self, layout: int) -> tuple[int]:
        return self._alone.setdefault(layout, (layout,))


def as_it_is(value: SSAValue) -> Layout:
    """The layout of a value that nobody has decided about: of an argument as the caller has it."""
    return encoding(value) if isinstance(value, BlockArgument) else None


def _linked(seconds: float, given: Sequence[int], wanted: Sequence[int]) -> Link | None:
    matrix = [[0.0 if a == b else seconds for b in wanted] for a in given]
    found = Link(seconds, given, wanted, matrix, [list(column) for column in zip(*matrix, strict=True)])
    return None if found.is_fitting else found
