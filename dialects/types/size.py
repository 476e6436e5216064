"""Sizes: exact integer expressions over symbols, the extents that a program does not know yet.

A `Size` is a polynomial over symbols and over `floor`, `max` and `min` of sizes, in a normal form. What it answers is either a
proof or a guess, and each has its spelling:

- `==` is equality for all values; its contrary means "not known to be equal". `<`, `<=`, `>`, `>=` are proofs for all values of
  the symbols; what is proven neither way raises `Undecided`, as does `bool()` of what may be 0.
- `estimate` (in `extents.py`) is the value at typical sizes: for profit alone, as a wrong one is slow and never wrong.

A size never becomes a number by itself: `int()`, `float()`, `range()`, an index and `/` are a `SizeRefusal`, a TypeError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import gcd

from fuse_opt.dialects.types import polynomial, size_proofs
from fuse_opt.dialects.types.polynomial import Atom, Terms
from fuse_opt.dialects.types.symbol import MOST, Symbol, written


class SizeRefusal(TypeError):
    """What is asked of sizes and only numbers answer: a program is compiled for each set of numbers instead."""

    op: object = None
    """What it is asked about, where somebody has said so."""

    def about(self, op: object) -> SizeRefusal:
        """The same, about an op; who is nearest to it says so first."""
        self.op = op if self.op is None else self.op
        return self


class NotANumber(SizeRefusal):
    """A number is asked for in the place of a size."""

    def __init__(self, size: Size) -> None:
        super().__init__(f"expected a number, got the size '{size}'")


class Undecided(SizeRefusal):
    """A comparison of sizes that is proven neither way."""

    def __init__(self, a: Extent, b: Extent) -> None:
        super().__init__(f"cannot decide between sizes '{a}' and '{b}' for all values of their symbols")
        self.sizes = a, b


@dataclass(frozen=True, eq=False)
class _Composite(Atom):
    """An atom over sizes; equal where it is written alike over the same symbols."""

    text: str = field(init=False, repr=False, default="")

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (type(self), *self.parts())

    def parts(self) -> tuple[Extent, ...]:
        """What it is made of."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Composite) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, eq=False)
class Floor(_Composite):
    """`numerator / divisor`, rounded down; made by `//`."""

    numerator: Size = field(kw_only=True)
    divisor: int = field(kw_only=True)

    def __post_init__(self) -> None:
        ((monomial, coefficient), *others) = self.numerator.terms.items()
        is_single = not others and len(monomial) == 1 and coefficient == getattr(monomial[0], "multiple", None)
        inner = str(self.numerator) if is_single else f"({self.numerator})"
        object.__setattr__(self, "text", f"{inner} floordiv {self.divisor}")

    def parts(self) -> tuple[Extent, ...]:
        return self.numerator, self.divisor

    @cached_property
    def range(self) -> tuple[int, int]:
        low, high = size_proofs.bounds(self.numerator.terms)
        return low // self.divisor, high // self.divisor

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.numerator.evaluate(values) // self.divisor

    def cases(self, is_lower: bool) -> list[list[tuple[Terms, int]]]:
        bound = self.numerator - (self.divisor - 1) if is_lower else self.numerator
        return [[(_terms(bound), self.divisor)]]


@dataclass(frozen=True, eq=False)
class Extreme(_Composite):
    """The larger or the smaller of two sizes; made by `largest` and `smallest`."""

    a: Extent = field(kw_only=True)
    b: Extent = field(kw_only=True)
    is_largest: bool = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"{'max' if self.is_largest else 'min'}({self.a}, {self.b})")

    def parts(self) -> tuple[Extent, ...]:
        return self.a, self.b, int(self.is_largest)

    @cached_property
    def range(self) -> tuple[int, int]:
        (a, b), (c, d) = (size_proofs.bounds(_terms(part)) for part in (self.a, self.b))
        return (max(a, c), max(b, d)) if self.is_largest else (min(a, c), min(b, d))

    def evaluate(self, values: Mapping[str, int]) -> int:
        both = [size_proofs.value_at(_terms(part), values) for part in (self.a, self.b)]
        return max(both) if self.is_largest else min(both)

    def cases(self, is_lower: bool) -> list[list[tuple[Terms, int]]]:
        both = [(_terms(self.a), 1), (_terms(self.b), 1)]
        return [[one] for one in both] if is_lower == self.is_largest else [both]


class Size:
    """A size that is no number; made by arithmetic on `symbol(...)`, never by hand."""

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))
        self._text: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Size) and self._hash == other._hash and self.terms == other.terms

    def __add__(self, other: Extent) -> Extent:
        return of_terms(polynomial.plus(self.terms, _terms(other))) if _is_extent(other) else NotImplemented

    def __sub__(self, other: Extent) -> Extent:
        return of_terms(polynomial.plus(self.terms, _terms(other), -1)) if _is_extent(other) else NotImplemented

    def __rsub__(self, other: Extent) -> Extent:
        return of_terms(polynomial.plus(_terms(other), self.terms, -1)) if _is_extent(other) else NotImplemented

    def __mul__(self, other: Extent) -> Extent:
        return _product(self, other) if _is_extent(other) else NotImplemented

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Extent:
        return self * -1

    def __abs__(self) -> Extent:
        return self if self >= 0 else -self

    def __floordiv__(self, divisor: Extent) -> Extent:
        return _quotient(self, divisor) if _is_extent(divisor) else NotImplemented

    def __rfloordiv__(self, dividend: Extent) -> Extent:
        return _quotient(dividend, self) if _is_extent(dividend) else NotImplemented

    def __mod__(self, divisor: Extent) -> Extent:
        return self - self // divisor * divisor if _is_extent(divisor) else NotImplemented

    def __rmod__(self, dividend: Extent) -> Extent:
        return dividend - dividend // self * self if _is_extent(dividend) else NotImplemented

    def __divmod__(self, divisor: Extent) -> tuple[Extent, Extent]:
        quotient = self // divisor
        return quotient, self - quotient * divisor

    def __rdivmod__(self, dividend: Extent) -> tuple[Extent, Extent]:
        quotient = dividend // self
        return quotient, dividend - quotient * self

    def __le__(self, other: Extent) -> bool:
        return _is_at_most(self, other) if _is_extent(other) else NotImplemented

    def __ge__(self, other: Extent) -> bool:
        return _is_at_most(other, self) if _is_extent(other) else NotImplemented

    def __lt__(self, other: Extent) -> bool:
        return not _is_at_most(other, self) if _is_extent(other) else NotImplemented

    def __gt__(self, other: Extent) -> bool:
        return not _is_at_most(self, other) if _is_extent(other) else NotImplemented

    def __bool__(self) -> bool:
        """True where it is proven not to be 0; no size is 0 for all values. Raises Undecided otherwise."""
        if any(size_proofs.is_never_negative(_terms(self * sign - 1)) for sign in (1, -1)):
            return True
        raise Undecided(self, 0)

    def __index__(self) -> int:
        """Raises NotANumber, as `int()`, `float()`, `/` and `**` do."""
        raise NotANumber(self)

    __int__ = __float__ = __index__

    def __truediv__(self, other: object) -> float:
        raise NotANumber(self)

    __rtruediv__ = __pow__ = __truediv__

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number where symbols have these values; raises KeyError for one that is missing."""
        return size_proofs.value_at(self.terms, values)

    def symbols(self) -> list[Symbol]:
        """The symbols that it depends on, by name."""
        found: dict[Symbol, None] = {}
        stack: list[Extent] = [self]
        while stack:
            for monomial in _terms(stack.pop()):
                for atom in monomial:
                    if isinstance(atom, Symbol):
                        found[atom] = None
                    elif isinstance(atom, _Composite):
                        stack.extend(atom.parts())
        return sorted(found, key=lambda one: one.name)

    def __str__(self) -> str:
        if self._text is None:
            self._text = written(self.terms)
        return self._text

    __repr__ = __str__


Extent = int | Size
"""The extent of an axis: a number, or a size."""


def symbol(name: str, least: int = 1, most: int = MOST, multiple: int = 1, typical: int | None = None) -> Size:
    """The size that is a symbol; raises ValueError where its range holds no number."""
    return of_symbol(Symbol(name, least, most, multiple, typical))


def of_symbol(found: Symbol) -> Size:
    """The size that is a symbol."""
    return Size({(found,): found.multiple})


def of_terms(terms: Terms) -> Extent:
    """The size of a polynomial; a number where it is one."""
    if not terms:
        return 0
    return terms[()] if len(terms) == 1 and () in terms else Size(terms)


def _terms(extent: Extent) -> Terms:
    if isinstance(extent, Size):
        return extent.terms
    return {(): extent} if extent else {}


def _is_extent(value: object) -> bool:
    return isinstance(value, int | Size)


@lru_cache(4096)
def _product(a: Size, b: Extent) -> Extent:
    """The same few, numbers of elements and of bytes, are asked for again and again."""
    return of_terms(polynomial.times(a.terms, _terms(b)))


def _is_at_most(a: Extent, b: Extent) -> bool:
    """Whether `a <= b` for all values; raises Undecided where that is proven neither way."""
    if (found := _proven_at_most(a, b)) is None:
        raise Undecided(a, b)
    return found


@lru_cache(1 << 14)
def _proven_at_most(a: Extent, b: Extent) -> bool | None:
    """The same; None where nothing is proven. Programs have few extents, which they compare again and again."""
    if size_proofs.is_never_negative(polynomial.plus(_terms(b), _terms(a), -1)):
        return True
    return False if size_proofs.is_never_negative(_terms(a - b - 1)) else None


def _quotient(dividend: Extent, divisor: Extent) -> Extent:
    """`dividend // divisor`: by a number always, by a size where it is exact or the rest is proven to be smaller."""
    if not isinstance(divisor, Size):
        return _floor(dividend, divisor)
    if not divisor > 0:
        raise Undecided(divisor, 1)
    quotient, rest = map(of_terms, polynomial.divide(_terms(dividend), divisor.terms))
    if rest == 0 or (rest >= 0 and rest < divisor):
        return quotient
    if rest < 0 and rest + divisor >= 0:
        return quotient - 1
    raise Undecided(dividend, divisor)


def _floor(numerator: Extent, divisor: int) -> Extent:
    if not isinstance(numerator, Size):
        return numerator // divisor
    if divisor < 0:
        return _floor(-numerator, -divisor)
    if divisor == 0:
        raise ZeroDivisionError(f"size '{numerator}' divided by 0")
    whole, rest = _whole_part(numerator, divisor)
    if not isinstance(rest, Size):
        return whole + rest // divisor
    if rest.terms[max(rest.terms, key=polynomial.order)] < 0:
        return whole - _floor(divisor - 1 - rest, divisor)
    common = gcd(divisor, *(c for monomial, c in rest.terms.items() if monomial))
    rest = of_terms({monomial: c // common for monomial, c in rest.terms.items() if c // common})
    return whole + _reduced_floor(rest, divisor // common)


def _whole_part(numerator: Size, divisor: int) -> tuple[Extent, Extent]:
    """`(whole, rest)` with `numerator == divisor * whole + rest`, and coefficients of `rest` as small as they can be."""
    whole: dict[polynomial.Monomial, int] = {}
    for monomial, coefficient in numerator.terms.items():
        whole[monomial] = (coefficient + (divisor - 1) // 2 if monomial else coefficient) // divisor
    found = of_terms({monomial: count for monomial, count in whole.items() if count})
    return found, numerator - found * divisor


def _reduced_floor(numerator: Extent, divisor: int) -> Extent:
    if not isinstance(numerator, Size) or divisor == 1:
        return numerator // divisor if divisor != 1 else numerator
    low, high = size_proofs.bounds(numerator.terms)
    if low // divisor == high // divisor:
        return low // divisor
    inner = numerator - numerator.terms.get((), 0)
    if isinstance(inner, Size) and len(inner.terms) == 1:
        (((*_, atom), coefficient),) = inner.terms.items()
        if coefficient == 1 and isinstance(atom, Floor) and len(next(iter(inner.terms))) == 1:
            offset = numerator.terms.get((), 0) * atom.divisor
            return _floor(atom.numerator + offset, atom.divisor * divisor)
    return Size({(Floor(numerator=numerator, divisor=divisor),): 1})
