"""From a traced FX graph to a program of graph ops: what no record covers stays a call of PyTorch's own kernel.

Each value has a root: the memory that it lies in, which is an argument's, a call's, or (where somebody needs it in memory)
one that the program writes. A view of a root costs nothing: kernels read it by index expressions, calls and results by
strides. So does the layout: a root is a tensor in the order of its elements in memory, with an axis permutation before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.dtypes import I8
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.frontends.emit import Emitter, UnknownExtentError
from fuse_opt.frontends.torch_api import ELEMENTS, as_list, aten, fx, is_tensor, torch
from fuse_opt.frontends.torch_dialect import aten_call
from fuse_opt.frontends.torch_graph import (
    Argument,
    AtenCall,
    Buffer,
    Counts,
    Imported,
    Memory,
    Output,
    Returned,
    Stored,
    Variable,
    View,
)
from fuse_opt.frontends.torch_layout import dense_order, layout_of, storage_view
from fuse_opt.frontends.torch_out import out_overload
from fuse_opt.frontends.torch_places import (
    Place,
    Root,
    has_effect,
    is_ordered,
    is_readable,
    is_view,
    own_view,
    shown,
    target_name,
    tensors_of,
)
from fuse_opt.frontends.torch_records import Built, Call, NotCoveredError, bound_arguments, check_type
from fuse_opt.frontends.torch_table import TABLE

_TOKEN = TensorType(I8.attribute, [])
_REFUSALS = (NotCoveredError, VerifyException, ScalarTypeError, UnknownExtentError, TypeError, ValueError)


class Importer:
    """Imports one graph. With `library`, calls that records stand for only in exported text become graph ops, too."""

    def __init__(self, graph_module: Any, metas: Callable[[Any], Any], *, library: bool = False) -> None:
        self.emit = Emitter()
        self.gm = graph_module
        self.metas = metas
        self.library = library
        self.values: dict[Any, SSAValue] = {}
        self.places: dict[Any, Place] = {}
        self.parts: dict[Any, Sequence[Any]] = {}
        """By node of several results: for each a value, or a place."""
        self.calls: list[AtenCall] = []
        self.arguments: list[Argument] = []
        self.buffers: list[Buffer] = []
        self.buffer_values: list[SSAValue] = []
        self.constants: dict[str, Any] = {}
        self.stored: list[tuple[Any, Any]] = []
        self.effects: list[SSAValue] = []
        self.previous: SSAValue | None = None
        """What the last call gave that has to come before the next of its kind."""
        self.counts = Counts()
        self.names: dict[Any, str] = {}

    def run(self) -> Imported:
        nodes = list(self.gm.graph.nodes)
        self._find_stored(nodes)
        for node in nodes:
            if node.op == "placeholder":
                self._placeholder(node)
        if self.library:
            self._read_arguments(nodes)
        returned: list[Returned] = []
        for node in nodes:
            if node.op == "get_attr":
                self._attribute(node)
            elif node.op == "output":
                returned = [self._returned(item) for item in as_list(node.args[0])]
            elif node.op != "placeholder":
                self._node(node)
        stored = [Stored(self.names[target], self._returned(source)) for target, source in self.stored]
        module = self._finish()
        placeholders = [self.names[node] for node in nodes if node.op == "placeholder"]
        return Imported(
            module,
            placeholders,
            self.constants,
            self.arguments,
            self.buffers,
            self.calls,
            returned,
            stored,
            self.counts,
        )

    def _finish(self) -> Any:
        marks = ["graph.donated" if argument.donated else "" for argument in self.arguments]
        return self.emit.finish([*self.buffer_values, *self.effects], marks=marks)

    def _find_stored(self, nodes: Sequence[Any]) -> None:
        """Arguments that are overwritten at the end: the only mutation that functionalisation leaves."""
        seen: set[Any] = set()
        for node in nodes:
            if node.op == "call_function" and node.target is aten.copy_.default and node.args[0].op == "placeholder":
                seen.add(node.args[0])
                self.stored = [(target, source) for target, source in self.stored if target is not node.args[0]]
                self.stored.append((node.args[0], node.args[1]))

    def _placeholder(self, node: Any) -> None:
        name = f"a{len(self.names)}"
        self.names[node] = name
        self._variable(node, self.metas(node), name, donated=any(node is target for target, _ in self.stored))

    def _read_arguments(self, nodes: Sequence[Any]) -> None:
        """Makes all arguments those of the program, in order."""
        for node in nodes:
            place = self.places.get(node)
            if node.op != "placeholder" or not node.users or place is None or place.root.view is None:
                continue
            if is_readable(self.metas(node), place.view):
                self._read_argument(place.root)

    def _attribute(self, node: Any) -> None:
        value: Any = self.gm
        for part in node.target.split("."):
            value = getattr(value, part)
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        self.names[node] = name
        self._variable(node, value, name)

    def _variable(self, node: Any, meta: Any, name: str, donated: bool = False) -> None:
        """A tensor, or something else, that is there before the program runs."""
        if not is_tensor(meta):
            self.places[node] = Place(Root(None, None, name), None)
            return
        view = own_view(meta)
        fills = view is not None and dense_order(view.shape, view.strides) is not None
        root = Root(view, meta.dtype, name, donated=donated and fills and is_readable(meta, view))
        self.places[node] = Place(root, view)
        if root.donated:
            self._read_argument(root)

    def _read_argument(self, root: Root) -> SSAValue:
        """The root as an argument of the program, in the order of memory where it fills it."""
        if root.memory is None:
            assert root.view is not None and root.variable is not None
            layout = layout_of(root.view.shape, root.view.strides)
            extents = root.view.shape if layout is None else layout.extents
            root.memory = self.emit.argument(root.variable, ELEMENTS[root.dtype], extents)
            self.arguments.append(Argument(root.variable, root.view, layout is not None, root.donated))
            if layout is None:
                self.counts.copies.append(root.variable)
        return root.memory

    def _node(self, node: Any) -> None:
        meta = self.metas(node)
        if node.op == "call_function" and node.target is aten.copy_.default and node.args[0].op == "placeholder":
            return
        self.counts.nodes += 1
        if isinstance(meta, (int, float, bool, str)) or (meta is None and node.target is operator.getitem):
            self.counts.nodes -= 1
            return  # a number that is known
        if node.target is operator.getitem and node.args[0] in self.parts:
            self.counts.nodes -= 1
            parts = self.parts[node.args[0]]
            self._take_part(node, parts[node.args[1]])
            return
        reason = self._try_record(node, meta)
        if reason is not None:
            self._call(node, meta, reason)

    def _take_part(self, node: Any, part: Any) -> None:
        if isinstance(part, Place):
            self.places[node] = part
        elif part is not None:
            value, place = part
            self.values[node] = value
            self.places[node] = place or self._computed(node)

    def _computed(self, node: Any) -> Place:
        meta = self.metas(node)
        view = own_view(meta)
        if view is not None and dense_order(view.shape, view.strides) is None:
            raise NotCoveredError("has gaps in memory")
        return Place(Root(view, meta.dtype, computed=node), view)

    def _try_record(self, node: Any, meta: Any) -> str | None:
        """Why no record makes graph ops of the node; None when one does, or when it is a view in memory."""
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return "is no operator of PyTorch"
        viewed = self._viewed(node, meta)
        record = TABLE.get(str(node.target))
        if record is None or (record.library and not self.library):
            if viewed is not None and is_tensor(meta):
                self.places[node] = viewed
                self.counts.views += 1
                return None
            return "is run by PyTorch's own kernel" if record else "is in no record"
        try:
            if not all(value.device.type == "cpu" for value in tensors_of(meta)):
                raise NotCoveredError("is on another device than the processor")
            call = Call(self.emit, node, self.metas, self.value, self.library)
            built = record.build(call)
            self._enter(node, meta, built, viewed)
        except _REFUSALS as error:
            return str(error).partition("\n")[0]
        except Exception as error:  # of a record at fault: PyTorch's kernel is right in any case
            return f"its record fails with {type(error).__name__}: {error}".partition("\n")[0]
        return None

    def _enter(self, node: Any, meta: Any, built: Built, viewed: Any) -> None:
        if isinstance(built, SSAValue):
            check_type(built, meta)
            self.places[node] = viewed or self._computed(node)
            self.values[node] = built
            self.counts.views += viewed is not None
            return
        for value, part in zip(built, meta, strict=True):
            check_type(value, part)
        places = viewed or [None] * len(meta)
        self.parts[node] = list(zip(built, places, strict=True))
        self.counts.views += viewed is not None

    def _viewed(self, node: Any, meta: Any) -> Any:
        """Where the results of a view lie: in the root of its operand; None for what is no view in known memory."""
        if not is_view(node.target):
            return None
        source = next(iter(bound_arguments(node).values()))
        place = self.places.get(source) if isinstance(source, fx.Node) else None
        if place is None or place.root.view is None:
            return None
        start = storage_view(self.metas(source))
        assert place.view is not None
        found: list[Place] = []
        for part in as_list(meta):
            view = storage_view(part)
            if view is None or start is None or part.dtype != place.root.dtype or part.is_complex():
                return None
            offset = view[2] - start[2] + place.view.offset
            found.append(Place(place.root, View(view[0], view[1], offset)))
        return found if isinstance(meta, (list, tuple)) else found[0]

    def value(self, node: Any) -> SSAValue:
        """The value of a node as a tensor in the order of its axes. Raises NotCoveredError where it is none."""
        if (found := self.values.get(node)) is None:
            place = self.places.get(node)
            if place is None:
                raise NotCoveredError("takes several results as one")
            found = self.values[node] = self._read(node, place)
        return found

    def _read(self, node: Any, place: Place) -> SSAValue:
        meta, root = self.metas(node), place.root
        if not is_tensor(meta) or not is_readable(meta, place.view):
            raise NotCoveredError("takes what the program has no element type or shape for")
        if root.view is None or place.view != root.view or (root.memory is None and root.variable is None):
            found = self._read_by_strides(place)
            return self._load(node, meta) if found is None else found
        layout = layout_of(root.view.shape, root.view.strides)
        if root.variable is not None and root.memory is None:
            memory = self._read_argument(root)
        else:
            assert root.memory is not None
            memory = root.memory
        return memory if layout is None else layout.read(self.emit, memory, root.view.shape)

    def _read_by_strides(self, place: Place) -> SSAValue | None:
        """A strided view of a root that fills its memory, as index expressions; None where strides are no such."""
        root, view = place.root, place.view
        if root.view is None or view is None or 0 in view.shape:
            return None
        layout = layout_of(view.shape, view.strides)
        if layout is None or dense_order(root.view.shape, root.view.strides) is None:
            return None
        size, whole = prod(layout.extents), prod(root.view.shape)
        if view.offset + size > whole:
            return None
        if root.memory is None:
            memory = self._materialized(root) if root.variable is None else self._read_argument(root)
        else:
            memory = root.memory
        if memory.type == _TOKEN:
            return None
        flat = self.emit.reshaped(memory, [whole])
        if size != whole:
            flat = self.emit.slice(flat, starts=[view.offset], stops=[view.offset + size])
        return layout.read(self.emit, flat, view.shape)

    def _load(self, node: Any, meta: Any) -> SSAValue:
        """A copy in C order, by PyTorch, of what lies in memory with gaps or in another order."""
        keywords = {"memory_format": torch.contiguous_format}
        with self.metas(node).fake_mode if hasattr(meta, "fake_mode") else torch.no_grad():
            copy = meta.contiguous() if meta.is_contiguous() else meta.clone(memory_format=torch.contiguous_format)
        reason = "reads a view that kernels cannot"
        places = self._emit_call(aten.clone.default, (node,), keywords, copy, reason)
        self._count("aten.clone.default", reason)
        memory = places[0].root.memory
        assert memory is not None
        return memory

    def _call(self, node: Any, meta: Any, reason: str) -> None:
        """Makes the node a call of PyTorch's."""
        name = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else target_name(node)
        if node.op == "call_method":
            raise NotImplementedError(f"call of the method {node.target}: expected a functional graph of operators")
        several = isinstance(meta, (list, tuple))
        places = self._emit_call(node.target, node.args, node.kwargs, meta, reason)
        self._count(name, reason)
        if several:
            self.parts[node] = places
        else:
            self.places[node] = places[0]

    def _count(self, name: str, reason: str) -> None:
        self.counts.external[name] = self.counts.external.get(name, 0) + 1
        self.counts.reasons.setdefault(name, reason)

    def _emit_call(self, target: Any, args: Any, kwargs: Any, meta: Any, reason: str) -> list[Place]:
        operands: list[SSAValue] = []
        positions: dict[SSAValue, int] = {}

        def operand(memory: SSAValue) -> int:
            if memory not in positions:
                positions[memory] = len(operands)
                operands.append(memory)
            return positions[memory]

        def plain(item: Any) -> Any:
            known = self.metas(item)
            if isinstance(known, (int, float, bool, str)):
                return known
            return self._argument(item, operand)

        arguments = fx.map_arg(tuple(args), plain)
        keywords = fx.map_arg(dict(kwargs), plain)
        several = isinstance(meta, (list, tuple))
        metas = as_list(meta)
        number = len(self.calls)
        name = str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
        call = AtenCall(number, target, name, arguments, keywords, reason, several=several)
        call.out, call.out_names = out_overload(target, metas)
        places, types = self._call_results(call, metas)
        text = ", ".join([*map(shown, arguments), *(f"{key}={shown(item)}" for key, item in keywords.items())])
        if (ordered := is_ordered(target)) and self.previous is not None:
            operand(self.previous)
        op = aten_call(name, number, text, operands, types)
        self.emit.block.add_op(op)
        if ordered and op.results:
            self.previous = op.results[0]
        for place, value in zip(places, op.results, strict=True):
            place.root.memory = value
        self._keep_results(call, places, op)
        self.calls.append(call)
        return places

    def _call_results(self, call: AtenCall, metas: Sequence[Any]) -> tuple[list[Place], list[Attribute]]:
        places: list[Place] = []
        types: list[Attribute] = []
        for position, meta in enumerate(metas):
            view = own_view(meta) if is_tensor(meta) else None
            variable = f"f{call.number}_{position}"
            call.outputs.append(Output(variable, view, meta.dtype if view is not None else None))
            planned = call.out is not None
            dense = view is not None and dense_order(view.shape, view.strides) is not None
            if view is not None and dense and is_readable(meta, view) and (planned or 0 not in view.shape):
                order = dense_order(view.shape, view.strides)
                types.append(TensorType(ELEMENTS[meta.dtype].attribute, [view.shape[axis] for axis in order or ()]))
                root = Root(view, meta.dtype, None if planned else variable)
            else:
                types.append(_TOKEN)
                root = Root(view, None if view is None else meta.dtype, variable)
                view = root.view
            places.append(Place(root, view))
        return places, types

    def _keep_results(self, call: AtenCall, places: Sequence[Place], op: Any) -> None:
        """Memory that PyTorch gives is a buffer of the caller's; what has an effect only is kept, too."""
        if call.out is None:
            for place, output in zip(places, call.outputs, strict=True):
                if place.root.memory is not None and place.root.memory.type != _TOKEN and place.root.view is not None:
                    output.buffer = self._new_buffer(place.root, foreign=True)
        if not op.results:
            return
        if any(value.type == _TOKEN for value in op.results) and has_effect(call.target):
            self.effects.append(next(value for value in op.results if value.type == _TOKEN))

    def _new_buffer(self, root: Root, foreign: bool = False) -> int:
        assert root.memory is not None and root.view is not None
        self.buffers.append(Buffer(root.view, root.dtype, foreign))
        self.buffer_values.append(root.memory)
        return len(self.buffers) - 1

    def _argument(self, node: Any, operand: Callable[[SSAValue], int]) -> Any:
        """A node as the argument of a call."""
        place = self.places.get(node)
        if place is None:
            if node in self.parts:
                return [
                    self._located(part if isinstance(part, Place) else part[1], operand) for part in self.parts[node]
                ]
            raise NotImplementedError(f"'{node}' is nowhere")
        return self._located(place, operand)

    def _located(self, place: Place, operand: Callable[[SSAValue], int]) -> Any:
        root = place.root
        view = None if place.view == root.view else place.view
        if root.variable is not None:
            if root.memory is not None and (root.donated or not self._is_argument(root)):
                operand(root.memory)
            return Variable(root.variable, view)
        memory = self._materialized(root)
        assert place.view is not None
        return Memory(operand(memory), place.view, root.dtype)

    def _is_argument(self, root: Root) -> bool:
        return root.variable is not None and not root.variable.startswith("f")

    def _materialized(self, root: Root) -> SSAValue:
        """The root in the order of memory, written by the program or by a call."""
        if root.memory is None:
            assert root.view is not None
            value = self.value(root.computed)
            order = dense_order(root.view.shape, root.view.strides)
            assert order is not None
            plain = order == tuple(range(len(order)))
            root.memory = value if plain else self.emit.permute_dims(value, axes=list(order))
        return root.memory

    def _returned(self, item: Any) -> Returned:
        if not isinstance(item, fx.Node):
            return Returned(value=item)
        meta = self.metas(item)
        if not is_tensor(meta) and isinstance(meta, (int, float, bool, str)):
            return Returned(value=meta)
        if (place := self.places.get(item)) is None:
            return Returned(value=None)
        root = place.root
        view = None if place.view == root.view else place.view
        if root.variable is not None:
            if root.memory is not None and root.memory.type == _TOKEN and root.memory not in self.effects:
                self.effects.append(root.memory)  # or nothing in the program would need the call
            return Returned(variable=Variable(root.variable, view))
        self._materialized(root)
        if root.buffer is None:
            root.buffer = self._new_buffer(root)
        return Returned(buffer=root.buffer, view=view)
