"""Conversions of values that several read: one for each layout in which a value is read, whoever reads it so.

The solver counts a conversion for each reader. Here choices change one by one, as long as that costs less as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fuse_opt.passes.layouts.reads import Read

ROUNDS = 4
INFINITE = float("inf")


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

    def is_free(self, alternative: int) -> bool:
        """Whether the value is not converted for the variable alone, where what it reads by the alternative counts."""
        value = self.value
        if self.given is not None:
            return len(value.read) == (value.given in value.read)
        count = len(self.wanted)
        return all([each[alternative] == value.given or value.read[each[alternative]] > count for each in self.wanted])

    def cost(self, alternative: int) -> float:
        """What conversions of the value take by an alternative, beside what others read, who alone count there now."""
        value, others = self.value, self.value.read
        given = value.given if self.given is None else self.given[alternative]
        count = len(others) - (given in others)
        if len(self.wanted) == 1:
            layout = self.wanted[0][alternative]
            count += layout != given and layout not in others
        elif self.wanted:
            more = {layouts[alternative] for layouts in self.wanted}
            count += sum([layout != given and layout not in others for layout in more])
        return value.seconds * count


def shared_among(reads: Sequence[Read], chosen: Sequence[int]) -> set[int]:
    """
    The variables of values that several read, one of them perhaps in a layout for which another pays. Not so one that nobody
    decides about and that all read as it lies. A choice that is best with a conversion for each reader is so at all others.
    """
    readers: dict[int, int] = {}  # by identity of a value
    for _, _, value, _, _, link in reads:
        if link.seconds:
            readers[id(value)] = readers.get(id(value), 0) + 1
    several = {value for value, count in readers.items() if count > 1}
    alone = several.copy()  # read as they lie, and nobody decides
    paying = [read for read in reads if id(read.value) in several and read.link.seconds]
    for _, _, value, maker, reader, link in paying:
        if maker is not None or link.wanted[0 if reader is None else chosen[reader]] != link.given[0]:
            alone.discard(id(value))
    shared = [read for read in paying if id(read.value) not in alone]
    return {number for read in shared for number in (read.maker, read.reader) if number is not None}


def _roles(reads: Sequence[Read], variables: int) -> list[list[Role]]:
    """What each variable has to do with values whose conversion costs anything."""
    found: list[dict[int, Role]] = [{} for _ in range(variables)]
    values: dict[int, SharedValue] = {}
    for _, _, operand, maker, reader, link in reads:
        if not link.seconds:
            continue
        if (value := values.get(key := id(operand))) is None:
            value = values[key] = SharedValue(link.seconds, link.given[0])
            if maker is not None:
                found[maker][key] = Role(value, link.given)
                value.variables.append(maker)
        if reader is None:
            value.take(link.wanted[0], 1)
            continue
        own = found[reader]
        if (role := own.get(key)) is None:
            role = own[key] = Role(value)
            value.variables.append(reader)
        role.wanted.append(link.wanted)
    return [list(own.values()) for own in found]


def better(costs: Sequence[Sequence[float]], reads: Sequence[Read], chosen: list[int]) -> None:
    """Changes one choice at a time, first of variables whose values others read, too, then near what changed."""
    nodes: Iterable[int] = sorted(shared_among(reads, chosen))
    if not nodes:
        return
    roles = _roles(reads, len(costs))
    for number, own in zip(chosen, roles, strict=True):
        for role in own:
            role.take(number)
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
    for role in own:
        role.take(kept, -1)
    best, least = kept, _sum(costs[kept], own, kept, INFINITE)
    for alternative, alone in enumerate(costs):
        if alone < least and (total := _sum(alone, own, alternative, least)) < least:
            best, least = alternative, total
    chosen[number] = best
    for role in own:
        role.take(best)
    return best != kept


def _sum(alone: float, own: Sequence[Role], alternative: int, enough: float) -> float:
    """What an alternative costs with its conversions, or so much of it as is enough."""
    total = alone
    for role in own:
        total += role.cost(alternative)
        if total >= enough:
            break
    return total
