"""Largest matchings of bipartite graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def largest_matching(candidates: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """A largest matching by key (Kuhn 1955); keys and candidates that come first are preferred."""
    taken: dict[int, int] = {}
    for start in candidates:
        _augment(start, candidates, taken)
    return {key: candidate for candidate, key in taken.items()}


def _augment(start: int, candidates: Mapping[int, Sequence[int]], taken: dict[int, int]) -> None:
    """Matches `start`, too, if it can be: others move to further candidates. `taken` is by candidate."""
    via: dict[int, int] = {}
    holds = {key: candidate for candidate, key in taken.items()}
    pending = [start]
    for key in pending:
        fresh = [candidate for candidate in candidates[key] if candidate not in via]
        via.update(dict.fromkeys(fresh, key))
        free = next((candidate for candidate in fresh if candidate not in taken), None)
        while free is not None:
            owner = via[free]
            taken[free] = owner
            if owner == start:
                return
            free = holds.get(owner)
        pending.extend(taken[candidate] for candidate in fresh)
