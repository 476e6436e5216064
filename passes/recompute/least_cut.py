"""Which values to keep so that others can be computed from them again: the fewest bytes, by a least cut. Knows no IR.

Wanted values are computed from what they need, and that from what it needs in turn, down to values that cannot be computed
again. On each such way one value has to be kept; the bytes of those kept are least where as many bytes flow along these
ways as fit through (Ford & Fulkerson 1956). Of several least cuts it is the one nearest to the wanted values, for which
the least is computed. Where nothing has to be kept, what is wanted hangs together by what it is computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class LeastCut(Generic[Value]):
    """
    A cut that grows with each value that is wanted; values are looked at from the wanted ones on, each is asked about once.

    Values are numbered as they are met; number `n` has two places, `2 * n` and behind it `2 * n + 1`.
    """

    def __init__(self, nbytes: Callable[[Value], int | None], needs: Callable[[Value], Sequence[Value] | None]) -> None:
        """`nbytes` is None for what must not be kept, `needs` for what cannot be computed again: never both of one."""
        self._ask_nbytes = nbytes
        self._ask_needs = needs
        self._numbers: dict[Value, int] = {}
        self._values: list[Value] = []
        self._nbytes: list[int | None] = []
        self._needs: list[list[int] | None] = []
        self._is_asked: list[bool] = []
        self._spent: list[int] = []
        self._along: list[dict[int, int]] = []
        """By value, the flow from each value that needs it."""
        self._settled: dict[int, None] = {}
        """Places from which no more flow gets through, ever: what is found there is in the answer."""

    def want(self, value: Value) -> None:
        """Has the cut lie between the value and whatever cannot be computed again."""
        start = 2 * self._number(value)
        while (path := self._path(start)) is not None:
            rooms = [room for place, following in pairwise(path) if (room := self._room(place, following)) is not None]
            flow = min(rooms)
            for place, following in pairwise(path):
                self._push(place, following, flow)

    def kept(self) -> list[Value]:
        """The values to keep, in the order in which they were found."""
        return [self._values[p >> 1] for p in self._settled if not p & 1 and p + 1 not in self._settled]

    def computed(self) -> list[Value]:
        """The wanted values, and what they need, that are computed again."""
        return [self._values[place >> 1] for place in self._settled if place & 1]

    def _number(self, value: Value) -> int:
        if (number := self._numbers.get(value)) is None:
            number = self._numbers[value] = len(self._values)
            self._values.append(value)
            self._nbytes.append(self._ask_nbytes(value))
            self._needs.append(None)
            self._is_asked.append(False)
            self._spent.append(0)
            self._along.append({})
        return number

    def _needed(self, number: int) -> list[int] | None:
        """The first places of what a value is computed from."""
        if not self._is_asked[number]:
            self._is_asked[number] = True
            needs = self._ask_needs(self._values[number])
            self._needs[number] = None if needs is None else [2 * self._number(value) for value in needs]
        return self._needs[number]

    def _path(self, start: int) -> list[int] | None:
        """A way with room to a value that cannot be computed again; None, and all places seen are settled, without one."""
        settled = self._settled
        if start in settled:
            return None
        seen: dict[int, None] = {start: None}
        stack: list[tuple[int, Iterator[int]]] = [(start, self._following(start))]
        while stack:
            place, following = stack[-1]
            if place & 1 and self._needs[place >> 1] is None:  # it is asked when what follows is
                return [each for each, _ in stack]
            for step in following:
                if step not in seen and step not in settled:
                    seen[step] = None
                    stack.append((step, self._following(step)))
                    break
            else:
                stack.pop()
        settled |= seen
        return None

    def _following(self, place: int) -> Iterator[int]:
        number = place >> 1
        if place & 1:
            needed = self._needed(number) or []
            return iter([*needed, place - 1] if self._spent[number] else needed)
        nbytes = self._nbytes[number]
        found = [place + 1] if nbytes is None or self._spent[number] < nbytes else []
        found += [2 * user + 1 for user, flow in self._along[number].items() if flow]
        return iter(found)

    def _room(self, place: int, following: int) -> int | None:
        """How much more can flow from a place to one that follows; None for any amount."""
        number, other = place >> 1, following >> 1
        if number == other and not place & 1:
            nbytes = self._nbytes[number]
            return None if nbytes is None else nbytes - self._spent[number]
        if number == other:
            return self._spent[number]
        return None if place & 1 else self._along[number][other]

    def _push(self, place: int, following: int, flow: int) -> None:
        number, other = place >> 1, following >> 1
        if number == other:
            self._spent[number] += -flow if place & 1 else flow
        elif place & 1:
            users = self._along[other]
            users[number] = users.get(number, 0) + flow
        else:
            self._along[number][other] -= flow


@dataclass
class Closures(Generic[Value]):
    """
    Groups of wanted values, each with all that it is computed from: those are in one group that have any of that in common.

    What stands last is looked at first. Once all that is left belongs to one group of which enough is known, groups are what they
    would be if it was looked at, too.
    """

    needs: Callable[[Value], Sequence[Value]]
    place: Callable[[Value], int]
    """Where a value stands, behind all that it needs."""
    is_enough: Callable[[Sequence[Value]], bool]
    """Whether a group need not be known any further, of which so much is."""
    _of: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """By value: one that is in the same group."""
    _left: dict[Value, int] = field(default_factory=dict[Value, int])
    """By the first value of a group: how many of it are still to be looked at; none at 0."""
    _waiting: list[tuple[int, int, Value]] = field(default_factory=list[tuple[int, int, Value]])

    def groups(self, wanted: Sequence[Value], least: int) -> list[list[Value]]:
        """In the order of the first ones wanted; groups of less than the `least` number of values are all known."""
        for value in wanted:
            self._meet(value, value)
        known, next_look = 0, least
        while self._waiting:
            if known >= next_look and len(self._left) == 1:
                next_look = 2 * known
                (first,) = self._left
                if self.is_enough([value for value in self._of if self._first(value) == first]):
                    break
            self._look(heappop(self._waiting)[2])
            known += 1
        found: dict[Value, list[Value]] = {}
        for value in self._of:
            found.setdefault(self._first(value), []).append(value)
        return list(found.values())

    def _meet(self, value: Value, first: Value) -> None:
        if value not in self._of:
            self._of[value] = first
            self._left[first] = self._left.get(first, 0) + 1
            heappush(self._waiting, (-self.place(value), len(self._of), value))

    def _look(self, value: Value) -> None:
        first = self._first(value)
        for needed in self.needs(value):
            self._meet(needed, first)
            if (other := self._first(needed)) != first:
                self._of[other] = first
                if count := self._left.pop(other, 0):
                    self._left[first] = self._left.get(first, 0) + count
        self._left[first] -= 1
        if not self._left[first]:
            del self._left[first]

    def _first(self, value: Value) -> Value:
        while (other := self._of[value]) != value:
            self._of[value] = self._of[other]
            value = other
        return value
