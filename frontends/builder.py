"""Builds graph ops by name from Python values: what all importers write their handlers with."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.traits import Pure

from fuse_opt.dialects.analysis.precision import PRECISION, STRICT, rounds
from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import bool_value, float_value, int_array, int_value, shape_attribute
from fuse_opt.dialects.interfaces.shapes import dtype, shape, tensor_type
from fuse_opt.dialects.interfaces.symbols import DIMS
from fuse_opt.dialects.types.dtypes import DTYPES, I64, U64, DType, dtype_of
from fuse_opt.dialects.types.size import Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.dialects.verify.known_ops import verify_op

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = SSAValue

_BY_NUMPY_NAME = {known.numpy_name: known for known in DTYPES}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_$.-]+")


class UnknownExtentError(ValueError):
    """A handler needs an extent that is not known when the model is imported."""


class UnsupportedTypeError(ValueError):
    """An element type that tensors of the graph dialect cannot have."""


def numpy_name(element: DType) -> str:
    """The name of NumPy or ml_dtypes for an element type."""
    return element.numpy_name


def element_type(name: str) -> DType:
    """The element type that NumPy or ml_dtypes call `name`; raises UnsupportedTypeError when there is none."""
    if (found := _BY_NUMPY_NAME.get(name)) is None:
        known = ", ".join(_BY_NUMPY_NAME)
        raise UnsupportedTypeError(f"element type {name} is not supported; expected one of {known}")
    return found


def extents(value: Value) -> tuple[int, ...]:
    """The shape, all of which must be known; raises UnknownExtentError."""
    found = shape(value)
    if DYNAMIC_INDEX in found:
        raise UnknownExtentError(f"needs the extents of a value of type {value.type}")
    return found


def rank(value: Value) -> int:
    return len(shape(value))


class Emitter:
    """
    Collects ops in a block. `emit.sum(x, axes=[0], keepdims=True)` adds a `graph.sum` and gives its (first) result;
    properties are Python values, and None leaves one out. Raises VerifyException as `GraphOp.build_op` does.
    """

    def __init__(self) -> None:
        self.block = Block()

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if f"graph.{name}" not in _records():
            raise AttributeError(f"there is no record 'graph.{name}'")
        return partial(self._first, name)

    def all(self, name: str, *operands: Value, **properties: Any) -> list[Value]:
        """All results of a new op."""
        given = {key: _attribute(value) for key, value in properties.items() if value is not None}
        op = _records()[f"graph.{name}"].build_op(*operands, **given)
        verify_op(op, False, op.verify)
        self.block.add_op(op)
        return list(op.results)

    def _first(self, name: str, *operands: Value, **properties: Any) -> Value:
        return self.all(name, *operands, **properties)[0]

    def argument(self, name: str, element: DType, extents: Sequence[int]) -> Value:
        value = self.block.insert_arg(tensor_type(element.attribute, extents), len(self.block.args))
        value.name_hint = name
        return value

    def number(self, value: float | Size, element: DType, shape: Sequence[int] = ()) -> Value:
        """A tensor of one number, or of what a call says of a size, of rank 0 unless said otherwise."""
        if isinstance(value, Size):
            return self.full(shape=list(shape), dtype=element, value=SizeAttr(value))
        return self.full(shape=list(shape), dtype=element, value=float(value) if element.is_float else int(value))

    def sizes(self, array: Array) -> Value:
        """An array of sizes and integers as a tensor of i64: what a call says of them."""
        parts = [self.number(extent, I64, [1]) for extent in array.reshape(-1).tolist()]
        return self.reshaped(parts[0] if len(parts) == 1 else self.concat(*parts, axis=0), array.shape)

    def like(self, value: float, x: Value) -> Value:
        """A number of rank 0 in the type of `x`."""
        return self.number(value, dtype(x))

    def cast(self, x: Value, element: DType) -> Value:
        return x if dtype(x) is element else self.astype(x, dtype=element)

    def quotient(self, x: Value, y: Value) -> Value:
        """x / y, of integers truncated towards zero. By zero it is 0."""
        return self.divide(x, y) if dtype(x).is_float else self.truncate_divide(x, y)

    def reshaped(self, x: Value, new: Sequence[int]) -> Value:
        return x if shape(x) == tuple(new) else self.reshape(x, shape=list(new))

    def dense(self, array: Array) -> Value:
        """The array as a constant in the program."""
        element = element_type(array.dtype.name)
        if array.size == 0:
            return self.full(shape=array.shape, dtype=element, value=0.0 if element.is_float else 0)
        numbers = (
            array.astype(np.float64)
            if element.is_float
            else array
            if array.dtype.kind == "u"
            else array.astype(np.int64)
        )
        type_ = TensorType(cast(Any, element.attribute), array.shape)
        return self.constant(value=DenseIntOrFPElementsAttr.from_list(cast(Any, type_), numbers.reshape(-1).tolist()))

    def finish(
        self,
        results: Sequence[Value],
        names: Sequence[Sequence[str]] = (),
        marks: Sequence[str] = (),
        precision: str = STRICT,
    ) -> ModuleOp:
        """
        A module with the function `main`, without ops that no result needs. `names` are those of unknown extents, by
        argument and axis, empty where there is none; `marks`, by argument, are attributes without a value, empty for none;
        `precision` says how kernels round f16 and bf16.
        """
        self.block.add_op(ReturnOp(*results))
        for op in reversed(list(self.block.ops)):
            if op.has_trait(Pure()) and not any(value.uses for value in op.results):
                op.detach()
                op.erase()
        types = [argument.type for argument in self.block.args], [value.type for value in results]
        entries: list[dict[str, Attribute]] = [{} for _ in self.block.args]
        for entry, row in zip(entries, names, strict=False):
            if any(row):
                entry[DIMS] = ArrayAttr([StringAttr(name) for name in row])
        for entry, mark in zip(entries, marks, strict=False):
            if mark:
                entry[mark] = UnitAttr()
        attributes = ArrayAttr([DictionaryAttr(entry) for entry in entries]) if any(entries) else None
        function = FuncOp("main", types, Region(self.block), arg_attrs=attributes)
        if precision != STRICT and rounds(self.block.ops):
            function.attributes[PRECISION] = StringAttr(precision)
        return ModuleOp([function])


class Names:
    """Names of the IR for those of a model: each once, and none that a reader would shorten."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        text = _NOT_IN_NAMES.sub("_", name).strip("_") or "v"
        if not (text[0].isalpha() or text[0] == "_"):
            text = f"v{text}"
        text = re.sub(r"_(\d+)$", r".\1", text)  # xDSL drops a last `_1` from names
        found, number = text, 0
        while found in self._taken:
            number += 1
            found = f"{text}.{number}"
        self._taken.add(found)
        return found


def _attribute(value: Any) -> Attribute:
    match value:
        case Attribute():
            return value
        case DType():
            return value.attribute
        case bool() | np.bool_():
            return bool_value(bool(value))
        case int() | np.integer():
            number = int(cast(int, value))
            return int_value(number) if number < 2**63 else IntegerAttr(number, cast("IntegerType", U64.attribute))
        case float() | np.floating():
            return float_value(float(cast(float, value)))
        case str():
            return StringAttr(value)
        case _ if any(isinstance(item, Size) for item in value):
            return shape_attribute(value)
        case _:
            return int_array([int(item) for item in value])


@cache
def _records() -> dict[str, type[GraphOp]]:
    return {op.name: cast("type[GraphOp]", op) for op in GRAPH.operations}


def dtype_by_attribute(attribute: Attribute) -> DType:
    """The element type of a type of the IR; raises UnsupportedTypeError."""
    if (found := dtype_of(attribute)) is None:
        raise UnsupportedTypeError(f"element type {attribute} is not supported")
    return found
