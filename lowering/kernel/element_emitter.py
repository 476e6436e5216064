"""The nodes of a kernel in its loops: addresses, what varies with which loop, and the emission of their values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, UnrealizedConversionCastOp
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.dtypes import DType, Kind
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.dialects.types.index_expr import Dim, Index, IndexExpr, Loaded
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.kernel.iteration_space import SHORTEST_SPLIT, LoopSpace, as_expr, index_dims, simplify_space
from fuse_opt.lowering.kernel.range_analysis import hints_of
from fuse_opt.lowering.kernel.scalar_to_arith import emit_body, value_type
from fuse_opt.lowering.kernel.scope import Scope, buffer_type, position_index
from fuse_opt.lowering.made_ops import load_op, store_op


@dataclass(frozen=True, eq=False)
class RowBuffer:
    """Scalars of one row, kept between its loops; `position` is where the element of a loop's iteration lies."""

    memory: SSAValue
    position: IndexExpr


@dataclass(eq=False)
class Stage:
    """One loop over `dims`: reductions, stores, and the scalars that it takes from and leaves in row buffers."""

    dims: tuple[Dim, ...]
    reductions: list[ScalarNode] = field(default_factory=list[ScalarNode])
    stores: list[Store] = field(default_factory=list[Store])
    taken: dict[ScalarNode, RowBuffer] = field(default_factory=dict[ScalarNode, RowBuffer])
    left: dict[ScalarNode, RowBuffer] = field(default_factory=dict[ScalarNode, RowBuffer])

    def roots(self) -> list[ScalarNode]:
        """The scalars that one iteration must know."""
        elements = [operand for node in self.reductions for operand in node.operands]
        return [*elements, *(store.node for store in self.stores)]


class KernelNodes:
    """What the emission of a kernel asks about its nodes, over simplified loop dimensions."""

    def __init__(self, loop_body: LoopBody, shortest: int = SHORTEST_SPLIT) -> None:
        """Innermost loops that are split are at least `shortest` elements long."""
        self.loop_body = loop_body
        self._positions = {node: _positions(node) for node in loop_body.nodes if node.op is not None}
        loads = {node: node.address for node in loop_body.nodes if node.op is None}
        spaces = [index_dims(loop_body.rows), index_dims(loop_body.columns)]
        spaces += [index_dims(node.loop) for node in loop_body.nodes if node.op is not None and node.op.COMBINE]
        self._groups = {dims: number for number, dims in enumerate(dict.fromkeys(spaces))}
        expressions = [*loads.values(), *(store.address for store in loop_body.stores)]
        expressions += [e for positions in self._positions.values() for e in positions.values()]
        self._loads = loads
        self.space: LoopSpace = simplify_space(list(self._groups), expressions, shortest)

    def loop(self, index: Sequence[IndexExpr]) -> tuple[Dim, ...]:
        """The dimensions that loops over an original space count."""
        return self.space.groups[self._groups[index_dims(tuple(index))]]

    def flatten_rows(self, dims: Sequence[Dim], over: Dim) -> None:
        """Lets one dimension count through all of `dims`."""
        self.space = self.space.flatten(dims, over)

    def split_dim(self, dim: Dim, outer: Dim, inner: Dim) -> None:
        """Lets two dimensions count through one, the inner one through neighbours."""
        self.space = self.space.split(dim, outer, inner)

    def finish(self) -> None:
        """Fixes the loops: from now on nodes have addresses and dimensions in them."""
        space = self.space
        self.addresses = {node: space.apply(address) for node, address in self._loads.items()}
        self.positions = {
            node: {axis: space.apply(e) for axis, e in positions.items()} for node, positions in self._positions.items()
        }
        self.sources: dict[tuple[Hashable, Index], tuple[int, ScalarNode]] = {}
        """The scalars that are positions, with a number, by what they are read from and where."""
        self.dims: dict[ScalarNode, frozenset[Dim]] = {}
        stored = (store.address for store in self.loop_body.stores)
        if any(address.loaded() for address in (*self.addresses.values(), *self._all_positions(), *stored)):
            for number, node in enumerate(self.loop_body.nodes):
                self.sources[node.value, tuple(space.apply(expression) for expression in node.index)] = number, node
        for node in self.loop_body.nodes:
            found: set[Dim] = set()
            if node.op is None:
                found |= self.addresses[node].dims()
            elif node.op.COMBINE:
                for expression in node.index:
                    found |= space.apply(expression).dims()
            else:
                for expression in self.positions[node].values():
                    found |= expression.dims()
                for operand in node.operands:
                    found |= self.dims[operand]
            self.dims[node] = frozenset(found)

    def _all_positions(self) -> Iterator[IndexExpr]:
        return (expression for positions in self.positions.values() for expression in positions.values())

    def varies(self, node: ScalarNode, dims: Iterable[Dim]) -> bool:
        return not self.dims[node].isdisjoint(dims)


def _positions(node: ScalarNode) -> dict[int, IndexExpr]:
    """The index expressions that the op's scalar meaning asks for, by axis."""
    assert node.op is not None
    terms = sc.topological(node.op.body())
    return {int(term.value): node.index[int(term.value)] for term in terms if term.function == "index"}


@dataclass(eq=False)
class ElementEmitter:
    """Puts the values of points into scopes; `buffers` are the memrefs of the values from outside."""

    nodes: KernelNodes
    buffers: Mapping[SSAValue, SSAValue]

    def emit(self, roots: Sequence[ScalarNode], scope: Scope, stage: Stage | None = None) -> None:
        """Makes the values of the roots known in the scope, in the order in which the kernel was traced."""
        needed: set[ScalarNode] = set()
        stack = [node for node in roots if scope.find(node) is None]
        while stack:
            node = stack.pop()
            if node in needed:
                continue
            needed.add(node)
            if stage is None or node not in stage.taken:
                stack.extend(operand for operand in node.operands if scope.find(operand) is None)
        left = self._left_by(roots, stage)
        for node in self.nodes.loop_body.nodes:
            if node not in needed:
                pass
            elif stage is not None and node in stage.taken:
                self._take(node, stage.taken[node], scope)
            else:
                self._emit_node(node, scope)
            if node in left and (node in needed or self._is_made_further_out(node, scope, stage)):
                row = left[node]
                scope.block.add_op(store_op(self.value(node, scope), row.memory, [scope.index(row.position)]))

    def _is_made_further_out(self, node: ScalarNode, scope: Scope, stage: Stage | None) -> bool:
        """Whether a loop around one of a stage's has made a value once, which is left for every element, too."""
        if stage is None or scope.find(node) is None:
            return False
        return not all(self.nodes.varies(node, (dim,)) for dim in stage.dims)

    @staticmethod
    def _left_by(roots: Sequence[ScalarNode], stage: Stage | None) -> dict[ScalarNode, RowBuffer]:
        """What a stage leaves of all that the roots are made of in it, wherever that is made."""
        if stage is None or not stage.left:
            return {}
        met: set[ScalarNode] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in met:
                continue
            met.add(node)
            if node not in stage.taken and (node.op is None or not node.op.COMBINE):
                stack.extend(node.operands)
        return {node: row for node, row in stage.left.items() if node in met}

    def opened(self, expression: IndexExpr, scope: Scope) -> IndexExpr:
        """An index expression of which positions that are data are dimensions, with values in the scope or further out."""
        values: dict[Dim | Loaded, IndexExpr] = {}
        for atom in expression.loaded():
            number, node = self.nodes.sources[atom.source, atom.index]
            if (found := scope.find(node)) is None:
                self.emit([node], scope.home(atom.dims()))
                found = scope.find(node)
            assert found is not None
            dim, home = Dim(f"at {number}", atom.extent), found[1]
            if dim not in home.indices:
                home.indices[dim] = position_index(self.value(node, home), dtype(node.value), atom.extent, home)
            values[atom] = as_expr(dim)
        return expression.substitute(values) if values else expression

    def value(self, node: ScalarNode, scope: Scope) -> SSAValue:
        """The scalar in its compute type."""
        found = scope.find(node)
        assert found is not None, "a point is used before it is made"
        return found[0]

    def operand_values(self, node: ScalarNode, scope: Scope) -> list[SSAValue]:
        return [self.value(operand, scope) for operand in node.operands]

    def reduced_element(self, node: ScalarNode, scope: Scope) -> SSAValue:
        """What one iteration contributes to a reduction."""
        assert node.op is not None
        operands = self.operand_values(node, scope)
        position, hints = self._position_in(node, scope), _hints_in(node, scope)
        return emit_body(scope, node.op.body(), operands, position, hints, position.is_short)

    def define(self, node: ScalarNode, value: SSAValue, scope: Scope) -> None:
        """Makes the result of an op known, rounded to the element type as the IR says."""
        element = dtype(node.value)
        value.name_hint = value.name_hint or node.value.name_hint
        if element.compute is not element:
            narrow = scope.add(arith.TruncFOp(value, element.attribute))
            narrow.name_hint = value.name_hint
            scope.values["narrow", node] = narrow
            value = scope.add(arith.ExtFOp(narrow, element.compute.attribute))
            value.name_hint = narrow.name_hint
        scope.values[node] = value

    def store(self, node: ScalarNode, memory: SSAValue, address: IndexExpr, scope: Scope) -> None:
        """Stores the scalar as an element of its tensor."""
        address = self.opened(address, scope)
        scope.block.add_op(store_op(self.stored_value(node, scope), memory, [scope.index(address)]))

    def stored_value(self, node: ScalarNode, scope: Scope) -> SSAValue:
        """The scalar in the type in which its tensor's elements are in memory."""
        element = dtype(node.value)
        value = self.value(node, scope)
        if element.compute is not element:
            found = scope.find(("narrow", node))
            value = found[0] if found else scope.add(arith.TruncFOp(value, element.attribute))
        elif element.kind is Kind.UINT:
            value = scope.add(_reinterpreted(value, element.attribute))
        return value

    def _take(self, node: ScalarNode, row: RowBuffer, scope: Scope) -> None:
        value = scope.add(load_op(row.memory, [scope.index(row.position)]))
        value.name_hint = node.value.name_hint
        element = dtype(node.value)
        if element.compute is not element and value.type == element.attribute:
            scope.values["narrow", node] = value
            value = scope.add(arith.ExtFOp(value, element.compute.attribute))
            value.name_hint = node.value.name_hint
        elif element.kind is Kind.UINT and value.type == element.attribute:
            value = scope.add(_reinterpreted(value, value_type(element)))
            value.name_hint = node.value.name_hint
        scope.values[node] = value

    def _emit_node(self, node: ScalarNode, scope: Scope) -> None:
        if node.op is None:
            self._load(node, scope)
            return
        assert not node.op.COMBINE, "a reduction is used before its loop"
        found = [scope.find(operand) for operand in node.operands]
        homes = [entry[1] for entry in found if entry is not None]
        homes += [scope.home(e.dims()) for e in self.nodes.positions[node].values()]
        home = max(homes, key=lambda other: other.depth, default=scope.root)
        operands = self.operand_values(node, home)
        body = node.op.body()
        position, hints = self._position_in(node, home), _hints_in(node, home)
        value = emit_body(home, body, operands, position, hints, position.is_short)
        if body.function == "constant":
            home.values[node] = value
        elif body.function == "operand" and _same_type(node, source := node.operands[int(body.value)]):
            home.values[node] = value
            if narrow := home.find(("narrow", source)):
                home.values["narrow", node] = narrow[0]
        else:
            self.define(node, value, home)

    def _position_in(self, node: ScalarNode, scope: Scope) -> _Positions:
        return _Positions(self.nodes.positions[node], scope, self)

    def _load(self, node: ScalarNode, scope: Scope) -> None:
        element = dtype(node.value)
        if prod(shape(node.value)) == 0:
            scope.root.values[node] = scope.constant(0, element.compute)
            return
        address = self.opened(self.nodes.addresses[node], scope)
        home = scope.home(address.dims())
        value = home.add(load_op(self.buffers[node.value], [home.index(address)]))
        value.name_hint = node.value.name_hint
        if element.kind is Kind.UINT:
            value = home.add(_reinterpreted(value, value_type(element)))
            value.name_hint = node.value.name_hint
        elif element.compute is not element:
            home.values["narrow", node] = value
            value = home.add(arith.ExtFOp(value, element.compute.attribute))
            value.name_hint = node.value.name_hint
        home.values[node] = value


@dataclass(frozen=True, slots=True)
class _Positions:
    """The result's index on an axis, as a value of the scope."""

    expressions: Mapping[int, IndexExpr]
    scope: Scope
    emitter: ElementEmitter

    def __call__(self, axis: int) -> SSAValue:
        return self.scope.index(self.emitter.opened(self.expressions[axis], self.scope))

    def is_short(self, axis: int) -> bool:
        """Whether 32 bits hold it."""
        low, high = self.expressions[axis].bounds
        return is_number(low) and is_number(high) and low >= -(2**31) and high < 2**31


def _hints_in(node: ScalarNode, scope: Scope) -> Callable[[sc.Scalar], list[str]]:
    """Those of ops of the body of the node's op that a kernel of this kind makes use of."""
    return lambda term: hints_of(term, node.operands, scope.root.HINTS)


def _same_type(node: ScalarNode, other: ScalarNode) -> bool:
    return dtype(node.value) is dtype(other.value)


def _reinterpreted(value: SSAValue, target: Attribute) -> UnrealizedConversionCastOp:
    return UnrealizedConversionCastOp.get([value], [target])


def element_buffer_type(element: DType, count: Extent) -> MemRefType:
    """A flat buffer of a tensor's elements; where their count is a size its type does not say it."""
    return buffer_type(element.attribute, DYNAMIC_INDEX if isinstance(count, Size) else count)


def body_cost(op: StructuredOp) -> int:
    """Approximate cost of the scalar meaning of one element, in simple operations."""
    return sc.cost(op.body()) + (1 if op.COMBINE else 0)
