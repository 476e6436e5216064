"""How many bytes live at each step, from when to when each piece of memory is in use."""

from collections.abc import Iterable, Sequence
from itertools import accumulate


def live_bytes(lives: Iterable[tuple[int, int, int]], steps: int) -> list[int]:
    """Bytes alive at each of so many steps, of lives (birth, death, bytes) in the half-open range [birth, death)."""
    change = [0] * (steps + 1)
    for birth, death, nbytes in lives:
        change[birth] += nbytes
        change[death] -= nbytes
    return list(accumulate(change[:steps]))


def peak_of(loads: Sequence[int]) -> tuple[int, int]:
    """The most bytes that live at once, and the first step at which they do; (0, 0) without steps."""
    most = max(loads, default=0)
    return most, loads.index(most) if most else 0
