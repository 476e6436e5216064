"""Smaller programs with the same fault, of what fuzzers draw: one change at a time, as long as one is left that keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, Self, TypeVar


class Reducible(Protocol):
    def smaller(self) -> Iterable[Self]:
        """Programs with something left out."""
        ...


P = TypeVar("P", bound=Reducible)


def reduced(program: P, text: str, fault: Callable[[P], str | None]) -> tuple[P, str]:
    """A smaller program with a fault of the same kind: an exception of that name, or wrong results; and what it is."""
    kind, pending = text.split(":")[0] if text.startswith("exception") else "", list(program.smaller())[::-1]
    while pending:
        smaller = pending.pop()
        try:
            found = fault(smaller)
        except Exception:  # a smaller one may be refused, or none at all
            continue
        if found is not None and found.startswith(kind) and found.startswith("exception") == bool(kind):
            program, text = smaller, found
            pending = list(program.smaller())[::-1]
    return program, text
