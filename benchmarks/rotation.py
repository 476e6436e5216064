"""Times of calls that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SLOTS = 11

Timer = Callable[[int], float]
"""Makes a call so many times, and gives the seconds of one; a call before them is not counted."""


def timed(call: Callable[[], object], clock: Callable[[], float]) -> Timer:
    def timer(repeat: int) -> float:
        call()  # whose operands the one before has driven from the caches
        start = clock()
        for _ in range(repeat):
            call()
        return (clock() - start) / repeat

    return timer


def turns(timers: Sequence[Timer], repeats: Sequence[int], slots: int = SLOTS) -> np.ndarray[Any, Any]:
    """Seconds of a call, by slot and by what is called."""
    times = np.zeros((slots, len(timers)))
    for slot in range(slots):
        for place in range(len(timers)):
            number = (place + slot) % len(timers)
            times[slot, number] = timers[number](repeats[number])
    return times


def measure(calls: Sequence[Callable[[], object]], slot_seconds: float, slots: int = SLOTS) -> np.ndarray[Any, Any]:
    """The same of processor time; each slot is about as long."""
    repeats = [_repeats(call, slot_seconds) for call in calls]
    return turns([timed(call, time.process_time) for call in calls], repeats, slots)


def _repeats(call: Callable[[], object], seconds: float) -> int:
    call()
    start, count = time.process_time(), 0
    while time.process_time() - start < seconds:
        call()
        count += 1
    return max(1, count)
