"""Kernels of two products with a pass over rows between them, as attention is: softmax(q k^T, masked) v in one launch.

The pass between is whatever the ops say, as long as it goes over rows of the first product's result and gives the left operand
of the second: scales, masks, softmax, and what variants of attention add. Rows of scores are never in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.causal_masks import alike_behind_mask, columns_seen
from fuse_opt.dialects.analysis.contractions.operand_access import (
    OperandAccess,
    SplitRows,
    operand_access,
    without_panels,
)
from fuse_opt.dialects.analysis.contractions.result_places import result_places
from fuse_opt.dialects.analysis.loop_body import (
    LoopBody,
    Unschedulable,
    member_ops,
    resolve,
    seen_through,
    trace,
)
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.contraction import Contraction, row_major
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, may_rows_be_long
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.dialects.types.extents import estimate, is_decided, is_number, may_exceed, most
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent

ATTENTION = "attention"
"""The schedule kind of a kernel of two products with rows between them."""
OWN = -1
"""The number, in `Attention.weights`, of the result that is the second product's left operand and no result of the kernel."""
FEWEST_ROWS = 6
"""Of a matrix of queries, below which copies of keys and values take longer than the products: these are read where they lie."""
MOST_ON_STACK = 1 << 20
"""Bytes of the copies of the keys and values of a matrix that a task makes for itself, to its stack."""
PANEL_BYTES = 256
"""Of a row of the widest panel of values, which few columns fill in part."""
KEYS_OF_ATTENTION = 8
"""Times the elements of a key and a value: there are more keys than that in long attention, and fewer rows in weights."""
MOST_SCORES = 256 << 10
"""Bytes of a row of scores; some of them lie on the stack, in caches."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Two products of equal batches: `weights` makes the left operand of the second from `first_raw`, `epilogue` the
    results from `second_raw`."""

    first_raw: SSAValue
    second_raw: SSAValue
    first: Contraction
    second: Contraction
    queries: OperandAccess
    keys: OperandAccess
    values: OperandAccess
    weights: LoopBody
    seen: IndexExpr | None
    """How many leading keys a row of `weights` looks at, in terms of its rows; None where it may be all of them."""
    hides_alike: bool
    """Whether the keys that a row does not look at are alike in all that is made of them."""
    reads_in_place: bool
    """Whether there are few rows, so that keys and values are read where they lie."""
    epilogue: LoopBody
    places: dict[Dim, IndexExpr]
    """The dimensions of the epilogue, by the axes of the second product's result."""

    def contracted(self) -> set[SSAValue]:
        """What is read before the epilogue."""
        matrices = {operand.value for operand in (self.queries, self.keys, self.values)}
        return matrices | {load.value for load in self.weights.loads()}


def attention_problem(queries: Extent, keys: Extent, depth: Extent, width: Extent, itemsize: int) -> str | None:
    """
    Why no code is generated for matrices of so many queries, and keys of `depth` and values of `width` elements of so many
    bytes; None where it is.
    """
    if not is_number(depth) or not is_number(width):
        return f"keys and values have {depth} and {width} elements; code is generated for a number of them"
    if (not are_few(queries) and estimate(queries) < FEWEST_ROWS) or not queries * keys * depth * width:
        return f"there are {queries} queries to {keys} keys"
    if is_number(keys) and keys * itemsize > MOST_SCORES:
        return f"scores of {keys} keys do not lie in a cache, row by row"
    return None


def are_few(queries: Extent) -> bool:
    """Whether so many rows meet keys and values where these lie."""
    return is_number(queries) and queries < FEWEST_ROWS


def most_keys(first: Contraction, second: Contraction, itemsize: int) -> int:
    """Keys that code for sizes has room for: of each lie a key and a value on a stack, or the scores of few rows."""
    breadth = first.rows + 1 if are_few(first.rows) else first.depth + second.columns
    panels = first.depth * itemsize + -(-second.columns * itemsize // PANEL_BYTES) * PANEL_BYTES
    room = min(MOST_ON_STACK // (breadth * itemsize), 2 * MOST_ON_STACK // panels)
    return min(most(first.columns), room, MOST_SCORES // itemsize)


def attention_of(kernel: KernelOp) -> Attention:
    """What a kernel computes. Raises Unschedulable: why it is no attention that code is generated for."""
    return trace_attention(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))


def trace_attention(results: Sequence[SSAValue], members: Collection[Operation]) -> Attention:
    """What a group that gives `results` computes. Raises Unschedulable."""
    return _Tracer(results, members).trace()


class _Tracer:
    def __init__(self, results: Sequence[SSAValue], members: Collection[Operation]) -> None:
        self.members = members
        self.ops = member_ops(members)
        self.boundaries = seen_through(members)
        self.results = [self.resolve(value) for value in results]
        products = [op for op in self.ops if isinstance(op, OpaqueOp)]
        if len(products) != 2 or any(op.contraction() is None for op in products):
            raise Unschedulable("no-attention", "it does not hold two products")
        if not all(is_sized(value) for op in self.ops for value in (*op.operands, *op.results)):
            raise Unschedulable("dynamic-shape", "it has unknown shapes", products[0])
        if any(encoding(value) is not None for op in self.ops for value in op.results):
            raise Unschedulable("layout", "it computes in another order than the row-major one", products[0])
        self.first_op, self.second_op = products
        self.behind = self._needing(self.second_op)
        if self.first_op in self.behind:
            self.first_op, self.second_op = self.second_op, self.first_op
            self.behind = self._needing(self.second_op)

    def resolve(self, value: SSAValue) -> SSAValue:
        return resolve(value, self.boundaries)

    def _needing(self, op: Operation) -> set[Operation]:
        """The op, and those that read what it makes."""
        found: set[Operation] = {op}
        for other in self.ops:
            if any(self.resolve(value).owner in found for value in other.operands):
                found.add(other)
        return found

    def trace(self) -> Attention:
        first, second = (op.contraction() for op in (self.first_op, self.second_op))
        assert first is not None and second is not None
        self._check_types()
        try:
            return self._trace(first, second)
        except SplitRows as reason:
            rows = reason.rows
            splits = is_decided(lambda: 1 < rows < first.rows and first.rows % rows == 0)
            if not splits or first.rows != second.rows:
                raise
            return self._trace(first.with_rows(rows), second.with_rows(rows))

    def _check_types(self) -> None:
        values = [*self.first_op.operands[:2], *self.second_op.operands[:2], self.first_op.results[0]]
        kinds = {dtype(value) for value in values}
        if len(kinds) > 1 or not kinds <= {F32, F64}:
            names = ", ".join(sorted(kind.name for kind in kinds))
            raise Unschedulable("element-type", f"its products are of {names}; code is generated for f32 and f64")

    def _trace(self, first: Contraction, second: Contraction) -> Attention:
        batch, rows, keys = prod(first.batch), first.rows, first.columns
        apart = (self.first_op, self.second_op)
        wanted = row_major((*second.batch, second.rows, second.depth))
        if (batch, rows, keys) != (prod(second.batch), second.rows, second.depth) or not _same_strides(second, wanted):
            raise Unschedulable("no-attention", "the rows of one product are not those of the other", self.second_op)
        size = dtype(self.first_op.results[0]).itemsize
        if problem := attention_problem(rows, keys, first.depth, second.columns, size):
            raise Unschedulable("extents", problem, self.first_op)
        if (problem := _problem_of_sizes(first, second, size)) is not None:
            raise Unschedulable("sizes", problem, self.first_op)
        if not batch:
            raise Unschedulable("extents", "there are no elements", self.first_op)
        if _are_weights(first, second, size):
            raise Unschedulable(
                "extents", "all rows meet the same matrices, as with weights: two products", self.first_op
            )
        queries, keys_in, values = (
            without_panels(operand_access(op.operands[number], strides, extents, self.members, apart))
            for op, number, strides, extents in (
                (self.first_op, 0, first.lhs, (*first.batch, rows, first.depth)),
                (self.first_op, 1, first.rhs, (*first.batch, first.depth, keys)),
                (self.second_op, 1, second.rhs, (*second.batch, keys, second.columns)),
            )
        )
        if are_few(rows):
            sides = (queries, first.depth), (keys_in.transposed(), first.depth), (values, second.columns)
            self._check_in_place(sides)
        weights = self._weights(keys)
        behind = [(n, value) for n, value in enumerate(self.results) if value.owner in self.behind]
        if not behind:
            raise Unschedulable("no-attention", "it does not give what the second product makes", self.second_op)
        between = self._needing(self.first_op) - self.behind
        epilogue = trace([value for _, value in behind], self.members, [self.second_op, *between])
        epilogue = _numbered(epilogue, [n for n, _ in behind])
        self._check_loads(epilogue, self.second_op.results[0])
        places = dict(result_places(epilogue, self.second_op.results[0], second))
        raw = self.first_op.results[0], self.second_op.results[0]
        seen = columns_seen(weights, raw[0])
        alike = seen is not None and alike_behind_mask(weights, raw[0])
        few = are_few(rows)
        return Attention(*raw, first, second, queries, keys_in, values, weights, seen, alike, few, epilogue, places)

    def _check_in_place(self, operands: Sequence[tuple[OperandAccess, int]]) -> None:
        """Refuses operands whose rows of so many elements do not have these, of the type that is multiplied, side by side."""
        element = dtype(self.first_op.results[0])
        for operand, count in operands:
            is_beside = operand.column == 1 or count == 1
            if not is_beside or dtype(operand.value) is not element:
                message = "few queries meet keys or values that lie in another order, or of another type"
                raise Unschedulable("extents", message, self.first_op)

    def _weights(self, keys: int) -> LoopBody:
        own = self.resolve(self.second_op.operands[0])
        others = [(n, value) for n, value in enumerate(self.results) if value.owner not in self.behind]
        outside = [self.first_op, *self.behind]
        found = trace([own, *(value for _, value in others)], self.members, outside)
        if not found.is_row:
            raise Unschedulable("no-attention", "no row is reduced between the products", self.second_op)
        found = _numbered(found, [OWN, *(n for n, _ in others)])
        self._check_loads(found, self.first_op.results[0])
        store = found.stores[0]
        reads = {node.address for node in found.loads() if node.value is self.first_op.results[0]}
        if store.per_row or reads != {store.address}:
            message = "what the second product reads is not computed, element for element, from rows of the first one"
            raise Unschedulable("no-attention", message, self.second_op)
        if prod(found.column_extents) != keys:
            raise Unschedulable("no-attention", "what is reduced between the products is not a row", self.second_op)
        return found

    def _check_loads(self, loop_body: LoopBody, raw: SSAValue) -> None:
        """Refuses a pass that reads what another one of the kernel computes."""
        made = {value for op in self.ops for value in op.results} - {raw}
        if any(load.value in made for load in loop_body.loads()):
            raise Unschedulable("no-attention", "what follows a product reads what was computed before it")


def _numbered(loop_body: LoopBody, numbers: Sequence[int]) -> LoopBody:
    """The same with numbers of the kernel's results."""
    stores = tuple(replace(store, result=numbers[store.result]) for store in loop_body.stores)
    return replace(loop_body, stores=stores)


def _problem_of_sizes(first: Contraction, second: Contraction, itemsize: int) -> str | None:
    """Why there is no code where one of the extents is a size; None where there is, or none of them is one."""
    keys = first.columns
    if all(map(is_number, (*first.batch, first.rows, keys))):
        return None
    longest = most_keys(first, second, itemsize)
    if may_exceed(keys, longest) and (is_number(keys) or may_rows_be_long()):
        return f"there may be {keys} keys; code for sizes has room for {longest}"
    return None


def _are_weights(first: Contraction, second: Contraction, itemsize: int) -> bool:
    """
    Whether the right operands are large, as wide as they are long, and the same for all rows. By a product alone they are
    packed once, where they are frozen, and a panel of them meets more rows.
    """
    breadth = first.depth + second.columns
    keys = estimate(first.columns)
    if keys * breadth * itemsize <= MOST_ON_STACK or keys >= KEYS_OF_ATTENTION * breadth:
        return False
    steps = [pair for product in (first, second) for pair in zip(product.batch, product.rhs, strict=False)]
    return not any(stride for extent, stride in steps if may_exceed(extent, 1))


def _same_strides(product: Contraction, wanted: Sequence[int]) -> bool:
    extents = (*product.batch, product.rows, product.depth)
    return all(size == 1 or a == b for size, a, b in zip(extents, product.lhs, wanted, strict=True))
