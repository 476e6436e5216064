"""Between which numbers the scalars of a kernel lie, as their definitions show: exp(x - max(x)) between 0 and 1, the sum of a
row of these between 1 and its length, a mean of squares plus 1e-5 from that on.

What a primitive makes of intervals, its record says. The analysis looks through at most `DEPTH` operations, so what it costs does
not depend on the size of the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.scalar import PRIMITIVES, Scalar, intervals
from fuse_opt.dialects.scalar.intervals import NONNEGATIVE, UNKNOWN, Interval, times
from fuse_opt.dialects.types.dtypes import BOOL, DType, Kind
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.hints import MODERATE, NONPOSITIVE
from fuse_opt.lowering.kernel.iteration_space import as_expr

DEPTH = 6
"""Operations that are looked through."""
LONGEST = 1 << 22
"""Elements of a sum whose rounding is less than its double."""
FAR = 2.0**100
"""How far from 1 a moderate number is at most, either way."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A node of a scalar body, over the nodes that are the body's operands."""

    node: Scalar
    operands: Sequence[ScalarNode]


def is_nonpositive(node: Scalar, operands: Sequence[ScalarNode]) -> bool:
    """Whether the node of a scalar body over these nodes is never greater than zero; it may be NaN."""
    return node.dtype.is_float and bounds_of(node, operands).high <= 0


def bounds_of(node: Scalar, operands: Sequence[ScalarNode]) -> Interval:
    """Between which numbers a node of a scalar body over these nodes lies where it is not NaN."""
    return _bounds(_Term(node, operands), DEPTH)


def hints_of(node: Scalar, operands: Sequence[ScalarNode], wanted: Collection[str]) -> list[str]:
    """Which of the hints hold for the op of a node."""
    argument = node.args[-1] if node.args else node
    match node.function:
        case "exp" if NONPOSITIVE in wanted and is_nonpositive(argument, operands):
            return [NONPOSITIVE]
        case "div" if MODERATE in wanted and node.args[0].function == "constant" and node.args[0].value == 1:
            found = bounds_of(argument, operands)
            return [MODERATE] if found.low >= 1 / FAR and found.high <= FAR else []
        case "rsqrt" if MODERATE in wanted and bounds_of(argument, operands).low >= 1 / FAR:
            return [MODERATE]
        case _:
            return []


def _bounds(term: _Term, depth: int) -> Interval:
    term, narrow = _definition(term)
    found = _of_term(term, depth)
    return found.narrowed() if narrow else found


def _of_term(term: _Term, depth: int) -> Interval:
    function = term.node.function
    if function == "constant":
        value = float(term.node.value)
        return UNKNOWN if not isfinite(value) else Interval(value, value)
    if depth == 0:
        return UNKNOWN
    if function == "operand":
        return _of_operand(term.operands[int(term.node.value)], depth)
    args = [_Term(arg, term.operands) for arg in term.node.args]
    if not term.node.dtype.is_float:
        return _of_type(term.node.dtype)
    if function == "sub" and _is_at_most_its_maximum(args[0], _greatest(args[1])):
        return Interval(-inf, 0.0)
    if function == "select" and (hidden := _hidden(args[0])) is not None and (total := _node(args[2])) is not None:
        return intervals.of_either(
            UNKNOWN, _bounds(args[1], depth - 1), _of_operand(total, depth - 1, hidden)
        ).widened()
    if function == "mul" and _same(*args):
        return NONNEGATIVE
    if function == "cast":
        found, source = _bounds(args[0], depth - 1).widened(), args[0].node.dtype
        return found if term.node.dtype.bits >= source.bits else found.narrowed()
    rule = PRIMITIVES[function].interval if function in PRIMITIVES else None
    return UNKNOWN if rule is None else rule(*(_bounds(arg, depth - 1) for arg in args)).widened()


def _of_operand(node: ScalarNode, depth: int, hidden: _Term | None = None) -> Interval:
    """A load, or a reduction; what `hidden` says is not -inf then."""
    if node.op is None or not dtype(node.value).is_float:
        return _of_type(dtype(node.value))
    element = _Term(node.op.body(), node.operands)
    found, count = _bounds(element, depth - 1), _iterations(node.loop)
    if node.op.COMBINE in ("max", "min"):
        return found.widened()
    if node.op.COMBINE != "add" or found.low < 0:
        return UNKNOWN
    least = 0.5 if _holds_an_exponential_of_zero(element, node.loop, hidden) else 0.0
    if count is None:
        return Interval(least, inf)
    return Interval(least, max(2 * times(count, found.high), least)).widened()


def _iterations(loop: Sequence[IndexExpr]) -> int | None:
    """Of a reduction; None where they are not known, none, or so many that rounding is more than a little."""
    count = 1
    for extent in {dim: dim.extent for expression in loop for dim in expression.dims()}.values():
        if isinstance(extent, Size):
            return None
        count *= extent
    return count if 0 < count <= LONGEST else None


def _holds_an_exponential_of_zero(element: _Term, loop: Sequence[IndexExpr], hidden: _Term | None) -> bool:
    """
    Whether what a loop sums up are exponentials of elements minus the greatest of them, or of a part of them; or minus another
    number where the greatest is -inf, which it is not if it is `hidden`.
    """
    element, narrow = _definition(element)
    if narrow or element.node.function != "exp":
        return False
    difference, _ = _definition(_Term(element.node.args[0], element.operands))
    if difference.node.function != "sub":
        return False
    term, maximum = (_Term(arg, difference.operands) for arg in difference.node.args)
    if hidden is not None and _same(greatest := _greatest(maximum), hidden):
        maximum = greatest
    if not _is_at_most_its_maximum(term, maximum):
        return False
    summed, reduced = _node(term), _reduced(maximum)
    return summed is not None and reduced is not None and _is_among(reduced, summed, loop)


def _of_type(kind: DType) -> Interval:
    """All that a type has."""
    if kind.is_float:
        return UNKNOWN
    if kind is BOOL:
        return Interval(0.0, 1.0)
    bits = kind.bits
    return Interval(0.0, 2.0**bits) if kind.kind is Kind.UINT else Interval(-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))


def _definition(term: _Term) -> tuple[_Term, bool]:
    """
    The term, or the body of the op that made it where it is a node computed from others; and whether it was rounded to a narrower
    float on the way.
    """
    narrow = False
    while term.node.function == "operand":
        node = term.operands[int(term.node.value)]
        narrow = narrow or dtype(node.value).compute is not dtype(node.value)
        if node.op is None or node.op.COMBINE:
            break
        term = _Term(node.op.body(), node.operands)
    return term, narrow


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
    element, most, reduced = _node(term), _node(maximum), _reduced(maximum)
    if element is None or most is None or reduced is None:
        return False
    return reduced.value is element.value and _is_among(element, reduced, most.loop)


def _greatest(term: _Term) -> _Term:
    """What a term is but where that is -inf; the term itself where it is nothing of the kind. Elements that are at most -inf are
    less than whatever stands there."""
    choice, _ = _definition(term)
    if choice.node.function != "select":
        return term
    condition, _, other = (_Term(arg, choice.operands) for arg in choice.node.args)
    hidden = _hidden(condition)
    return other if hidden is not None and _same(other, hidden) else term


def _hidden(condition: _Term) -> _Term | None:
    """What is -inf where a condition holds; None where the condition is another one."""
    condition, _ = _definition(condition)
    if condition.node.function != "eq":
        return None
    a, b = (_Term(arg, condition.operands) for arg in condition.node.args)
    return next((x for x, y in ((a, b), (b, a)) if _is_minus_infinity(y)), None)


def _is_minus_infinity(term: _Term) -> bool:
    term, _ = _definition(term)
    return term.node.function == "constant" and float(term.node.value) == -inf


def _reduced(maximum: _Term) -> ScalarNode | None:
    """What a term is the greatest element of."""
    most = _node(maximum)
    if most is None or most.op is None or most.op.COMBINE != "max":
        return None
    return _node(_Term(most.op.body(), most.operands))


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
