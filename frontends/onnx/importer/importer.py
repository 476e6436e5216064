"""Reads the graph of an ONNX model into a module: folds what is known, builds the rest by the table of handlers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.shapes import are_sizes_asked_for
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.size import SizeRefusal, symbol
from fuse_opt.frontends.builder import (
    Array,
    Emitter,
    Names,
    UnknownExtentError,
    UnsupportedTypeError,
    Value,
    element_type,
)
from fuse_opt.frontends.onnx.importer.families import of_sizes
from fuse_opt.frontends.onnx.importer.folding import FOLDED, Folder, FoldingError
from fuse_opt.frontends.onnx.importer.functions import function_of, resolved
from fuse_opt.frontends.onnx.importer.imported import Imported, Input
from fuse_opt.frontends.onnx.importer.size_folding import cut, fold_sizes, has_sizes
from fuse_opt.frontends.onnx.operators.control_flow import CONTROL
from fuse_opt.frontends.onnx.operators.node import (
    Node,
    OnnxError,
    Slot,
    UnknownValuesError,
    UnsupportedError,
    handler_of,
    is_value,
    onnx_module,
)

_LARGEST_INLINE = 1 << 16
"""Elements of a regular array that is computed in the program instead of stored beside it."""
_DEEPEST = 64
"""Functions and branches inside one another."""

Scope: TypeAlias = "MutableMapping[str, Slot]"


class Importer:
    """One import of a model, for inputs of these shapes and known values."""

    def __init__(
        self,
        model: Any,
        inputs: Sequence[Input],
        initializers: Mapping[str, Array],
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, Array],
    ) -> None:
        self._onnx = onnx_module()
        self._model = model
        self._emit = Emitter()
        self._names = Names()
        self._folder = Folder(self._onnx)
        self._arguments: list[str | None] = []
        self._argument_names: list[str] = []
        self._extents: list[Sequence[str]] = []
        self._weights: dict[str, Array] = {}
        self._local = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
        self._scope: dict[str, Slot] = {}
        for name, array in initializers.items():
            self._scope[name] = Slot(name, array, is_weight=True)
        for known in inputs:
            self._scope[known.name] = self._input(known, shapes.get(known.name), values.get(known.name))

    def run(self) -> Imported:
        """Raises OnnxError, and UnknownValuesError where values of inputs decide what is built."""
        graph = self._model.graph
        self._nodes(graph.node, self._scope, _opsets(self._model.opset_import), 0)
        slots = [_found(self._scope, output.name, "the graph's output") for output in graph.output]
        try:
            results = [self._materialize(slot) for slot in slots]
        except UnsupportedTypeError as error:
            raise UnsupportedError(f"the graph's output: {error}") from error
        marks = ["graph.frozen" if source is None else "" for source in self._arguments]
        module = self._emit.finish(results, self._extents, marks)
        return Imported(module, tuple(self._arguments), tuple(self._argument_names), self._weights)

    def _input(self, given: Input, known_shape: Sequence[int] | None, array: Array | None) -> Slot:
        if array is not None:
            return Slot(given.name, array)
        if given.shape is None and known_shape is None:
            raise UnsupportedError(f"input '{given.name}': its number of axes is not known; give the model an array")
        stated = given.shape if given.shape is not None else tuple(known_shape or ())
        if known_shape is not None and len(known_shape) != len(stated):
            raise OnnxError(f"input '{given.name}': expected {given}, got shape {list(known_shape)}")
        if are_sizes_asked_for() and known_shape is None:
            sizes = [n if isinstance(n, int) else symbol(n or f"{given.name}.{axis}") for axis, n in enumerate(stated)]
            return Slot(given.name, value=self._argument(given.name, given.element, cast(Any, sizes), given.name))
        extents = [extent if isinstance(extent, int) else DYNAMIC_INDEX for extent in stated]
        extents = list(known_shape) if known_shape is not None else extents
        names = [str(name) if extent == DYNAMIC_INDEX else "" for name, extent in zip(stated, extents, strict=True)]
        return Slot(
            given.name,
            value=self._argument(given.name, given.element, extents, given.name, names),
            depends=frozenset((given.name,)),
        )

    def _argument(
        self, name: str, element: DType, extents: Sequence[int], source: str | None, names: Sequence[str] = ()
    ) -> Value:
        unique = self._names.unique(name)
        self._arguments.append(source)
        self._argument_names.append(unique)
        self._extents.append(names)
        return self._emit.argument(unique, element, extents)

    def _materialize(self, slot: Slot) -> Value:
        """The value of a slot in the IR: a known array becomes a number, a regular tensor, or an argument."""
        if slot.value is None:
            array = cast(Array, slot.array)
            if has_sizes(array):
                slot.value = self._emit.sizes(array)
                return slot.value
            inline = None if slot.is_weight and array.size != 1 else self._regular(array)
            if inline is None:
                element = element_type(array.dtype.name)
                inline = self._argument(slot.name, element, array.shape, None)
                whole = np.asarray(array, order="C")  # the same array where it is whole: a program binds it as it is
                self._weights[self._argument_names[-1]] = whole
            slot.value = inline
        return slot.value

    def _regular(self, array: Array) -> Value | None:
        """An array that is one number everywhere, or counts, as an op that makes it; else None."""
        element = element_type(array.dtype.name)
        if array.size > _LARGEST_INLINE or (array.size and element.storage_only):
            return None
        if array.size == 0:
            return self._emit.number(0, element, array.shape)
        numbers = array.reshape(-1).astype(np.float64 if element.is_float else array.dtype)
        if (numbers == numbers[0]).all() or array.size == 1:
            return self._emit.number(numbers[0].item(), element, array.shape)
        if array.ndim != 1 or element.kind.value != "int":
            return None
        step = int(numbers[1]) - int(numbers[0])
        if not np.array_equal(numbers, int(numbers[0]) + step * np.arange(array.size)):
            return None
        return self._emit.iota(shape=array.shape, dtype=element, start=int(numbers[0]), step=step)

    def _nodes(self, nodes: Iterable[Any], scope: Scope, opsets: Mapping[str, int], depth: int) -> None:
        for proto in nodes:
            names = list(proto.input)
            label = f"operator {proto.op_type}" + (f", node '{proto.name}'" if proto.name else "")
            slots = [_found(scope, name, label) if name else None for name in names]
            for name, slot in self._node(proto, label, slots, scope, opsets, depth):
                scope[name] = slot

    def _node(
        self, proto: Any, label: str, slots: list[Slot | None], scope: Scope, opsets: Mapping[str, int], depth: int
    ) -> list[tuple[str, Slot]]:
        """The node's outputs, by name."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = opsets.get(domain, 0)
        node = Node(
            proto.op_type,
            proto.name,
            opset,
            slots,
            list(proto.output),
            {a.name: self._onnx.helper.get_attribute_value(a) for a in proto.attribute},
            self._materialize,
        )
        if depth > _DEEPEST:
            raise OnnxError(f"{label}: functions call one another more than {_DEEPEST} deep")
        local = self._local.get((proto.domain, proto.op_type, getattr(proto, "overload", "")))
        if local is not None:
            return self._call(local, proto, slots, opsets, depth)
        is_ours = domain == ""
        try:
            if is_ours and proto.op_type in CONTROL:
                return self._control(node, scope, opsets, depth)
            if (folded := self._folded(node, proto, domain)) is not None:
                return folded
            if is_ours and proto.op_type in FOLDED:
                for position in range(len(slots)):
                    if node.has(position):
                        node.known(position)
            if (build := handler_of(domain, proto.op_type)) is not None:
                return self._outputs(node, build(node, self._emit))
        except (VerifyException, ScalarTypeError, UnsupportedTypeError) as error:
            raise UnsupportedError(f"{label}: {error}") from error
        except UnknownExtentError as error:
            raise UnsupportedError(f"{label}: {error}; give the extents of the model's inputs") from error
        except (OnnxError, UnknownValuesError, SizeRefusal):
            raise
        except (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError) as error:
            raise OnnxError(f"{label}: cannot be read: {type(error).__name__}: {error}") from error
        body = function_of(self._onnx, proto, domain, opset, slots)
        if body is None:
            raise UnsupportedError(_no_record(label, domain))
        try:
            return self._call(body, proto, slots, opsets, depth)
        except UnsupportedError as error:
            raise UnsupportedError(f"{label}, read as its function body: {error}") from error

    def _folded(self, node: Node, proto: Any, domain: str) -> list[tuple[str, Slot]] | None:
        """The outputs of a node whose operands are all known; None where it is to be built as ops."""
        if not self._folder.may_fold(proto, domain):
            return None
        if not all(slot is None or slot.array is not None for slot in node.slots):
            return None
        if any(slot is not None and has_sizes(slot.array) for slot in node.slots):
            if domain == "" and (make := of_sizes(proto.op_type)) is not None:
                return self._outputs(node, make(node, self._emit))
            if domain != "":
                return None
            try:
                found = fold_sizes(node)
            except SizeRefusal:
                found = None  # computed by the program, from what sizes are at the call
            return None if found is None else self._outputs(node, found)
        if domain == "" and node.op_type == "Slice":
            return self._outputs(node, cut(node, node.known(0)))
        try:
            return self._outputs(node, self._folder.evaluate(proto, node.slots, node.opset, domain))
        except FoldingError:
            if handler_of(domain, proto.op_type) is not None:
                return None  # ours may take what the reference does not
            raise

    def _outputs(self, node: Node, results: Any) -> list[tuple[str, Slot]]:
        listed: list[Any] = list(results) if isinstance(results, list | tuple) else [results]  # pyright: ignore[reportUnknownArgumentType]
        depends = frozenset[str]().union(*(slot.depends for slot in node.slots if slot is not None))
        found: list[tuple[str, Slot]] = []
        for name, result in zip(node.outputs, listed, strict=False):
            if not name:
                continue
            if is_value(result):
                if result.owner is not self._emit.block and result.name_hint is None:
                    result.name_hint = self._names.unique(name)
                found.append((name, Slot(name, value=result, depends=depends)))
            else:
                found.append((name, Slot(name, np.asarray(result))))
        missing = [name for name in node.outputs[len(listed) :] if name]
        if missing:
            raise node.refuse(f"its output '{missing[0]}' is not supported")
        return found

    def _control(self, node: Node, scope: Scope, opsets: Mapping[str, int], depth: int) -> list[tuple[str, Slot]]:
        """The outputs of a node with graphs inside."""

        def run(graph: Any, inputs: Sequence[Slot]) -> list[Slot]:
            inner: Scope = ChainMap({}, cast(Any, scope))
            for tensor in graph.initializer:
                inner[tensor.name] = Slot(tensor.name, self._onnx.numpy_helper.to_array(tensor), is_weight=True)
            for value, slot in zip(graph.input, inputs, strict=True):
                inner[value.name] = slot
            self._nodes(graph.node, inner, opsets, depth + 1)
            return [_found(inner, output.name, str(node)) for output in graph.output]

        slots = CONTROL[node.op_type](node, self._emit, run)
        return [(name, slot) for name, slot in zip(node.outputs, slots, strict=False) if name]

    def _call(
        self, function: Any, proto: Any, slots: list[Slot | None], opsets: Mapping[str, int], depth: int
    ) -> list[tuple[str, Slot]]:
        """The nodes of a function in place of a call of it."""
        inner: dict[str, Slot] = {}
        for name, slot in zip(function.input, slots, strict=False):
            if slot is not None:
                inner[name] = slot
        given = {a.name: a for a in proto.attribute}
        defaults = {a.name: a for a in function.attribute_proto}
        absent = {name for name in function.input if name not in inner}
        nodes = [resolved(self._onnx, node, {**defaults, **given}, absent) for node in function.node]
        self._nodes(nodes, inner, {**opsets, **_opsets(function.opset_import)}, depth + 1)
        pairs = zip(proto.output, function.output, strict=False)
        return [(name, _found(inner, source, proto.op_type)) for name, source in pairs if name]


def _opsets(imports: Iterable[Any]) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}


def _found(scope: Mapping[str, Slot], name: str, label: str) -> Slot:
    if (slot := scope.get(name)) is None:
        raise OnnxError(f"{label}: uses the value '{name}', which nothing before it gives")
    return slot


def _no_record(label: str, domain: str) -> str:
    where = f" of domain '{domain}'" if domain else ""
    return f"{label}{where} is not supported, and has no function body; docs/onnx.md lists what is"
