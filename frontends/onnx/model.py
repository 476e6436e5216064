"""ONNX models: `load(path)` gives one that can be called, printed, and compiled for the shapes it is called with.

Weights are frozen arguments of the module, bound by the model and kept out of its text. Inputs that decide shapes (`shape` of
Reshape, `axes` of ReduceSum ...) are known when a module is built: there is one for each set of their values, made when they
are first met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr

from fuse_opt.dialects.analysis.numerics import NUMERICS, Numerics
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import LimitError
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.builder import Array, UnsupportedTypeError, numpy_name
from fuse_opt.frontends.onnx.importer.folding import FOLDED
from fuse_opt.frontends.onnx.importer.functions import EXPANDED
from fuse_opt.frontends.onnx.importer.imported import Imported, Input
from fuse_opt.frontends.onnx.importer.importer import Importer
from fuse_opt.frontends.onnx.operators.control_flow import CONTROL
from fuse_opt.frontends.onnx.operators.node import (
    HANDLERS,
    OnnxError,
    UnknownValuesError,
    UnsupportedError,
    element_of,
    onnx_module,
)

__all__ = ["OnnxError", "OnnxModel", "UnsupportedError", "load", "supported_operators"]

_SIZED = "sizes"
"""The key of the module with symbols for extents."""
_LARGEST_VALUE = 256
"""Elements of an input for each of whose values a program may be built."""


def supported_operators() -> list[str]:
    """The operators of the domain `ai.onnx` that have a handler, or are evaluated or taken apart when a model is read."""
    return sorted({*HANDLERS, *FOLDED, *CONTROL, *EXPANDED})


def load(
    source: str | Path | bytes | Any, extents: Mapping[str, int] | None = None, numerics: Numerics = "finite"
) -> OnnxModel:
    """
    A model from a file, from the bytes of one, or from a ModelProto; `extents` says what names of extents stand for, `numerics`
    which implementations calls take: those that are right of finite values, "strict" or "fast" ones.
    Raises OnnxError for what is no model or needs what is not supported, OSError for files.
    """
    onnx = onnx_module()
    if isinstance(source, str | Path | bytes):
        try:
            source = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(str(source))
        except OSError:
            raise
        except Exception as error:  # protobuf's DecodeError, and what external data raises
            raise OnnxError(f"expected an ONNX model, got what cannot be decoded: {error}") from error
    return OnnxModel(source, extents or {}, numerics)


class OnnxModel:
    """A model with its weights. Calls take its inputs in order and give its outputs in a tuple."""

    def __init__(self, proto: Any, extents: Mapping[str, int], numerics: Numerics = "finite") -> None:
        if not proto.graph.node and not proto.graph.output:
            raise OnnxError("expected an ONNX model, got one without a graph")
        _check_names(proto.graph)
        self.proto = proto
        self.weights = _initializers(proto.graph)
        """By name, the arrays that the model brings."""
        self.inputs = tuple(_input(value, extents) for value in proto.graph.input if value.name not in self.weights)
        """What a call takes, in order: names, element types, and extents or their names."""
        self.outputs = tuple(_tensor(value, "output").name for value in proto.graph.output)
        """The names of what a call gives."""
        self._imported: dict[Any, Imported] = {}
        self._programs: dict[Any, Any] = {}
        self._by_value: set[str] = set()
        self.numerics: Numerics = numerics
        """What calls take: see `graph.numerics`."""
        self._needs_numbers = False

    @property
    def module(self) -> ModuleOp:
        """The module for the shapes that the model states. Raises OnnxError where it needs more than it states."""
        return self.specialize().module

    def _repr_html_(self) -> str:
        """For notebooks: the graph of the module, or why there is none yet."""
        from fuse_opt.tools.compiler.notebook import notebook_html

        try:
            return notebook_html(self.module)
        except OnnxError as error:
            return f"<p>ONNX model: {escape(str(error))}</p>"

    def specialize(
        self, arrays: Mapping[str, Array] | None = None, weights: Mapping[str, Array] | None = None
    ) -> Imported:
        """
        The module for the shapes of some inputs, and the values of those that decide what is built; others are as the
        model states them. `weights` stand in place of the model's own. The same object for the same shapes and values.
        """
        given, replaced = dict(arrays or {}), dict(weights or {})
        while True:
            key = self._key(given)
            if not replaced and key in self._imported:
                return self._imported[key]
            values = {name: given[name] for name in self._by_value if name in given}
            shapes = {name: array.shape for name, array in given.items()}
            importer = Importer(self.proto, self.inputs, {**self.weights, **replaced}, shapes, values)
            try:
                found = importer.run()
            except UnknownValuesError as error:
                self._require(error, given)
                continue
            if not replaced:
                self._imported[key] = found
            return found

    def __call__(self, *arrays: Any, target: str = "cpu", pipeline: str | None = None) -> tuple[Array, ...]:
        """
        The outputs for arrays in the order of `inputs`, or for one array for every input of the graph, weights included.
        A program is compiled when a set of shapes is first met. Raises OnnxError, and what a program raises for
        arguments that do not fit.
        """
        if len(arrays) == len(self.proto.graph.input) != len(self.inputs):
            return self._call_with_weights(arrays, target, pipeline)
        if len(arrays) != len(self.inputs):
            names = ", ".join(str(known) for known in self.inputs) or "none"
            raise OnnxError(f"expected {len(self.inputs)} inputs ({names}), got {len(arrays)}")
        given = {known.name: np.asarray(array) for known, array in zip(self.inputs, arrays, strict=True)}
        for known in self.inputs:
            _check(known, given[known.name])
        imported = self._for_all_extents() if target == "cpu" and _is_usual(given) else None
        if imported is None:
            return self._run(self.specialize(given), given, target, pipeline)
        from fuse_opt.tools.compiler.api import InputError

        try:
            return self._run(imported, given, target, pipeline)
        except InputError:  # what these extents do not allow is said by the node's name
            return self._run(self.specialize(given), given, target, pipeline)
        except LimitError as limit:
            # ONNX cuts a slice at the end of its axis; what reads it may have no use for a shorter one
            try:
                return self._run(self.specialize(given), given, target, pipeline)
            except OnnxError as error:
                raise OnnxError(f"{limit}; for these shapes by themselves: {error}") from error

    def _run(
        self, imported: Imported, given: Mapping[str, Array], target: str, pipeline: str | None
    ) -> tuple[Array, ...]:
        """The outputs of the program of a module, which is compiled once."""
        key = (target, pipeline, id(imported))
        if key not in self._programs:
            self._programs[key] = _compiled(imported, target, pipeline, self.numerics)
        return _run(self._programs[key], imported, given)

    def _for_all_extents(self) -> Imported | None:
        """The module with symbols for extents that the model names; None where there are none, or it needs numbers."""
        if _SIZED not in self._imported and not self._needs_numbers:
            self._needs_numbers = True
            shapes = [known.shape for known in self.inputs]
            if all(shape is not None for shape in shapes) and any(isinstance(n, str) for s in shapes for n in s or ()):
                with sizes_asked_for(), suppress(OnnxError, UnknownValuesError, SizeRefusal):
                    self._imported[_SIZED] = Importer(self.proto, self.inputs, self.weights, {}, {}).run()
                    self._needs_numbers = False
        return self._imported.get(_SIZED)

    def _call_with_weights(self, arrays: Sequence[Any], target: str, pipeline: str | None) -> tuple[Array, ...]:
        """A call that gives every input of the graph, also those that have a value in the model."""
        names = [value.name for value in self.proto.graph.input]
        given = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}
        weights = {name: array for name, array in given.items() if name in self.weights}
        inputs = {name: array for name, array in given.items() if name not in weights}
        imported = self.specialize(inputs, weights)
        return _run(_compiled(imported, target, pipeline, self.numerics), imported, inputs)

    def _key(self, given: Mapping[str, Array]) -> Any:
        shapes = tuple((name, array.shape) for name, array in sorted(given.items()))
        values = tuple(
            (name, given[name].dtype.str, given[name].tobytes()) for name in sorted(self._by_value) if name in given
        )
        return shapes, values

    def _require(self, error: UnknownValuesError, given: Mapping[str, Array]) -> None:
        """Has these inputs' values decide what is built from now on; raises OnnxError when that cannot be."""
        names = ", ".join(f"'{name}'" for name in sorted(error.inputs))
        if missing := [name for name in error.inputs if name not in given]:
            raise UnsupportedError(
                f"{error.place} needs operands whose values are known, and they depend on the input {names}; "
                f"give the value of {missing[0]!r}"
            ) from error
        if not error.inputs or any(given[name].size > _LARGEST_VALUE for name in error.inputs):
            raise UnsupportedError(
                f"{error.place} needs operands whose values are known, and they are computed from "
                f"{names or 'random numbers, or by a node that the package onnx does not evaluate'}"
            ) from error
        self._by_value |= error.inputs


def _is_usual(given: Mapping[str, Array]) -> bool:
    """Whether arrays have elements: others are compiled for by themselves."""
    return all(array.size for array in given.values())


def _compiled(imported: Imported, target: str, pipeline: str | None, numerics: Numerics) -> Any:
    from fuse_opt.tools.compiler.api import compile

    module = imported.module.clone()
    module.attributes[NUMERICS] = StringAttr(numerics)
    return compile(module, target, pipeline).freeze(imported.frozen())


def _run(program: Any, imported: Imported, given: Mapping[str, Array]) -> tuple[Array, ...]:
    results: Any = program(*imported.bind(given))
    return cast("tuple[Array, ...]", results) if isinstance(results, tuple) else (results,)


def _check_names(graph: Any) -> None:
    """Raises OnnxError where a name is not UTF-8: protobuf gives such strings as bytes."""
    named = (*graph.input, *graph.output, *graph.initializer, *graph.node)
    names: list[object] = [each.name for each in named]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
    if wrong := next((name for name in names if isinstance(name, bytes)), None):
        raise OnnxError(f"expected names in UTF-8, got {wrong[:40]!r}")


def _initializers(graph: Any) -> dict[str, Array]:
    onnx = onnx_module()
    if graph.sparse_initializer:
        raise UnsupportedError("sparse initializers are not supported; expected dense ones")
    found: dict[str, Array] = {}
    for tensor in graph.initializer:
        try:
            found[tensor.name] = onnx.numpy_helper.to_array(tensor)
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise OnnxError(
                f"initializer '{tensor.name}': expected numbers of its type and extents; {reason}"
            ) from error
    return found


def _tensor(value: Any, what: str) -> Any:
    """An input or output that is a tensor, or of which nothing is said."""
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", None):
        raise UnsupportedError(f"{what} '{value.name}': expected a tensor, got {kind.removesuffix('_type')}")
    return value


def _input(value: Any, extents: Mapping[str, int]) -> Input:
    type_ = _tensor(value, "input").type
    try:
        element = element_of(type_.tensor_type.elem_type)
    except UnsupportedTypeError as error:
        raise UnsupportedError(f"input '{value.name}': {error}") from error
    if not type_.tensor_type.HasField("shape"):
        return Input(value.name, element, None)
    stated = type_.tensor_type.shape.dim
    # Some exporters write -1 for an extent that is not known.
    dims = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param for dim in stated]
    return Input(value.name, element, tuple(extents.get(dim, dim) if isinstance(dim, str) else dim for dim in dims))


def _check(known: Input, array: Array) -> None:
    if array.dtype.name != numpy_name(known.element):
        raise OnnxError(f"input '{known.name}': expected {known.element}, got an array of {array.dtype.name}")
    if (stated := known.shape) is None:
        return
    fits = len(stated) == array.ndim and all(
        isinstance(extent, str) or extent == size for extent, size in zip(stated, array.shape, strict=True)
    )
    if not fits:
        raise OnnxError(f"input '{known.name}': expected {known}, got shape {list(array.shape)}")
