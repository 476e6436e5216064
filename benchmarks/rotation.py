"""Processor time of calls that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SLOTS = 11


def measure(calls: Sequence[Callable[[], object]], slot_seconds: float, slots: int = SLOTS) -> np.ndarray[Any, Any]:
    """Seconds of a call, by slot and by what is called; each slot is about as long."""
    repeats = [_repeats(call, slot_seconds) for call in calls]
    times = np.zeros((slots, len(calls)))
    for slot in range(slots):
        for place in range(len(calls)):
            number = (place + slot) % len(calls)
            calls[number]()  # whose operands the one before has driven from the caches
            start = time.process_time()
            for _ in range(repeats[number]):
                calls[number]()
            times[slot, number] = (time.process_time() - start) / repeats[number]
    return times


def _repeats(call: Callable[[], object], seconds: float) -> int:
    call()
    start, count = time.process_time(), 0
    while time.process_time() - start < seconds:
        call()
        count += 1
    return max(1, count)
