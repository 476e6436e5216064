"""One StableHLO op as its handler sees it, the table of handlers, and the attributes that other dialects print."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnregisteredOp,
)
from xdsl.ir import Attribute, Block, Operation

from fuse_opt.dialects.interfaces.shapes import AnyTensor
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.frontends.builder import Array, Emitter, Value, dtype_by_attribute

Results: TypeAlias = "Value | Sequence[Value]"
Apply: TypeAlias = Callable[[Block, Sequence[Value], "Emitter | None"], list[Value]]
Handler: TypeAlias = Callable[["HloOp", Emitter], Results]
_Handler = TypeVar("_Handler", bound=Handler)

HANDLERS: dict[str, Handler] = {}
"""By op name, `stablehlo.add`: how one becomes graph ops."""
SHAPE_OPERANDS = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_reshape": 1,
}
"""Which operand is the shape of the result."""
CURE = "give the extents by load(..., extents={name: number}), or export with fixed shapes"
"""What to do where sizes are not enough."""


class StableHLOError(ValueError):
    """The program is refused; the text names the op where it is about one."""


def handler(*names: str) -> Callable[[_Handler], _Handler]:
    """Enters a function into the table."""

    def enter(function: _Handler) -> _Handler:
        for name in names:
            HANDLERS[name] = function
        return function

    return enter


def name_of(op: Operation) -> str:
    """The name as the text has it."""
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def attributes_of(op: Operation) -> dict[str, Attribute]:
    return {**op.attributes, **op.properties}


@dataclass(frozen=True)
class HloOp:
    """An op, with the values that its operands have become."""

    op: Operation
    operands: Sequence[Value]
    attributes: Mapping[str, Attribute]
    numbers: Sequence[int | float | None] = ()
    """By operand: what it is everywhere, where that is known."""
    regions: Apply | None = None
    known: Sequence[Array | None] = ()
    """By operand: its elements, integers and sizes, where they are known by element."""
    evaluate: Callable[..., Any] | None = None
    """The value of a module for arrays, as `fuse_opt.evaluate` gives it; for regions that are looked at by trying them."""

    def apply(self, block: Block, operands: Sequence[Value], g: Emitter | None = None) -> list[Value]:
        """The results of a region of scalars at each element of tensors, in ops of `g` where it is given."""
        if self.regions is None:
            raise self.refuse("its regions cannot be read here")
        return self.regions(block, operands, g)

    @property
    def name(self) -> str:
        return name_of(self.op)

    def operand(self, number: int = 0) -> Value:
        return self.operands[number]

    def result(self, number: int = 0) -> AnyTensor:
        """The type of a result; raises StableHLOError when it is no tensor."""
        type_ = self.op.results[number].type
        if not isinstance(type_, TensorType):
            raise self.refuse(f"expected a tensor as result {number}, got '{type_}'")
        return cast(AnyTensor, type_)

    def shape(self, number: int = 0) -> tuple[int, ...]:
        """The extents of a result, which an operand says of some ops; raises StableHLOError when one is unknown."""
        found = self.result(number).get_shape()
        if any(extent < 0 for extent in found):
            if self.name in SHAPE_OPERANDS:
                return tuple(self.sizes(SHAPE_OPERANDS[self.name]))
            raise self.refuse(f"expected extents that are known, got '{self.result(number)}'; {CURE}")
        return found

    def elements(self, number: int) -> Array | None:
        """The elements of an operand of integers, where they are known."""
        if number < len(self.known) and (found := self.known[number]) is not None:
            return found
        same, type_ = self.number(number), self.op.operands[number].type
        if not isinstance(same, int) or not isinstance(type_, TensorType) or any(n < 0 for n in type_.get_shape()):
            return None
        return np.full(type_.get_shape(), same, object)

    def sizes(self, number: int) -> list[Any]:
        """The same of a shape, in order; raises StableHLOError where it is not known."""
        if (found := self.elements(number)) is None:
            raise self.refuse(f"operand {number}: expected what follows from extents, got what data decides; {CURE}")
        return found.reshape(-1).tolist()

    def rank(self, number: int = 0) -> int:
        return len(self.result(number).get_shape())

    def dtype(self, number: int = 0) -> DType:
        return dtype_by_attribute(self.result(number).element_type)

    def integers(self, name: str, default: Sequence[int] = ()) -> list[int]:
        """An attribute of integers: `array<i64: ...>` or dense elements, row-major."""
        found = self.attributes.get(name)
        if isinstance(found, DenseArrayBase):
            return [int(value) for value in cast(Sequence[int], found.get_values())]
        if isinstance(found, DenseIntOrFPElementsAttr):
            elements = cast("DenseIntOrFPElementsAttr[Any]", found)
            return [int(value) for value in elements.get_values()]
        return list(default)

    def integer(self, name: str, default: int = 0) -> int:
        found = self.attributes.get(name)
        return found.value.data if isinstance(found, IntegerAttr) else default

    def words(self, name: str) -> str:
        """The text of an attribute of another dialect: `GT` of `#stablehlo<comparison_direction GT>`."""
        text = str(self.attributes.get(name, ""))
        found = re.search(r"<(?:\w+ )?([^<>]*)>", text)
        return found[1] if found else text

    def fields(self, name: str) -> dict[str, list[int]]:
        """The lists of integers in an attribute such as `#stablehlo.dot<lhs_contracting_dimensions = [1], ...>`."""
        text = str(self.attributes.get(name, ""))
        found = re.findall(r"(\w+)\s*=\s*(?:\[([^\]]*)\]|(-?\d+))", text)
        return {key: [int(part) for part in (many or one).split(",") if part.strip()] for key, many, one in found}

    def text(self, name: str) -> str:
        found = self.attributes.get(name)
        return found.data if isinstance(found, StringAttr) else str(found)

    def number(self, operand: int) -> float | None:
        """The number that an operand is everywhere, where that is known."""
        return self.numbers[operand] if operand < len(self.numbers) else None

    @property
    def body(self) -> Block:
        return self.op.regions[0].block

    def refuse(self, reason: str) -> StableHLOError:
        return StableHLOError(f"'{self.name}': {reason}")


def body_ops(block: Block) -> list[str]:
    """The names of the ops of a region, without its terminator."""
    return [name_of(op) for op in block.ops][:-1]
