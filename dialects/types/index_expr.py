"""Integer index expressions over loop dimensions, kept in a simplified normal form.

An index map says where an op reads its operand when its result is wanted at an index. Composing the maps of a whole
kernel gives the address of every load, so simplification here is what makes reshape, broadcast, transpose and slices free.

An expression is `constant + sum(coefficient * atom)`. An atom is a loop dimension, a floor division or a remainder by
a positive constant, or an integer that is itself read at an index (`Loaded`). Every atom knows its range, so
`(i * 64 + j) // 64` becomes `i` when `0 <= j < 64`, and `64 * (e // 64) + e % 64` becomes `e`: a chain of reshapes costs
nothing.

Numbers in expressions (extents, factors, divisors, bounds) may be sizes (`size.py`), which answer as numbers do where that is
proven. What is not proven is not simplified, which is right, and slower.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any, cast

from fuse_opt.dialects.types.extents import common_divisor, estimate, exact_quotient, largest, smallest
from fuse_opt.dialects.types.size import Extent, Size, Undecided


@dataclass(frozen=True, slots=True)
class Dim:
    """A loop dimension: a name that orders it, and its extent (values are `0 <= d < extent`)."""

    name: str
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.extent - 1 if isinstance(self.extent, Size) else max(self.extent - 1, 0)


@dataclass(frozen=True)
class Quotient:
    """`numerator // divisor`, rounded down; the divisor is positive."""

    numerator: IndexExpr
    divisor: int

    @cached_property
    def bounds(self) -> tuple[int, int]:
        low, high = self.numerator.bounds
        try:
            return low // self.divisor, high // self.divisor
        except Undecided:
            if low >= 0:
                return 0, high  # the divisor is 1 or more
            raise


@dataclass(frozen=True)
class Remainder:
    """`numerator % divisor` in `[0, divisor)`; the divisor is positive."""

    numerator: IndexExpr
    divisor: int

    @cached_property
    def bounds(self) -> tuple[int, int]:
        low, high = self.numerator.bounds
        if _shared_quotient(low, high, self.divisor) is not None:
            return low % self.divisor, high % self.divisor
        return 0, self.divisor - 1


@dataclass(frozen=True)
class Clamp:
    """`min(max(value, low), high)`: keeps a speculative load inside its operand."""

    value: IndexExpr
    low: int
    high: int
    loose: bool = field(default=False, compare=False)
    """Whether any place of the range will do where the value is outside, as nobody wants what is read there."""

    @cached_property
    def bounds(self) -> tuple[int, int]:
        low, high = self.value.bounds
        return tuple(smallest(largest(end, self.low), self.high) for end in (low, high))  # pyright: ignore


@dataclass(frozen=True)
class Loaded:
    """A position that is data: the integer of `source` at an index, limited to `[0, extent)`."""

    source: Hashable
    index: tuple[IndexExpr, ...]
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        return Dim("", self.extent).bounds

    def dims(self) -> frozenset[Dim]:
        """The loop dimensions that the value depends on."""
        return frozenset(dim for expression in self.index for dim in expression.dims())

    def substituted(self, values: Mapping[Any, IndexExpr], sources: Mapping[Any, Any] | None) -> IndexExpr:
        """The position read at another index, or from something else."""
        source = self.source if sources is None else sources.get(self.source, self.source)
        return loaded(source, tuple(part.substitute(values, sources) for part in self.index), self.extent)


Atom = Dim | Quotient | Remainder | Clamp | Loaded


@dataclass(frozen=True, init=False)
class IndexExpr:
    """`constant + sum(coefficient * atom)`; terms keep the order in which they were first added."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __init__(self, terms: tuple[tuple[Atom, int], ...] = (), constant: int = 0) -> None:
        known = self.__dict__  # programs make very many, and the way around __setattr__ takes three times as long
        known["terms"] = terms
        known["constant"] = constant

    def __hash__(self) -> int:
        known = self.__dict__
        if (found := known.get("_hash")) is None:
            found = known["_hash"] = hash((frozenset(self.terms), self.constant))
        return found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, IndexExpr) or len(self.terms) != len(other.terms) or self.constant != other.constant:
            return False
        if self.terms == other.terms:
            return True
        return len(self.terms) > 1 and hash(self) == hash(other) and frozenset(self.terms) == frozenset(other.terms)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value that the expression can take."""
        low = high = self.constant
        for atom, factor in self.terms:
            a, b = atom.bounds if factor >= 0 else atom.bounds[::-1]
            low, high = low + a * factor, high + b * factor
        return low, high

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def dims(self) -> frozenset[Dim]:
        """The loop dimensions that the value depends on."""
        known = self.__dict__
        if (found := known.get("_dims")) is None:
            found = known["_dims"] = self._found_dims()
        return found

    def _found_dims(self) -> frozenset[Dim]:
        found: set[Dim] = set()
        stack: list[IndexExpr] = [self]
        while stack:
            for atom, _ in stack.pop().terms:
                if isinstance(atom, Dim):
                    found.add(atom)
                else:
                    stack.extend(_parts(atom))
        return frozenset(found)

    def loaded(self) -> list[Loaded]:
        """The positions that are data, each behind those that its own index needs."""
        if all(isinstance(atom, Dim) for atom, _ in self.terms):
            return []
        found: dict[Loaded, None] = {}
        stack: list[IndexExpr] = [self]
        while stack:
            for atom, _ in stack.pop().terms:
                if isinstance(atom, Loaded):
                    found.pop(atom, None)
                    found[atom] = None
                if not isinstance(atom, Dim):
                    stack.extend(_parts(atom))
        return list(reversed(found))

    def coefficients(self) -> dict[Dim, int] | None:
        """The coefficient of each dimension when the expression is affine, else None."""
        affine: dict[Dim, int] = {}
        for atom, factor in self.terms:
            if not isinstance(atom, Dim):
                return None
            affine[atom] = factor
        return affine

    def step(self, dim: Dim) -> int | None:
        """How far neighbours along a dimension are apart, where that is the same everywhere, else None."""
        if any(dim in IndexExpr(((atom, 1),)).dims() for atom, _ in self.terms if not isinstance(atom, Dim)):
            return None
        return dict(self.terms).get(dim, 0)

    def unlimited(self) -> IndexExpr:
        """Without the limits of what it adds up: where it would be if nothing lay outside of them."""
        found = self
        while any(isinstance(atom, Clamp) for atom, _ in found.terms):
            parts = [(atom.value if isinstance(atom, Clamp) else IndexExpr(((atom, 1),)), n) for atom, n in found.terms]
            found = linear(parts) + found.constant
        return found

    def __add__(self, other: IndexExpr | int) -> IndexExpr:
        if not isinstance(other, IndexExpr):
            return IndexExpr(self.terms, self.constant + other)
        return linear([(self, 1), (other, 1)])

    def __sub__(self, other: IndexExpr | int) -> IndexExpr:
        if not isinstance(other, IndexExpr):
            return IndexExpr(self.terms, self.constant - other)
        return linear([(self, 1), (other, -1)])

    def __mul__(self, factor: int) -> IndexExpr:
        return linear([(self, factor)])

    def __floordiv__(self, divisor: int) -> IndexExpr:
        if divisor == 1:
            return self
        whole, rest = _split(self, divisor)
        low, high = rest.bounds
        if (shared := _shared_quotient(low, high, divisor)) is not None:
            return whole + shared
        if len(rest.terms) == 1 and rest.constant == 0:
            atom, factor = rest.terms[0]
            if factor == 1 and isinstance(atom, Quotient):
                return whole + atom.numerator // (atom.divisor * divisor)
            if factor == 1 and isinstance(atom, Remainder) and _divides(divisor, atom.divisor):
                return whole + (atom.numerator // divisor) % (atom.divisor // divisor)
        if (parts := _coarse_part(rest, divisor)) is not None:
            common, coarse, _ = parts
            return whole + coarse // (divisor // common)
        return whole + IndexExpr(((Quotient(rest, divisor), 1),))

    def __mod__(self, divisor: int) -> IndexExpr:
        if divisor == 1:
            return IndexExpr()
        _, rest = _split(self, divisor)
        low, high = rest.bounds
        if (shared := _shared_quotient(low, high, divisor)) is not None:
            return rest - shared * divisor
        if len(rest.terms) == 1 and rest.constant == 0:
            atom, factor = rest.terms[0]
            if factor == 1 and isinstance(atom, Remainder) and _divides(divisor, atom.divisor):
                return atom.numerator % divisor
        if (parts := _coarse_part(rest, divisor)) is not None:
            common, coarse, fine = parts
            return (coarse % (divisor // common)) * common + fine
        return IndexExpr(((Remainder(rest, divisor), 1),))

    def clamp(self, low: int, high: int, loose: bool = False) -> IndexExpr:
        """
        The value limited to `[low, high]`; itself when it cannot leave that range, a bound when it is never inside. `loose`:
        what is read where the value is outside is not wanted.
        """
        try:
            return self._clamped(low, high, loose)
        except Undecided:
            return IndexExpr(((Clamp(self, low, high, loose), 1),))

    def _clamped(self, low: int, high: int, loose: bool) -> IndexExpr:
        a, b = self.bounds
        if low <= a and b <= high:
            return self
        if b <= low or high <= low:
            return IndexExpr((), min(low, high))
        if high <= a:
            return IndexExpr((), high)
        return IndexExpr(((Clamp(self, low, high, loose), 1),))

    def substitute(
        self,
        values: Mapping[Dim | Loaded, IndexExpr] | Mapping[Dim, IndexExpr],
        sources: Mapping[Any, Any] | None = None,
    ) -> IndexExpr:
        """
        The expression with dimensions, positions that are data, and what these are read from, replaced; the result is
        simplified again.
        """
        parts: list[tuple[IndexExpr, int]] = [(IndexExpr((), self.constant), 1)]
        for atom, factor in self.terms:
            parts.append((_substitute_atom(atom, values, sources), factor))
        return linear(parts)

    def evaluate(self, values: Mapping[Dim, int], data: Mapping[Any, Any] | None = None) -> int:
        """
        The value for given dimension values, and tables of the data that are positions; works element by element on anything
        with Python's integer operators.
        """
        total = self.constant
        for atom, factor in self.terms:
            total = total + factor * _evaluate_atom(atom, values, data)
        return total


Index = tuple[IndexExpr, ...]


def constant(value: int) -> IndexExpr:
    return IndexExpr((), value)


def dimension(name: str, extent: int) -> IndexExpr:
    """The value of a new loop dimension; a dimension of extent 1 is the constant 0."""
    return IndexExpr(((Dim(name, extent), 1),)) if extent != 1 else IndexExpr()


def dimensions(prefix: str, shape: Sequence[int]) -> Index:
    return tuple(dimension(f"{prefix}{position}", extent) for position, extent in enumerate(shape))


def loaded(source: Hashable, index: Index, extent: int) -> IndexExpr:
    """The integer of `source` at an index as a position on an axis of `extent`: limited to what is there."""
    return IndexExpr() if extent in (0, 1) else IndexExpr(((Loaded(source, index, extent), 1),))


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(prod(shape[position + 1 :]) for position in range(len(shape)))


def linearize(index: Index, shape: Sequence[int]) -> IndexExpr:
    """The row-major position of `index` in an array of `shape`."""
    return linear(list(zip(index, strides(shape), strict=True)))


def delinearize(position: IndexExpr, shape: Sequence[int]) -> Index:
    """The index in an array of `shape` of a row-major position."""
    return _delinearized(position.terms, position.constant, tuple(shape))


@lru_cache(maxsize=4096)
def _delinearized(terms: tuple[tuple[Atom, int], ...], constant: int, shape: tuple[int, ...]) -> Index:
    """With terms in their order: equal expressions may differ in it, and so may what is made of them."""
    position, index = IndexExpr(terms, constant), list[IndexExpr]()
    for axis, (extent, stride) in enumerate(zip(shape, strides(shape), strict=True)):
        if extent == 0 or stride == 0:
            index.append(IndexExpr())
            continue
        quotient = position // stride
        index.append(quotient if axis == 0 else quotient % extent)
    return tuple(index)


def linear(parts: Iterable[tuple[IndexExpr, int]]) -> IndexExpr:
    """The sum of `factor * expression`, in normal form."""
    terms: dict[Atom, int] = {}
    total = 0
    for expression, factor in parts:
        total += factor * expression.constant
        for atom, coefficient in expression.terms:
            terms[atom] = terms.get(atom, 0) + factor * coefficient
    return _normal(terms, total)


def _normal(terms: dict[Atom, int], total: int) -> IndexExpr:
    """The sum of atoms by their factors, in normal form."""
    for atom in terms:
        if isinstance(atom, Remainder):
            return _recombine(terms, total)
    return IndexExpr(tuple([term for term in terms.items() if term[1] != 0]), total)


def _recombine(terms: dict[Atom, int], total: int) -> IndexExpr:
    """Rewrites `k*c*(e // c) + k*(e % c)` to `k*e`, as long as there is such a pair."""
    for atom, factor in terms.items():
        if not isinstance(atom, Remainder) or factor == 0:
            continue
        quotient = atom.numerator // atom.divisor
        if quotient.constant != 0 or len(quotient.terms) != 1 or quotient.terms[0][1] != 1:
            continue
        partner = quotient.terms[0][0]
        if terms.get(partner, 0) != factor * atom.divisor:
            continue
        rest = {a: f for a, f in terms.items() if f != 0 and a not in (atom, partner)}
        for inner, coefficient in atom.numerator.terms:
            rest[inner] = rest.get(inner, 0) + factor * coefficient
        return _normal(rest, total + factor * atom.numerator.constant)
    return IndexExpr(tuple((atom, factor) for atom, factor in terms.items() if factor != 0), total)


def _split(expression: IndexExpr, divisor: int) -> tuple[IndexExpr, IndexExpr]:
    """`(whole, rest)` with `expression == divisor * whole + rest` and as much as possible in `whole`."""
    whole: dict[Atom, int] = {}
    rest: dict[Atom, int] = {}
    for atom, factor in expression.terms:
        high, low = _divided(factor, divisor)
        if low != 0:
            rest[atom] = factor
        else:
            whole[atom] = high
    high, low = _divided(expression.constant, divisor)
    return _normal(whole, high), _normal(rest, low)


def _coarse_part(expression: IndexExpr, divisor: int) -> tuple[int, IndexExpr, IndexExpr] | None:
    """`(common, coarse, fine)` with `expression == common * coarse + fine`, `0 <= fine < common`, `common | divisor`."""
    by_size = sorted(expression.terms, key=lambda term: -abs(estimate(term[1])))
    common = divisor
    for count, (_, factor) in enumerate(by_size, start=1):
        common = cast(int, common_divisor(common, factor))
        if common == 1:
            return None
        high, low = _divided(expression.constant, common)
        fine = IndexExpr(tuple(by_size[count:]), low)
        if _is_below(fine, common):
            coarse = IndexExpr(tuple((atom, factor // common) for atom, factor in by_size[:count]), high)
            return common, linear([(coarse, 1)]), fine
    return None


def _shared_quotient(low: int, high: int, divisor: int) -> int | None:
    """`low // divisor` where `high` has the same; None where that is not so for all sizes."""
    try:
        quotient = low // divisor
        return quotient if quotient == high // divisor else None
    except Undecided:
        return None


def _divides(divisor: int, number: int) -> bool:
    return exact_quotient(number, divisor) is not None


def _divided(number: Extent, divisor: Extent) -> tuple[int, int]:
    """Quotient and rest; all of a size is rest where nothing divides it."""
    if isinstance(number, int) and isinstance(divisor, int):
        return divmod(number, divisor)
    exact = exact_quotient(number, divisor)
    return cast("tuple[int, int]", (0, number) if exact is None else (exact, 0))


def _is_below(expression: IndexExpr, limit: int) -> bool:
    """Whether an expression is proven to be 0 or more, and less than that."""
    try:
        low, high = expression.bounds
        return low >= 0 and high < limit
    except Undecided:
        return False


def _parts(atom: Quotient | Remainder | Clamp | Loaded) -> tuple[IndexExpr, ...]:
    """The expressions that an atom is made of."""
    if isinstance(atom, Loaded):
        return atom.index
    return (atom.value if isinstance(atom, Clamp) else atom.numerator,)


def _substitute_atom(atom: Atom, values: Mapping[Any, IndexExpr], sources: Mapping[Any, Any] | None) -> IndexExpr:
    if isinstance(atom, Dim):
        return values.get(atom, IndexExpr(((atom, 1),)))
    if isinstance(atom, Quotient):
        return atom.numerator.substitute(values, sources) // atom.divisor
    if isinstance(atom, Remainder):
        return atom.numerator.substitute(values, sources) % atom.divisor
    if isinstance(atom, Loaded):
        return values[atom] if atom in values else atom.substituted(values, sources)
    return atom.value.substitute(values, sources).clamp(atom.low, atom.high, atom.loose)


def _evaluate_atom(atom: Atom, values: Mapping[Dim, int], data: Mapping[Any, Any] | None) -> int:
    if isinstance(atom, Dim):
        return values[atom]
    if isinstance(atom, Quotient):
        return atom.numerator.evaluate(values, data) // atom.divisor
    if isinstance(atom, Remainder):
        return atom.numerator.evaluate(values, data) % atom.divisor
    if isinstance(atom, Loaded):
        low, high = 0, atom.extent - 1
        inner = (data or {})[atom.source][tuple(expression.evaluate(values, data) for expression in atom.index)]
    else:
        low, high, inner = atom.low, atom.high, atom.value.evaluate(values, data)
    above = inner * (inner > low) + low * (inner <= low)
    return above * (above < high) + high * (above >= high)
