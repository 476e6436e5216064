"""What is known of unknown extents of a StableHLO program: a symbol for each, with bounds and what conditions on them say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.types.extents import is_symbol, substitute
from fuse_opt.dialects.types.size import Extent, Size, symbol
from fuse_opt.frontends.stablehlo.operators.op import CURE, HloOp, StableHLOError, attributes_of, name_of

_GLOBAL = "jax.global_constant"
"""The argument attribute by which jax.export names the symbolic dimension that an argument of a private function is."""
_MOST_MULTIPLE = 1024
"""What an extent is said to be a multiple of, at most."""
_BOUNDS = re.compile(r"#stablehlo\.bounds<([^>]*)>")


@dataclass(frozen=True)
class Facts:
    """The extents of a function's arguments, over symbols."""

    arguments: tuple[tuple[Extent, ...], ...]

    @staticmethod
    def of(function: FuncOp, functions: Mapping[str, FuncOp], extents: Mapping[str, int]) -> Facts:
        """
        A symbol for each unknown extent: of the name that the program gives it, else of its argument and axis; `extents` are
        numbers for some of them. Raises StableHLOError for another name.
        """
        names = dict(_names(function, functions))
        found: list[tuple[Extent, ...]] = []
        used: set[str] = set()
        for number, value in enumerate(function.args):
            try:
                type_ = tensor(value)
            except VerifyException as error:
                raise StableHLOError(f"argument {number}: {error}") from error
            given = _BOUNDS.search(str(type_.encoding))
            bounds = [part.strip() for part in given[1].split(",")] if given else []
            row: list[Extent] = []
            for axis, extent in enumerate(type_.get_shape()):
                name = names.get((number, axis), f"{value.name_hint or f'arg{number}'}.{axis}")
                most = {"most": int(bounds[axis])} if axis < len(bounds) and bounds[axis].isdigit() else {}
                used |= {name} if extent < 0 else set()
                row.append(extent if extent >= 0 else extents.get(name, symbol(name, **most)))
            found.append(tuple(row))
        if unknown := sorted(set(extents) - used):
            raise StableHLOError(f"extents: expected names among {sorted(used)}, got '{unknown[0]}'")
        return Facts(tuple(found))

    @property
    def has_sizes(self) -> bool:
        return any(isinstance(extent, Size) for row in self.arguments for extent in row)

    def with_fact(self, a: Extent, b: Extent, direction: str, message: str) -> Facts:
        """What holds if calls keep `a` to `b`, as `GE`. Raises StableHLOError where no range of a symbol says that."""
        try:
            values = _said(a, b, direction)
        except ValueError as error:
            raise StableHLOError(f"{message}: {error}") from error
        found = tuple(tuple(substitute(extent, values) for extent in row) for row in self.arguments)
        if found == self.arguments:
            raise StableHLOError(f"'{a}' and '{b}' cannot be compared ({direction}) for all extents: {message}; {CURE}")
        return Facts(found)


def _names(function: FuncOp, functions: Mapping[str, FuncOp]) -> Iterator[tuple[tuple[int, int], str]]:
    """By argument and axis the names that jax.export has for what it hands to the function that it wraps."""
    for op in function.body.block.ops:
        callee = attributes_of(op).get("callee")
        called = functions.get(callee.root_reference.data) if isinstance(callee, SymbolRefAttr) else None
        if called is None or called.arg_attrs is None:
            continue
        entries = called.arg_attrs.data
        for operand, entry in zip(op.operands, entries, strict=False):
            name, owner = entry.data.get(_GLOBAL), operand.owner
            if not isinstance(name, StringAttr) or not isinstance(owner, Operation):
                continue
            if name_of(owner) == "stablehlo.get_dimension_size" and isinstance(
                source := owner.operands[0], BlockArgument
            ):
                axis = HloOp(owner, (), cast("Mapping[str, Attribute]", attributes_of(owner))).integer("dimension")
                yield (source.index, axis), name.data


def _said(a: Extent, b: Extent, direction: str) -> dict[str, Extent]:
    """What to put in the place of a symbol so that a comparison holds; nothing where that is not seen."""
    if direction == "EQ" and not isinstance(a, Size):
        a, b = b, a
    if direction == "EQ" and (found := _multiple(a, b)):
        return found
    if direction != "EQ" and isinstance(a, Size) and isinstance(b, int):
        constant = a.terms.get((), 0)
        a, b = a - constant, b - constant
    one, other = is_symbol(a), is_symbol(b)
    if direction == "EQ" and (one or other):
        if one and other and one.facts() and not other.facts():
            one, b = other, a
        return {one.name: b} if one else {other.name: a} if other else {}
    bounds: dict[str, Callable[[int], dict[str, int]]] = {
        "GE": lambda n: {"least": n},
        "GT": lambda n: {"least": n + 1},
        "LE": lambda n: {"most": n},
        "LT": lambda n: {"most": n - 1},
    }
    if one is None or not isinstance(b, int) or direction not in bounds:
        return {}
    return {one.name: symbol(one.name, **{**one.facts(), **bounds[direction](b)})}


def _multiple(a: Extent, b: Extent) -> dict[str, Extent]:
    """The symbol whose remainder by a number is 0."""
    found: Any = a.symbols() if isinstance(a, Size) and b == 0 else []
    if len(found) != 1:
        return {}
    (one,) = found
    written = symbol(one.name), symbol(one.name, **one.facts())
    for divisor in range(2, _MOST_MULTIPLE + 1):
        if any(a == each % divisor for each in written):
            return {one.name: symbol(one.name, **{**one.facts(), "multiple": divisor})}
    return {}
