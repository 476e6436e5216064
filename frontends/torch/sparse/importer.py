"""Graphs with sparse tensors as modules: all of a graph becomes graph ops, or the graph is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import CsrAttr, RowSparseAttr, StorageKind, stored_as
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.api import ELEMENTS, fx, torch
from fuse_opt.frontends.torch.fx.handler import Call, Handler, NotCoveredError, check_type
from fuse_opt.frontends.torch.operators.table import TABLE
from fuse_opt.frontends.torch.sparse.handlers import SPARSE
from fuse_opt.frontends.torch.sparse.traced import is_view, is_write


@dataclass(frozen=True)
class Part:
    """A part of a graph as a module."""

    module: ModuleOp
    types: Sequence[Attribute]
    """Of the results that were asked for."""
    kept: Sequence[int | None]
    """By result, the argument whose tensor it is; None for those that the module gives, in order."""
    written: Mapping[int, int]
    """The arguments that are written to, by number, and which results their new contents are."""


def argument_type(value: Any, entries: int) -> TensorType[Attribute]:
    """The type of an argument like this tensor, with room for so many entries. Raises NotCoveredError."""
    if (element := ELEMENTS.get(value.dtype)) is None or value.device.type != "cpu":
        raise NotCoveredError(f"takes a tensor of {value.dtype} on '{value.device}'")
    extents, kind = tuple(value.shape), _kind(value)
    dense = TensorType(element.attribute, extents)
    return dense if kind is None else with_encoding(dense, kind.of(min(entries, kind.of(0).entries(extents))))


def _kind(value: Any) -> type[StorageKind] | None:
    if value.layout == torch.strided:
        return None
    if value.layout == torch.sparse_csr and value.dim() == 2:
        return CsrAttr
    if value.layout == torch.sparse_coo and value.sparse_dim() == 1:
        return RowSparseAttr
    cure = "; call .to_sparse_csr()" if value.dim() == 2 else ""
    raise NotCoveredError(f"takes a tensor of {value.layout} with {value.dim()} axes{cure}")


def import_part(
    nodes: Sequence[Any], arguments: Sequence[tuple[Any, TensorType[Attribute]]], results: Sequence[Any]
) -> Part:
    """What of a graph the results need, from arguments of these types. Raises NotCoveredError, and what ops refuse."""
    return _Import(arguments).run(_needed(nodes, [node for node, _ in arguments], results), results)


def _needed(nodes: Sequence[Any], given: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    known, needed = set(given), {node for node in results if node is not None}
    for node in reversed(nodes):
        if node not in known and (node in needed or is_write(node)):
            needed.add(node)
            needed.update(node.all_input_nodes)
    return [node for node in nodes if node in needed and node not in known]


class _Emitter(Emitter):
    """Results have the storage kinds that follow from operands."""

    def all(self, name: str, *operands: SSAValue, **properties: Any) -> list[SSAValue]:
        found = super().all(name, *operands, **properties)
        if not any(map(is_stored, operands)):
            return found
        rule = cast(GraphOp, found[0].owner).written_rule()
        return found if rule is None else list(map(_typed, found, rule.results))


def _typed(value: SSAValue, type_: Attribute) -> SSAValue:
    return value if stored_as(type_) is None else Rewriter.replace_value_with_new_type(value, type_)


class _Import:
    def __init__(self, arguments: Sequence[tuple[Any, TensorType[Attribute]]]) -> None:
        self._emit = _Emitter()
        self._values: dict[Any, SSAValue] = {}
        """By tensor, what is in it now."""
        self._owners: dict[Any, Any] = {}
        """By node that is the whole of another's memory, that one."""
        self._views: dict[Any, list[Any]] = {}
        self._stale: set[Any] = set()
        self._arguments = arguments
        self._written: dict[Any, None] = {}
        for number, (node, type_) in enumerate(arguments):
            value = self._emit.block.insert_arg(type_, number)
            value.name_hint = f"a{number}"
            self._values[node] = value

    def run(self, nodes: Sequence[Any], results: Sequence[Any]) -> Part:
        for node in nodes:
            self._node(node)
        for node in results:
            if node is not None:
                _kind(node.meta["val"])  # refuses other layouts
        asked, places = [node for node in results if node is not None], [node for node, _ in self._arguments]
        owners = [self._owner(node) for node in asked]
        kept = [places.index(owner) if owner in places else None for owner in owners]
        types = [self._value(node).type for node in asked]
        values = [self._value(node) for node, number in zip(asked, kept, strict=True) if number is None]
        if any(node not in places for node in self._written):
            raise NotCoveredError("writes to a tensor that is no argument")
        written = {places.index(node): len(values) + number for number, node in enumerate(self._written)}
        marks = [DONATED if node in self._written else "" for node in places]
        module = self._emit.finish([*values, *(self._values[node] for node in self._written)], marks=marks)
        return Part(module, types, kept, written)

    def _owner(self, node: Any) -> Any:
        return self._owners.get(node, node)

    def _value(self, node: Any) -> SSAValue:
        if node in self._stale:
            raise NotCoveredError(f"reads '{node}', a view of what is written to, afterwards")
        return self._values[self._owner(node)]

    def _node(self, node: Any) -> None:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            raise NotCoveredError(f"uses '{node.target}', which is no argument; give it as one")
        if is_write(node):
            return self._write(node)
        source: Any = node.args[0] if node.args else None
        if is_view(node) and isinstance(source, fx.Node):
            if tuple(source.meta["val"].shape) == tuple(node.meta["val"].shape) and "detach" in str(node.target):
                self._owners[node] = self._owner(source)
                if source in self._stale:
                    self._stale.add(node)
                return None
            self._views.setdefault(self._owner(source), []).append(node)
        self._values[node] = self._built(node, str(node.target))
        return None

    def _write(self, node: Any) -> None:
        """What writes to a tensor gives it another value from here on."""
        target = self._owner(node.args[0])
        self._values[target] = self._built(node, str(node.target).replace("_.", ".", 1))
        self._owners[node] = target
        self._written[target] = None
        waiting = self._views.pop(target, [])
        while waiting:
            view = waiting.pop()
            self._stale.add(view)
            waiting += self._views.get(view, [])

    def _built(self, node: Any, name: str) -> SSAValue:
        handler: Handler | None = SPARSE.get(name) or TABLE.get(name)
        if handler is None:
            raise NotCoveredError(f"calls {name}, which is in no record")
        call = Call(self._emit, node, _meta, self._value, True)
        built = handler.build(call)
        if not isinstance(built, SSAValue):
            raise NotCoveredError(f"calls {name}, which gives several tensors")
        meta = node.meta["val"]
        if not is_write(node):
            check_type(built, meta)
        return self._as_stored(built, meta, name)

    def _as_stored(self, value: SSAValue, meta: Any, name: str) -> SSAValue:
        """The value as PyTorch stores it, where the op that gives it can."""
        if is_stored(value) == (meta.layout != torch.strided):
            return value
        op = value.owner
        if isinstance(op, GraphOp) and not is_stored(value):
            for kind in filter(None, (stored_as(operand.type) for operand in op.operands)):
                written = Rewriter.replace_value_with_new_type(value, with_encoding(tensor(value), kind))
                if op.written_rule() is not None:
                    return written
                value = Rewriter.replace_value_with_new_type(written, with_encoding(tensor(value), None))
        raise NotCoveredError(f"calls {name}, of whose result PyTorch and we store different elements")


def _meta(node: Any) -> Any:
    return node.meta["val"] if isinstance(node, fx.Node) else node
