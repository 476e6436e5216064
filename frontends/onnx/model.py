"""ONNX models: `load(path)` gives one that can be called, printed, and compiled for the shapes it is called with.

Weights are frozen arguments of the module, bound by the model and kept out of its text. Inputs that decide shapes (`shape` of
Reshape, `axes` of ReduceSum ...) are known when a module is built: there is one for each set of their values, made when they
are first met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr

from fuse_opt.dialects.analysis.numerics import NUMERICS, Numerics
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import LimitError
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.builder import Array
from fuse_opt.frontends.onnx.calls import is_usual, several, signature
from fuse_opt.frontends.onnx.importer.folding import FOLDED
from fuse_opt.frontends.onnx.importer.functions import EXPANDED
from fuse_opt.frontends.onnx.importer.imported import Imported, Input
from fuse_opt.frontends.onnx.importer.importer import Importer
from fuse_opt.frontends.onnx.importer.stated import check, check_names, initializers, input_of, tensor
from fuse_opt.frontends.onnx.operators.control_flow import CONTROL
from fuse_opt.frontends.onnx.operators.node import (
    HANDLERS,
    MICROSOFT,
    OnnxError,
    UnknownValuesError,
    UnsupportedError,
    onnx_module,
)
from fuse_opt.frontends.onnx.peers import Left, NotTakenError

__all__ = ["OnnxError", "OnnxModel", "UnsupportedError", "load", "supported_operators"]

_SIZED = "sizes"
"""The key of the module with symbols for extents."""
_MOST_READY = 256
"""Kinds of calls whose programs are remembered."""
_LARGEST_VALUE = 256
"""Elements of an input for each of whose values a program may be built."""


def supported_operators(domain: str = "") -> list[str]:
    """The operators of a domain (`ai.onnx`) that have a handler, or are evaluated or taken apart when a model is read."""
    if domain:
        return sorted(MICROSOFT) if domain == "com.microsoft" else []
    return sorted({*HANDLERS, *FOLDED, *CONTROL, *EXPANDED})


def load(
    source: str | Path | bytes | Any,
    extents: Mapping[str, int] | None = None,
    numerics: Numerics = "finite",
    strict: bool = False,
) -> OnnxModel:
    """
    A model from a file, from the bytes of one, or from a ModelProto; `extents` says what names of extents stand for, `numerics`
    which implementations calls take: those that are right of finite values, "strict" or "fast" ones.
    Calls of a model that needs what is not supported are onnxruntime's, with one warning that says why; where that is not
    installed, those of ONNX's reference. With `strict` they raise UnsupportedError, as `module` does in any case.
    Raises OnnxError for what is no model, OSError for files.
    """
    onnx = onnx_module()
    if isinstance(source, str | Path | bytes):
        try:
            source = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(str(source))
        except OSError:
            raise
        except Exception as error:  # protobuf's DecodeError, and what external data raises
            raise OnnxError(f"expected an ONNX model, got what cannot be decoded: {error}") from error
    return OnnxModel(source, extents or {}, numerics, strict)


class OnnxModel:
    """A model with its weights. Calls take its inputs in order and give its outputs in a tuple."""

    def __init__(
        self, proto: Any, extents: Mapping[str, int], numerics: Numerics = "finite", strict: bool = False
    ) -> None:
        if not proto.graph.node and not proto.graph.output:
            raise OnnxError("expected an ONNX model, got one without a graph")
        check_names(proto.graph)
        self.proto = proto
        self.weights: dict[str, Array] = {}
        """By name, the arrays that the model brings."""
        self.inputs: tuple[Input, ...] = ()
        """What a call takes, in order: names, element types, and extents or their names."""
        self.outputs: tuple[str, ...] = tuple(value.name for value in proto.graph.output)
        """The names of what a call gives."""
        self._refusal: UnsupportedError | None = None
        self._left = Left(proto, strict)
        try:
            self._read(extents)
        except UnsupportedError as error:
            if strict:
                raise
            self._refusal = error
        self._imported: dict[Any, Imported] = {}
        self._programs: dict[Any, Any] = {}
        self._ready: dict[Any, tuple[Any, tuple[int, ...]]] = {}
        """By what a call gives: the program that ran such a call, and which arrays it takes."""
        self._by_value: set[str] = set()
        self.numerics: Numerics = numerics
        """What calls take: see `graph.numerics`."""
        self._needs_numbers = False

    def _read(self, extents: Mapping[str, int]) -> None:
        """What the graph says of itself."""
        graph = self.proto.graph
        self.weights = initializers(graph)
        self.inputs = tuple(input_of(value, extents) for value in graph.input if value.name not in self.weights)
        for value in graph.output:
            tensor(value, "output")

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
        if self._refusal is not None:
            raise self._refusal
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
        if self._refusal is not None:
            return self._left.run(self._refusal, arrays)
        if self._ready and (ready := self._ready.get(signature(arrays, target, pipeline))) is not None:
            program, taken = ready
            return several(program(*[arrays[number] for number in taken]))
        if len(arrays) == len(self.proto.graph.input) != len(self.inputs):
            return self._call_with_weights(arrays, target, pipeline)
        if len(arrays) != len(self.inputs):
            names = ", ".join(str(known) for known in self.inputs) or "none"
            raise OnnxError(f"expected {len(self.inputs)} inputs ({names}), got {len(arrays)}")
        given = {known.name: np.asarray(array) for known, array in zip(self.inputs, arrays, strict=True)}
        for known in self.inputs:
            check(known, given[known.name])
        return self._call(given, target, pipeline)

    def _call(self, given: Mapping[str, Array], target: str, pipeline: str | None) -> tuple[Array, ...]:
        from fuse_opt.tools.compiler.api import InputError

        imported = self._for_all_extents() if target == "cpu" and is_usual(given) else None
        limit: LimitError | None = None
        if imported is not None:
            try:
                return self._compiled(imported, target, pipeline)(given)
            except NotTakenError:
                pass
            except InputError:  # what these extents do not allow is said by the node's name
                pass
            except LimitError as error:
                # ONNX cuts a slice at the end of its axis; what reads it may have no use for a shorter one
                limit = error
        if (error := self._left.reason(key := self._key(given))) is not None:
            return self._left.run(error, list(given.values()))
        try:
            program = self._compiled(self.specialize(given), target, pipeline)
        except NotTakenError as error:
            return self._left.run(error, list(given.values()), key)
        except OnnxError as error:
            told = error if limit is None else OnnxError(f"{limit}; for these shapes by themselves: {error}")
            if not isinstance(error, UnsupportedError):
                raise told from error
            return self._left.run(told, list(given.values()), key)
        return program(given)

    def _compiled(self, imported: Imported, target: str, pipeline: str | None) -> Callable[[Mapping[str, Array]], Any]:
        """The program of a module, which is compiled once. Raises NotTakenError."""
        key = (target, pipeline, id(imported))
        if key not in self._programs:
            try:
                self._programs[key] = _compiled(imported, target, pipeline, self.numerics)
            except Exception as error:
                if self._left.strict or target != "cpu" or pipeline is not None:
                    raise
                raise NotTakenError(f"{type(error).__name__}: {error}") from error
        return partial(self._run, key, imported)

    def _run(
        self, key: tuple[str, str | None, int], imported: Imported, given: Mapping[str, Array]
    ) -> tuple[Array, ...]:
        """A program's outputs. Calls like one that went well, of which no value decides what is built, ask nothing more."""
        found = _run(self._programs[key], imported, given)
        if not self._by_value and len(self._ready) < _MOST_READY:
            places = {known.name: number for number, known in enumerate(self.inputs)}
            taken = tuple(places[name] for name in imported.arguments if name is not None)
            self._ready[signature(tuple(given.values()), *key[:2])] = self._programs[key], taken
        return found

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
        try:
            imported = self.specialize(inputs, weights)
        except UnsupportedError as error:
            return self._left.run(error, arrays)
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


def _compiled(imported: Imported, target: str, pipeline: str | None, numerics: Numerics) -> Any:
    from fuse_opt.tools.compiler.api import compile

    module = imported.module.clone()
    module.attributes[NUMERICS] = StringAttr(numerics)
    return compile(module, target, pipeline).freeze(imported.frozen())


def _run(program: Any, imported: Imported, given: Mapping[str, Array]) -> tuple[Array, ...]:
    return several(program(*imported.bind(given)))
