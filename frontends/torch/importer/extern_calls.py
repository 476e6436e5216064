"""Calls of PyTorch's kernels inside the program: what they take, and where their results lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.interfaces.shapes import tensor_type
from fuse_opt.dialects.torch import aten_call
from fuse_opt.dialects.types.size import Size, SizeRefusal
from fuse_opt.frontends.torch.fx.api import ELEMENTS, as_list, aten, fx, is_tensor, torch
from fuse_opt.frontends.torch.fx.strides import dense_order, storage_view
from fuse_opt.frontends.torch.importer.imported import AtenCall, Memory, Output, Variable
from fuse_opt.frontends.torch.importer.memory_places import (
    NUMBERS,
    Place,
    Root,
    has_effect,
    is_on,
    is_ordered,
    is_readable,
    own_view,
    shape_only,
    shared_arguments,
    shown,
    target_name,
)
from fuse_opt.frontends.torch.importer.values import TOKEN, Values
from fuse_opt.frontends.torch.recording.recordable import is_recordable


class Calls(Values):
    """Emits calls of PyTorch's kernels, and the copies that they make."""

    def _copied(self, node: Any, meta: Any) -> SSAValue:
        """A copy in C order, by PyTorch, of what lies in memory with gaps or in another order."""
        memory = self._copy_of(node, meta, "reads a view that kernels cannot").root.memory
        assert memory is not None
        return memory

    def _copy_of(self, node: Any, meta: Any, reason: str) -> Place:
        """A copy of a tensor by PyTorch, in C order, which nothing else lies in."""
        with self._tracing(meta):
            copy = meta.clone(memory_format=torch.contiguous_format)
        keywords = {"memory_format": torch.contiguous_format}
        (place,) = self._emit_call(aten.clone.default, (node,), keywords, copy, reason)
        self._count("aten.clone.default", reason)
        return place

    def _tracing(self, meta: Any) -> Any:
        return meta.fake_mode if hasattr(meta, "fake_mode") else torch.no_grad()

    def _kept_apart(self, node: Any) -> Place | None:
        """
        Where a tensor is to lie for a result that shares its memory: not where the program plans or overwrites memory.
        None where it is such a place already.
        """
        place = self.places.get(node)
        if place is None or place.root.view is None or (place.root.variable is not None and not place.root.donated):
            return None
        root, view, meta = place.root, place.root.view, self.metas(node)
        shape, strides = self._traced_layout(node, place)
        with self._tracing(meta):
            like = torch.empty_strided(shape, strides, dtype=root.dtype, device=meta.device)
        whole = {node: Place(root, view)}
        reason = "is seen by a view that is PyTorch's"
        (copy,) = self._emit_call(aten.clone.default, (node,), {}, like, reason, whole)
        self._count("aten.clone.default", reason)
        if root.donated:
            return Place(copy.root, place.view)
        root.variable, root.memory = copy.root.variable, copy.root.memory  # the value lies there from now on
        return None

    def _traced_layout(self, node: Any, place: Place) -> tuple[Any, Any]:
        """Shape and strides of a node's root, with PyTorch's symbols where they have sizes."""
        root, view = place.root, place.root.view
        assert view is not None
        if not any(isinstance(extent, Size) for extent in (*view.shape, *view.strides)):
            return view.shape, view.strides
        whole = (
            self.metas(node if place.view == view else root.computed) if place.view == view or root.computed else None
        )
        if whole is None or own_view(whole) != view:
            raise SizeRefusal(f"{target_name(node)}: a view of a part of it is PyTorch's, and its extents are sizes")
        return whole.shape, whole.stride()

    def _call(self, node: Any, meta: Any, reason: str) -> None:
        """Makes the node a call of PyTorch's."""
        name = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else target_name(node)
        if node.op == "call_method":
            raise NotImplementedError(f"call of the method {node.target}: expected a functional graph of operators")
        several = isinstance(meta, (list, tuple))
        shared = [node.args[at] for at in shared_arguments(node.target) if at < len(node.args)]
        sources = [item for entry in shared for item in as_list(entry) if isinstance(item, fx.Node)]
        moved = {item: apart for item in sources if (apart := self._kept_apart(item)) is not None}
        places = self._emit_call(node.target, node.args, node.kwargs, meta, reason, moved)
        for item in sources:
            if (source := moved.get(item) or self.places.get(item)) is not None:
                for place in places:
                    place.root.base = source.root
        self._count(name, reason)
        if several:
            self.parts[node] = places
        else:
            self.places[node] = places[0]

    def _count(self, name: str, reason: str) -> None:
        self.counts.external[name] = self.counts.external.get(name, 0) + 1
        self.counts.reasons.setdefault(name, reason)

    def _emit_call(
        self, target: Any, args: Any, kwargs: Any, meta: Any, reason: str, moved: Mapping[Any, Place] = {}
    ) -> list[Place]:
        """Adds a call. `moved` says where some nodes are taken from instead of where they are."""
        operands: list[SSAValue] = []
        positions: dict[SSAValue, int] = {}

        def operand(memory: SSAValue) -> int:
            if memory not in positions:
                positions[memory] = len(operands)
                operands.append(memory)
            return positions[memory]

        lent = shape_only(target, args, self.metas)

        def plain(item: Any) -> Any:
            known = self.metas(item)
            if lent is not None and item is lent[0]:
                return lent[1]
            if isinstance(known, NUMBERS):
                return known
            return self._located(moved[item], operand) if item in moved else self._argument(item, operand)

        arguments = fx.map_arg(tuple(args), plain)
        keywords = fx.map_arg(dict(kwargs), plain)
        several = isinstance(meta, (list, tuple))
        metas = as_list(meta)
        number = len(self.calls)
        name = str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
        call = AtenCall(number, target, name, arguments, keywords, reason, several=several)
        call.out, call.out_names = _out_overload(target, metas, self.device)
        call.recordable = is_recordable(target, fx.map_arg(tuple(args), self.metas), metas, self.device)
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
            if view is not None and dense and is_readable(meta, view, self.device) and (planned or 0 not in view.shape):
                order = dense_order(view.shape, view.strides)
                types.append(tensor_type(ELEMENTS[meta.dtype].attribute, [view.shape[axis] for axis in order or ()]))
                root = Root(view, meta.dtype, None if planned else variable)
            else:
                types.append(TOKEN)
                root = Root(view, None if view is None else meta.dtype, variable)
                view = root.view
            places.append(Place(root, view))
        return places, types

    def _keep_results(self, call: AtenCall, places: Sequence[Place], op: Any) -> None:
        """Memory that PyTorch gives is a buffer of the caller's; what has an effect only is kept, too."""
        if call.out is None:
            for place, output in zip(places, call.outputs, strict=True):
                if place.root.memory is not None and place.root.memory.type != TOKEN and place.root.view is not None:
                    output.buffer = self._new_buffer(place.root, foreign=True)
        if not op.results:
            return
        if any(value.type == TOKEN for value in op.results) and has_effect(call.target):
            self.effects.append(next(value for value in op.results if value.type == TOKEN))

    def _argument(self, node: Any, operand: Callable[[SSAValue], int]) -> Any:
        """A node as the argument of a call."""
        place = self._place(node)
        if place is None:
            if node in self.parts:
                return [
                    self._located(part if isinstance(part, Place) else part[1], operand) for part in self.parts[node]
                ]
            raise NotImplementedError(f"'{node}' is nowhere")
        return self._located(place, operand)

    def _place(self, node: Any) -> Place | None:
        """Where a node's value lies; a float that follows from extents is computed by a call now."""
        if node in self.floats and node not in self.places:
            self._call(node, self.metas(node), "is a number that Python has to have")
        return self.places.get(node)

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


def _out_overload(target: Any, metas: Sequence[Any], device: Any) -> tuple[Any, tuple[str, ...]]:
    """
    The overload of an operator that writes its results to given tensors without a copy, and the names of these arguments;
    None where there is none, or a result is no strided tensor of known shape that fills its memory.
    """
    found, names = _native_out(target)
    if found is None or len(names) != len(metas) or not all(_is_plannable(meta, device) for meta in metas):
        return None, ()
    return found, names


@cache
def _native_out(target: Any) -> tuple[Any, tuple[str, ...]]:
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return None, ()
    wanted = [(argument.name, str(argument.type)) for argument in target._schema.arguments]
    packet = target.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        if torch.Tag.generated in candidate.tags:
            continue
        given = candidate._schema.arguments
        plain = [(argument.name, str(argument.type)) for argument in given if not argument.is_out]
        if plain == wanted and len(plain) < len(given):
            return candidate, tuple(argument.name for argument in given if argument.is_out)
    return None, ()


def _is_plannable(meta: Any, device: Any) -> bool:
    if not is_tensor(meta) or meta.dtype not in ELEMENTS or not is_on(meta, device):
        return False
    view = storage_view(meta)
    return view is not None and dense_order(view[0], view[1]) is not None
