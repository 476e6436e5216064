"""Calls of a program, a few milliseconds of them at a time, and pairs of such: what a process that measures repeats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import log
from typing import Any, cast

import numpy as np

from fuse_opt.runtime.buffers import result_pool
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.prepared import PreparedProgram
from fuse_opt.tools.compiler.builders import Backend

resource: Any = None
with suppress(ImportError):  # systems other than Unix
    import resource

Array = np.ndarray[Any, Any]

SLOT_SECONDS = 8e-3
_LEAST_CALLS = 2
_BATCH_SECONDS = 100e-6
"""A clock is looked at so often at most."""
CALLS_BEFORE = 3


class Slots(ABC):
    """A program that is called for a few milliseconds at a time."""

    _batch = 1
    batches = _LEAST_CALLS
    least = 0.0

    def begin(self, is_alike: bool) -> None:
        """Finds how many calls a slot has; where all are alike, several short ones are timed together."""
        once = max(min(self.call() for _ in range(CALLS_BEFORE)), 1e-8)
        if is_alike:
            self._batch = max(round(_BATCH_SECONDS / once), 1)
        self.batches = max(round(SLOT_SECONDS / (once * self._batch)), _LEAST_CALLS)
        self.least = once

    @abstractmethod
    def call(self) -> float:
        """Seconds of a call, the mean of a few where one is short."""

    def slot(self) -> float:
        """The least of the calls of a few milliseconds."""
        found = min(self.call() for _ in range(self.batches))
        self.least = min(self.least, found)
        return found


class Timed(Slots):
    """A program with arguments in aligned memory, and a clock."""

    def __init__(self, backend: Backend, arrays: Sequence[Array], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._given = [result_pool.empty(array.shape, array.dtype) for array in arrays]
        for copy, array in zip(self._given, arrays, strict=True):
            np.copyto(copy, array)
        self._program, self._full = _ready(backend, self._given)
        taken = zip(self._full, self._program.program.arguments, strict=True)
        donated = {id(array) for array, buffer in taken if buffer.donated}
        self._restored = [pair for pair in zip(self._given, arrays, strict=True) if id(pair[0]) in donated]
        self.begin(not self._restored)

    def call(self) -> float:
        """Of the clock."""
        for copy, array in self._restored:
            np.copyto(copy, array)
        start = self._clock()
        for _ in range(self._batch):
            self._program(*self._full)
        return (self._clock() - start) / self._batch


def _ready(backend: Backend, arrays: Sequence[Array]) -> tuple[CpuProgram, Sequence[Any]]:
    """What a call runs, with all that it takes: what follows from frozen arguments is computed once, as for callers that bind."""
    if not isinstance(backend, PreparedProgram):
        return cast("CpuProgram", backend), arrays
    full = backend.merged(arrays)
    backend.fill(full, backend.prepared(full))
    return cast("CpuProgram", backend.program), full


def involuntary_switches() -> int:
    """How often threads of this process had to leave a processor to others; 0 where the system does not say."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def pairs(default: Slots, candidate: Slots, count: int, switches: Callable[[], int] = lambda: 0) -> list[float]:
    """
    Logarithms of the time of the default over that of the candidate, in slots side by side, each first in every second pair. One
    in which the number of switches grew is taken again, as many of them at most as there are pairs: then it counts as it is.
    """
    found, spare = list[float](), count
    while len(found) < count:
        order = (default, candidate) if len(found) % 2 == 0 else (candidate, default)
        before = switches()
        seconds = {each: each.slot() for each in order}
        if spare > 0 and switches() > before:
            spare -= 1
            continue
        is_timed = min(seconds.values()) > 0
        found.append(log(seconds[default] / seconds[candidate]) if is_timed else float("nan"))
    return found
