"""Frozen arguments: what follows from them alone is computed once, by a second function, and read as further arguments.

```mlir
func.func @f(%x: tensor<8xf32>, %w: tensor<8xf16> {graph.frozen}, %p: tensor<8xf32> {graph.prepared = @f.prepare}) -> ... {...}
func.func private @f.prepare(%w: tensor<8xf16>) -> tensor<8xf32> {...}
```
`@f.prepare` takes the frozen arguments of `@f` in their order; its results are the prepared ones in theirs. Who calls `@f`
gives all but these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, SymbolRefAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from fuse_opt.dialects.analysis.storage import argument_attributes

FROZEN = "graph.frozen"
"""The argument attribute by which a caller promises to say when an argument's elements change."""

PREPARED = "graph.prepared"
"""The argument attribute that names the function whose result the argument is."""


@dataclass(frozen=True)
class Prepared:
    """What a function is given by its second one."""

    function: FuncOp
    """The second one."""
    frozen: tuple[int, ...]
    """Positions of the arguments that it takes."""
    arguments: tuple[int, ...]
    """Positions of the arguments that its results are."""


def frozen_arguments(function: FuncOp) -> tuple[int, ...]:
    """The positions of the frozen arguments."""
    return _marked(function, FROZEN)


def prepared_arguments(function: FuncOp) -> tuple[int, ...]:
    """The positions of the arguments that no caller gives."""
    return _marked(function, PREPARED)


def unchanging_arguments(function: FuncOp) -> tuple[int, ...]:
    """The positions of those that never change: frozen ones, and what is made of these alone."""
    return (*frozen_arguments(function), *prepared_arguments(function))


def prepared_of(function: FuncOp) -> Prepared | None:
    """What a function of a verified module is given by its second one; None where there is none."""
    found = prepared_arguments(function)
    name = prepare_name(function, found[0]) if found else None
    parent = function.parent
    for op in parent.ops if parent is not None and name is not None else ():
        if isinstance(op, FuncOp) and op.sym_name.data == name:
            return Prepared(op, frozen_arguments(function), found)
    return None


def prepare_name(function: FuncOp, number: int) -> str | None:
    """The name of the function that computes an argument; None where the attribute is none."""
    symbol = argument_attributes(function, number).get(PREPARED)
    return symbol.string_value() if isinstance(symbol, SymbolRefAttr) else None


def freeze_arguments(function: FuncOp, numbers: Iterable[int]) -> None:
    """Marks arguments as frozen."""
    wanted = set(numbers)
    if wanted:
        known = [argument_attributes(function, number) for number in range(len(function.args))]
        marks = [{**entry, FROZEN: UnitAttr()} if number in wanted else entry for number, entry in enumerate(known)]
        function.arg_attrs = ArrayAttr([DictionaryAttr(entry) for entry in marks])


def called_functions(module: Operation) -> list[FuncOp]:
    """The functions of a module that have a body and do not prepare arguments of another, in order."""
    functions = [
        op
        for region in module.regions
        for block in region.blocks
        for op in block.ops
        if isinstance(op, FuncOp) and not op.is_declaration
    ]
    hidden = {prepare_name(op, number) for op in functions for number in prepared_arguments(op)}
    return [op for op in functions if op.sym_name.data not in hidden]


def _marked(function: FuncOp, mark: str) -> tuple[int, ...]:
    if function.arg_attrs is None:
        return ()
    return tuple(number for number, entry in enumerate(function.arg_attrs.data) if mark in entry.data)
