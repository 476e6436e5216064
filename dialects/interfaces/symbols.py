"""Symbols of functions: what their attributes say of them, and the extents of arguments over them.

```mlir
func.func @main(%x: tensor<?x8xf32> {graph.dims = ["seq", ""]}, %y: tensor<?xf32> {graph.dims = ["rows"]})
    attributes {graph.symbols = {seq = {most = 512}}, graph.equal = [["seq", "rows"]]}
```
A symbol may also be the value of an argument, `%n: tensor<i64> {graph.size = "n"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.op import GraphOp, Limit
from fuse_opt.dialects.interfaces.properties import shape_attribute
from fuse_opt.dialects.interfaces.shapes import has_sizes, sizes, sizes_asked_for, tensor
from fuse_opt.dialects.types.extents import evaluate, is_decided, is_number, is_symbol, substitute, symbols
from fuse_opt.dialects.types.size import Extent, Size, Symbol, symbol
from fuse_opt.dialects.types.symbolic_shape import FACTS, ShapeAttr, SizeAttr, with_extents

SIZE = "graph.size"
"""The attribute of an i64 scalar argument that names the symbol which it is the value of."""
DIMS = "graph.dims"
"""The argument attribute that names extents: a string for each axis, empty where there is no name."""
SYMBOLS = "graph.symbols"
"""The attribute of a function that says what is known of its symbols, by name."""
_MOST = 2**63 - 1
EQUAL = "graph.equal"
"""The attribute of a function that lists groups of names which are the same extent."""


def argument_dims(function: FuncOp, number: int) -> Sequence[str]:
    """The names that an argument gives its extents; empty when it gives none."""
    given = _attribute(function, number, DIMS)
    if not isinstance(given, ArrayAttr):
        return ()
    return [name.data if isinstance(name, StringAttr) else "" for name in cast(ArrayAttr[Attribute], given).data]


def argument_extents(function: FuncOp, is_limited: bool = False) -> list[tuple[Extent, ...]]:
    """
    For each argument its extents, with a symbol for each `?`: of its name, or of its own; a size argument has its value as one.
    Those of which nothing is said may be anything, or where `is_limited` what a symbol may be. Raises VerifyException for
    attributes that say something else.
    """
    said = stated_symbols(function)
    hints = [value.name_hint for value in function.args]
    found: list[tuple[Extent, ...]] = []
    for number, hint in enumerate(hints):
        own = f"arg{number}" if hint is None or hint in hints[:number] else hint
        found.append(_extents(function, number, own, said, () if is_limited else (0, _MOST)))
    return found


def size_arguments(function: FuncOp) -> dict[int, str]:
    """By number the arguments whose value is a size, and its name."""
    found: dict[int, str] = {}
    for number in range(len(function.args)):
        if (name := _attribute(function, number, SIZE)) is not None:
            found[number] = name.data if isinstance(name, StringAttr) else ""
    return found


def _attribute(function: FuncOp, number: int, name: str) -> Attribute | None:
    return None if function.arg_attrs is None else dict(function.arg_attrs.data[number].data).get(name)


def argument_symbols(function: FuncOp) -> list[list[str | None]]:
    """For each argument and axis the name of an extent that is a symbol, None for another one."""
    found: list[list[str | None]] = []
    given = size_arguments(function)
    for number, extents in enumerate(argument_extents(function)):
        if number in given:
            extents = ()
        known = [is_symbol(extent) for extent in extents]
        found.append([None if one is None else one.name for one in known])
    return found


def _extents(
    function: FuncOp, number: int, own: str, said: dict[str, Size], limits: tuple[int, ...]
) -> tuple[Extent, ...]:
    value = function.args[number]
    if not is_tensor(value):
        return ()
    extents = sizes(value)
    if (size := _attribute(function, number, SIZE)) is not None:
        given = value.type
        if not isinstance(size, StringAttr) or not size.data or given != TensorType(i64, []):
            problem = f"expected the name of a symbol, of an argument of type tensor<i64>, got {size} of {given}"
            raise VerifyException(f"argument {number}, attribute '{SIZE}': {problem}")
        return (said.get(size.data, symbol(size.data, *limits)),)
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


def restate_symbols(function: FuncOp, changed: Iterable[Symbol]) -> None:
    """Has `graph.symbols` say of those of these that it names what they are now."""
    given = function.attributes.get(SYMBOLS)
    if isinstance(given, DictionaryAttr):
        facts = {one.name: one.facts() for one in changed if one.name in given.data}
        said = {name: DictionaryAttr({k: IntegerAttr(n, i64) for k, n in each.items()}) for name, each in facts.items()}
        function.attributes[SYMBOLS] = DictionaryAttr({**given.data, **said})


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


class LimitError(ValueError):
    """A call breaks a limit: no other program takes it either."""


@dataclass(frozen=True)
class StatedLimit:
    """A limit of an op, over symbols, and what is said where numbers break it."""

    limit: Limit

    @property
    def symbols(self) -> list[Symbol]:
        return symbols((self.limit.least, self.limit.most))

    def problem(self, values: Mapping[str, int]) -> str | None:
        """What is wrong with these values of symbols; None where nothing is."""
        found = [evaluate(extent, values) for extent in (self.limit.least, self.limit.most)]
        if found[0] <= found[1]:
            return None
        plain = {one.name: symbol(one.name) for one in self.symbols}
        pairs = zip(found, (self.limit.least, self.limit.most), strict=True)
        least, most = (str(n) if is_number(size) else f"{n} ({substitute(size, plain)})" for n, size in pairs)
        return self.limit.problem(least, most)


def limits_of(function: FuncOp) -> list[StatedLimit]:
    """What calls have to keep beside extents, of ops whose types say sizes; no limit twice."""
    with sizes_asked_for():
        found = [limit for op in function.walk() if isinstance(op, GraphOp) for limit in op.call_limits()]
    known = [limit for limit in found if DYNAMIC_INDEX not in (limit.least, limit.most)]
    return [StatedLimit(limit) for limit in dict.fromkeys(known) if not is_decided(lambda x=limit: x.least <= x.most)]


@dataclass(frozen=True)
class Stated:
    """What a function says of its symbols, to be asked at calls."""

    extents: Sequence[tuple[Extent, ...]]
    """By argument, as `argument_extents`."""
    equal: Sequence[Sequence[str]]
    limits: Sequence[StatedLimit]
    of_values: Mapping[int, str]
    """As `size_arguments`."""

    @staticmethod
    def of(function: FuncOp) -> Stated:
        """Raises VerifyException."""
        return Stated(argument_extents(function), equal_names(function), limits_of(function), size_arguments(function))


NOTHING_STATED = Stated((), (), (), {})


def stated_sizes(within: Operation) -> list[Extent]:
    """The sizes that properties of ops say."""
    found: list[Extent] = []
    for said in (said for op in within.walk() for said in op.properties.values()):
        found += [said.data] if isinstance(said, SizeAttr) else said.sizes if isinstance(said, ShapeAttr) else ()
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
