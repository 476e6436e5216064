"""What a program takes and gives: checks a caller's arrays and hands them on as NumPy arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from fuse_opt.dialects.analysis.prepared import FROZEN, PREPARED
from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.analysis.stored_values import whole_types
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.storage_kinds import PARTS, StorageKind, stored_as
from fuse_opt.lowering.program.float_formats import recognized, type_name
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES, most_axes
from fuse_opt.runtime.backends.csr_check import is_pattern, ready_check
from fuse_opt.runtime.call_arrays import as_array, check_apart, check_target, out_arrays
from fuse_opt.runtime.stored_arrays import Form, StoredType, form_of
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
    stored: StoredType | None = None
    """How it is stored, if not with all its elements: then it is made of three arrays, and given as `StoredType` says."""

    @property
    def count(self) -> int:
        """How many arrays it is made of."""
        return 1 if self.stored is None else len(PARTS)

    def arrays(self, given: Any) -> list[Array]:
        """The arrays that a caller's value is made of. Raises TypeError or ValueError."""
        return [self.convert(given)] if self.stored is None else self.stored.parts(given)

    def check(self, array: Array) -> None:
        """Raises TypeError or ValueError when the array is not of this type."""
        if array.dtype != self.dtype:
            raise TypeError(f"{self.label}: expected {self}, got an array of {type_name(array.dtype)}")
        self.check_shape(array.shape)

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raises ValueError when no array of this type has the shape."""
        fits = len(shape) == len(self.shape) and all(n in (-1, m) for n, m in zip(self.shape, shape, strict=True))
        if not fits:
            raise ValueError(f"{self.label}: expected {self}, got shape {list(shape)}")

    def convert(self, given: Any) -> Array:
        """A caller's array in C order, the same where it is that already. Raises TypeError or ValueError."""
        if type(given) is np.ndarray and self._is_ready(given):
            return given
        array = recognized(as_array(given, self.dtype, f"{self.label}: expected {self}"), self.dtype)
        self.check(array)
        if not (array.flags.c_contiguous and array.flags.aligned) or (self.donated and not array.flags.writeable):
            return np.array(array, order="C")
        return array

    def _is_ready(self, array: Array) -> bool:
        """Whether nothing is to be done; not always where it is so."""
        flags = array.flags
        return (
            array.dtype is self.dtype
            and array.shape == self.shape
            and flags.c_contiguous
            and flags.aligned
            and not self.donated
        )

    def __str__(self) -> str:
        if self.stored is not None:
            return str(self.stored)
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
        marks, outputs = _argument_attributes(function), function.function_type.outputs.data
        given = [(arg, mark) for arg, mark in zip(function.args, marks, strict=True) if PREPARED not in mark]
        arguments: list[Value] = []
        first = 0
        for number, (type_, count) in enumerate(_whole(function, [a.type for a, _ in given], [m for _, m in given])):
            argument, mark = given[first]
            name = (argument.name_hint or "").removesuffix(f"_{PARTS[0]}" if count > 1 else "")
            arguments.append(_value(function, f"argument {number}", name, type_, mark))
            first += count
        whole = _whole(function, outputs, _result_attributes(function))
        results = [_value(function, f"result {number}", "", type_, {}) for number, (type_, _) in enumerate(whole)]
        return cls(function.sym_name.data, tuple(arguments), tuple(results))

    def convert_inputs(self, arrays: Sequence[Any]) -> list[Array]:
        """
        The arguments as contiguous NumPy arrays, the caller's own where they are that already; of those of storage kinds all
        parts. Raises TypeError or ValueError, with one line that names the argument.
        """
        if len(arrays) != len(self.arguments):
            raise TypeError(f"'{self.name}' takes {_counted(len(self.arguments), 'argument')}, got {len(arrays)}")
        return [array for value, given in zip(self.arguments, arrays, strict=True) for array in value.arrays(given)]

    @cached_property
    def has_stored(self) -> bool:
        """Whether an argument or a result is of a storage kind."""
        return any(value.stored is not None for value in (*self.arguments, *self.results))

    @cached_property
    def gives_stored(self) -> bool:
        """Whether a result is of a storage kind."""
        return any(value.stored is not None for value in self.results)

    def places(self, argument: int) -> range:
        """The numbers that the arrays of an argument have among those of all."""
        first = sum(value.count for value in self.arguments[:argument])
        return range(first, first + self.arguments[argument].count)

    def whole_results(self, arrays: Sequence[Array], form: Form) -> list[Any]:
        """The results as a caller gets them, from the arrays that they are made of."""
        found: list[Any] = []
        rest = list(arrays)
        for value in self.results:
            found.append(rest[0] if value.stored is None else value.stored.whole(rest[: value.count], form))
            del rest[: value.count]
        return found

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
        if self.gives_stored:
            raise TypeError(
                "out: expected None, as a result is of a storage kind; only what is stored decides how long it is"
            )
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
    if len(extents) > most_axes():
        raise located(function, f"{label}: NumPy's arrays have at most {most_axes()} axes, got {len(extents)}")
    kind, numpy_type = stored_as(tensor), NUMPY_DTYPES[element]
    stored = None if kind is None else _stored(label, kind, tensor, numpy_type)
    bounds = _range(marks.get(RANGE))
    return Value(label, name, extents, numpy_type, DONATED in marks, bounds, FROZEN in marks, stored)


def _stored(label: str, kind: StorageKind, tensor: TensorType[Attribute], dtype: np.dtype[Any]) -> StoredType:
    extents, (indptr, _, values) = tensor.get_shape(), kind.parts(tensor)
    found = StoredType(label, kind.storage_kind, extents, dtype, kind.capacity.data, is_pattern)
    rows, row = indptr.get_shape()[0] - 1, values.get_shape()[1:]
    return replace(found, is_ready=ready_check(rows, found.capacity, found.columns, dtype, row))


def _whole(
    function: FuncOp, types: Sequence[Attribute], marks: Sequence[dict[str, Attribute]]
) -> list[tuple[Attribute, int]]:
    try:
        return whole_types(types, marks)
    except ValueError as error:
        raise located(function, f"'{function.sym_name.data}', {error}") from error


def _result_attributes(function: FuncOp) -> list[dict[str, Attribute]]:
    if function.res_attrs is None:
        return [{} for _ in function.function_type.outputs]
    return [dict(entry.data) for entry in function.res_attrs.data]


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


def call_with_parts(
    signature: Signature,
    numbers: Sequence[int],
    call: Callable[..., Any],
    given: Sequence[Any],
    out: Any,
    direct: Callable[[tuple[Any, ...], Any], Any] | None = None,
) -> Any:
    """
    What a call gives whose arguments with these numbers are given: results of storage kinds are of what the first such
    argument is of (SciPy, PyTorch), else tuples. `direct` is tried first: it looks at dense arrays itself. Raises TypeError
    and ValueError before anything runs.
    """
    if len(given) != len(numbers):
        raise TypeError(f"'{signature.name}' takes {len(numbers)} arguments, got {len(given)}")
    if out is not None and signature.gives_stored:
        signature.check_outputs(out)
    form: Form | None = None
    arrays: list[Any] = []
    places: list[int] = []
    for number, array in zip(numbers, given, strict=True):
        stored = signature.arguments[number].stored
        if stored is None:
            places.append(len(arrays))
            arrays.append(array)
        else:
            form = form or form_of(array)
            arrays += stored.parts(array)
    if direct is not None and (found := direct(tuple(arrays), out)) is not NotImplemented:
        return joined(signature, found, form or "tuple")
    dense = (signature.arguments[number] for number in numbers if signature.arguments[number].stored is None)
    for place, value in zip(places, dense, strict=True):
        arrays[place] = value.convert(arrays[place])
    return joined(signature, call(*arrays, out=out), form or "tuple")


def quick_call(
    signature: Signature, direct: Callable[[tuple[Any, ...], Any], Any]
) -> Callable[[tuple[Any, ...]], Any] | None:
    """
    A function of all arguments that does what `call_with_parts` does where `direct` takes what they are made of as it is, and
    gives NotImplemented where it does not; None for a signature with results of storage kinds.
    """
    if signature.gives_stored:
        return None
    ways = tuple(None if value.stored is None else value.stored.parts for value in signature.arguments)

    def call(given: tuple[Any, ...]) -> Any:
        if len(given) != len(ways):
            return NotImplemented
        arrays: list[Any] = []
        for parts, array in zip(ways, given, strict=True):
            if parts is None:
                arrays.append(array)
            else:
                arrays += parts(array)
        return direct(tuple(arrays), None)

    return call


def joined(signature: Signature, results: Any, form: Form) -> Any:
    """The results of a call over parts as its caller gets them."""
    if not signature.gives_stored:
        return results
    flat = list(cast("tuple[Array, ...]", results)) if isinstance(results, tuple) else [cast(Array, results)]
    found = signature.whole_results(flat, form)
    return found[0] if len(found) == 1 else tuple(found)
