"""Ways to recompute that budgets try, from free to dear."""

from __future__ import annotations

from dataclasses import replace

from fuse_opt.passes.recompute.rematerialize import SEARCHED, RematerializePass

_TARGETS = (0.95, 0.8, 0.6, 0.4)
"""Parts of a budget that are tried as targets of cheap recomputation, so that no more is computed again than has to be."""
_PARTS = (0.125, 0.25, 0.5, 0.75)
"""Parts of the time that all of dear recomputation takes, that are tried as its limit."""
_MANY_PARTS = (1 / 16, 0.125, 0.25, 0.5, 0.75, 0.875, 15 / 16)
"""The same for those who look at many plans: in small ones a little work may save much, in the last ones the least bytes stay."""
_KEPT = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Parts of the arena without dear recomputation that are targets of it for those."""
_SEARCHED_PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""Parts of a budget, and of the arena without dear recomputation, that are tried as targets of a search for what to keep."""
_POINTWISE = RematerializePass(slower=1e9)
_ROWS = replace(_POINTWISE, rows=True)
CHEAP = (_POINTWISE, _ROWS)
"""Recomputation of all that loops compute, without a limit of time."""
_EVERY = tuple(replace(_ROWS, products=kept, max_ops=512) for kept in (2, 3, 4, 5))
"""That of products, too, of which one in so many is kept."""
DEAR = _EVERY[:3]
"""Those that take less time."""
FOR_LEAST = (*CHEAP, *_EVERY, *(replace(each, smallest_bytes=0) for each in _EVERY))
"""All ways without a limit, and those that compute small values again, too: they may be most of what is left."""
IN_PARTS = 2
"""The first dear tiers, of which parts are looked at."""
_SEARCHED = replace(_ROWS, products=SEARCHED, max_ops=512)
"""That of products of which those are kept that take the least work for a target."""
LEVELS = (None, CHEAP[-1], DEAR[0])
"""Recomputation as the passes do it, of all that loops compute, and of half of the products, too."""


def cheap_for(budget: int) -> list[RematerializePass]:
    """Ever more of what loops compute, so that no more is computed again than a budget needs."""
    return [each for tier in CHEAP for each in (*(replace(tier, target=int(p * budget)) for p in _TARGETS), tier)]


def searched_for(nbytes: int) -> list[RematerializePass]:
    """Searches for what to keep, for ever smaller parts of so many bytes."""
    return [replace(_SEARCHED, target=int(part * nbytes)) for part in _SEARCHED_PARTS]


def parts_of(tier: RematerializePass, more: float) -> list[RematerializePass]:
    """A dear tier in parts, of which the whole takes so many seconds more than what is free."""
    return [replace(tier, slower=part * more) for part in _PARTS]


def many_of(tier: RematerializePass, more: float, nbytes: int) -> list[RematerializePass]:
    """A dear tier in many parts: by the seconds more that the whole takes, and by those bytes that are alive without it."""
    targets = [replace(tier, target=int(part * nbytes)) for part in _KEPT]
    return [*(replace(tier, slower=part * more) for part in _MANY_PARTS), *targets]
