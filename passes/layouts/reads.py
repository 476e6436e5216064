"""What lies between the variables of a layout problem: operands that one makes, or wants, in a layout of its choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from xdsl.ir import BlockArgument, OpResult, SSAValue

from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.passes.layouts.choices import Choices, Layout, Layouts
from fuse_opt.passes.layouts.connected import Between
from fuse_opt.passes.layouts.followed import Kind, Values
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
    UNKNOWN: ClassVar[Link]
    """One that was not asked for yet."""

    @property
    def is_decided(self) -> bool:
        """Whether no choice has a say in it."""
        return len(self.given) == len(self.wanted) == 1

    @property
    def is_fitting(self) -> bool:
        """Whether the value lies as it is wanted whatever is chosen, so that there is nothing to know about it."""
        return len({*self.given, *self.wanted}) == 1


Link.UNKNOWN = Link(0.0, (), (), [], [])


class Read(NamedTuple):
    """An operand that lies as a choice says: who makes it and who wants it, where these are variables."""

    place: int
    """Of the op that reads it, in the function."""
    number: int
    value: SSAValue
    maker: int | None
    reader: int | None
    link: Link


@dataclass(eq=False)
class Reads:
    """Finds the operands of a function that lie as a choice says."""

    types: Values
    layouts: Layouts
    seconds: Callable[[Kind], float]
    """What a conversion takes."""
    frozen: Collection[SSAValue]
    """Values whose conversion costs nothing."""
    arguments: Sequence[SSAValue]
    """Of the function."""

    def __post_init__(self) -> None:
        self._links: dict[Hashable, Link | None] = {}
        """None where the value always lies as it is wanted."""
        self._alone: dict[int, tuple[int]] = {}
        self._free = {id(value) for value in self.frozen}
        self._own = {id(value): self.layouts.number(as_it_is(value)) for value in self.arguments}
        """By identity of an argument, the layout in which a caller has it."""

    def found(
        self, between: Iterable[Between], variable_of: Sequence[int | None], lists: Sequence[Choices]
    ) -> Iterable[Read]:
        """
        In the order of what lies between ops, each of which is a part of a variable or of none; a variable's choices are in the
        lists. Not those that always lie as they are wanted.
        """
        links, own, free, unknown = self._links, self._own, self._free, Link.UNKNOWN
        for place, number, value, kind, made_at in between:
            reader = variable_of[place]
            choices = None if reader is None else lists[reader]
            if made_at is not None:
                maker = variable_of[made_at]
                if maker is None:
                    continue
                result = value.index if isinstance(value, OpResult) else 0
                key = kind.number, id(lists[maker]), result, id(choices), number
                if (link := links.get(key, unknown)) is unknown:
                    link = links[key] = self._between(kind, lists[maker], result, choices, number)
                if link is not None:
                    yield Read(place, number, value, maker, reader, link)
            elif choices is not None:
                known = id(value)
                key = kind.number, own.get(known, 0), id(choices), number, known in free
                if (link := links.get(key, unknown)) is unknown:
                    link = links[key] = self._from_outside(kind, own.get(known, 0), choices, number, known in free)
                if link is not None:
                    yield Read(place, number, value, None, None if link.is_decided else reader, link)

    def _between(self, kind: Kind, maker: Choices, result: int, reader: Choices | None, number: int) -> Link | None:
        """The link of a value that a variable makes."""
        if not kind.has_order:
            return None
        wanted = self._always(0) if reader is None else reader.operand(number)
        return _linked(self.seconds(kind), maker.result(result), wanted)

    def _from_outside(self, kind: Kind, own: int, reader: Choices, number: int, is_free: bool) -> Link | None:
        """The link of a value that no variable makes."""
        wanted = reader.operand(number) if kind.has_order else self._always(0)
        return _linked(0.0 if is_free else self.seconds(kind), self._always(own), wanted)

    def _always(self, layout: int) -> tuple[int]:
        return self._alone.setdefault(layout, (layout,))


def as_it_is(value: SSAValue) -> Layout:
    """The layout of a value that nobody has decided about: of an argument as the caller has it."""
    return encoding(value) if isinstance(value, BlockArgument) else None


def _linked(seconds: float, given: Sequence[int], wanted: Sequence[int]) -> Link | None:
    matrix = [[0.0 if a == b else seconds for b in wanted] for a in given]
    found = Link(seconds, given, wanted, matrix, [list(column) for column in zip(*matrix, strict=True)])
    return None if found.is_fitting else found
