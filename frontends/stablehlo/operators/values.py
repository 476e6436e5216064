"""What the values of a program that is read are made of, seen through broadcasts."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr
from xdsl.ir import Operation

from fuse_opt.frontends.builder import Value


def made_by(value: Value, name: str) -> list[Value] | None:
    """The operands of the record of this name that makes a value, or what it is a broadcast of; None where another one does."""
    op = spread(value).owner
    return list(op.operands) if isinstance(op, Operation) and op.name == f"graph.{name}" else None


def spread(value: Value) -> Value:
    """What a value is a broadcast of."""
    while isinstance(op := value.owner, Operation) and op.name == "graph.broadcast_to":
        value = op.operands[0]
    return value


def are_equal(a: Value, b: Value) -> bool:
    """Whether two values of one shape, or broadcasts to one, are the same."""
    return a is b or spread(a) is spread(b)


def number_in(value: Value) -> int | None:
    """The integer that a value is everywhere, where the text says it."""
    op = spread(value).owner
    if not isinstance(op, Operation) or not (given := op.properties.get("value")):
        return None
    if isinstance(given, IntegerAttr):
        return int(given.value.data)
    if isinstance(given, DenseIntOrFPElementsAttr) and given.is_splat():
        first = next(iter(given.iter_values()), None)
        return first if isinstance(first, int) else None
    return None
