"""Sum rows of products of products over what another product has summed already, where a program holds both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.graph.materialize import computed
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.interfaces.contraction import Contraction, row_major
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp, constant_of
from fuse_opt.dialects.scalar import Scalar, operand
from fuse_opt.dialects.scalar.evaluate import known
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

MOST_FACTORS = 16
"""Of an element that is summed."""


@dataclass(frozen=True)
class ReassociateRowSumsPass(RewritePass):
    """The sum of a row of products, one factor of which is a product's result, is one over another product's result.

    ```mlir
    %o = graph.matmul %p, %v : (tensor<8x64x64xf32>, tensor<8x64x32xf32>) -> tensor<8x64x32xf32>
    %d = graph.matmul %g, %v {transpose_rhs = true} : (tensor<8x64x32xf32>, ...) -> tensor<8x64x64xf32>
    %m = graph.multiply %p, %d : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
    %s = graph.sum %m {axes = array<i64: 2>} : (tensor<8x64x64xf32>) -> tensor<8x64xf32>
    ```
    becomes, as both are sums over k and d of p[k] g[d] v[k, d],
    ```mlir
    %m = graph.multiply %g, %o : (tensor<8x64x32xf32>, tensor<8x64x32xf32>) -> tensor<8x64x32xf32>
    %s = graph.sum %m {axes = array<i64: 2>} : (tensor<8x64x32xf32>) -> tensor<8x64xf32>
    ```
    So the derivative of a softmax between two products, as automatic differentiation writes it, needs no row of both at once
    (Dao et al. 2022, FlashAttention), and `fuse-attention-gradient` has one kernel of it. `%p` may differ by numbers of rows, and
    choices between it and 0 count as factors. Sums round otherwise, within what those of products may be off: f32 and f64
    alone. The product that gives `%o` comes first.

    Run it behind canonicalize and cse. Requires: nothing. Ensures: ops with directives stay as they are.
    """

    name = "reassociate-row-sums"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for block in sweep_functions(op):
            place = {inner: number for number, inner in enumerate(block.ops)}
            for inner in list(block.ops):
                if isinstance(inner, StructuredOp) and _sums_rows(inner) and inner in place:
                    _rewrite(self.name, inner, place)


@dataclass
class _Factors:
    """An element of a matrix as a product of others."""

    elements: list[tuple[str, SSAValue]] = field(default_factory=list[tuple[str, SSAValue]])
    """Of matrices: "of", or "where" of what decides that the element is not 0."""
    over: list[SSAValue] = field(default_factory=list[SSAValue])
    """Numbers of rows, or of all elements, that it is multiplied with."""
    under: list[SSAValue] = field(default_factory=list[SSAValue])
    """Those that it is divided by."""


def _sums_rows(op: StructuredOp) -> bool:
    """Whether an op sums along the last axis of its operand."""
    if op.COMBINE != "add" or len(op.operands) != 1 or directives(op) or any_encoded((*op.operands, *op.results)):
        return False
    (value,) = op.operands
    if dtype(value) not in (F32, F64) or dtype(op.results[0]) is not dtype(value) or not is_static(value):
        return False
    extents = op.reduced_extents()
    if op.body().function != "operand" or not shape(value) or tuple(extents) != shape(value)[-1:]:
        return False
    reduced = dimensions("r", extents)
    return op.operand_index(0, dimensions("i", shape(op.results[0])), reduced)[-1:] == reduced


def _rewrite(name: str, op: StructuredOp, place: Mapping[Operation, int]) -> None:
    (value,) = op.operands
    factors = _factors(value)
    if factors is None:
        return
    for kind, made in factors.elements:
        inner = made.owner
        if kind != "of" or not isinstance(inner, OpaqueOp) or directives(inner) or inner.contraction() is None:
            continue
        for other in (use.operation for use in inner.operands[1].uses):
            if not isinstance(other, OpaqueOp) or place.get(other, len(place)) > place[inner]:
                continue  # of two products the first one stays: the sum does not go back and forth
            if _pair(inner, other):
                rest = Counter(factors.elements) - Counter([(kind, made)])
                found = _factors(other.operands[0])
                if found is not None and Counter(found.elements) == rest:
                    _replace(name, op, (inner.operands[0], other.results[0]), factors, found)
                    return


def _factors(value: SSAValue) -> _Factors | None:
    """What an element is a product of; None where that is too much, or something that is divided by."""
    found = _Factors()
    waiting = [(value, False)]
    rows, columns = prod(shape(value)[:-1]), shape(value)[-1]
    for _ in range(2 * MOST_FACTORS):
        if not waiting:
            return found
        each, below = waiting.pop()
        extents = shape(each)
        if prod(extents) == 1 or (extents[-1] == 1 != columns and prod(extents) == rows):
            (found.under if below else found.over).append(each)
            continue
        parts = _parts(each) if prod(extents) == rows * columns else None
        if parts is not None:
            masks, numbers = parts
            found.elements += [("where", mask) for mask in masks]
            waiting += [(number, below != divides) for number, divides in numbers]
        elif below:
            return None
        else:
            found.elements.append(("of", each))
    return None


def _parts(value: SSAValue) -> tuple[Sequence[SSAValue], Sequence[tuple[SSAValue, bool]]] | None:
    """The factors of a value: choices between it and 0, and others, each with whether it is divided by that."""
    op = value.owner
    if not isinstance(op, StructuredOp) or op.COMBINE or not op.operands or directives(op):
        return None
    if op.is_view():
        if len(op.operands) != 1:  # rows at positions that are data: a matrix of its own
            return None
        source = op.operands[0]
        is_same = op.is_alias() and shape(source)[-1:] == shape(value)[-1:]  # rows, counted along other axes
        is_row = op.fusion_kind() == FusionKind.BROADCAST and prod(shape(source)) == prod(shape(value)[:-1])
        return ([], [(source, False)]) if is_same or (is_row and shape(source)[-1:] == (1,)) else None
    body = op.body()
    places = [int(arg.value) if arg.function == "operand" else None for arg in body.args]
    match body.function, places:
        case "mul", [int(a), int(b)]:
            found = [(op.operands[a], False), (op.operands[b], False)]
        case "div", [int(a), int(b)]:
            found = [(op.operands[a], False), (op.operands[b], True)]
        case "div", [None, int(b)] if _is(body.args[0], 1):
            found = [(op.operands[b], True)]
        case "select", [int(mask), int(a), int(b)] if _is(constant_of(op.operands[b]), 0):
            return [op.operands[mask]], [(op.operands[a], False)]
        case _:
            return None
    return ([], found) if all(dtype(number) is dtype(value) for number, _ in found) else None


def _is(number: Scalar | None, value: int) -> bool:
    return number is not None and number.function == "constant" and known(number) == value


def _pair(inner: OpaqueOp, other: OpaqueOp) -> bool:
    """Whether the one product sums, over its columns, what the other one sums over its depth, of the same right operand."""
    a, b = inner.contraction(), other.contraction()
    if a is None or b is None or other.operands[1] is not inner.operands[1] or directives(other):
        return False
    left, result = inner.operands[0], other.results[0]
    values = (*inner.operands, *inner.results, *other.operands, *other.results)
    if any_encoded(values) or len({dtype(value) for value in values}) > 1 or prod(shape(left)) != prod(shape(result)):
        return False
    if (a.batch, a.rows, a.depth, a.columns) != (b.batch, b.rows, b.columns, b.depth):
        return False
    is_turned = (*a.rhs[:-2], a.rhs[-1], a.rhs[-2]) == b.rhs
    return is_turned and _is_plain(a) and _is_plain(b)


def _is_plain(product: Contraction) -> bool:
    """Whether the left operand lies in row-major order."""
    extents = (*product.batch, product.rows, product.depth)
    wanted = row_major(extents)
    return all(size == 1 or step == given for size, step, given in zip(extents, wanted, product.lhs, strict=True))


def _replace(name: str, op: StructuredOp, pair: tuple[SSAValue, SSAValue], factors: _Factors, others: _Factors) -> None:
    """Sums products of the pair in place of the matrices, whose numbers of rows are on one side each."""
    build, element, old = GraphBuilder(), dtype(pair[0]), op.operands[0]
    rows = shape(old)[:-1]
    value, other = (_reshaped(build, each, (*rows, shape(each)[-1])) for each in pair)
    steps = [("mul", other)]
    steps += [("mul", number) for number in (*factors.over, *others.under)]
    steps += [("div", number) for number in (*factors.under, *others.over)]
    for function, number in steps:
        if prod(shape(number)) == prod(rows):
            number = _reshaped(build, number, (*rows, 1))
        body = Scalar(function, (operand(0, element), operand(1, element)), element)
        found = computed(body, [value, number])
        assert found is not None
        build.ops += found.ops
        value = build.ops[-1].results[0]
    ops: list[Operation] = [*build.ops, op.clone({old: value})]
    assert op.parent is not None
    for each in ops:
        each.location = op.location
        op.parent.insert_op_before(each, op)
    ops[-1].results[0].name_hint = op.results[0].name_hint
    message = "is a sum over what a product gives, in place of one over what it is made from"
    remark(name, op, "reassociated", message, elements=shape(old)[-1], instead=shape(value)[-1])
    op.results[0].replace_all_uses_with(ops[-1].results[0])
    _erase_unread([op])


def _reshaped(build: GraphBuilder, value: SSAValue, extents: Sequence[int]) -> SSAValue:
    return value if shape(value) == tuple(extents) else build(ReshapeOp, value, shape=int_array(extents))


def _erase_unread(ops: Iterable[Operation]) -> None:
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if any(result.uses for result in op.results):
            continue
        makers = [value.owner for value in op.operands]
        Rewriter.erase_op(op)
        waiting += [maker for maker in dict.fromkeys(makers) if isinstance(maker, StructuredOp)]
