"""Loads and stores of several neighbours at a time: which of a pass's addresses allow them, and their emission.

An address allows it where the neighbours of the inner dimension are neighbours in memory and its rest is a multiple of
their number. What a thread loads lies in buffers of its own, which are registers once the loops over them are unrolled;
its computation is a loop over the elements of a vector, so index arithmetic is done once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import vector
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.loop_body import ScalarNode, Store
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Clamp, Dim, IndexExpr, constant
from fuse_opt.lowering.gpu.context import GpuParts
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.program import VECTOR_BYTES


def is_vector(address: IndexExpr, inner: Dim) -> bool:
    """Whether the elements at all places of the inner dimension are one aligned vector."""
    neighbours = as_expr(inner)
    rest = address - neighbours
    if inner in rest.dims() or inner not in address.dims():
        return False
    return rest.constant % inner.extent == 0 and all(factor % inner.extent == 0 for _, factor in rest.terms)


def by_vectors(address: IndexExpr, inner: Dim) -> IndexExpr:
    """
    The address with what keeps speculative loads inside an operand applied to whole vectors, where each is inside or outside as
    a whole: the same but where what is read is not wanted.
    """
    changed, width = address, inner.extent
    for atom, factor in address.terms:
        if not isinstance(atom, Clamp) or not atom.loose or inner not in atom.value.dims():
            continue
        if is_vector(atom.value, inner) and atom.low % width == 0 == (atom.high + 1) % width:
            number = (atom.value - as_expr(inner)) // width
            first = number.clamp(atom.low // width, atom.high // width, loose=True) * width
            changed = changed - IndexExpr(((atom, factor),)) + (first + as_expr(inner)) * factor
    return changed


@dataclass
class VectorPlan:
    """The vectors of a pass: what is loaded and stored by them when `inner` counts through one."""

    nodes: KernelNodes
    inner: Dim
    loads: list[ScalarNode] = field(default_factory=list[ScalarNode])
    stores: list[Store] = field(default_factory=list[Store])

    @property
    def width(self) -> int:
        return self.inner.extent


def plan_vectors(nodes: KernelNodes, inner: Dim, loads: Iterable[ScalarNode], stores: Iterable[Store]) -> VectorPlan:
    """`nodes` are finished, and know the inner dimension."""
    plan = VectorPlan(nodes, inner)
    for node in loads:
        address = by_vectors(nodes.addresses[node], inner)
        if is_vector(address, inner):
            nodes.addresses[node] = address
            plan.loads.append(node)
    plan.stores = [store for store in stores if is_vector(nodes.space.apply(store.address), inner)]
    return plan


def widest_vector(loads: Iterable[ScalarNode], stores: Iterable[Store]) -> int:
    """Elements of a vector whose widest type fills an access; half as many where there are many arrays to hold."""
    sizes = [dtype(node.value).itemsize for node in loads] + [dtype(store.node.value).itemsize for store in stores]
    width = VECTOR_BYTES // max(sizes, default=VECTOR_BYTES)
    return max(width // 2, 1) if len(sizes) >= 8 else width


@dataclass(frozen=True)
class HeldVectors:
    """What a loop leaves of its loads for later loops, in memory of the block, and what it takes from there in place of loads."""

    taken: Mapping[ScalarNode, RowBuffer] = field(default_factory=dict[ScalarNode, RowBuffer])
    left: Mapping[ScalarNode, RowBuffer] = field(default_factory=dict[ScalarNode, RowBuffer])


class VectorMover:
    """The vectors of a thread: `count` of them of each array, in buffers of the thread."""

    def __init__(
        self, parts: GpuParts, plan: VectorPlan, count: Dim | None = None, held: HeldVectors | None = None
    ) -> None:
        """`held` is where vectors of loads lie, or are to be put, besides."""
        self.parts, self.plan = parts, plan
        self.held = held or HeldVectors()
        self.position = as_expr(plan.inner) if count is None else as_expr(count) * plan.width + as_expr(plan.inner)
        size = plan.width * (1 if count is None else count.extent)
        self.taken: dict[ScalarNode, RowBuffer] = {}
        for node in plan.loads:
            element = dtype(node.value)
            name = f"{node.value.name_hint or 'x'}_vector"
            self.taken[node] = RowBuffer(parts.kernel.registers(element.attribute, size, name), self.position)
        self.made: list[tuple[Store, SSAValue]] = []
        for store in plan.stores:
            element = dtype(store.node.value)
            name = f"{store.node.value.name_hint or 'r'}_vector"
            self.made.append((store, parts.kernel.registers(element.attribute, size, name)))

    def load(self, scope: Scope, nodes: Iterable[ScalarNode] | None = None) -> None:
        """Loads a vector of each of the nodes, or of all."""
        emitter = self.parts.emitter(self.plan.nodes)
        for node in self.plan.loads if nodes is None else nodes:
            memory = self.parts.kernel.parameters[self.parts.buffers.sources[node.value]]
            place = self.taken[node]
            if (row := self.held.taken.get(node)) is not None:
                self._move(scope, (row.memory, row.position), (place.memory, place.position))
                continue
            address = emitter.opened(self.plan.nodes.addresses[node], scope)
            self._move(scope, (memory, address), (place.memory, place.position))
            if (row := self.held.left.get(node)) is not None:
                self._move(scope, (place.memory, place.position), (row.memory, row.position))

    def keep(self, scope: Scope, stores: Iterable[Store]) -> list[Store]:
        """Puts what is to be stored into the thread's buffers; gives the stores that are not by vectors."""
        emitter = self.parts.emitter(self.plan.nodes)
        buffers = {id(store): memory for store, memory in self.made}
        others: list[Store] = []
        for store in stores:
            if (memory := buffers.get(id(store))) is None:
                others.append(store)
            else:
                emitter.store(store.node, memory, self.position, scope)
        return others

    def store(self, scope: Scope) -> None:
        """Stores the vectors of all results."""
        for store, memory in self.made:
            target = self.parts.kernel.parameters[self.parts.buffers.targets[store.result]]
            self._move(scope, (memory, self.position), (target, self.plan.nodes.space.apply(store.address)))

    def _move(self, scope: Scope, source: tuple[SSAValue, IndexExpr], target: tuple[SSAValue, IndexExpr]) -> None:
        first = {self.plan.inner: constant(0)}
        kind = source[0].type
        assert isa(kind, MemRefType)
        wanted = VectorType(kind.element_type, [self.plan.width])
        value = scope.add(vector.LoadOp(source[0], [scope.index(source[1].substitute(first))], wanted))
        value.name_hint = source[0].name_hint
        scope.block.add_op(vector.StoreOp(value, target[0], [scope.index(target[1].substitute(first))]))


def vector_memories(parts: GpuParts, plan: VectorPlan) -> list[SSAValue]:
    """What must be aligned."""
    parameters, buffers = parts.kernel.parameters, parts.buffers
    found = [parameters[buffers.sources[node.value]] for node in plan.loads]
    return list(dict.fromkeys([*found, *(parameters[buffers.targets[store.result]] for store in plan.stores)]))
