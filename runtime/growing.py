"""Caches that grow in memory of their own: buffers with room, of which calls get the part in use and give it with more behind.

A call writes what is new; a buffer without room for that is replaced by one twice as large. What is given to a caller is a view
of the part in use. A view that is no longer all that is in use, as where a caller went back, is copied to a buffer of its own:
what lies behind it may be somebody's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Cache:
    """Which argument of a program is a buffer, which result is it again, and along which axis it has room."""

    argument: int
    result: int
    axis: int
    count: int
    """The argument that says how much is in use."""
    after: Callable[[Mapping[str, int]], int]
    """How much is in use after a call, by the values of symbols."""


class GrowingCaches:
    """The buffers behind caches that calls gave, as long as somebody has them."""

    def __init__(
        self, caches: Sequence[Cache], places: Mapping[str, tuple[int, int]], added: Sequence[int], results: int
    ) -> None:
        """
        `places`: by symbol an argument and an axis that it is the extent of. `added`: the arguments behind all that callers give,
        which say how much is in use.
        """
        self._caches, self._places, self.added, self._results = caches, places, added, results
        self._at: dict[tuple[int, ...], dict[int, int]] = {}
        """By the numbers of the arguments that callers give, where each is among them."""
        self._used: dict[int, tuple[ref[Array], int]] = {}
        """By the address of an array, how much of it is in use along its cache's axis."""
        self._lock = threading.Lock()

    def __call__(self, call: Callable[..., Any], numbers: tuple[int, ...], arrays: Sequence[Any]) -> Any:
        """The results of a call with the arguments of these numbers, caches as they are in use. Raises ValueError."""
        if (at := self._at.get(numbers)) is None:
            at = self._at[numbers] = {number: place for place, number in enumerate(numbers)}
        given = list(arrays)
        held = [np.asarray(given[at[cache.argument]]) for cache in self._caches]
        values = {name: np.shape(given[at[n]])[axis] for name, (n, axis) in self._places.items() if n in at}
        counts: dict[int, tuple[int, int]] = {}
        for cache, array in zip(self._caches, held, strict=True):
            count = array.shape[cache.axis]
            first, known = counts.setdefault(cache.count, (cache.argument, count))
            if known != count:
                text = f"argument {first} has {known} elements in use, argument {cache.argument} has {count}"
                raise ValueError(f"caches of one extent: {text}; they must be equal")
        buffers = self._buffers(held, values)
        for cache, buffer in zip(self._caches, buffers, strict=True):
            given[at[cache.argument]] = buffer
        found = call(*given, *(np.array(counts[number][1], np.int64) for number in self.added))
        results = [found] if self._results == 1 else list(cast("Sequence[Any]", found))
        for cache, buffer in zip(self._caches, buffers, strict=True):
            results[cache.result] = self._seen(cache, buffer, results[cache.result], cache.after(values))
        return results[0] if self._results == 1 else tuple(results)

    def _buffers(self, held: Sequence[Array], values: Mapping[str, int]) -> list[Array]:
        """For each cache a buffer that begins with it and has room; those of one extent have the same room."""
        found: list[Array | None] = []
        room: dict[int, int] = {}
        for cache, array in zip(self._caches, held, strict=True):
            buffer, needed = self._known(cache, array), cache.after(values)
            if buffer is not None and buffer.shape[cache.axis] < needed:
                buffer = None
            found.append(buffer)
            wanted = 2 * needed if buffer is None else buffer.shape[cache.axis]
            room[cache.count] = max(room.get(cache.count, 0), wanted)
        made: list[Array] = []
        for cache, array, buffer in zip(self._caches, held, found, strict=True):
            extent = room[cache.count]
            if buffer is None or buffer.shape[cache.axis] != extent:
                buffer = np.empty((*array.shape[: cache.axis], extent, *array.shape[cache.axis + 1 :]), array.dtype)
                buffer[_part(cache.axis, array.shape[cache.axis])] = array
            made.append(buffer)
        return made

    def _known(self, cache: Cache, array: Array) -> Array | None:
        """The buffer of which an array is all that is in use; nobody may have it a second time."""
        owner: object = array.base
        if not isinstance(owner, np.ndarray):
            return None
        buffer: Array = owner
        with self._lock:
            found = self._used.get(id(buffer))
            if found is None or found[0]() is not buffer or found[1] != array.shape[cache.axis]:
                return None
            seen = buffer[_part(cache.axis, found[1])] if buffer.ndim == array.ndim else None
            if seen is None or (seen.shape, seen.strides, seen.ctypes.data) != (
                array.shape,
                array.strides,
                array.ctypes.data,
            ):
                return None
            del self._used[id(buffer)]
        return buffer

    def _seen(self, cache: Cache, buffer: Array, result: Array, count: int) -> Array:
        """What a caller gets: the part in use of the buffer."""
        if result.ctypes.data != buffer.ctypes.data:
            buffer[...] = result
        key = id(buffer)

        def forget(_: object) -> None:
            self._used.pop(key, None)

        with self._lock:
            self._used[key] = ref(buffer, forget), count
        return buffer[_part(cache.axis, count)]


def _part(axis: int, count: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(count))
