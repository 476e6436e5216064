"""One ONNX node as its handler sees it, the table of handlers, and the errors of an import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.builder import Array, Emitter, Value, element_type

Results: TypeAlias = "Value | Array | Sequence[Value | Array]"
"""What a handler gives for the node's outputs, in order: values, or arrays where the result is known."""
Handler: TypeAlias = Callable[["Node", Emitter], Results]
_Handler = TypeVar("_Handler", bound=Handler)

HANDLERS: dict[str, Handler] = {}
"""By operator of the domain `ai.onnx`: how a node of it becomes graph ops."""
MICROSOFT: dict[str, Handler] = {}
"""The same by operator of `com.microsoft`, as onnxruntime's optimiser writes them."""


_IN_BOTH = ("SimplifiedLayerNormalization",)


class OnnxError(ValueError):
    """The model is refused; the text names operator and node where it is about one."""


class UnsupportedError(OnnxError):
    """The model needs what the importer does not have: an operator, a form of one, or an element type."""


class UnknownValuesError(Exception):
    """An operand must be known when the model is imported, and depends on these inputs of the model."""

    def __init__(self, inputs: frozenset[str], place: str) -> None:
        super().__init__(", ".join(sorted(inputs)))
        self.inputs = inputs
        self.place = place
        """The node that has the operand."""


def handler(*operators: str, table: dict[str, Handler] = HANDLERS) -> Callable[[_Handler], _Handler]:
    """Enters a function into a table."""

    def enter(function: _Handler) -> _Handler:
        for operator in operators:
            table[operator] = function
        return function

    return enter


def handler_of(domain: str, operator: str) -> Handler | None:
    """How a node becomes graph ops; onnxruntime has operators of its own in the domain `ai.onnx`, too."""
    if domain == "":
        return HANDLERS.get(operator) or (MICROSOFT.get(operator) if operator in _IN_BOTH else None)
    return MICROSOFT.get(operator) if domain == "com.microsoft" else None


def onnx_module(name: str = "onnx") -> Any:
    """A module of the onnx package; raises OnnxError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise OnnxError(
            f"needs the package onnx, which cannot be imported ({error}): pip install 'fuse-opt[onnx]'"
        ) from None


def element_of(onnx_type: int) -> DType:
    """The element type for a number of `TensorProto.DataType`; raises UnsupportedTypeError."""
    onnx = onnx_module()
    if onnx_type not in onnx.TensorProto.DataType.values():
        return element_type(f"type number {onnx_type}")
    name: str = onnx.TensorProto.DataType.Name(onnx_type)
    if name in ("UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128"):
        return element_type(name.lower())
    return element_type(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type)).name)


@dataclass
class Slot:
    """A value of the model while it is imported: known as an array, or computed, or absent."""

    name: str
    array: Array | None = None
    value: Value | None = None
    depends: frozenset[str] = frozenset()
    """The inputs of the model that it depends on."""
    is_weight: bool = False
    """Whether it is an initialiser, which stays an argument whatever it holds."""


@dataclass
class Node:
    """A node with its operands and attributes; `opset` is the version of the domain `ai.onnx` that it is written for."""

    op_type: str
    name: str
    opset: int
    slots: Sequence[Slot | None]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    materialize: Callable[[Slot], Value] = field(repr=False)

    def has(self, position: int) -> bool:
        return position < len(self.slots) and self.slots[position] is not None

    def is_known(self, position: int) -> bool:
        """Whether the operand is a weight, or computed from weights alone."""
        return self._slot(position).array is not None

    def wants(self, position: int) -> bool:
        """Whether the model uses this output."""
        return position < len(self.outputs) and bool(self.outputs[position])

    def operand(self, position: int) -> Value:
        return self.materialize(self._slot(position))

    def operands(self) -> list[Value]:
        """Those that are there."""
        return [self.materialize(slot) for slot in self.slots if slot is not None]

    def optional(self, position: int) -> list[Value]:
        """The operand, or none."""
        return [self.operand(position)] if self.has(position) else []

    def known(self, position: int) -> Array:
        """The operand as an array; raises UnknownValuesError when it is computed from inputs of the model."""
        slot = self._slot(position)
        if slot.array is None:
            raise UnknownValuesError(slot.depends, str(self))
        return slot.array

    def known_integers(self, position: int) -> list[Any] | None:
        """The elements of a known operand, sizes among them where these are asked for; None when it is absent."""
        if not self.has(position):
            return None
        return [item if isinstance(item, Size) else int(item) for item in self.known(position).reshape(-1)]

    def known_integer(self, position: int, default: int = 0) -> int:
        found = self.known_integers(position)
        return default if found is None else found[0]

    def axes(self, position: int = 1, attribute: str = "axes") -> list[int] | None:
        """Integers that newer operator versions take as an operand and older ones as an attribute."""
        found = self.known_integers(position)
        return found if found is not None else self.attributes.get(attribute)

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.attributes.get(name, default))

    def number(self, name: str, default: float) -> float:
        return float(self.attributes.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.attributes.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        found = self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else str(found)

    def integers(self, name: str, default: Sequence[int] = ()) -> list[int]:
        return [int(item) for item in cast("Sequence[int]", self.attributes.get(name, default))]

    def element(self, name: str, default: DType) -> DType:
        """The element type that an attribute names; the default where it is absent or 0."""
        found = self.integer(name)
        return element_of(found) if found else default

    def constant(self, array: Array) -> Value:
        """An array that the handler computed, as an operand of ops."""
        return self.materialize(Slot(self.name or self.op_type, array))

    def refuse(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"{self}: {reason}")

    def __str__(self) -> str:
        return f"operator {self.op_type}" + (f", node '{self.name}'" if self.name else "")

    def _slot(self, position: int) -> Slot:
        slot = self.slots[position] if position < len(self.slots) else None
        if slot is None:
            raise OnnxError(f"{self}: operand {position} is absent; expected one")
        return slot


def as_known(values: Any) -> Array:
    """Integers and sizes as a known array: of i64 where all are numbers."""
    array = np.asarray(values, dtype=object)
    return array if any(isinstance(item, Size) for item in array.reshape(-1)) else array.astype(np.int64)


def is_value(result: Any) -> bool:
    return isinstance(result, SSAValue)
