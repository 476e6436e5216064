"""Kernels of the backward pass of attention: products that give scores, a pass over these, and products of what it makes.

The gradient of a softmax needs two numbers of each row: the logarithm of the sum of its exponentials, which the forward pass
keeps, and the sum of its gradient times its result. Where a kernel reads both, what is between the products goes element by
element, so that scores may be made again for some rows and keys at a time (Dao 2023, FlashAttention-2): none are in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.attention import are_few
from fuse_opt.dialects.analysis.contractions.causal_masks import columns_seen, vanishes_behind_mask
from fuse_opt.dialects.analysis.contractions.operand_access import (
    OperandAccess,
    SplitRows,
    operand_access,
    without_panels,
)
from fuse_opt.dialects.analysis.contractions.result_places import result_axes, result_places
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, member_ops, resolve, seen_through, trace
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.contraction import Contraction, row_major
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, shape
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, Remainder, linearize
from fuse_opt.dialects.types.size import Extent

ATTENTION_GRADIENT = "attention_gradient"
"""The schedule kind of such a kernel."""
FEWEST_PRODUCTS = 3
"""One more than attention has."""
MOST_ROW_BYTES = 1 << 10
"""Of a query, a key or a value: what is copied and summed for a block of keys lies on a task's stack."""


@dataclass(frozen=True, slots=True)
class ScoreProduct:
    """A product whose result is scores: rows times keys, both of so much depth."""

    raw: SSAValue
    product: Contraction
    left: OperandAccess
    """Of `(*batch, parts, rows, depth)`."""
    right: OperandAccess
    """Of `(*batch, depth, keys)`."""


@dataclass(frozen=True, slots=True)
class WeightedProduct:
    """A product of weights, which the pass over scores makes, and a matrix that has a row for each key, or for each row."""

    raw: SSAValue
    product: Contraction
    weights: int
    """The number of the weights among those that the pass makes."""
    by_row: bool
    """Whether its result has a row for each row of the weights, summed over keys; otherwise one for each key."""
    right: OperandAccess
    """Of `(*batch, keys, columns)`, or of `(*batch, parts, rows, columns)`."""
    epilogue: LoopBody
    places: dict[Dim, IndexExpr]


@dataclass(frozen=True, slots=True)
class AttentionGradient:
    """Matrices of scores, each of `parts` times `rows` rows and of `keys` columns: parts are the heads that share keys."""

    matrices: int
    parts: int
    rows: int
    keys: int
    scores: tuple[ScoreProduct, ...]
    weights: LoopBody
    """Stores weights number `result` from the scores."""
    places: dict[Dim, IndexExpr]
    limit: IndexExpr | None
    """How many leading keys count for a row, as a mask hides others from the first of the score products: what it gives is
    looked at there alone, and what others give is multiplied by 0; in terms of the row. None where all may count."""
    weighted: tuple[WeightedProduct, ...]

    @property
    def seen(self) -> int | None:
        """What is added to a row's number to give that limit; None where it is no such sum."""
        row = result_axes(self.scores[0].product)[1]
        is_sum = self.limit is not None and self.limit.coefficients() == {row: 1}
        return self.limit.constant if self.limit is not None and is_sum else None

    @property
    def epilogue(self) -> LoopBody:
        """One of the passes behind products; no result is in the memory of an operand, as all are read again and again."""
        return self.weighted[0].epilogue

    @property
    def count(self) -> int:
        """Of the weights."""
        return len(self.weights.stores)

    @property
    def operations(self) -> int:
        return sum(each.product.operations for each in (*self.scores, *self.weighted))

    def operands(self) -> list[OperandAccess]:
        return [
            *(access for each in self.scores for access in (each.left, each.right)),
            *(w.right for w in self.weighted),
        ]

    def contracted(self) -> set[SSAValue]:
        loads = {load.value for body in (self.weights, *(w.epilogue for w in self.weighted)) for load in body.loads()}
        return loads | {access.value for access in self.operands()}


def gradient_problem(scores: Sequence[Extent], depth: Extent, width: Extent, itemsize: int) -> str | None:
    """
    Why no code is generated for gradients of attention with scores `(*matrices, queries, keys)`, keys of `depth` and values of
    `width` elements of so many bytes; None where it is.
    """
    *batch, queries, keys = scores
    if not all(map(is_number, (*scores, depth, width))) or not prod((*scores, depth, width)):
        return "its extents are no positive numbers"
    if are_few(queries):
        return f"there are {queries} queries to {keys} keys"
    if prod(batch) == 1:
        return "it has a single matrix of scores, whose products are tasks apart"
    if max(estimate(depth), estimate(width)) * itemsize > MOST_ROW_BYTES:
        return f"rows of {depth} and {width} elements leave no room for blocks of them"
    return None


def attention_gradient_of(kernel: KernelOp) -> AttentionGradient:
    """What a kernel computes. Raises Unschedulable: why it is none that code is generated for."""
    return trace_attention_gradient(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))


def trace_attention_gradient(results: Sequence[SSAValue], members: Collection[Operation]) -> AttentionGradient:
    """What a group that gives `results` computes. Raises Unschedulable."""
    return _Tracer(results, members).trace()


def _refusal(message: str, op: Operation | None = None) -> Unschedulable:
    return Unschedulable("no-attention-gradient", message, op)


class _Tracer:
    def __init__(self, results: Sequence[SSAValue], members: Collection[Operation]) -> None:
        self.members = members
        self.ops = member_ops(members)
        self.boundaries = seen_through(members)
        self.results = [resolve(value, self.boundaries) for value in results]
        self.products = [op for op in self.ops if isinstance(op, OpaqueOp)]
        if len(self.products) < FEWEST_PRODUCTS or any(op.contraction() is None for op in self.products):
            raise _refusal("it does not hold three products or more")
        if not all(is_sized(value) for op in self.ops for value in (*op.operands, *op.results)):
            raise Unschedulable("dynamic-shape", "it has unknown shapes", self.products[0])
        if any(encoding(value) is not None for op in self.ops for value in op.results):
            raise Unschedulable("layout", "it computes in another order than the row-major one", self.products[0])
        behind = {op: self._behind(op) for op in self.products}
        self.last = [
            op for op in self.products if any(op in behind[other] for other in self.products if other is not op)
        ]
        self.first = [op for op in self.products if op not in self.last]
        self.behind = {op: behind[op] for op in self.last}
        if not self.last or any(other in self.behind[op] for op in self.last for other in self.last if other is not op):
            raise _refusal("its products are not some that give scores, and others of what is made of these")

    def _behind(self, op: Operation) -> set[Operation]:
        """The op, and those that read what it makes."""
        found: set[Operation] = {op}
        for other in self.ops:
            if any(resolve(value, self.boundaries).owner in found for value in other.operands):
                found.add(other)
        return found

    def trace(self) -> AttentionGradient:
        kinds = {dtype(value) for op in self.products for value in (*op.operands[:2], op.results[0])}
        if len(kinds) > 1 or not kinds <= {F32, F64}:
            names = ", ".join(sorted(kind.name for kind in kinds))
            raise Unschedulable("element-type", f"its products are of {names}; code is generated for f32 and f64")
        product = _contraction(self.first[0])
        extents, size = (*product.batch, product.rows, product.columns), dtype(self.first[0].results[0]).itemsize
        for op in self.products:
            of = _contraction(op)
            elements = of.depth if op in self.first else of.columns
            if problem := gradient_problem(extents, elements, elements, size):
                raise Unschedulable("extents", problem, op)
        try:
            found = self._trace(product, product.rows)
        except SplitRows as reason:
            rows = reason.rows
            if not 1 < rows < product.rows or product.rows % rows:
                raise
            return self._trace(product, rows)
        if found.parts == 1 and (rows := _rows_of_mask(found)) is not None:
            return self._trace(product, rows)
        return found

    def _trace(self, like: Contraction, rows: int) -> AttentionGradient:
        """With scores as those of a product, in parts of so many rows."""
        scores = [self._score(op, like, rows) for op in self.first]
        kept = list(dict.fromkeys(resolve(op.operands[0], self.boundaries) for op in self.last))
        body = self._weights(kept)
        split = like.with_rows(rows)
        places = dict(result_places(body, scores[0].raw, split))
        weighted = tuple(self._weighted(op, kept, like, rows) for op in self.last)
        if not all(any(value.owner in behind for behind in self.behind.values()) for value in self.results):
            raise _refusal("it gives scores, or what is made of them, which are never in memory")
        limits = [_limit(body, score.raw, places) for score in scores]
        masked = next((number for number, limit in enumerate(limits) if limit is not None), 0)
        scores.insert(0, scores.pop(masked))
        extents = prod(like.batch), like.rows // rows, rows, like.columns
        return AttentionGradient(*extents, tuple(scores), body, places, limits[masked], weighted)

    def _score(self, op: OpaqueOp, like: Contraction, rows: int) -> ScoreProduct:
        product = _contraction(op)
        if (prod(product.batch), product.rows, product.columns) != (prod(like.batch), like.rows, like.columns):
            raise _refusal("its scores are not of one shape", op)
        split = product.with_rows(rows)
        left = self._access(op, 0, split.lhs, (*split.batch, rows, product.depth))
        right = self._access(op, 1, product.rhs, (*product.batch, product.depth, product.columns))
        return ScoreProduct(op.results[0], split, left, right)

    def _access(self, op: OpaqueOp, number: int, strides: Sequence[int], extents: Sequence[int]) -> OperandAccess:
        return without_panels(operand_access(op.operands[number], strides, extents, self.members, self.products))

    def _weights(self, kept: Sequence[SSAValue]) -> LoopBody:
        """The pass from scores to what the last products read of it."""
        found = trace(kept, self.members, [*self.products, *(op for ops in self.behind.values() for op in ops)])
        if found.is_row:
            raise _refusal("rows are reduced between its products")
        raws = [op.results[0] for op in self.first]
        made = {value for op in self.ops for value in op.results} - set(raws)
        if any(load.value in made for load in found.loads()):
            raise _refusal("what is between its products reads what follows them")
        places = {store.address for store in found.stores}
        reads = {linearize(load.index, shape(load.value)) for load in found.loads() if load.value in raws}
        if reads != places or {load.value for load in found.loads()}.isdisjoint(raws):
            raise _refusal("what its last products read is not computed, element for element, from scores")
        return found

    def _weighted(self, op: OpaqueOp, kept: Sequence[SSAValue], like: Contraction, rows: int) -> WeightedProduct:
        product, keys = _contraction(op), like.columns
        batch, split = prod(product.batch), like.rows // rows
        alike = row_major((*product.batch, like.rows, keys))
        turned = [*alike[:-2], alike[-1], alike[-2]]
        if (batch, product.rows, product.depth) == (prod(like.batch), like.rows, keys) and _same(product, alike):
            by_row, of = True, product.with_rows(rows)
            right = self._access(op, 1, product.rhs, (*product.batch, keys, product.columns))
        elif (batch, product.rows, product.depth) == (prod(like.batch), keys, like.rows) and _same(product, turned):
            by_row, of = False, product
            steps = (*product.rhs[:-2], rows * product.rhs[-2], *product.rhs[-2:])
            right = self._access(op, 1, steps, (*product.batch, split, rows, product.columns))
        else:
            raise _refusal("a product reads scores in another order than their own, or turned", op)
        raw = op.results[0]
        numbers = [n for n, value in enumerate(self.results) if value.owner in self.behind[op]]
        if not numbers:
            raise _refusal("it does not give what a product makes", op)
        others = [other for other in self.products if other is not op]
        epilogue = trace([self.results[n] for n in numbers], self.members, [op, *others])
        stores = tuple(replace(store, result=numbers[store.result]) for store in epilogue.stores)
        epilogue = replace(epilogue, stores=stores)
        made = {value for each in self.ops for value in each.results} - {raw}
        if any(load.value in made for load in epilogue.loads()):
            raise _refusal("what follows a product reads what was computed before it", op)
        weights = kept.index(resolve(op.operands[0], self.boundaries))
        return WeightedProduct(raw, of, weights, by_row, right, epilogue, dict(result_places(epilogue, raw, of)))


def _rows_of_mask(found: AttentionGradient) -> int | None:
    """Rows of parts in each of which a mask of positions begins again; None where it does not."""
    row = IndexExpr(((result_axes(found.scores[0].product)[1], 1),))
    for atom, factor in () if found.limit is None else found.limit.terms:
        if isinstance(atom, Remainder) and factor == 1 and atom.numerator == row and found.rows % atom.divisor == 0:
            return atom.divisor
    return None


def _contraction(op: OpaqueOp) -> Contraction:
    return cast(Contraction, op.contraction())


def _same(product: Contraction, wanted: Sequence[int]) -> bool:
    extents = (*product.batch, product.rows, product.depth)
    return all(size == 1 or a == b for size, a, b in zip(extents, product.lhs, wanted, strict=True))


def _limit(body: LoopBody, raw: SSAValue, places: dict[Dim, IndexExpr]) -> IndexExpr | None:
    """How many leading keys of a row make weights that are not 0, in terms of the product's rows."""
    pass_of_rows = replace(body, columns=body.rows[-1:])
    found = columns_seen(pass_of_rows, raw)
    if found is None or not vanishes_behind_mask(pass_of_rows, raw):
        return None
    return found.substitute(places)
