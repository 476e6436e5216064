"""From a traced FX graph to a program of graph ops: what no record covers stays a call of PyTorch's own kernel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.frontends.builder import UnknownExtentError
from fuse_opt.frontends.torch.fx.api import as_list, aten, fx, is_tensor, torch
from fuse_opt.frontends.torch.fx.handler import (
    Built,
    Call,
    ImpossibleCallError,
    NotCoveredError,
    bound_arguments,
    check_type,
)
from fuse_opt.frontends.torch.fx.strides import View, dense_order, storage_view
from fuse_opt.frontends.torch.importer.extern_calls import Calls
from fuse_opt.frontends.torch.importer.float_numbers import is_float_number
from fuse_opt.frontends.torch.importer.imported import Imported, Returned, Stored, Variable
from fuse_opt.frontends.torch.importer.memory_places import (
    NUMBERS,
    Place,
    Root,
    is_on,
    is_readable,
    is_strided_view,
    own_view,
    tensors_of,
)
from fuse_opt.frontends.torch.importer.values import TOKEN
from fuse_opt.frontends.torch.operators.table import TABLE

_REFUSALS = (NotCoveredError, VerifyException, ScalarTypeError, UnknownExtentError, TypeError, ValueError)


class Importer(Calls):
    """Imports one graph. With `library`, calls that handlers stand for only in exported text become graph ops, too."""

    def run(self) -> Imported:
        nodes = list(self.gm.graph.nodes)
        self._find_stored(nodes)
        for number, node in enumerate(node for node in nodes if node.op == "placeholder"):
            self._placeholder(node, number)
        if self.library:
            self._read_arguments(nodes)
        stored: list[Stored] = []
        returned: list[Returned] = []
        for node in nodes:
            if node.op == "get_attr":
                self._attribute(node)
            elif node.op == "output":  # the first results of the program are those that arguments become
                stored = [Stored(self.names[target], self._stored(source)) for target, source in self.stored]
                items = enumerate(as_list(node.args[0]))
                returned = [self._in_argument(number, item) or self._returned(item) for number, item in items]
            elif node.op != "placeholder":
                self._node(node)
        module = self._finish()
        placeholders = [self.names[node] for node in nodes if node.op == "placeholder"]
        return Imported(
            module,
            bool(self.buffers or self.effects),
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
        marks = [argument.mark for argument in self.arguments]
        return self.emit.finish([*self.buffer_values, *self.effects], marks=marks, precision=self.precision)

    def _find_stored(self, nodes: Sequence[Any]) -> None:
        """Arguments that are overwritten at the end: the only mutation that functionalisation leaves."""
        found: dict[Any, Any] = {}
        for node in nodes:
            if _is_store(node):
                found.pop(node.args[0], None)
                found[node.args[0]] = node.args[1]
            elif isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
                raise NotImplementedError(f"{node.target} writes to its arguments")
        self.stored = list(found.items())

    def _stored(self, source: Any) -> Returned:
        """What becomes the contents of an argument; a copy of it where a store changes it."""
        place = self.places.get(source) if isinstance(source, fx.Node) else None
        if place is None or all(place.root.owner is not self.places[target].root for target, _ in self.stored):
            return self._returned(source)
        self.places[source] = self._copy_of(source, self.metas(source), "is stored, and its memory overwritten")
        found = self._returned(source)
        self.places[source] = place
        return found

    def _placeholder(self, node: Any, number: int) -> None:
        name = f"a{len(self.names)}"
        self.names[node] = name
        stored = any(node is target for target, _ in self.stored)
        self._variable(node, self.metas(node), name, donated=stored)
        self.places[node].root.frozen = number in self.frozen and not stored

    def _read_arguments(self, nodes: Sequence[Any]) -> None:
        """Makes all arguments those of the program, in order."""
        for node in nodes:
            place = self.places.get(node)
            if node.op != "placeholder" or not node.users or place is None or place.root.view is None:
                continue
            if is_readable(self.metas(node), place.view, self.device):
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
        root = Root(view, meta.dtype, name, donated=donated and fills and is_readable(meta, view, self.device))
        self.places[node] = Place(root, view)
        if root.donated:
            self._read_argument(root)

    def _node(self, node: Any) -> None:
        meta = self.metas(node)
        if _is_store(node):
            if any(user.op != "output" for user in node.users):
                raise NotImplementedError(f"reads argument '{node.args[0]}' after it is overwritten")
            self.places[node] = self.places[node.args[0]]
            return
        self.counts.nodes += 1
        if isinstance(meta, NUMBERS) or (meta is None and node.target is operator.getitem):
            self.counts.nodes -= 1
            return  # a number that is known
        if is_float_number(node, meta, lambda item: item in self.floats or isinstance(self.metas(item), NUMBERS)):
            self.counts.nodes -= 1
            self.floats.add(node)
            return
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

    def _try_record(self, node: Any, meta: Any) -> str | None:
        """Why no record makes graph ops of the node; None when one does, or when it is a view in memory."""
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return "is no operator of PyTorch"
        viewed = self._viewed(node, meta)
        handler = TABLE.get(str(node.target))
        if handler is None:
            if viewed is not None and is_tensor(meta):
                self.places[node] = viewed
                self.counts.views += 1
                return None
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                return "draws random numbers, which are PyTorch's, in the order of eager"
            return "is in no record"
        try:
            if not all(is_on(value, self.device) for value in tensors_of(meta)):
                raise NotCoveredError(f"is on another device than {_named(self.device)}")
            call = Call(self.emit, node, self.metas, self.value, self.library, self.libraries)
            built = handler.build(call)
            self._enter(node, meta, built, viewed)
        except ImpossibleCallError:
            raise
        except _REFUSALS as error:
            return str(error).partition("\n")[0]
        except Exception as error:  # of a handler at fault: PyTorch's kernel is right in any case
            return f"its record fails with {type(error).__name__}: {error}".partition("\n")[0]
        return None

    def _enter(self, node: Any, meta: Any, built: Built, viewed: Any) -> None:
        if isinstance(built, SSAValue):
            check_type(built, meta)
            self.places[node] = viewed or self._computed(node)
            self.values[node] = built
            self._count_native(viewed)
            return
        for value, part in zip(built, meta, strict=True):
            if value is not None:
                check_type(value, part)
        places = viewed or [None] * len(meta)
        self.parts[node] = list(zip(built, places, strict=True))
        self._count_native(viewed)

    def _count_native(self, viewed: Any) -> None:
        self.counts.views += viewed is not None
        self.counts.native += viewed is None

    def _viewed(self, node: Any, meta: Any) -> Any:
        """Where the results of a view lie: in the root of its operand; None for what is no strided view of known memory."""
        arguments = bound_arguments(node)
        source = next(iter(arguments.values()), None)
        place = self.places.get(source) if isinstance(source, fx.Node) else None
        if place is None or place.root.view is None or place.view is None:
            return None
        if arguments.get("storage_offset") is not None and place.root.variable is not None:
            return None  # counted from the beginning of a storage that may begin elsewhere in another run
        start = storage_view(self.metas(source))
        found: list[Place] = []
        for part in as_list(meta):
            if not is_tensor(part) or not is_strided_view(node.target, self.metas(source), part):
                return None
            view = storage_view(part)
            if view is None or start is None:
                return None
            offset = view[2] - start[2] + place.view.offset
            found.append(Place(place.root, View(view[0], view[1], offset)))
        return found if isinstance(meta, (list, tuple)) else found[0]

    def _in_argument(self, number: int, item: Any) -> Returned | None:
        """
        A result that the caller makes anew as a view of an argument, where what it is a view of becomes the contents of one that
        lies alike: as the view that it is, which begins where the argument does.
        """
        place = self.places.get(item) if number in self.regenerated and isinstance(item, fx.Node) else None
        if place is None:
            return None
        for target, source in self.stored:
            whole, argument = self.places.get(source), self.places[target].root
            if whole is None or whole.root is not place.root or whole.root.dtype is not argument.dtype:
                continue
            if whole.view == whole.root.view == argument.view:
                return Returned(variable=Variable(self.names[target], place.view))
        return None

    def _returned(self, item: Any) -> Returned:
        if not isinstance(item, fx.Node):
            return Returned(value=item)
        meta = self.metas(item)
        if not is_tensor(meta) and isinstance(meta, NUMBERS):
            return Returned(value=meta)
        if (place := self._place(item)) is None:
            raise NotImplementedError(f"returns '{item}', which is no tensor")
        root = place.root
        view = None if place.view == root.view else place.view
        if root.variable is not None:
            if root.memory is not None and root.memory.type == TOKEN and root.memory not in self.effects:
                self.effects.append(root.memory)  # or nothing in the program would need the call
            return Returned(variable=Variable(root.variable, view))
        self._materialized(root)
        if root.buffer is None:
            root.buffer = self._new_buffer(root)
        return Returned(buffer=root.buffer, view=view)


def _named(device: Any) -> str:
    return "the processor" if device.type == "cpu" else str(device)


def _is_store(node: Any) -> bool:
    """Whether a node overwrites an argument of the graph."""
    return node.op == "call_function" and node.target is aten.copy_.default and node.args[0].op == "placeholder"
