"""Extents, numbers or sizes alike: larger and smaller ones, bounds, estimates, values and substitution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import gcd, prod

from fuse_opt.dialects.types import polynomial, size_proofs
from fuse_opt.dialects.types.polynomial import Atom
from fuse_opt.dialects.types.size import Extent, Extreme, Floor, Size, Symbol, Undecided, of_terms

_MOST_CORNERS = 4


def largest(a: Extent, b: Extent) -> Extent:
    """The larger one; a size of its own where no proof tells which that is."""
    return _extreme(a, b, is_largest=True)


def smallest(a: Extent, b: Extent) -> Extent:
    """The smaller one; a size of its own where no proof tells which that is."""
    return _extreme(a, b, is_largest=False)


def at_least_none(extent: Extent) -> Extent:
    """The extent, but 0 where a size is less than that; numbers as they are."""
    return largest(extent, 0) if isinstance(extent, Size) and may_exceed(0, extent) else extent


def least(extent: Extent) -> int:
    """A number that it is never below."""
    return size_proofs.bounds(extent.terms)[0] if isinstance(extent, Size) else extent


def most(extent: Extent) -> int:
    """A number that it is never above."""
    return size_proofs.bounds(extent.terms)[1] if isinstance(extent, Size) else extent


def estimate(extent: Extent) -> int:
    """The number at the typical values of its symbols: for profit, never for what has to be right."""
    if not isinstance(extent, Size):
        return extent
    return extent.evaluate({symbol.name: symbol.usual for symbol in extent.symbols()})


def evaluate(extent: Extent, values: Mapping[str, int]) -> int:
    """The number where symbols have these values; raises KeyError for one that is missing."""
    return extent.evaluate(values) if isinstance(extent, Size) else extent


def symbols(extents: Iterable[Extent]) -> list[Symbol]:
    """The symbols that extents depend on, by name."""
    found = {symbol for extent in extents if isinstance(extent, Size) for symbol in extent.symbols()}
    return sorted(found, key=lambda symbol: symbol.name)


def corners(found: Sequence[Symbol]) -> list[dict[str, int]]:
    """
    Values of symbols at which what holds for all is looked at: usual ones first, then the ends of ranges, each with each of up to
    `_MOST_CORNERS` symbols. One of no symbols.
    """
    ends = [[one.range[0] * one.multiple, one.range[1] * one.multiple] for one in found]
    chosen = product(*ends) if len(found) <= _MOST_CORNERS else zip(*ends, strict=True)
    values = [tuple(one.usual for one in found), *chosen]
    return [dict(zip((one.name for one in found), each, strict=True)) for each in dict.fromkeys(values)]


def is_number(extent: Extent) -> bool:
    """Whether it is the same for all values of symbols."""
    return not isinstance(extent, Size)


def number_in(extent: Extent) -> int:
    """The number that is added to what sizes are multiplied to: 3 of `2*n + 3`."""
    return _terms(extent).get((), 0)


def is_symbol(extent: Extent) -> Symbol | None:
    """The symbol that an extent is and nothing else."""
    found = extent.symbols() if isinstance(extent, Size) else []
    if len(found) != 1 or not isinstance(extent, Size) or extent.terms != {(found[0],): found[0].multiple}:
        return None
    return found[0]


def is_decided(question: Callable[[], bool]) -> bool:
    """Whether it is proven: what is undecided is taken as not so."""
    try:
        return question()
    except Undecided:
        return False


def may_exceed(a: Extent, b: Extent) -> bool:
    """Whether `a > b` is not disproven."""
    try:
        return a > b
    except Undecided:
        return True


def exact_quotient(a: Extent, b: Extent) -> Extent | None:
    """`a / b` where that is a size for all values; None where it is not known to be one."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return a // b if b and a % b == 0 else None
    if isinstance(b, int) and b == 0:
        return None
    quotient, rest = polynomial.divide(_terms(a), _terms(b))
    return None if rest else of_terms(quotient)


def ceiling_quotient(a: Extent, b: int) -> Extent:
    """The least number that is not below `a / b`."""
    return (a + b - 1) // b


def truncated_quotient(a: Extent, b: Extent) -> Extent:
    """`a / b` rounded to zero. Raises Undecided where that is not known to be down, as nothing of it is negative."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not (a >= 0 and b > 0):
        raise Undecided(a, b)
    return a // b


def common_divisor(a: Extent, b: Extent) -> Extent:
    """What divides both: the larger of two one of which divides the other, else common factors of all terms."""
    if isinstance(a, int) and isinstance(b, int):
        return gcd(a, b)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Size) and exact_quotient(other, one) is not None:
            return one
    if a == 0 or b == 0:
        return b if a == 0 else a
    monomial, factor = polynomial.common_monomial(_terms(a), _terms(b))
    return of_terms({monomial: factor})


def substitute(extent: Extent, values: Mapping[str, Extent]) -> Extent:
    """The extent with symbols replaced by name, simplified again."""
    if not isinstance(extent, Size):
        return extent
    total: Extent = 0
    for monomial, coefficient in extent.terms.items():
        total = total + prod([_substituted(atom, values) for atom in monomial], start=coefficient)
    return total


def _substituted(atom: Atom, values: Mapping[str, Extent]) -> Extent:
    match atom:
        case Symbol():
            return values[atom.name] // atom.multiple if atom.name in values else of_terms({(atom,): 1})
        case Floor():
            return substitute(atom.numerator, values) // atom.divisor
        case Extreme():
            return _extreme(substitute(atom.a, values), substitute(atom.b, values), atom.is_largest)
        case _:
            return of_terms({(atom,): 1})


def _extreme(a: Extent, b: Extent, is_largest: bool) -> Extent:
    if is_decided(lambda: a <= b):
        return b if is_largest else a
    if is_decided(lambda: b <= a):  # they may be equal, and then neither is decided to be the larger one
        return a if is_largest else b
    a, b = (b, a) if str(b) < str(a) else (a, b)
    return of_terms({(Extreme(a=a, b=b, is_largest=is_largest),): 1})


def _terms(extent: Extent) -> polynomial.Terms:
    return extent.terms if isinstance(extent, Size) else ({(): extent} if extent else {})
