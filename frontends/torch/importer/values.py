"""The tensors of a traced graph as values of graph ops: computed, or read where they lie in memory.

Each value has a root: the memory that it lies in, which is an argument's, a call's, or (where somebody needs it in memory)
one that the program writes. A view of a root costs nothing: kernels read it by index expressions, calls and results by
strides. So does the layout: a root is a tensor in the order of its elements in memory, with an axis permutation before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.precision import STRICT
from fuse_opt.dialects.types.dtypes import I8
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.api import ELEMENTS, is_tensor
from fuse_opt.frontends.torch.fx.handler import NotCoveredError
from fuse_opt.frontends.torch.fx.strides import contiguous_view, dense_order, layout_of
from fuse_opt.frontends.torch.importer.float_numbers import float_number
from fuse_opt.frontends.torch.importer.imported import Argument, AtenCall, Buffer, Counts
from fuse_opt.frontends.torch.importer.memory_places import (
    Place,
    Root,
    device_of,
    has_effect,
    is_readable,
    own_view,
    shared_arguments,
)

TOKEN = TensorType(I8.attribute, [])
"""The type of what stands for a result that the program cannot read, and says that it is there."""


class Values(ABC):
    """What is known of a graph while it is imported, and how values of it are found."""

    def __init__(
        self,
        graph_module: Any,
        metas: Callable[[Any], Any],
        *,
        library: bool = False,
        frozen: Collection[int] = (),
        precision: str = STRICT,
        libraries: bool = False,
        regenerated: Collection[int] = (),
    ) -> None:
        """
        `frozen` are numbers of arguments, of parameters and buffers under inference; `precision` is that of kernels. With
        `libraries` products and convolutions that no kernel has beside other work are calls of PyTorch's, as on a GPU.
        `regenerated` are numbers of results of which the caller takes the layout alone, to make them as views of arguments.
        """
        self.emit = Emitter()
        self.gm = graph_module
        self.metas = metas
        self.device = device_of(map(metas, graph_module.graph.nodes))
        self.libraries = libraries or self.device.type != "cpu"
        self.library = library
        self.frozen = frozen
        self.precision = precision
        self.regenerated = regenerated
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
        self.floats: set[Any] = set()
        """Nodes that are floats computed from extents: calls only where Python has to have them."""

    def _read_argument(self, root: Root) -> SSAValue:
        """The root as an argument of the program, in the order of memory where it fills it."""
        if root.memory is None:
            assert root.view is not None and root.variable is not None
            layout = layout_of(root.view.shape, root.view.strides)
            extents = root.view.shape if layout is None else layout.extents
            root.memory = self.emit.argument(root.variable, ELEMENTS[root.dtype], extents)
            dense = layout is not None
            frozen = root.frozen and dense and not root.donated
            self.arguments.append(Argument(root.variable, root.view, root.dtype, dense, root.donated, frozen))
            if layout is None:
                self.counts.copies.append(root.variable)
        return root.memory

    def _computed(self, node: Any) -> Place:
        meta = self.metas(node)
        view = own_view(meta)
        if view is not None and dense_order(view.shape, view.strides) is None:
            if not self._is_read_alone(node):
                raise NotCoveredError("has gaps in memory")
            view = contiguous_view(view.shape)
        return Place(Root(view, meta.dtype, computed=node), view)

    def _is_read_alone(self, node: Any) -> bool:
        """Whether nobody sees how a value lies in memory, as what `copy_` to a part of a tensor gives to who puts it there."""
        return all(
            user.op == "call_function" and not has_effect(user.target) and not shared_arguments(user.target)
            for user in node.users
        )

    def value(self, node: Any) -> SSAValue:
        """The value of a node as a tensor in the order of its axes. Raises NotCoveredError where it is none."""
        if (found := self.values.get(node)) is None:
            if node in self.floats:
                found = self.values[node] = float_number(self.emit, node, self.value, self.metas)
                return found
            place = self.places.get(node)
            if place is None:
                raise NotCoveredError("takes several results as one")
            found = self.values[node] = self._read(node, place)
        return found

    def _read(self, node: Any, place: Place) -> SSAValue:
        meta, root = self.metas(node), place.root
        if not is_tensor(meta) or not is_readable(meta, place.view, self.device):
            raise NotCoveredError("takes what the program has no element type or shape for")
        if root.view is None or place.view != root.view or (root.memory is None and root.variable is None):
            found = self._read_by_strides(place)
            return self._copied(node, meta) if found is None else found
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
        if memory.type == TOKEN:
            return None
        flat = self.emit.reshaped(memory, [whole])
        if size != whole:
            flat = self.emit.slice(flat, starts=[view.offset], stops=[view.offset + size])
        return layout.read(self.emit, flat, view.shape)

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

    def _new_buffer(self, root: Root, foreign: bool = False) -> int:
        assert root.memory is not None and root.view is not None
        self.buffers.append(Buffer(root.view, root.dtype, foreign))
        self.buffer_values.append(root.memory)
        return len(self.buffers) - 1

    @abstractmethod
    def _copied(self, node: Any, meta: Any) -> SSAValue:
        """A copy in C order of what kernels cannot read where it lies."""
