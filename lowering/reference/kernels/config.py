"""The properties of opaque ops as plain values, and how implementations read them."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute

from fuse_opt.dialects.interfaces.op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import IntArray
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.program import Config, ConfigValue


def library_config(op: OpaqueOp) -> dict[str, ConfigValue]:
    """The op's properties as plain Python values. Raises TypeError for a property of another kind."""
    return {name: plain_value(name, value) for name, value in op.properties.items()}


def plain_value(name: str, value: Attribute) -> ConfigValue:
    """A number, a truth value, a text, the name of an element type, or a tuple of such."""
    match value:
        case DenseArrayBase():
            values = cast(IntArray, value).get_values()  # floats are read by the same method
            return tuple(v != 0 for v in values) if value.elt_type == i1 else tuple(values)
        case ArrayAttr():
            return tuple(_plain_scalar(name, element) for element in value.data)
        case _:
            return _plain_scalar(name, value)


def _plain_scalar(name: str, value: Attribute) -> bool | int | float | str:
    match value:
        case IntegerAttr():
            return value.value.data != 0 if value.type == i1 else value.value.data
        case FloatAttr():
            return value.value.data
        case StringAttr():
            return value.data
        case _ if (element := dtype_of(value)) is not None:
            return element.name
        case _:
            raise TypeError(f"property '{name}' of kind {type(value).__name__} cannot be given to a library")


def integer(config: Config, name: str, default: int = 0) -> int:
    """An integer of the config; a truth value is 0 or 1."""
    value = config.get(name, default)
    return int(value) if isinstance(value, int) else default


def integers(config: Config, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Integers of the config."""
    value = config.get(name, default)
    return tuple(int(v) for v in value) if isinstance(value, tuple) else default


def text(config: Config, name: str, default: str) -> str:
    value = config.get(name, default)
    return value if isinstance(value, str) else default
