"""Conditions on counters of loops that change at sizes: comparisons, and bounds of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, i64
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.loops.strip_mining import constant

_PREDICATES = {2: (False, 0), 3: (False, 1), 4: (True, 1), 5: (True, 0)}
"""`<`, `<=`, `>`, `>=` of x and c: whether it holds from `x = c + offset` on, or until there; and that offset."""
_TURNED = {2: 4, 3: 5, 4: 2, 5: 3}


@dataclass(frozen=True, slots=True)
class Affine:
    """`factor * counter + offset`; the offset is a sum of values that the function has, times numbers, and of a number."""

    factor: int
    offset: Extent
    parts: tuple[tuple[SSAValue, int], ...]
    number: int

    def plus(self, other: Affine, times: int) -> Affine:
        parts = (*self.parts, *((value, times * factor) for value, factor in other.parts))
        number = self.number + times * other.number
        return Affine(self.factor + times * other.factor, self.offset + times * other.offset, parts, number)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison, or the bound of a number, that changes where `factor * counter` reaches what `limit` says."""

    value: SSAValue
    factor: int
    limit: Affine
    before: bool | SSAValue
    """What it is for smaller counters."""
    behind: bool | SSAValue
    is_bound: bool = False
    """Where the number is its bound, both are right."""

    def reached(self) -> Extent:
        """The counter from which on it is `behind`."""
        return (self.limit.offset + (self.factor - 1)) // self.factor

    def passed(self) -> Extent:
        """The counter up to which it is `before`."""
        return self.limit.offset // self.factor + 1 if self.is_bound else self.reached()


def sized_conditions(ops: Sequence[Operation], counter: SSAValue, sizes: Mapping[SSAValue, Extent]) -> list[Condition]:
    """Those on a multiple of the counter, and sizes and numbers that are added."""
    affine: dict[SSAValue, Affine] = {counter: Affine(1, 0, (), 0)}
    found: list[Condition] = []
    for op in ops:
        terms = [term for operand in op.operands if (term := _term(operand, affine, sizes)) is not None]
        if len(terms) != len(op.operands):
            continue
        match op:
            case arith.CmpiOp():
                found += _compared(op, *terms)
            case arith.MaxSIOp() | arith.MinSIOp() if op.result.type == IndexType():
                found += _bounded(op, *terms)
            case arith.AddiOp() | arith.SubiOp() | arith.MuliOp() | arith.IndexCastOp():
                if op.results[0].type in (IndexType(), i64) and (form := _form(op, terms)) is not None:
                    affine[op.results[0]] = form
            case _:
                pass
    return found


def _term(value: SSAValue, affine: dict[SSAValue, Affine], sizes: Mapping[SSAValue, Extent]) -> Affine | None:
    """A value as what the counter, sizes and numbers add up to; None for another one."""
    if value not in affine:
        if (size := sizes.get(value)) is not None:
            affine[value] = Affine(0, size, ((value, 1),), 0)
        elif (number := constant(value)) is not None:
            affine[value] = Affine(0, number, (), number)
    return affine.get(value)


def _form(op: Operation, terms: Sequence[Affine]) -> Affine | None:
    match op:
        case arith.IndexCastOp():
            return terms[0]
        case arith.AddiOp():
            return terms[0].plus(terms[1], 1)
        case arith.SubiOp():
            return terms[0].plus(terms[1], -1)
        case _:
            for one, other in (terms, terms[::-1]):
                if not one.factor and not one.parts:
                    return Affine(0, 0, (), 0).plus(other, one.number)
            return None


def _compared(op: arith.CmpiOp, lhs: Affine, rhs: Affine) -> list[Condition]:
    predicate = op.predicate.value.data
    if predicate not in _PREDICATES or bool(lhs.factor) == bool(rhs.factor):
        return []
    if not lhs.factor:
        lhs, rhs, predicate = rhs, lhs, _TURNED[predicate]
    above, step = _PREDICATES[predicate]
    if lhs.factor < 0:
        return []
    limit = rhs.plus(Affine(0, lhs.offset, lhs.parts, lhs.number), -1).plus(Affine(0, step, (), step), 1)
    return [Condition(op.result, lhs.factor, limit, not above, above)]


def _bounded(op: arith.MaxSIOp | arith.MinSIOp, lhs: Affine, rhs: Affine) -> list[Condition]:
    if bool(lhs.factor) == bool(rhs.factor):
        return []
    number, bound = op.lhs, op.rhs
    if not lhs.factor:
        lhs, rhs, number, bound = rhs, lhs, bound, number
    if lhs.factor < 0:
        return []
    limit = rhs.plus(Affine(0, lhs.offset, lhs.parts, lhs.number), -1)
    before, behind = (number, bound) if isinstance(op, arith.MinSIOp) else (bound, number)
    return [Condition(op.result, lhs.factor, limit, before, behind, True)]
