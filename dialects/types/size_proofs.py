"""Proofs that a polynomial over atoms with ranges is never negative. What is not proven may still be true."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice, product
from math import prod

from fuse_opt.dialects.types.polynomial import Atom, Monomial, Terms, plus, times

_STEPS = 200
"""Polynomials that one proof may look at."""
_CORNERS = 16
"""Choices of an end for each atom that are tried."""


def is_never_negative(terms: Terms) -> bool:
    """Whether a proof is found that the polynomial is 0 or more whatever its atoms are."""
    if all(coefficient >= 0 for coefficient in terms.values()) and all(a.range[0] >= 0 for m in terms for a in m):
        return True
    return _proven(frozenset(terms.items()))


def bounds(terms: Terms) -> tuple[int, int]:
    """Numbers between which the polynomial lies; no sharper than one choice of an end for all terms gives."""
    low, high = _interval(terms)
    at_least, at_most = _written_from(terms, frozenset()), _written_from(plus({}, terms, -1), frozenset())
    if at_least is not None:
        low = max(low, at_least)
    if at_most is not None:
        high = min(high, -at_most)
    return low, high


@lru_cache(maxsize=4096)
def _proven(items: frozenset[tuple[Monomial, int]]) -> bool:
    return _search(dict(items), [_STEPS])


def _search(terms: Terms, steps: list[int]) -> bool:
    """With composite atoms replaced by what bounds them, one after the other; `steps` is what is left of all steps."""
    steps[0] -= 1
    if steps[0] < 0:
        return False
    if _interval(terms)[0] >= 0 or _at_a_corner(terms):
        return True
    for atom in _composite(terms):
        if (parts := _factors(terms, atom)) is None:
            continue
        free, factor = parts
        for is_lower, sign in ((True, 1), (False, -1)):
            if _search(plus({}, factor, sign), steps):
                return any(
                    all(_search(plus(_scaled(free, by), times(factor, bound)), steps) for bound, by in case)
                    for case in atom.cases(is_lower)
                )
    return False


def _at_a_corner(terms: Terms) -> bool:
    """Whether no coefficient is negative when each atom is its least value and more, or its most value and less."""
    negative = sorted({a for m, c in terms.items() if c < 0 for a in m}, key=lambda atom: atom.text)
    for ends in islice(product((False, True), repeat=len(negative)), _CORNERS):
        upper = frozenset(atom for atom, is_upper in zip(negative, ends, strict=True) if is_upper)
        if (value := _written_from(terms, upper)) is not None and value >= 0:
            return True
    return False


def _written_from(terms: Terms, upper: frozenset[Atom]) -> int | None:
    """
    The constant when each atom is written as its least value plus what is 0 or more (those of `upper`: its most value minus
    that); None where another coefficient is negative, so that the constant is no lower bound.
    """
    total: Terms = {}
    for monomial, coefficient in terms.items():
        shifted: Terms = {(): coefficient}
        for atom in monomial:
            least, most = atom.range
            shifted = times(shifted, {(): most, (atom,): -1} if atom in upper else {(): least, (atom,): 1})
        total = plus(total, shifted)
    if any(coefficient < 0 for monomial, coefficient in total.items() if monomial):
        return None
    return total.get((), 0)


def _interval(terms: Terms) -> tuple[int, int]:
    low = high = 0
    for monomial, coefficient in terms.items():
        ends = [coefficient]
        for atom in monomial:
            ends = [end * bound for end in (min(ends), max(ends)) for bound in atom.range]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _composite(terms: Terms) -> list[Atom]:
    """The atoms that others bound, those first that hold the most."""
    found = {atom for monomial in terms for atom in monomial if atom.cases(True)}
    return sorted(found, key=lambda atom: (-len(atom.text), atom.text))


def _factors(terms: Terms, atom: Atom) -> tuple[Terms, Terms] | None:
    """`(free, factor)` with `terms == free + factor * atom`; None where the atom is there in a higher power."""
    free: dict[Monomial, int] = {}
    factor: dict[Monomial, int] = {}
    for monomial, coefficient in terms.items():
        count = monomial.count(atom)
        if count > 1:
            return None
        if count:
            factor[tuple(other for other in monomial if other != atom)] = coefficient
        else:
            free[monomial] = coefficient
    return free, factor


def _scaled(terms: Terms, factor: int) -> Terms:
    return {monomial: coefficient * factor for monomial, coefficient in terms.items()}


def value_at(terms: Terms, values: Mapping[str, int]) -> int:
    """The polynomial's value where symbols have these."""
    return sum(c * prod(atom.evaluate(values) for atom in monomial) for monomial, c in terms.items())
