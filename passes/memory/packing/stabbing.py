"""Which of many intervals hold a point, each told once: a segment tree over the points."""

from __future__ import annotations

from collections.abc import Sequence


class Stabbing:
    """Half-open intervals [first, end) of points from 0 to `points`, by number."""

    def __init__(self, intervals: Sequence[tuple[int, int]], points: int) -> None:
        self._size = 1 << max(points - 1, 0).bit_length()
        self._nodes: dict[int, list[int]] = {}
        for number, (first, end) in enumerate(intervals):
            low, high = first + self._size, end + self._size
            while low < high:
                if low & 1:
                    self._nodes.setdefault(low, []).append(number)
                    low += 1
                if high & 1:
                    high -= 1
                    self._nodes.setdefault(high, []).append(number)
                low, high = low >> 1, high >> 1
        self._taken = bytearray(len(intervals))

    def take(self, point: int) -> list[int]:
        """The intervals that hold the point and were not taken before, ascending; O(log points) beside what is found."""
        node = point + self._size
        found: list[int] = []
        while node:
            found += [number for number in self._nodes.pop(node, ()) if not self._taken[number]]
            node >>= 1
        for number in found:
            self._taken[number] = 1
        return sorted(found)
