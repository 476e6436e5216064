"""Which scalars of a kernel cannot be positive, as their definitions show: the bounds of `exp(x - max(x))` and the like.

`-0` counts as zero, and NaN is always allowed. Rounding to a narrower float keeps both facts. The analysis looks through at
most `DEPTH` operations, so what it costs does not depend on the size of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.scalar import PRIMITIVES, Scalar
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.kernel.iteration_space import as_expr

DEPTH = 6
"""Operations that are looked through."""

_EITHER = {1: "max", -1: "min"}
"""By sign: the primitive that takes it from one of its operands."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A node of a scalar body, over the nodes that are the body's operands."""

    node: Scalar
    operands: Sequence[ScalarNode]


def is_nonpositive(node: Scalar, operands: Sequence[ScalarNode]) -> bool:
    """Whether the node of a scalar body over these nodes is never greater than zero; it may be NaN."""
    return node.dtype.is_float and _has_sign(_Term(node, operands), -1, DEPTH)


def _has_sign(term: _Term, sign: int, depth: int) -> bool:
    """Whether the term times `sign` is at least 0, or NaN."""
    term = _definition(term)
    if depth == 0:
        return False
    args = [_Term(arg, term.operands) for arg in term.node.args]
    match term.node.function:
        case "constant":
            return float(term.node.value) * sign >= 0
        case primitive if primitive in PRIMITIVES and PRIMITIVES[primitive].nonnegative:
            return sign > 0
        case "neg":
            return _has_sign(args[0], -sign, depth - 1)
        case "cast":
            return args[0].node.dtype.is_float and _has_sign(args[0], sign, depth - 1)
        case "add":
            return all(_has_sign(arg, sign, depth - 1) for arg in args)
        case "sub" if sign < 0 and _is_at_most_its_maximum(*args):
            return True
        case "sub":
            return _has_sign(args[0], sign, depth - 1) and _has_sign(args[1], -sign, depth - 1)
        case "mul" if _same(*args):
            return sign > 0
        case "mul":
            return any(
                _has_sign(args[0], first, depth - 1) and _has_sign(args[1], first * sign, depth - 1)
                for first in (1, -1)
            )
        case "max" | "min" as primitive:
            enough = any if primitive == _EITHER[sign] else all
            return enough(_has_sign(arg, sign, depth - 1) for arg in args)
        case "select":
            return all(_has_sign(arg, sign, depth - 1) for arg in args[1:])
        case _:
            return False


def _definition(term: _Term) -> _Term:
    """The term, or the body of the op that made it where it is a node computed from others."""
    while term.node.function == "operand":
        node = term.operands[int(term.node.value)]
        if node.op is None or node.op.COMBINE:
            break
        term = _Term(node.op.body(), node.operands)
    return term


def _node(term: _Term) -> ScalarNode | None:
    """The node that a term is an unchanged copy of, seen through ops that only move elements."""
    if term.node.function != "operand":
        return None
    node = term.operands[int(term.node.value)]
    while (source := _moved(node)) is not None:
        node = source
    return node


def _moved(node: ScalarNode) -> ScalarNode | None:
    """Where an op that changes no element takes the node's scalar from."""
    if node.op is None or node.op.COMBINE or (body := node.op.body()).function != "operand":
        return None
    source = node.operands[int(body.value)]
    return source if dtype(source.value) is dtype(node.value) else None


def _same(a: _Term, b: _Term) -> bool:
    """Whether two terms are one scalar."""
    if a.node is b.node and a.operands is b.operands:
        return True
    node = _node(a)
    return node is not None and node is _node(b)


def _is_at_most_its_maximum(term: _Term, maximum: _Term) -> bool:
    """Whether the second is the greatest of elements among which the first is."""
    element, most = _node(term), _node(maximum)
    if element is None or most is None or most.op is None or most.op.COMBINE != "max":
        return False
    reduced = _node(_Term(most.op.body(), most.operands))
    return reduced is not None and reduced.value is element.value and _is_among(element, reduced, most.loop)


def _is_among(element: ScalarNode, reduced: ScalarNode, loop: Sequence[IndexExpr]) -> bool:
    """Whether a loop over `reduced`, a node of the same tensor, comes by the element."""
    counted = {dim for expression in loop for dim in expression.dims()}
    bound: dict[Dim, IndexExpr] = {}
    for wanted, expression, extent in zip(element.index, reduced.index, shape(element.value), strict=True):
        dims = expression.dims() & counted
        whole = next((dim for dim in dims if expression == as_expr(dim) and dim.extent == extent), None)
        if whole is not None:
            pairs = [(whole, wanted)]
        elif expression == wanted:
            pairs = [(dim, as_expr(dim)) for dim in dims]
        else:
            return False
        if any(bound.setdefault(dim, value) != value for dim, value in pairs):
            return False
    return True
