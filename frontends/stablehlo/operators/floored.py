"""Choices that make floored quotients and remainders of truncated ones, as `//` and `%` of JAX on integers."""

from __future__ import annotations

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import Kind
from fuse_opt.frontends.builder import Emitter, Value
from fuse_opt.frontends.stablehlo.operators.values import are_equal, made_by, number_in


def floored(g: Emitter, condition: Value, changed: Value, plain: Value) -> Value | None:
    """The floored quotient or remainder that a choice between a truncated one and its neighbour is; None for another choice."""
    if dtype(plain).kind is not Kind.INT or (tests := made_by(condition, "logical_and")) is None:
        return None
    return _quotient(g, tests, changed, plain) or _remainder(g, tests, changed, plain)


def _quotient(g: Emitter, tests: list[Value], changed: Value, plain: Value) -> Value | None:
    """`where(sign(x) != sign(y) and fmod(x, y) != 0, q - 1, q)`."""
    quotient, less = made_by(plain, "truncate_divide"), made_by(changed, "subtract")
    if quotient is None or less is None or less[0] is not plain or number_in(less[1]) != 1:
        return None
    x, y = quotient
    for signs, rest in (tests, tests[::-1]):
        differ, left = made_by(signs, "not_equal"), _tested(rest)
        if differ is None or left is None or not _is_rest(left, x, y):
            continue
        given = [made_by(each, "sign") for each in differ]
        if all(each and are_equal(each[0], operand) for each, operand in zip(given, (x, y), strict=True)):
            return g.floor_divide(x, y)
    return None


def _remainder(g: Emitter, tests: list[Value], changed: Value, plain: Value) -> Value | None:
    """`where((r < 0) != (y < 0) and r != 0, r + y, r)` of `r = fmod(x, y)`."""
    rest, more = made_by(plain, "fmod"), made_by(changed, "add")
    if rest is None or more is None or more[0] is not plain or not are_equal(more[1], rest[1]):
        return None
    x, y = rest
    for signs, left in (tests, tests[::-1]):
        differ = made_by(signs, "logical_xor")
        if differ is None or _tested(left) is not plain:
            continue
        given = [made_by(each, "less") for each in differ]
        if all(
            each and number_in(each[1]) == 0 and are_equal(each[0], operand)
            for each, operand in zip(given, (plain, y), strict=True)
        ):
            return g.remainder(x, y)
    return None


def _tested(condition: Value) -> Value | None:
    """What is compared with zero."""
    found = made_by(condition, "not_equal")
    return found[0] if found is not None and number_in(found[1]) == 0 else None


def _is_rest(value: Value, x: Value, y: Value) -> bool:
    found = made_by(value, "fmod")
    return found is not None and are_equal(found[0], x) and are_equal(found[1], y)
