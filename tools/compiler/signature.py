"""What a program takes and gives: checks a caller's arrays and hands them on as NumPy arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from fuse_opt.dialects.analysis.prepared import FROZEN, PREPARED
from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.program.float_formats import recognized, type_name
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES
from fuse_opt.runtime.call_arrays import as_array, check_apart, check_target, out_arrays
from fuse_opt.tools.source.diagnostics import located

Array = NDArray[Any]

RANGE = "graph.range"
"""The argument attribute that bounds the values a runner draws for an argument."""


@dataclass(frozen=True)
class Value:
    """An argument or a result: an array of this type, where an extent of -1 may be anything."""

    label: str
    name: str
    """In the program's text, without the sigil; empty when it has none."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    donated: bool = False
    range: tuple[float, float] | None = None
    frozen: bool = False

    def check(self, array: Array) -> None:
        """Raises TypeError or ValueError when the array is not of this type."""
        if array.dtype != self.dtype:
            raise TypeError(f"{self.label}: expected {self}, got an array of {type_name(array.dtype)}")
        fits = array.ndim == len(self.shape) and all(n in (-1, m) for n, m in zip(self.shape, array.shape, strict=True))
        if not fits:
            raise ValueError(f"{self.label}: expected {self}, got shape {list(array.shape)}")

    def convert(self, given: Any) -> Array:
        """A caller's array in C order, the same where it is that already. Raises TypeError or ValueError."""
        array = recognized(as_array(given, self.dtype, f"{self.label}: expected {self}"), self.dtype)
        self.check(array)
        if not (array.flags.c_contiguous and array.flags.aligned) or (self.donated and not array.flags.writeable):
            return np.array(array, order="C")
        return array

    def __str__(self) -> str:
        return f"{type_name(self.dtype)} {list(self.shape)}".replace("-1", "?")


@dataclass(frozen=True)
class Signature:
    """The arguments and results of a function, without the arguments that another one computes."""

    name: str
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]

    @classmethod
    def of(cls, function: FuncOp) -> Signature:
        """Raises InputError for a function on something else than tensors of supported elements."""
        marks = _argument_attributes(function)
        types = function.function_type
        arguments = [
            _value(function, f"argument {number}", arg.name_hint or "", arg.type, mark)
            for number, (arg, mark) in enumerate(zip(function.args, marks, strict=True))
            if PREPARED not in mark
        ]
        results = [_value(function, f"result {number}", "", type_, {}) for number, type_ in enumerate(types.outputs)]
        return cls(function.sym_name.data, tuple(arguments), tuple(results))

    def convert_inputs(self, arrays: Sequence[Any]) -> list[Array]:
        """
        The arguments as contiguous NumPy arrays, the caller's own where they are that already. Raises TypeError or
        ValueError, with one line that names the argument.
        """
        if len(arrays) != len(self.arguments):
            raise TypeError(f"'{self.name}' takes {_counted(len(self.arguments), 'argument')}, got {len(arrays)}")
        return [value.convert(given) for value, given in zip(self.arguments, arrays, strict=True)]

    def position(self, argument: int | str) -> int:
        """The number of an argument given by number or by name. Raises ValueError where there is none."""
        names = [value.name for value in self.arguments]
        if isinstance(argument, str):
            if argument in names:
                return names.index(argument)
        elif 0 <= operator.index(argument) < len(names):
            return operator.index(argument)
        known = ", ".join(f"{number} ('{name}')" for number, name in enumerate(names)) or "none"
        raise ValueError(f"'{self.name}' has no argument {argument!r}; there are: {known}")

    def check_outputs(self, out: Any) -> list[Array]:
        """The caller's arrays for the results. Raises TypeError or ValueError when results cannot be put there."""
        given = zip(out_arrays(out, len(self.results)), self.results, strict=True)
        checked = [check_target(number, array, value.shape, value.dtype) for number, (array, value) in enumerate(given)]
        check_apart(checked)
        return checked


def _value(function: FuncOp, label: str, name: str, type_: Attribute, marks: dict[str, Attribute]) -> Value:
    label += f" (%{name})" if name else ""
    tensor = cast(TensorType[Attribute], type_) if isinstance(type_, TensorType) else None
    element = None if tensor is None else dtype_of(tensor.element_type)
    if tensor is None or element is None:
        raise located(function, f"'{function.sym_name.data}', {label}: expected a tensor that can run, got '{type_}'")
    extents = tuple(-1 if n == DYNAMIC_INDEX else n for n in tensor.get_shape())
    return Value(
        label, name, extents, NUMPY_DTYPES[element], DONATED in marks, _range(marks.get(RANGE)), FROZEN in marks
    )


def _argument_attributes(function: FuncOp) -> list[dict[str, Attribute]]:
    if function.arg_attrs is None:
        return [{} for _ in function.args]
    return [dict(entry.data) for entry in function.arg_attrs.data]


def _range(attribute: Attribute | None) -> tuple[float, float] | None:
    if not isinstance(attribute, ArrayAttr):
        return None
    elements = cast(ArrayAttr[Attribute], attribute).data
    ends = [float(end.value.data) for end in elements if isinstance(end, FloatAttr | IntegerAttr)]
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] <= ends[1] else None


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
