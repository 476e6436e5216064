"""Polynomials with integer coefficients over atoms: arithmetic on their terms, which know nothing of what an atom means.

A monomial is the sorted tuple of its atoms, one for each power; the terms of a polynomial map monomials to coefficients that
are not 0. So two polynomials are equal exactly where their terms are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from math import gcd


class Atom(ABC):
    """A factor of a monomial: an integer that is not known, between two numbers."""

    text: str
    """How it is written; equal atoms, and no others, are written alike."""

    @cached_property
    @abstractmethod
    def range(self) -> tuple[int, int]:
        """The least and the most that it may be."""

    @abstractmethod
    def evaluate(self, values: Mapping[str, int]) -> int:
        """Its value where symbols have these."""

    def cases(self, is_lower: bool) -> list[list[tuple[Terms, int]]]:
        """
        Polynomials over numbers that bound it from below, or from above: those of any of the lists prove what holds for all
        of its entries.
        """
        return []


Monomial = tuple[Atom, ...]
Terms = Mapping[Monomial, int]


def order(monomial: Monomial) -> tuple[int, list[str]]:
    """A key that orders monomials, the same after a multiplication: by degree first."""
    return len(monomial), [atom.text for atom in monomial]


def plus(a: Terms, b: Terms, factor: int = 1) -> Terms:
    """`a + factor * b`."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + factor * coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def times(a: Terms, b: Terms) -> Terms:
    """`a * b`."""
    total: dict[Monomial, int] = {}
    for m, x in a.items():
        for n, y in b.items():
            monomial = join(m, n)
            total[monomial] = total.get(monomial, 0) + x * y
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def join(m: Monomial, n: Monomial) -> Monomial:
    """The product of two monomials."""
    if not m or not n:
        return m or n
    return tuple(sorted(m + n, key=lambda atom: atom.text))


def without(m: Monomial, n: Monomial) -> Monomial | None:
    """`m / n`; None where an atom of `n` is not in `m`."""
    rest = list(m)
    for atom in n:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def divide(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """`(quotient, rest)` with `a == quotient * b + rest`; the rest is empty where `b` divides `a`. `b` is not 0."""
    lead = max(b, key=order)
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    left = dict(a)
    while left:
        monomial = max(left, key=order)
        coefficient = left[monomial]
        part = without(monomial, lead)
        if part is None or coefficient % b[lead]:
            rest[monomial] = left.pop(monomial)
            continue
        quotient[part] = coefficient // b[lead]
        left = dict(plus(left, times({part: quotient[part]}, b), -1))
    return quotient, rest


def common_monomial(*all_terms: Terms) -> tuple[Monomial, int]:
    """The largest monomial and number that divide all terms of the polynomials; none of them is 0."""
    monomials = [monomial for terms in all_terms for monomial in terms]
    shared = monomials[0]
    for monomial in monomials[1:]:
        rest, kept = list(monomial), list[Atom]()
        for atom in shared:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        shared = tuple(kept)
    return shared, gcd(*(coefficient for terms in all_terms for coefficient in terms.values()))
