"""Formulas over graph ops: values with Python's operators, and series of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F64, DType
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.handler import Call
from fuse_opt.frontends.torch.operators.special.coefficients import SERIES

REST = {"f32": 2.0**-36, "f64": 2.0**-57}
"""By the element type of a result: what terms of series may be left out, of the largest one."""


@dataclass(frozen=True)
class Expression:
    """A value in a formula; numbers beside it take its element type."""

    emit: Emitter
    value: SSAValue

    def __add__(self, other: Expression | float) -> Expression:
        return self._joined("add", self, other)

    def __radd__(self, other: float) -> Expression:
        return self._joined("add", other, self)

    def __sub__(self, other: Expression | float) -> Expression:
        return self._joined("subtract", self, other)

    def __rsub__(self, other: float) -> Expression:
        return self._joined("subtract", other, self)

    def __mul__(self, other: Expression | float) -> Expression:
        return self._joined("multiply", self, other)

    def __rmul__(self, other: float) -> Expression:
        return self._joined("multiply", other, self)

    def __truediv__(self, other: Expression | float) -> Expression:
        return self._joined("divide", self, other)

    def __rtruediv__(self, other: float) -> Expression:
        return self._joined("divide", other, self)

    def __neg__(self) -> Expression:
        return self.apply("negative")

    def __abs__(self) -> Expression:
        return self.apply("abs")

    def __lt__(self, other: Expression | float) -> Expression:
        return self._joined("less", self, other)

    def __le__(self, other: Expression | float) -> Expression:
        return self._joined("less_equal", self, other)

    def __gt__(self, other: Expression | float) -> Expression:
        return self._joined("greater", self, other)

    def __ge__(self, other: Expression | float) -> Expression:
        return self._joined("greater_equal", self, other)

    def __and__(self, other: Expression) -> Expression:
        return self._joined("logical_and", self, other)

    def equals(self, other: Expression | float) -> Expression:
        return self._joined("equal", self, other)

    def to_power(self, other: Expression | float) -> Expression:
        return self._joined("pow", self, other)

    def least(self, other: Expression | float) -> Expression:
        return self._joined("minimum", self, other)

    def apply(self, name: str) -> Expression:
        """A graph op of one operand."""
        return Expression(self.emit, getattr(self.emit, name)(self.value))

    def where(self, yes: Expression | float, no: Expression | float) -> Expression:
        """One of two values, by this truth value; at most one of them is a number."""
        element = next(dtype(given.value) for given in (yes, no) if isinstance(given, Expression))
        values = [self._value(given, element) for given in (yes, no)]
        return Expression(self.emit, self.emit.where(self.value, *values))

    def cast(self, element: DType) -> Expression:
        return Expression(self.emit, self.emit.cast(self.value, element))

    def _joined(self, name: str, *operands: Expression | float) -> Expression:
        values = [self._value(operand, dtype(self.value)) for operand in operands]
        return Expression(self.emit, getattr(self.emit, name)(*values))

    def _value(self, given: Expression | float, element: DType) -> SSAValue:
        return given.value if isinstance(given, Expression) else self.emit.number(given, element)


def given_in_f64(call: Call, name: str | float) -> Expression:
    """An operand, rounded to the type in which the result is computed and held in f64."""
    return Expression(call.emit, call.operand(name, call.compute())).cast(F64)


def rounded(call: Call, x: Expression) -> SSAValue:
    """A result of f64 in the type of the call's result, rounded once where that is narrow."""
    return call.result(x.cast(call.compute()).value)


def polynomial(x: Expression, coefficients: Sequence[float]) -> Expression:
    """The sum of coefficients times powers of x, lowest first, by Horner's rule."""
    *others, last = coefficients
    found: Expression | float = last
    for c in reversed(others):
        found = found * x + c
    return found if isinstance(found, Expression) else x * 0.0 + found


def series(call: Call, name: str, x: Expression) -> Expression:
    """A row of the table of series, with the terms that the call's result needs."""
    row = SERIES[name]
    middle, half = (row.lo + row.hi) / 2, (row.hi - row.lo) / 2
    return polynomial((x - middle) / half, row.polynomial(REST[call.compute().name]))
