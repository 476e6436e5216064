"""Loop dimensions of a kernel: split where an address takes them apart, merged where every address allows it.

Fewer and longer loops, and addresses without divisions. Everything happens by substitution in index expressions, so that
the result is right whenever the expressions are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.types.extents import estimate, exact_quotient, is_number, may_exceed
from fuse_opt.dialects.types.index_expr import Clamp, Dim, Index, IndexExpr, Loaded, Quotient, Remainder, delinearize
from fuse_opt.dialects.types.size import Extent

SHORTEST_SPLIT = 8
"""Elements; a dimension is not split to leave an inner loop that is shorter."""


def index_dims(index: Index) -> tuple[Dim, ...]:
    """The dimensions of a space, outermost first; those of extent 1 are constants and not among them."""
    return tuple(atom for expression in index for atom, _ in expression.terms if isinstance(atom, Dim))


def as_expr(dim: Dim) -> IndexExpr:
    return IndexExpr(((dim, 1),))


@dataclass(frozen=True)
class LoopSpace:
    """Groups of nested dimensions after simplification, and what the original dimensions are in terms of them."""

    values: Mapping[Dim, IndexExpr]
    groups: tuple[tuple[Dim, ...], ...]

    def apply(self, expression: IndexExpr) -> IndexExpr:
        """An expression over original dimensions in terms of the loops'."""
        if not self.values or not expression.terms:
            return expression
        return expression.substitute(self.values)

    def flatten(self, group: Sequence[Dim], over: Dim) -> LoopSpace:
        """The space with a group of dimensions replaced by one that counts through all of them."""
        index = delinearize(as_expr(over), [dim.extent for dim in group])
        inner = dict(zip(group, index, strict=True))
        groups = tuple((over,) if set(dims) == set(group) else dims for dims in self.groups)
        return LoopSpace(_composed(self.values, inner), groups)

    def split(self, dim: Dim, outer: Dim, inner: Dim) -> LoopSpace:
        """The space with `inner.extent * outer + inner` in the place of a dimension."""
        value = as_expr(outer) * inner.extent + as_expr(inner)
        groups = tuple(
            tuple(new for old in group for new in ((outer, inner) if old == dim else (old,))) for group in self.groups
        )
        return LoopSpace(_composed(self.values, {dim: value}), groups)


def simplify_space(
    groups: Sequence[tuple[Dim, ...]], expressions: Iterable[IndexExpr], shortest: int = SHORTEST_SPLIT
) -> LoopSpace:
    """
    Splits and merges the dimensions of the groups by the addresses; groups may share dimensions. Innermost ones are split down to
    loops of `shortest` elements, where one of `SHORTEST_SPLIT` is around them.
    """
    values = {d: as_expr(d) for group in groups for d in group}
    state = _State(list(groups), list(dict.fromkeys(expressions)), values, shortest)
    while (split := state.find_split()) is not None:
        state.split(*split)
    for number in range(len(groups)):
        position = len(state.groups[number]) - 1
        while position > 0:
            state.merge(number, position - 1)
            position -= 1
    return LoopSpace({d: e for d, e in state.values.items() if e != as_expr(d)}, tuple(state.groups))


def _composed(values: Mapping[Dim, IndexExpr], inner: Mapping[Dim, IndexExpr]) -> dict[Dim, IndexExpr]:
    return {**inner, **{dim: value.substitute(inner) for dim, value in values.items()}}


@dataclass
class _State:
    groups: list[tuple[Dim, ...]]
    expressions: list[IndexExpr]
    values: dict[Dim, IndexExpr]
    shortest: int
    fresh: int = 0

    def find_split(self) -> tuple[Dim, int] | None:
        """A dimension that some address divides evenly, and by what."""
        for atom in _division_atoms(self.expressions):
            if atom.numerator.constant or len(atom.numerator.terms) != 1:
                continue
            dim, factor = atom.numerator.terms[0]
            if not isinstance(dim, Dim) or factor != 1:
                continue
            if not _is_worth_splitting(dim, atom.divisor) and not self._is_written_out(dim, atom.divisor):
                continue
            if exact_quotient(dim.extent, atom.divisor) is not None and any(dim in group for group in self.groups):
                return dim, atom.divisor
        return None

    def _is_written_out(self, dim: Dim, divisor: Extent) -> bool:
        """Whether a loop of as many elements as the divisor may be innermost: short ones are written out there."""
        is_innermost = all(dim == group[-1] for group in self.groups if dim in group)
        if not is_innermost or not is_number(dim.extent) or not is_number(divisor):
            return False
        return self.shortest <= divisor <= dim.extent // SHORTEST_SPLIT

    def split(self, dim: Dim, divisor: int) -> None:
        self.fresh += 1
        outer = Dim(f"{dim.name}_{self.fresh}", dim.extent // divisor)
        inner = Dim(f"{dim.name}_{self.fresh}_in", divisor)
        self._substitute({dim: as_expr(outer) * divisor + as_expr(inner)})
        self.groups = [
            tuple(new for old in group for new in ((outer, inner) if old == dim else (old,))) for group in self.groups
        ]

    def merge(self, number: int, position: int) -> None:
        """Makes one of two neighbours where no address becomes more complicated and all groups agree."""
        outer, inner = self.groups[number][position : position + 2]
        merged = Dim(outer.name, outer.extent * inner.extent)
        if merged.extent == 0 or not all(_agrees(group, outer, inner) for group in self.groups):
            return
        if any(merged in group for group in self.groups):
            return
        one = as_expr(merged)
        parts = {outer: one // inner.extent, inner: one % inner.extent}
        substituted = [expression.substitute(parts) for expression in self.expressions]
        for old, new in zip(self.expressions, substituted, strict=True):
            if _division_count(new) > _division_count(old):
                return
        self.expressions = substituted
        self.values = _composed(self.values, parts)
        self.groups = [tuple(merged if dim == outer else dim for dim in group if dim != inner) for group in self.groups]

    def _substitute(self, parts: Mapping[Dim, IndexExpr]) -> None:
        self.expressions = [expression.substitute(parts) for expression in self.expressions]
        self.values = _composed(self.values, parts)


def _is_worth_splitting(dim: Dim, divisor: Extent) -> bool:
    return not may_exceed(divisor + 1, dim.extent) and estimate(divisor) >= SHORTEST_SPLIT


def _agrees(group: Sequence[Dim], outer: Dim, inner: Dim) -> bool:
    if outer not in group and inner not in group:
        return True
    return outer in group and inner in group and group.index(outer) + 1 == group.index(inner)


def _division_atoms(expressions: Iterable[IndexExpr]) -> Iterable[Quotient | Remainder]:
    stack = list(expressions)
    while stack:
        for atom, _ in stack.pop().terms:
            if isinstance(atom, Clamp):
                stack.append(atom.value)
            elif isinstance(atom, Loaded):
                stack.extend(atom.index)
            elif isinstance(atom, Quotient | Remainder):
                yield atom
                stack.append(atom.numerator)


def _division_count(expression: IndexExpr) -> int:
    return sum(1 for _ in _division_atoms([expression]))


def extent(dims: Iterable[Dim]) -> int:
    """How many nodes a group of dimensions has."""
    return prod(dim.extent for dim in dims)
