"""Tracing: what a group of graph ops computes, as scalars at indices.

The scalar of a value at an index is a load when the value comes from outside, else its op's body over the scalars of
its operands at the composed indices; each is made once. A reduction makes a loop over dimensions of its own. So
broadcasts, transposes and slices cost nothing, a group that is one pass over rows is seen as one, and legality
(`Unschedulable`), in-place access maps and generated loops all follow from the same nodes.

A group is a set of bare graph ops and `fused.kernel`s; nothing has to be built to ask about a fusion.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import cast

from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.layouts import address, element_at, element_index, encoding, memory_extents
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar import Scalar, topological
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.index_expr import Dim, Index, IndexExpr, dimensions, linearize
from fuse_opt.dialects.types.size import Undecided


class Unschedulable(Exception):
    """The group is not one pass over a space of independent rows or elements; `code` names the reason."""

    def __init__(self, code: str, message: str, op: Operation | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.op = op


@dataclass(eq=False, slots=True)
class ScalarNode:
    """
    The scalar of `value` at `index`: a load of an outside value, an op over nodes, or a reduction over `loop`. Where the index
    has positions that are data, what they are read from follows as operands.
    """

    value: SSAValue
    index: Index
    op: StructuredOp | None
    operands: tuple[ScalarNode, ...] = ()
    loop: Index = ()
    dims: frozenset[Dim] = frozenset()

    @property
    def address(self) -> IndexExpr:
        """Where the value's tensor has it in memory, in elements."""
        return address(self.value, self.index)


@dataclass(frozen=True, slots=True)
class Store:
    """Result number `result` takes the scalar `node` at the position `address` of its memory."""

    result: int
    node: ScalarNode
    address: IndexExpr
    per_row: bool


@dataclass(frozen=True, slots=True)
class LoopBody:
    """A group as one pass: independent `rows`, each of `columns` elements (none for a pointwise group)."""

    rows: Index
    row_extents: tuple[int, ...]
    columns: Index
    column_extents: tuple[int, ...]
    nodes: tuple[ScalarNode, ...]
    stores: tuple[Store, ...]

    @property
    def is_row(self) -> bool:
        return any(node.loop or (node.op is not None and node.op.COMBINE) for node in self.nodes)

    def loads(self) -> list[ScalarNode]:
        return [node for node in self.nodes if node.op is None]


_Key = tuple[SSAValue, int]
"""A value, and the number of the index at which it is wanted."""


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the scalar of a key is made from: nothing for a load, whose op is None."""

    op: StructuredOp | None
    keys: tuple[_Key, ...] = ()
    loop: Index = ()


class Tracer:
    """Makes the nodes of scalars of values at indices, each once, in `order`: each after its operands."""

    def __init__(
        self,
        members: Collection[Operation],
        column_dims: frozenset[Dim],
        limit: int,
        outside: Collection[Operation] = (),
    ) -> None:
        self.column_dims = column_dims
        self.limit = limit
        self.ops = set(members)
        self.inner = seen_through(members)
        for kernel in members:
            if isinstance(kernel, KernelOp):
                self.ops.update(kernel.block.ops)
        self.ops.difference_update(outside)
        self.made: dict[_Key, ScalarNode] = {}
        self.order: list[ScalarNode] = []
        self.numbers: dict[Index, int] = {}
        """Keys hold numbers of indices: these are asked for very often, and expressions are slow to compare."""
        self.indices: list[Index] = []
        self.dims: list[frozenset[Dim]] = []
        """By number, the dimensions of an index."""

    def at(self, root: SSAValue, index: Index) -> ScalarNode:
        """The node of a value at an index, made with all that it needs; no recursion."""
        start = (self.resolve(root), self.number(index))
        waiting: dict[_Key, _Needs] = {}
        stack = [start]
        while stack:
            key = stack[-1]
            if key in self.made:
                stack.pop()
                continue
            if (needs := waiting.get(key)) is None:
                needs = waiting[key] = self._needs(*key)
                if missing := [need for need in needs.keys if need not in self.made]:
                    stack.extend(reversed(missing))
                    continue
            stack.pop()
            self._make(key, needs)
        return self.made[start]

    def resolve(self, value: SSAValue) -> SSAValue:
        """The value seen through the boundaries of member kernels."""
        return resolve(value, self.inner)

    def number(self, index: Index) -> int:
        if (found := self.numbers.get(index)) is None:
            found = self.numbers[index] = len(self.indices)
            self.indices.append(index)
            self.dims.append(frozenset(dim for i in index for dim in i.dims()))
        return found

    def _needs(self, value: SSAValue, number: int) -> _Needs:
        index = self.indices[number]
        if value.owner not in self.ops:
            return _Needs(None, self._positions(index))
        op = _structured(value)
        loop: Index = ()
        if op.COMBINE:
            loop, _ = reduced_loop(op)
            self._check_reduction(op, number)
        keys: list[_Key] = []
        inner = column_index(op.reduced_extents())
        for operand, source in enumerate(op.operands):
            at = op.operand_index(operand, index, inner)
            keys.append((self.resolve(source), number if at is index else self.number(self._resolved(at))))
        if _asks_position(op.body()):
            keys.extend(self._positions(index))
        return _Needs(op, tuple(keys), loop)

    def _resolved(self, index: Index) -> Index:
        """The index with what its positions are read from seen through the boundaries of kernels."""
        atoms = [atom for expression in index for atom in expression.loaded()]
        sources = {atom.source: self.resolve(cast(SSAValue, atom.source)) for atom in atoms}
        return tuple(expression.substitute({}, sources) for expression in index) if sources else index

    def _positions(self, index: Index) -> tuple[_Key, ...]:
        """What the positions of an index are read from."""
        atoms = dict.fromkeys(atom for expression in index for atom in expression.loaded())
        return tuple((cast(SSAValue, atom.source), self.number(atom.index)) for atom in atoms)

    def _check_reduction(self, op: StructuredOp, number: int) -> None:
        if any(expression.loaded() for expression in self.indices[number]):
            raise Unschedulable("data-position", f"'{op.name}' would be computed at places that are data", op)
        if self.dims[number] & self.column_dims:
            raise Unschedulable(
                "nested-reduction", f"'{op.name}' would be recomputed for every element of the row that uses it", op
            )

    def _make(self, key: _Key, needs: _Needs) -> None:
        value, number = key
        op = needs.op
        operands = tuple([self.made[need] for need in needs.keys])
        node = ScalarNode(value, self.indices[number], op, operands, needs.loop, self.dims[number])
        if op is not None and not op.COMBINE and operands and all(p.op is not None for p in operands):
            dims = operands[0].dims.union(*(p.dims for p in operands))
            if dims != node.dims and not _uses_index(op):
                node.dims = dims
        self.made[key] = node
        self.order.append(node)
        if len(self.order) > self.limit:
            raise Unschedulable("recompute", f"values would be recomputed at more than {self.limit} places", op)


def _uses_index(op: StructuredOp) -> bool:
    """Whether the scalar depends on more than the operands' scalars and their dimensions: on where it is wanted."""
    return op.fusion_kind() > FusionKind.BROADCAST or _asks_position(op.body())


@cache
def _asks_position(body: Scalar) -> bool:
    return any(node.function == "index" for node in topological(body))


def _structured(value: SSAValue) -> StructuredOp:
    op = value.owner
    if not isinstance(op, StructuredOp) or op.stored_value() is not None:
        assert isinstance(op, Operation)
        raise Unschedulable("opaque", f"'{op.name}' has no scalar meaning; it runs as a library call", op)
    return op


def column_index(extents: Sequence[int]) -> Index:
    """The dimensions of a loop over reduced extents; equal extents share them, so stages can share values."""
    return dimensions("c", extents)


def reduced_loop(op: StructuredOp) -> tuple[Index, tuple[int, ...]]:
    """The loop over what a reduction reduces, and its extents, outermost first as the first operand lies in memory."""
    extents = op.reduced_extents()
    index = column_index(extents)
    if not op.operands or encoding(op.operands[0]) is None:
        return index, extents
    rows = dimensions("r", shape(op.results[0]))
    factors = address(op.operands[0], op.operand_index(0, rows, index)).coefficients() or {}
    steps = [max((abs(factors.get(dim, 0)) for dim in expression.dims()), default=0) for expression in index]
    order = sorted(range(len(steps)), key=lambda axis: -steps[axis])
    return tuple(index[axis] for axis in order), tuple(extents[axis] for axis in order)


def seen_through(members: Collection[Operation]) -> dict[SSAValue, SSAValue]:
    """What results and arguments of the kernels among the members stand for: values inside of them, or outside."""
    found: dict[SSAValue, SSAValue] = {}
    for kernel in members:
        if isinstance(kernel, KernelOp):
            found.update(zip(kernel.results, kernel.yielded(), strict=True))
            found.update(zip(kernel.block.args, kernel.operands, strict=True))
    return found


def resolve(value: SSAValue, boundaries: Mapping[SSAValue, SSAValue]) -> SSAValue:
    """The value seen through boundaries of kernels."""
    while (inner := boundaries.get(value)) is not None:
        value = inner
    return value


def member_ops(members: Collection[Operation]) -> list[GraphOp]:
    """The graph ops of a group, with those inside its kernels."""
    found: list[GraphOp] = []
    for op in members:
        if isinstance(op, KernelOp):
            found.extend(op.ops())
        elif isinstance(op, GraphOp):
            found.append(op)
    return found


def trace_nodes(
    value: SSAValue, index: Index, members: Collection[Operation], outside: Collection[Operation] = ()
) -> tuple[ScalarNode, ...]:
    """
    What the scalar of a value at an index is made from, as the members but those `outside` make it, each after its operands:
    the last one is the scalar itself. Raises Unschedulable.
    """
    walk = Tracer(members, frozenset(), 16 * len(member_ops(members)) + 64, outside)
    walk.at(value, index)
    _refuse_data(walk)
    return tuple(walk.order)


def _refuse_data(walk: Tracer) -> None:
    """Refuses positions that are data: loops around products take addresses apart."""
    if any(expression.loaded() for index in walk.indices for expression in index):
        raise Unschedulable("data-position", "it reads at positions that are data, which a product's loops do not")


def trace_scalar(
    value: SSAValue, index: Index, members: Collection[Operation], outside: Collection[Operation] = ()
) -> ScalarNode:
    """The scalar of a value at an index, as the members but those `outside` make it. Raises Unschedulable."""
    return trace_nodes(value, index, members, outside)[-1]


def trace_kernel(kernel: KernelOp) -> LoopBody:
    """The kernel as one pass. Raises Unschedulable."""
    return trace(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))


def trace(results: Sequence[SSAValue], members: Collection[Operation], outside: Collection[Operation] = ()) -> LoopBody:
    """
    A group that gives `results` as one pass; equal groups give equal answers. What members `outside` make, in kernels
    or not, is loaded as if it came from elsewhere. Raises Unschedulable.
    """
    try:
        return _traced(results, members, outside)
    except Undecided as reason:
        raise Unschedulable("undecided", str(reason)) from reason


def _traced(results: Sequence[SSAValue], members: Collection[Operation], outside: Collection[Operation]) -> LoopBody:
    ops = [op for op in member_ops(members) if op not in outside]
    limit = 16 * len(ops) + 64
    reductions = [op for op in ops if isinstance(op, StructuredOp) and op.COMBINE]
    sizes = [prod(shape(result)) for result in results]
    if not results:
        raise Unschedulable("no-result", "a kernel without results computes nothing")
    if not reductions:
        return _trace_pointwise(results, sizes, members, limit, outside)
    anchor, element = _anchor(reductions, sizes)
    space = memory_extents(anchor.results[0])
    rows = dimensions("r", space)
    columns, extents = reduced_loop(anchor)
    column_dims = frozenset(d for op in reductions for i in column_index(op.reduced_extents()) for d in i.dims())
    walk = Tracer(members, column_dims, limit, outside)
    row = linearize(rows, space)
    stores: list[Store] = []
    places: dict[Attribute, Index] = {}
    for number, (result, size) in enumerate(zip(results, sizes, strict=True)):
        per_row = element is None or size != prod(space) * prod(extents)
        position = row if element is None or per_row else element
        if (wanted := result.type) not in places:  # which the address follows from
            places[wanted] = element_at(result, position)
        stores.append(Store(number, walk.at(result, places[wanted]), position, per_row))
    if outside:
        _refuse_data(walk)
    return LoopBody(rows, space, columns, extents, tuple(walk.order), tuple(stores))


def _trace_pointwise(
    results: Sequence[SSAValue],
    sizes: Sequence[int],
    members: Collection[Operation],
    limit: int,
    outside: Collection[Operation],
) -> LoopBody:
    if len(set(sizes)) > 1:
        raise Unschedulable(
            "unequal-results", f"results of {sorted(set(sizes), key=estimate)} elements cannot share one loop"
        )
    extents = memory_extents(results[0])
    place = dimensions("i", extents)
    position = linearize(place, extents)
    index = element_index(results[0], place)
    walk = Tracer(members, frozenset(), limit, outside)
    stores: list[Store] = []
    for number, result in enumerate(results):
        at = index if result.type == results[0].type else _same_shape(result, results[0], index, position)
        stores.append(Store(number, walk.at(result, at), position, False))
    if outside:
        _refuse_data(walk)
    return LoopBody(place, extents, (), (), tuple(walk.order), tuple(stores))


def _same_shape(result: SSAValue, first: SSAValue, index: Index, position: IndexExpr) -> Index:
    """The element of a result that is stored where the first one stores that at `index`."""
    alike = shape(result) == shape(first) and encoding(result) == encoding(first)
    return index if alike else element_at(result, position)


def _anchor(reductions: Sequence[StructuredOp], sizes: Sequence[int]) -> tuple[StructuredOp, IndexExpr | None]:
    """The reduction whose rows and row elements are those of every result: the one with the longest rows.

    With it the address of a row element, when there are results of so many elements. They are stored there, so it must
    be another one in every row and column: the windows of a sliding reduction overlap, and are no rows of elements.
    """
    wanted = set(sizes)
    overlapping: StructuredOp | None = None
    for op in sorted(reductions, key=lambda op: -estimate(prod(op.reduced_extents()))):
        rows = prod(shape(op.results[0]))
        elements = rows * prod(op.reduced_extents())
        if wanted == {rows} and elements != rows:
            return op, None
        if wanted <= {rows, elements} and ((element := _element_address(op)) is not None or wanted == {rows}):
            return op, element
        if overlapping is None and wanted <= {rows, elements, *(prod(shape(value)) for value in op.operands)}:
            overlapping = op
    if overlapping is not None:
        raise Unschedulable(
            "overlapping-rows",
            f"'{overlapping.name}' reads elements in several rows, or leaves some out: its rows cannot store results "
            f"of {sorted(wanted, key=estimate)} elements",
            overlapping,
        )
    raise Unschedulable(
        "unequal-results",
        f"results of {sorted(wanted, key=estimate)} elements are neither the rows nor the row elements of one reduction",
        reductions[0],
    )


def _element_address(op: StructuredOp) -> IndexExpr | None:
    """Where an operand has the element of a row and a column, when it has just these and each once; else None."""
    rows, columns = dimensions("r", memory_extents(op.results[0])), column_index(op.reduced_extents())
    index = element_index(op.results[0], rows)
    count = prod(shape(op.results[0])) * prod(op.reduced_extents())
    for number, value in enumerate(op.operands):
        if prod(shape(value)) != count:
            continue
        position = address(value, op.operand_index(number, index, columns))
        if count == 0 or _counts_through(position, (*rows, *columns)):
            return position
    return None


def _counts_through(address: IndexExpr, index: Index) -> bool:
    """Whether the address is a mixed-radix number of which the dimensions are all the digits: each value once."""
    factors = address.coefficients()
    dims = {dim for i in index for dim in i.dims()}
    if factors is None or set(factors) != dims:
        return False
    place = 1
    for dim, factor in sorted(factors.items(), key=lambda item: abs(estimate(item[1]))):
        if abs(factor) != place:
            return False
        place *= dim.extent
    return address.bounds[0] == 0
