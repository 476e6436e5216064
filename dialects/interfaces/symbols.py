"""Symbols of functions: what their attributes say of them, and the extents of arguments over them.

```mlir
func.func @main(%x: tensor<?x8xf32> {graph.dims = ["seq", ""]}, %y: tensor<?xf32> {graph.dims = ["rows"]})
    attributes {graph.symbols = {seq = {most = 512}}, graph.equal = [["seq", "rows"]]}
```
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.properties import shape_attribute
from fuse_opt.dialects.interfaces.shapes import has_sizes, sizes, tensor
from fuse_opt.dialects.types.extents import is_symbol
from fuse_opt.dialects.types.size import Extent, Size, symbol
from fuse_opt.dialects.types.symbolic_shape import FACTS, ShapeAttr, SizeAttr, with_extents

DIMS = "graph.dims"
"""The argument attribute that names extents: a string for each axis, empty where there is no name."""
SYMBOLS = "graph.symbols"
"""The attribute of a function that says what is known of its symbols, by name."""
_MOST = 2**63 - 1
EQUAL = "graph.equal"
"""The attribute of a function that lists groups of names which are the same extent."""


def argument_dims(function: FuncOp, number: int) -> Sequence[str]:
    """The names that an argument gives its extents; empty when it gives none."""
    given = None if function.arg_attrs is None else dict(function.arg_attrs.data[number].data).get(DIMS)
    if not isinstance(given, ArrayAttr):
        return ()
    return [name.data if isinstance(name, StringAttr) else "" for name in cast(ArrayAttr[Attribute], given).data]


def argument_extents(function: FuncOp, is_limited: bool = False) -> list[tuple[Extent, ...]]:
    """
    For each argument its extents, with a symbol for each `?`: of its name, or of its own. Those of which nothing is said may be
    anything, or where `is_limited` what a symbol may be. Raises VerifyException for attributes that say something else.
    """
    said = stated_symbols(function)
    hints = [value.name_hint for value in function.body.block.args]
    found: list[tuple[Extent, ...]] = []
    for number, hint in enumerate(hints):
        own = f"arg{number}" if hint is None or hint in hints[:number] else hint
        found.append(_extents(function, number, own, said, () if is_limited else (0, _MOST)))
    return found


def argument_symbols(function: FuncOp) -> list[list[str | None]]:
    """For each argument and axis the name of an extent that is a symbol, None for another one."""
    found: list[list[str | None]] = []
    for extents in argument_extents(function):
        symbols = [is_symbol(extent) for extent in extents]
        found.append([None if one is None else one.name for one in symbols])
    return found


def _extents(
    function: FuncOp, number: int, own: str, said: dict[str, Size], limits: tuple[int, ...]
) -> tuple[Extent, ...]:
    value = function.body.block.args[number]
    if not isinstance(value.type, TensorType):
        return ()
    extents = sizes(value)
    given = [*argument_dims(function, number), *[""] * len(extents)]
    names = [given[axis] or f"{own}.{axis}" for axis in range(len(extents))]
    pairs = zip(extents, names, strict=True)
    return tuple(
        (said[name] if name in said else symbol(name, *limits)) if n == DYNAMIC_INDEX else n for n, name in pairs
    )


def stated_symbols(function: FuncOp) -> dict[str, Size]:
    """What `graph.symbols` says. Raises VerifyException where it is not of that form."""
    given = function.attributes.get(SYMBOLS)
    if given is None:
        return {}
    if not isinstance(given, DictionaryAttr):
        raise VerifyException(f"attribute '{SYMBOLS}': expected a dictionary of symbols, got '{given}'")
    return {name: _stated(name, facts) for name, facts in given.data.items()}


def _stated(name: str, facts: Attribute) -> Size:
    numbers: dict[str, int] = {}
    for key, value in facts.data.items() if isinstance(facts, DictionaryAttr) else [("", facts)]:
        if key not in FACTS or not isinstance(value, IntegerAttr):
            raise VerifyException(
                f"attribute '{SYMBOLS}': symbol '{name}': expected a dictionary of integers {', '.join(FACTS)}, got '{facts}'"
            )
        numbers[key] = value.value.data
    try:
        return symbol(name, **numbers)
    except ValueError as error:
        raise VerifyException(f"attribute '{SYMBOLS}': {error}") from None


def equal_names(function: FuncOp) -> list[list[str]]:
    """The groups of names that are one extent. Raises VerifyException where `graph.equal` is not of that form."""
    given = function.attributes.get(EQUAL)
    if given is None:
        return []
    groups = cast(ArrayAttr[Attribute], given).data if isinstance(given, ArrayAttr) else (given,)
    found: list[list[str]] = []
    for group in groups:
        names = cast(ArrayAttr[Attribute], group).data if isinstance(group, ArrayAttr) else ()
        if len(names) < 2 or not all(isinstance(name, StringAttr) for name in names):
            raise VerifyException(
                f"attribute '{EQUAL}': expected groups of names such as [\"n\", \"m\"], got '{given}'"
            )
        found.append([name.data for name in names if isinstance(name, StringAttr)])
    return found


def change_sizes(within: Operation, change: Callable[[Extent], Extent]) -> None:
    """Other extents for those that are sizes, in the types of all values within an op and in what ops say there."""
    for op in within.walk():
        for name, said in op.properties.items():
            if isinstance(said, SizeAttr) and isinstance(said.data, Size):
                op.properties[name] = SizeAttr(change(said.data))
            elif isinstance(said, ShapeAttr):
                op.properties[name] = shape_attribute([change(extent) for extent in said.sizes])
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(argument for block in blocks for argument in block.args)):
            if is_tensor(value) and has_sizes(value):
                extents = [change(extent) for extent in sizes(value)]
                Rewriter.replace_value_with_new_type(value, with_extents(tensor(value), extents))


def is_tensor(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType)
