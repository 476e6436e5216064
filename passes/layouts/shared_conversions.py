"""Conversions of values that several read: one for each layout in which a value is read, whoever reads it so.

The solver counts a conversion for each reader. Here choices change one by one, as long as that costs less as it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

ROUNDS = 4


@dataclass(slots=True)
class SharedValue:
    """A value, which lies in a layout, by number, and is read in others."""

    seconds: float
    """Of a conversion."""
    given: int = 0
    read: dict[int, int] = field(default_factory=dict[int, int])
    """By layout: how many read it so."""
    readers: int = 0
    variables: list[int] = field(default_factory=list[int])
    """Whose choices say how it lies, or is read."""

    def take(self, layout: int, readers: int) -> None:
        """So many readers more, or fewer, read it in a layout."""
        count = self.read.get(layout, 0) + readers
        if count:
            self.read[layout] = count
        else:
            del self.read[layout]


@dataclass(slots=True)
class Role:
    """What a variable has to do with a value: by alternative, the layout in which it makes it, and those in which it reads it."""

    value: SharedValue
    given: Sequence[int] | None = None
    """None: another one makes it, or nobody decides about that."""
    wanted: list[Sequence[int]] = field(default_factory=list[Sequence[int]])

    def take(self, alternative: int, readers: int = 1) -> None:
        """The variable reads it as an alternative says (1), or no longer does (-1)."""
        if self.given is not None:
            self.value.given = self.given[alternative]
        for layouts in self.wanted:
            self.value.take(layouts[alternative], readers)

    def is_free(self, alternative: int) -> bool:
        """Whether the value is not converted for the variable alone, where what it reads by the alternative counts."""
        value = self.value
        if self.given is not None:
            return len(value.read) == (value.given in value.read)
        count = len(self.wanted)
        return all([each[alternative] == value.given or value.read[each[alternative]] > count for each in self.wanted])

    def costs(self, alternatives: int) -> list[float]:
        """By alternative, what conversions of the value take beside what others read, who alone count there now."""
        value, others = self.value, self.value.read
        found: list[float] = []
        for number in range(alternatives):
            given = value.given if self.given is None else self.given[number]
            count = len(others) - (given in others)
            if self.wanted:
                more = {layouts[number] for layouts in self.wanted}
                count += sum([layout != given and layout not in others for layout in more])
            found.append(value.seconds * count)
        return found


class Roles:
    """The roles of variables as they are found; values by what they are, layouts by numbers."""

    def __init__(self, variables: int) -> None:
        self._found: list[dict[int, Role]] = [{} for _ in range(variables)]
        self._values: dict[Hashable, SharedValue] = {}

    def value(self, key: Hashable, seconds: float, given: int) -> SharedValue:
        """The value of that key, which lies as given unless a variable makes it."""
        if (found := self._values.get(key)) is None:
            found = self._values[key] = SharedValue(seconds, given)
        return found

    def made(self, variable: int, value: SharedValue, layouts: Sequence[int]) -> None:
        """A variable makes the value."""
        self._role(variable, value).given = layouts

    def read(self, value: SharedValue, variable: int | None, layouts: Sequence[int]) -> None:
        """A variable reads the value, or what is none does, in a layout alone."""
        value.readers += 1
        if variable is None:
            value.take(layouts[0], 1)
        else:
            self._role(variable, value).wanted.append(layouts)

    def _role(self, variable: int, value: SharedValue) -> Role:
        own = self._found[variable]
        if (role := own.get(id(value))) is None:
            role = own[id(value)] = Role(value)
            value.variables.append(variable)
        return role

    def lists(self) -> list[list[Role]]:
        return [list(own.values()) for own in self._found]


def better(costs: Sequence[Sequence[float]], roles: Sequence[Sequence[Role]], chosen: list[int]) -> None:
    """Changes one choice at a time, first of variables whose values others read, too, then near what changed."""
    for number, own in zip(chosen, roles, strict=True):
        for role in own:
            role.take(number)
    nodes: Iterable[int] = [n for n, own in enumerate(roles) if any(role.value.readers > 1 for role in own)]
    for _ in range(ROUNDS):
        moved: dict[int, SharedValue] = {}
        for number in nodes:
            if _changed(costs[number], roles[number], chosen, number):
                moved.update((id(role.value), role.value) for role in roles[number])
        if not moved:
            return
        nodes = sorted({number for value in moved.values() for number in value.variables})


def _changed(costs: Sequence[float], own: Sequence[Role], chosen: list[int], number: int) -> bool:
    kept = chosen[number]
    if costs[kept] <= min(costs) and all([role.is_free(kept) for role in own]):
        return False
    sums = list(costs)
    for role in own:
        role.take(kept, -1)
        for alternative, more in enumerate(role.costs(len(costs))):
            sums[alternative] += more
    least = min(sums)
    chosen[number] = sums.index(least) if least < sums[kept] else kept
    for role in own:
        role.take(chosen[number])
    return chosen[number] != kept
