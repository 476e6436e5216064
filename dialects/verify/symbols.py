"""Verifies what functions say about the symbols of their extents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.shapes import has_sizes, sizes
from fuse_opt.dialects.interfaces.symbols import (
    EQUAL,
    SYMBOLS,
    argument_extents,
    equal_names,
    size_arguments,
    stated_sizes,
    stated_symbols,
)
from fuse_opt.dialects.types.extents import is_symbol, symbols
from fuse_opt.dialects.types.symbol import Symbol


class SymbolError(VerifyException):
    """`op` is a function whose symbols cannot be as it says."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


def verify_symbols(module: Operation) -> None:
    """
    Raises SymbolError for a symbol that no argument brings, for one of several ranges, and for names in attributes of functions
    that stand for nothing.
    """
    for op in (op for region in module.regions for block in region.blocks for op in block.ops):
        if isinstance(op, FuncOp) and not op.is_declaration:
            is_said = SYMBOLS in op.attributes or EQUAL in op.attributes
            if is_said or size_arguments(op) or any(_is_sized(value) for value in op.args):
                try:
                    _verify_function(op)
                except SymbolError:
                    raise
                except VerifyException as error:
                    raise SymbolError(f"'{op.sym_name.data}': {error}", op) from None


def _verify_function(function: FuncOp) -> None:
    about = f"'{function.sym_name.data}'"
    extents = argument_extents(function)
    bound = {found.name: found for row in extents for extent in row if (found := is_symbol(extent)) is not None}
    said, same = stated_symbols(function), equal_names(function)
    one_extent = {name for names in same for name in names}
    for name in said:
        if name not in bound and name not in one_extent:
            raise SymbolError(
                f"{about}, attribute '{SYMBOLS}': no argument has an extent '{name}'; remove it", function
            )
    for names in same:
        if not any(name in bound for name in names):
            raise SymbolError(f"{about}, attribute '{EQUAL}': no argument has one of the extents {names}", function)
    sized = [value for value in _values(function) if _is_sized(value)]
    if any(_problem(one, bound) for one in symbols({extent for value in sized for extent in sizes(value)})):
        for value in sized:  # the first of them that shows it
            for problem in (found for one in symbols(sizes(value)) if (found := _problem(one, bound))):
                raise SymbolError(f"{about}: type '{value.type}': {problem}", function)
    for size in stated_sizes(function):
        for one in symbols([size]):
            if (one.name not in bound or one.facts()) and (problem := _problem(one, bound)):
                raise SymbolError(f"{about}: '#graph.size<{size}>': {problem}", function)


def _problem(one: Symbol, bound: Mapping[str, Symbol]) -> str | None:
    """What is wrong with a symbol, beside those that arguments bring."""
    if one.name not in bound:
        return f"symbol '{one.name}' is no extent of an argument by itself, nor a size argument"
    if one != (other := bound[one.name]):
        return f"symbol '{one.name}' is '{other.text}' and '{one.text}': expected one range"
    return None


def _values(function: FuncOp) -> Iterator[SSAValue]:
    for op in function.walk():
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.args


def _is_sized(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and has_sizes(value)
