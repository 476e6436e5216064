"""Symbolic integers of PyTorch as sizes: expressions of sympy are read, and not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import gcd, lcm, prod
from typing import Any, cast
from weakref import WeakKeyDictionary

from fuse_opt.dialects.interfaces.shapes import are_sizes_asked_for
from fuse_opt.dialects.types.extents import exact_quotient, is_decided, largest, smallest
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal, symbol
from fuse_opt.dialects.types.symbol import MOST
from fuse_opt.frontends.torch.fx.api import torch

_USUAL = 64
"""What estimates take a symbol to be at least, where it may be: a first call is often shorter than those that matter."""


def extent_of(value: Any) -> Extent | None:
    """A number, or the size that a symbolic one is; None for one that follows from data, and for what sizes cannot say."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    try:
        return _read(value.node.expr, value.node.shape_env)
    except (SizeRefusal, ZeroDivisionError):
        return None


def known_extents(values: Iterable[Any]) -> tuple[int, ...] | None:
    """
    Extents, strides or offsets of a (fake) tensor; None where one is a symbol. While sizes are asked for (`sizes_asked_for`)
    those that are known before the graph runs are sizes, which stand for numbers as in `shape`.
    """
    given = tuple(values)
    if all(isinstance(value, int) for value in given):
        return tuple(map(int, given))
    if not are_sizes_asked_for():
        return None
    found = [extent_of(value) for value in given]
    return None if None in found else cast("tuple[int, ...]", tuple(found))


def known_shape(value: Any) -> tuple[int, ...] | None:
    """The extents of a (fake) tensor, as `known_extents` gives them."""
    return known_extents(value.shape)


def _read(expression: Any, environment: Any) -> Extent | None:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return _symbol(expression, environment)
    join = _JOINS.get(type(expression).__name__)
    parts = [_read(part, environment) for part in expression.args]
    known = [part for part in parts if part is not None]
    return reduce(join, known) if join is not None and len(known) == len(parts) else None


def _quotient(a: Extent, b: Extent) -> Extent:
    """Rounded down. Also by a size, which is above 0, that divides it, or does so times a number."""
    if not isinstance(b, Size):
        return a // b
    number = gcd(*b.terms.values())
    size = exact_quotient(b, number)
    exact = None if size is None else exact_quotient(a, size)
    if exact is None or not is_decided(lambda: b > 0):
        raise SizeRefusal(f"cannot divide '{a}' by '{b}'")
    return exact // number


def _power(base: Extent, exponent: Extent) -> Extent:
    if isinstance(exponent, Size) or exponent < 0:
        raise SizeRefusal(f"expected a number as the exponent of '{base}', got '{exponent}'")
    return reduce(lambda found, _: found * base, range(exponent), 1)


_JOINS: dict[str, Callable[[Extent, Extent], Extent]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Pow": _power,
    "FloorDiv": _quotient,
    "CleanDiv": _quotient,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": largest,
    "Min": smallest,
}
"""By class of sympy, or of PyTorch's own."""


def _symbol(found: Any, environment: Any) -> Extent | None:
    """With its range; None where it has no value before the graph runs."""
    hint = environment.backed_var_to_val.get(found)
    if hint is None:
        return None
    limits = environment.var_to_range[found]
    least = max(int(limits.lower), 0) if limits.lower.is_Integer else 0
    most = min(int(limits.upper), MOST) if limits.upper.is_Integer else MOST
    multiple = lcm(*_divisors(found, environment))
    usual = min(max(int(hint), _USUAL, least), most) // multiple * multiple
    return symbol(str(found), least, most, multiple, typical=usual if usual >= least else int(hint))


def _divisors(found: Any, environment: Any) -> Iterable[int]:
    """Numbers that divide a symbol, as guards say: what is cut into parts of a number is made of whole ones."""
    known = _KNOWN.get(environment)
    if known is None or known[0] != len(environment.guards):
        known = _KNOWN[environment] = len(environment.guards), _divisible(environment)
    return known[1].get(found, ())


_KNOWN: WeakKeyDictionary[Any, tuple[int, dict[Any, list[int]]]] = WeakKeyDictionary()
"""By environment: of how many guards, and what divides each symbol."""


def _divisible(environment: Any) -> dict[Any, list[int]]:
    """By symbol what divides it: guards say `s % m == 0`, or of products that `s * t == m * (s // m) * n * (t // n)`."""
    found: dict[Any, list[int]] = {}
    for rest in environment.divisible:
        if type(rest).__name__ == "Mod" and rest.args[1].is_Integer:
            found.setdefault(rest.args[0], []).append(int(rest.args[1]))
    for guard in environment.guards:
        if type(guard.expr).__name__ != "Equality" or guard.expr.rhs == 0:
            continue
        for whole, parts in ((guard.expr.lhs, guard.expr.rhs), (guard.expr.rhs, guard.expr.lhs)):
            for one, number in _cut_parts(whole / parts):
                found.setdefault(one, []).append(number)
    return found


def _cut_parts(ratio: Any) -> list[tuple[Any, int]]:
    """Symbols and numbers that divide them where this ratio is 1: none of `m * (s // m)` is more than its symbol."""
    wholes, several = ratio.as_numer_denom()
    factor, floors = several.as_coeff_Mul()
    divided = [floor.args for floor in _factors(floors) if type(floor).__name__ == "FloorDiv"]
    pairs = [(a / b).as_numer_denom() for a, b in divided]  # `s * s // (2 * s)` is `s // 2`
    if not pairs or len(pairs) != len(_factors(floors)) or not all(s.is_Symbol and m.is_Integer for s, m in pairs):
        return []
    is_same = Counter(s for s, _ in pairs) == Counter(_factors(wholes)) and prod(int(m) for _, m in pairs) == factor
    return [(s, int(m)) for s, m in pairs] if is_same else []


def _factors(product: Any) -> Sequence[Any]:
    return product.args if product.is_Mul else (product,)
