"""Conversions of values that several read: one for each layout in which a value is read, whoever reads it so.

The solver counts a conversion for each reader. Here choices change one by one, as long as that costs less as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from fuse_opt.passes.layouts.reads import Read

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

    def costs(self, alternatives: int) -> list[float]:
        """By alternative, what conversions of the value take beside what others read, who alone count there now."""
        value, others = self.value, self.value.read
        found: list[float] = []
        for number in range(alternatives):
            given = value.given if self.given is None else self.given[number]
            count = len(others) - (given in others)
            more = {layouts[number] for layouts in self.wanted}
            count += sum([layout != given and layout not in others for layout in more])
            found.append(value.seconds * count)
        return found


Part = Role | Read
"""What a variable's conversions are summed from: roles of values that several read, and reads of values that nobody else does."""


class _Shared:
    """A choice that changes, and the values that several read as they are by it."""

    def __init__(self, reads: Sequence[Read], chosen: list[int]) -> None:
        self.reads = [read for read in reads if read.link.seconds]
        self.chosen = chosen
        self.values: dict[int, SharedValue] = {}
        """By the identity of a value."""
        self.roles: dict[tuple[int, int], Role] = {}
        """By that of a value, and variable."""
        read = [id(read.value) for read in self.reads]
        counts = Counter(read)
        for one, value in zip(self.reads, read, strict=True):
            if counts[value] > 1:
                self._add(one)
        for (_, variable), role in self.roles.items():
            role.take(chosen[variable])

    def _add(self, read: Read) -> None:
        link, key = read.link, id(read.value)
        if (value := self.values.get(key)) is None:
            value = self.values[key] = SharedValue(link.seconds, link.given[0])
            if read.maker is not None:
                self._role(key, read.maker).given = link.given
        if read.reader is None:
            value.take(link.wanted[0], 1)
        else:
            self._role(key, read.reader).wanted.append(link.wanted)

    def _role(self, key: int, variable: int) -> Role:
        if (role := self.roles.get((key, variable))) is None:
            value = self.values[key]
            role = self.roles[key, variable] = Role(value)
            value.variables.append(variable)
        return role

    def first(self) -> set[int]:
        """
        The variables of values that several read, but of those about which nobody decides and which all read as they lie. A
        choice that is best with a conversion for each reader is so where no other is shared.
        """
        made = {id(role.value) for role in self.roles.values() if role.given is not None}
        values = [each for each in self.values.values() if id(each) in made or each.read.keys() != {each.given}]
        return {variable for each in values for variable in each.variables}

    def parts(self, variables: Collection[int]) -> dict[int, list[Part]]:
        """What the conversions of variables are summed from, in the order of reads."""
        found: dict[int, list[Part]] = {variable: [] for variable in variables}
        seen: set[tuple[int, int]] = set()
        for read in [read for read in self.reads if read.maker in found or read.reader in found]:
            shared = id(read.value) in self.values
            for variable in (read.maker, read.reader):
                if variable not in found:
                    continue
                if not shared:
                    found[variable].append(read)
                elif (key := (id(read.value), variable)) not in seen:
                    seen.add(key)
                    found[variable].append(self.roles[key])
        return found

    def better(self, variable: int, costs: Sequence[float], parts: Sequence[Part]) -> bool:
        """Changes a variable where that costs less."""
        kept, roles = self.chosen[variable], [part for part in parts if isinstance(part, Role)]
        for role in roles:
            role.take(kept, -1)
        rows = [part.costs(len(costs)) if isinstance(part, Role) else self._row(part, variable) for part in parts]
        sums = [reduce(add, [row[number] for row in rows], cost) for number, cost in enumerate(costs)]
        least = min(sums)
        self.chosen[variable] = number = sums.index(least) if least < sums[kept] else kept
        for role in roles:
            role.take(number)
        return number != kept

    def _row(self, read: Read, variable: int) -> Sequence[float]:
        """By alternative of a variable, what the conversion takes of a value that one alone reads."""
        if variable == read.maker:
            return read.link.turned[0 if read.reader is None else self.chosen[read.reader]]
        return read.link.matrix[0 if read.maker is None else self.chosen[read.maker]]

    def near(self, variable: int, parts: Sequence[Part]) -> Iterable[int]:
        """The variables whose sums depend on a variable, and itself."""
        yield variable
        for part in parts:
            others = part.value.variables if isinstance(part, Role) else (part.maker, part.reader)
            yield from (other for other in others if other is not None)


def better(costs: Sequence[Sequence[float]], reads: Sequence[Read], chosen: list[int]) -> None:
    """Changes one choice at a time, first of variables whose values others read, too, then near what changed."""
    shared = _Shared(reads, chosen)
    nodes = shared.first()
    for _ in range(ROUNDS):
        moved: set[int] = set()
        parts = shared.parts(nodes) if nodes else {}
        for variable in sorted(nodes):
            if shared.better(variable, costs[variable], parts[variable]):
                moved.update(shared.near(variable, parts[variable]))
        if not moved:
            return
        nodes = moved
