"""Which values to keep so that others can be computed from them again: the fewest bytes, by a least cut. Knows no IR.

Wanted values are computed from what they need, and that from what it needs in turn, down to values that cannot be computed
again. On each such way one value has to be kept; the bytes of those kept are least where as many bytes flow along these
ways as fit through (Ford & Fulkerson 1956). Of several least cuts it is the one nearest to the wanted values, for which
the least is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Place = TypeVar("Place")


class LeastCut(Generic[Value]):
    """A cut that grows with each value that is wanted; values are looked at from the wanted ones on."""

    def __init__(self, nbytes: Callable[[Value], int | None], needs: Callable[[Value], Sequence[Value] | None]) -> None:
        """`nbytes` is None for what must not be kept, `needs` for what cannot be computed again: never both of one."""
        self._nbytes = nbytes
        self._needs = needs
        self._spent: dict[Value, int] = {}
        self._along: dict[Value, dict[Value, int]] = {}
        """By value, the flow from each value that needs it."""
        self._settled: dict[tuple[Value, bool], None] = {}
        """Places from which no more flow gets through, ever: what is found there is in the answer."""

    def want(self, value: Value) -> None:
        """Has the cut lie between the value and whatever cannot be computed again."""
        while (path := self._path(value)) is not None:
            rooms = [room for place, following in _pairs(path) if (room := self._room(place, following)) is not None]
            flow = min(rooms)
            for place, following in _pairs(path):
                self._push(place, following, flow)

    def kept(self) -> list[Value]:
        """The values to keep, in the order in which they were found."""
        return [value for value, behind in self._settled if not behind and (value, True) not in self._settled]

    def computed(self) -> list[Value]:
        """The wanted values, and what they need, that are computed again."""
        return [value for value, behind in self._settled if behind]

    def _path(self, start: Value) -> list[tuple[Value, bool]] | None:
        """A way with room to a value that cannot be computed again; None, and all places seen are settled, without one."""
        first: tuple[Value, bool] = (start, False)
        if first in self._settled:
            return None
        seen: dict[tuple[Value, bool], None] = {first: None}
        stack: list[tuple[tuple[Value, bool], Iterator[tuple[Value, bool]]]] = [(first, self._following(first))]
        while stack:
            place, following = stack[-1]
            if place[1] and self._needs(place[0]) is None:
                return [each for each, _ in stack]
            step = next((each for each in following if each not in seen and each not in self._settled), None)
            if step is None:
                stack.pop()
            else:
                seen[step] = None
                stack.append((step, self._following(step)))
        self._settled |= seen
        return None

    def _following(self, place: tuple[Value, bool]) -> Iterator[tuple[Value, bool]]:
        value, behind = place
        if behind:
            yield from ((needed, False) for needed in self._needs(value) or ())
            if self._spent.get(value):
                yield value, False
            return
        nbytes = self._nbytes(value)
        if nbytes is None or self._spent.get(value, 0) < nbytes:
            yield value, True
        yield from ((user, True) for user, flow in self._along.get(value, {}).items() if flow)

    def _room(self, place: tuple[Value, bool], following: tuple[Value, bool]) -> int | None:
        """How much more can flow from a place to one that follows; None for any amount."""
        (value, behind), (other, _) = place, following
        if value is other and not behind:
            nbytes = self._nbytes(value)
            return None if nbytes is None else nbytes - self._spent.get(value, 0)
        if value is other:
            return self._spent[value]
        return None if behind else self._along[value][other]

    def _push(self, place: tuple[Value, bool], following: tuple[Value, bool], flow: int) -> None:
        (value, behind), (other, _) = place, following
        if value is other:
            self._spent[value] = self._spent.get(value, 0) + (-flow if behind else flow)
        elif behind:
            users = self._along.setdefault(other, {})
            users[value] = users.get(value, 0) + flow
        else:
            self._along[value][other] -= flow


def _pairs(path: Sequence[Place]) -> Iterator[tuple[Place, Place]]:
    return pairwise(path)
