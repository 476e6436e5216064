"""The points of a kernel in its loops: addresses, what varies with which loop, and the emission of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType, UnrealizedConversionCastOp
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.analysis.loop_body import Point, Pulled, Store
from fuse_opt.dialects.interfaces.op import StructuredOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import DType, Kind
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.kernel.iteration_space import LoopSpace, index_dims, simplify_space
from fuse_opt.lowering.kernel.scalar_to_arith import emit_body, value_type
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.kernel.sign_analysis import is_nonpositive


@dataclass(frozen=True, eq=False)
class RowBuffer:
    """Scalars of one row, kept between its loops; `position` is where the element of a loop's iteration lies."""

    memory: SSAValue
    position: IndexExpr


@dataclass(eq=False)
class Stage:
    """One loop over `dims`: reductions, stores, and the scalars that it takes from and leaves in row buffers."""

    dims: tuple[Dim, ...]
    reductions: list[Point] = field(default_factory=list[Point])
    stores: list[Store] = field(default_factory=list[Store])
    taken: dict[Point, RowBuffer] = field(default_factory=dict[Point, RowBuffer])
    left: dict[Point, RowBuffer] = field(default_factory=dict[Point, RowBuffer])

    def roots(self) -> list[Point]:
        """The scalars that one iteration must know."""
        elements = [operand for point in self.reductions for operand in point.operands]
        return [*elements, *(store.point for store in self.stores)]


class KernelPoints:
    """What the emission of a kernel asks about its points, over simplified loop dimensions."""

    def __init__(self, pulled: Pulled) -> None:
        self.pulled = pulled
        self._positions = {point: _positions(point) for point in pulled.points if point.op is not None}
        loads = {point: point.address for point in pulled.points if point.op is None}
        spaces = [index_dims(pulled.rows), index_dims(pulled.columns)]
        spaces += [index_dims(point.loop) for point in pulled.points if point.op is not None and point.op.COMBINE]
        self._groups = {dims: number for number, dims in enumerate(dict.fromkeys(spaces))}
        expressions = [*loads.values(), *(store.address for store in pulled.stores)]
        expressions += [e for positions in self._positions.values() for e in positions.values()]
        self._loads = loads
        self.space: LoopSpace = simplify_space(list(self._groups), expressions)

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
        """Fixes the loops: from now on points have addresses and dimensions in them."""
        space = self.space
        self.addresses = {point: space.apply(address) for point, address in self._loads.items()}
        self.positions = {
            point: {axis: space.apply(e) for axis, e in positions.items()}
            for point, positions in self._positions.items()
        }
        self.dims: dict[Point, frozenset[Dim]] = {}
        for point in self.pulled.points:
            found: set[Dim] = set()
            if point.op is None:
                found |= self.addresses[point].dims()
            elif point.op.COMBINE:
                for expression in point.index:
                    found |= space.apply(expression).dims()
            else:
                for expression in self.positions[point].values():
                    found |= expression.dims()
                for operand in point.operands:
                    found |= self.dims[operand]
            self.dims[point] = frozenset(found)

    def varies(self, point: Point, dims: Iterable[Dim]) -> bool:
        return not self.dims[point].isdisjoint(dims)


def _positions(point: Point) -> dict[int, IndexExpr]:
    """The index expressions that the op's scalar meaning asks for, by axis."""
    assert point.op is not None
    nodes = sc.topological(point.op.body())
    return {int(node.value): point.index[int(node.value)] for node in nodes if node.function == "index"}


@dataclass(eq=False)
class PointEmitter:
    """Puts the values of points into scopes; `buffers` are the memrefs of the values from outside."""

    points: KernelPoints
    buffers: Mapping[SSAValue, SSAValue]

    def emit(self, roots: Sequence[Point], scope: Scope, stage: Stage | None = None) -> None:
        """Makes the values of the roots known in the scope, in the order in which the kernel was pulled."""
        needed: set[Point] = set()
        stack = [point for point in roots if scope.find(point) is None]
        while stack:
            point = stack.pop()
            if point in needed:
                continue
            needed.add(point)
            if stage is None or point not in stage.taken:
                stack.extend(operand for operand in point.operands if scope.find(operand) is None)
        for point in self.points.pulled.points:
            if point not in needed:
                continue
            if stage is not None and point in stage.taken:
                self._take(point, stage.taken[point], scope)
            else:
                self._emit_point(point, scope)
            if stage is not None and point in stage.left:
                row = stage.left[point]
                scope.block.add_op(
                    memref.StoreOp.get(self.value(point, scope), row.memory, [scope.index(row.position)])
                )

    def value(self, point: Point, scope: Scope) -> SSAValue:
        """The scalar in its compute type."""
        found = scope.find(point)
        assert found is not None, "a point is used before it is made"
        return found[0]

    def operand_values(self, point: Point, scope: Scope) -> list[SSAValue]:
        return [self.value(operand, scope) for operand in point.operands]

    def reduced_element(self, point: Point, scope: Scope) -> SSAValue:
        """What one iteration contributes to a reduction."""
        assert point.op is not None
        operands = self.operand_values(point, scope)
        return emit_body(scope, point.op.body(), operands, self._position_in(point, scope), _nonpositive_in(point))

    def define(self, point: Point, value: SSAValue, scope: Scope) -> None:
        """Makes the result of an op known, rounded to the element type as the IR says."""
        element = dtype(point.value)
        value.name_hint = value.name_hint or point.value.name_hint
        if element.compute is not element:
            narrow = scope.add(arith.TruncFOp(value, element.attribute))
            narrow.name_hint = value.name_hint
            scope.values["narrow", point] = narrow
            value = scope.add(arith.ExtFOp(narrow, element.compute.attribute))
            value.name_hint = narrow.name_hint
        scope.values[point] = value

    def store(self, point: Point, memory: SSAValue, address: IndexExpr, scope: Scope) -> None:
        """Stores the scalar as an element of its tensor."""
        element = dtype(point.value)
        value = self.value(point, scope)
        if element.compute is not element:
            found = scope.find(("narrow", point))
            value = found[0] if found else scope.add(arith.TruncFOp(value, element.attribute))
        elif element.kind is Kind.UINT:
            value = scope.add(_reinterpreted(value, element.attribute))
        scope.block.add_op(memref.StoreOp.get(value, memory, [scope.index(address)]))

    def _take(self, point: Point, row: RowBuffer, scope: Scope) -> None:
        value = scope.add(memref.LoadOp.get(row.memory, [scope.index(row.position)]))
        value.name_hint = point.value.name_hint
        element = dtype(point.value)
        if element.compute is not element and value.type == element.attribute:
            scope.values["narrow", point] = value
            value = scope.add(arith.ExtFOp(value, element.compute.attribute))
            value.name_hint = point.value.name_hint
        elif element.kind is Kind.UINT and value.type == element.attribute:
            value = scope.add(_reinterpreted(value, value_type(element)))
            value.name_hint = point.value.name_hint
        scope.values[point] = value

    def _emit_point(self, point: Point, scope: Scope) -> None:
        if point.op is None:
            self._load(point, scope)
            return
        assert not point.op.COMBINE, "a reduction is used before its loop"
        found = [scope.find(operand) for operand in point.operands]
        homes = [entry[1] for entry in found if entry is not None]
        homes += [scope.home(e.dims()) for e in self.points.positions[point].values()]
        home = max(homes, key=lambda other: other.depth, default=scope.root)
        operands = self.operand_values(point, home)
        body = point.op.body()
        value = emit_body(home, body, operands, self._position_in(point, home), _nonpositive_in(point))
        if body.function == "constant":
            home.values[point] = value
        elif body.function == "operand" and _same_type(point, source := point.operands[int(body.value)]):
            home.values[point] = value
            if narrow := home.find(("narrow", source)):
                home.values["narrow", point] = narrow[0]
        else:
            self.define(point, value, home)

    def _position_in(self, point: Point, scope: Scope) -> _Positions:
        return _Positions(self.points.positions[point], scope)

    def _load(self, point: Point, scope: Scope) -> None:
        element = dtype(point.value)
        if prod(shape(point.value)) == 0:
            scope.root.values[point] = scope.constant(0, element.compute)
            return
        address = self.points.addresses[point]
        home = scope.home(address.dims())
        value = home.add(memref.LoadOp.get(self.buffers[point.value], [home.index(address)]))
        value.name_hint = point.value.name_hint
        if element.kind is Kind.UINT:
            value = home.add(_reinterpreted(value, value_type(element)))
            value.name_hint = point.value.name_hint
        elif element.compute is not element:
            home.values["narrow", point] = value
            value = home.add(arith.ExtFOp(value, element.compute.attribute))
            value.name_hint = point.value.name_hint
        home.values[point] = value


@dataclass(frozen=True, slots=True)
class _Positions:
    """The result's index on an axis, as a value of the scope."""

    expressions: Mapping[int, IndexExpr]
    scope: Scope

    def __call__(self, axis: int) -> SSAValue:
        return self.scope.index(self.expressions[axis])


def _nonpositive_in(point: Point) -> Callable[[sc.Scalar], bool]:
    """Which nodes of the body of the point's op are never greater than zero."""
    return lambda node: is_nonpositive(node, point.operands)


def _same_type(point: Point, other: Point) -> bool:
    return dtype(point.value) is dtype(other.value)


def _reinterpreted(value: SSAValue, target: Attribute) -> UnrealizedConversionCastOp:
    return UnrealizedConversionCastOp.get([value], [target])


def element_buffer_type(element: DType, count: int) -> MemRefType:
    """A flat buffer of a tensor's elements."""
    return MemRefType(element.attribute, [count])


def body_cost(op: StructuredOp) -> int:
    """Approximate cost of the scalar meaning of one element, in simple operations."""
    return sc.cost(op.body()) + (1 if op.COMBINE else 0)
