"""Symbolic integers of PyTorch as sizes: expressions of sympy are read, and not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, cast

from fuse_opt.dialects.interfaces.shapes import are_sizes_asked_for
from fuse_opt.dialects.types.extents import largest, smallest
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


def _power(base: Extent, exponent: Extent) -> Extent:
    if isinstance(exponent, Size) or exponent < 0:
        raise SizeRefusal(f"expected a number as the exponent of '{base}', got '{exponent}'")
    return reduce(lambda found, _: found * base, range(exponent), 1)


_JOINS: dict[str, Callable[[Extent, Extent], Extent]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Pow": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
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
    return symbol(str(found), least, most, typical=min(max(int(hint), _USUAL, least), most))
