"""Conversions of values that several read: one for each layout in which a value is read, whoever reads it so.

The solver counts a conversion for each reader. Here choices change one by one, as long as that costs less as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

A = TypeVar("A")
ROUNDS = 4


@dataclass(slots=True)
class SharedValue:
    """A value, which lies in a layout, by number, and is read in others."""

    seconds: float
    """Of a conversion."""
    given: int = 0
    read: dict[int, int] = field(default_factory=dict[int, int])
    """By layout: how many read it so."""
    variables: list[int] = field(default_factory=list[int])
    """Whose choices say how it lies, or is read."""

    def cost(self) -> float:
        given, count = self.given, 0
        for layout, readers in self.read.items():
            if readers and layout != given:
                count += 1
        return self.seconds * count


@dataclass(frozen=True, slots=True)
class Role:
    """What a variable has to do with a value: the layout, by alternative, in which it makes it or reads it so often."""

    value: SharedValue
    layouts: Sequence[int]
    readers: int
    """0: it makes it."""

    def take(self, alternative: int) -> None:
        layout, value = self.layouts[alternative], self.value
        if self.readers:
            value.read[layout] = value.read.get(layout, 0) + self.readers
        else:
            value.given = layout

    def leave(self, alternative: int) -> None:
        if self.readers:
            self.value.read[self.layouts[alternative]] -= self.readers


class Roles:
    """The roles of variables as they are found; values by what they are, layouts by numbers."""

    def __init__(self, variables: int) -> None:
        self._found: list[dict[tuple[int, int, bool], Role]] = [{} for _ in range(variables)]
        self._values: dict[Hashable, SharedValue] = {}
        self._numbers: dict[Hashable, int] = {}
        self._lists: dict[tuple[int, int, Callable[..., Hashable]], list[int]] = {}

    def value(self, key: Hashable, seconds: float, given: Hashable) -> SharedValue:
        """The value of that key, which lies as given unless a variable makes it."""
        if (found := self._values.get(key)) is None:
            found = self._values[key] = SharedValue(seconds, self._number(given))
        return found

    def read(self, key: Hashable, seconds: float, layout: Hashable) -> None:
        """A value is read as it is by what is no variable."""
        read, number = self.value(key, seconds, layout).read, self._number(layout)
        read[number] = read.get(number, 0) + 1

    def layouts(self, alternatives: Sequence[A], place: int, of: Callable[[A, int], Hashable]) -> list[int]:
        """By alternative, the layout of an operand or a result; lists of alternatives outlive this."""
        key = (id(alternatives), place, of)
        if (found := self._lists.get(key)) is None:
            found = self._lists[key] = [self._number(of(one, place)) for one in alternatives]
        return found

    def add(self, variable: int, value: SharedValue, layouts: list[int], reads: bool) -> None:
        own, key = self._found[variable], (id(value), id(layouts), reads)
        if key not in own:
            value.variables.append(variable)
        readers = (own[key].readers if key in own else 0) + reads
        own[key] = Role(value, layouts, readers)

    def lists(self) -> list[list[Role]]:
        return [list(own.values()) for own in self._found]

    def _number(self, layout: Hashable) -> int:
        return self._numbers.setdefault(layout, len(self._numbers))


def better(costs: Sequence[Sequence[float]], roles: Sequence[Sequence[Role]], chosen: list[int]) -> None:
    """Changes one choice at a time, first of variables whose values others read, too, then near what changed."""
    for number, own in zip(chosen, roles, strict=True):
        for role in own:
            role.take(number)
    nodes: Iterable[int] = [n for n, own in enumerate(roles) if any(_is_shared(role.value) for role in own)]
    for _ in range(ROUNDS):
        near: set[int] = set()
        for number in nodes:
            if _changed(costs[number], roles[number], chosen, number):
                near.update(n for role in roles[number] for n in role.value.variables)
        nodes = sorted(near)
        if not near:
            return


def _is_shared(value: SharedValue) -> bool:
    return sum(value.read.values()) > 1


def _changed(costs: Sequence[float], own: Sequence[Role], chosen: list[int], number: int) -> bool:
    kept = chosen[number]
    sums: list[float] = []
    values = {id(role.value): role.value for role in own}.values()
    for role in own:
        role.leave(kept)
    for candidate, cost in enumerate(costs):
        for role in own:
            role.take(candidate)
        sums.append(cost + sum([value.cost() for value in values]))
        for role in own:
            role.leave(candidate)
    least = min(sums)
    chosen[number] = sums.index(least) if least < sums[kept] else kept
    for role in own:
        role.take(chosen[number])
    return chosen[number] != kept
