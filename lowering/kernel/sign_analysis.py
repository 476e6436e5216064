"""Which scalars of a kernel cannot be positive, as their definitions show: the bounds of `exp(x - max(x))` and the like.

`-0` counts as zero, and NaN is always allowed. Rounding to a narrower float keeps both facts. The analysis looks through at
most `DEPTH` operations, so what it costs does not depend on the size of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.dialects.analysis.loop_body import Point
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.kernel.iteration_space import as_expr

DEPTH = 6
"""Operations that are looked through."""

_NEVER_NEGATIVE = ("abs", "exp", "exp2", "sqrt")
_EITHER = {1: "max", -1: "min"}
"""By sign: the word that takes it from one of its operands."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A node of a scalar body, over the points that are the body's operands."""

    node: Scalar
    operands: Sequence[Point]


def is_nonpositive(node: Scalar, operands: Sequence[Point]) -> bool:
    """Whether the node of a scalar body over these points is never greater than zero; it may be NaN."""
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
        case word if word in _NEVER_NEGATIVE:
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
        case "max" | "min" as word:
            enough = any if word == _EITHER[sign] else all
            return enough(_has_sign(arg, sign, depth - 1) for arg in args)
        case "select":
            return all(_has_sign(arg, sign, depth - 1) for arg in args[1:])
        case _:
            return False


def _definition(term: _Term) -> _Term:
    """The term, or the body of the op that made it where it is a point computed from others."""
    while term.node.function == "operand":
        point = term.operands[int(term.node.value)]
        if point.op is None or point.op.COMBINE:
            break
        term = _Term(point.op.body(), point.operands)
    return term


def _point(term: _Term) -> Point | None:
    """The point that a term is an unchanged copy of, seen through ops that only move elements."""
    if term.node.function != "operand":
        return None
    point = term.operands[int(term.node.value)]
    while (source := _moved(point)) is not None:
        point = source
    return point


def _moved(point: Point) -> Point | None:
    """Where an op that changes no element takes the point's scalar from."""
    if point.op is None or point.op.COMBINE or (body := point.op.body()).function != "operand":
        return None
    source = point.operands[int(body.value)]
    return source if dtype(source.value) is dtype(point.value) else None


def _same(a: _Term, b: _Term) -> bool:
    """Whether two terms are one scalar."""
    if a.node is b.node and a.operands is b.operands:
        return True
    point = _point(a)
    return point is not None and point is _point(b)


def _is_at_most_its_maximum(term: _Term, maximum: _Term) -> bool:
    """Whether the second is the greatest of elements among which the first is."""
    element, most = _point(term), _point(maximum)
    if element is None or most is None or most.op is None or most.op.COMBINE != "max":
        return False
    reduced = _point(_Term(most.op.body(), most.operands))
    return reduced is not None and reduced.value is element.value and _is_among(element, reduced, most.loop)


def _is_among(element: Point, reduced: Point, loop: Sequence[IndexExpr]) -> bool:
    """Whether a loop over `reduced`, a point of the same tensor, comes by the element."""
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
