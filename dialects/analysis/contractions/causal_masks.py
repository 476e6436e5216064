"""Masks that are conditions on positions: up to which column the scores of a row are looked at, as with a causal mask, and
whether the columns behind are all alike."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.scalar import PRIMITIVES, Scalar, topological
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant

_DEPTH = 8
"""Nodes and primitives that an integer of a condition is made of, nested."""


def columns_seen(loop_body: LoopBody, raw: SSAValue) -> IndexExpr | None:
    """
    How many leading columns of a row of `raw` a pass over rows looks at, in terms of the row: others are read only where a
    condition on positions chooses something else. None where that is not known.
    """
    columns = _column_dims(loop_body)
    exposed: set[ScalarNode] = set()
    limits: set[IndexExpr] = set()
    for node in loop_body.nodes:
        if node.op is None:
            if node.value is raw:
                exposed.add(node)
            continue
        if exposed.isdisjoint(node.operands):
            continue
        limit = _guard(node, exposed, columns)
        if limit is None:
            exposed.add(node)
            if node.op.COMBINE:
                return None
        else:
            limits.add(limit)
    if len(limits) != 1 or any(store.node in exposed for store in loop_body.stores):
        return None
    return limits.pop()


def alike_behind_mask(loop_body: LoopBody, raw: SSAValue) -> bool:
    """
    Whether the columns of a row that `columns_seen` leaves out are alike in what is reduced and in what is stored of them. Then
    one of them stands for all in an idempotent reduction, and in another one if it is neutral there.
    """
    columns = _column_dims(loop_body)
    alike: set[ScalarNode] = set()
    exposed: set[ScalarNode] = set()
    for node in loop_body.nodes:
        if node.op is None:
            (exposed if node.value is raw else alike).add(node)
            if not columns.isdisjoint(node.address.dims()):
                alike.discard(node)
        elif node.op.COMBINE:
            if frozenset(d for e in node.loop for d in e.dims()) != columns or not alike.issuperset(node.operands):
                return False
            alike.add(node)
        elif not exposed.isdisjoint(node.operands) and _guard(node, exposed, columns) is not None:
            if _other(node) in alike:
                alike.add(node)
        else:
            if not exposed.isdisjoint(node.operands):
                exposed.add(node)
            if alike.issuperset(node.operands) and columns.isdisjoint(_asked(node)):
                alike.add(node)
    return all(store.per_row or store.node in alike for store in loop_body.stores)


def takes_any_number(node: ScalarNode) -> bool:
    """Whether it does not matter to a reduction how often it meets an element."""
    assert node.op is not None
    return PRIMITIVES[node.op.COMBINE].idempotent


def _column_dims(loop_body: LoopBody) -> frozenset[Dim]:
    return frozenset(dim for expression in loop_body.columns for dim in expression.dims())


def _asked(node: ScalarNode) -> set[Dim]:
    """The dimensions of the positions that the op's scalar meaning asks for."""
    assert node.op is not None
    terms = [term for term in topological(node.op.body()) if term.function == "index"]
    return {dim for term in terms for dim in node.index[int(term.value)].dims()}


def _other(node: ScalarNode) -> ScalarNode:
    """What a choice gives where its condition does not hold."""
    assert node.op is not None
    return node.operands[int(node.op.body().args[2].value)]


def _guard(node: ScalarNode, exposed: set[ScalarNode], columns: Collection[Dim]) -> IndexExpr | None:
    """How many columns a choice lets the exposed ones through in; None for what is no such choice."""
    assert node.op is not None
    body = node.op.body()
    if body.function != "select" or node.op.COMBINE or [part.function for part in body.args] != ["operand"] * 3:
        return None
    condition, other = node.operands[int(body.args[0].value)], _other(node)
    if condition in exposed or other in exposed or len(columns) != 1:
        return None
    (column,) = columns
    return _limit(condition, column, _DEPTH)


def _limit(condition: ScalarNode, column: Dim, depth: int) -> IndexExpr | None:
    """The number of columns up to the last one for which a condition can hold."""
    if condition.op is None or condition.op.COMBINE or depth == 0:
        return None
    body = condition.op.body()
    if body.function == "operand":
        return _limit(condition.operands[int(body.value)], column, depth - 1)
    if body.function == "and":
        parts = [condition.operands[int(part.value)] for part in body.args if part.function == "operand"]
        found = [limit for part in parts if (limit := _limit(part, column, depth - 1)) is not None]
        return found[0] if found else None
    if body.function not in ("ge", "gt", "le", "lt"):
        return None
    sides = [_integer(part, condition, depth) for part in body.args]
    if body.function in ("le", "lt"):
        sides.reverse()
    larger, smaller = sides
    if larger is None or smaller is None:
        return None
    rest = larger - smaller + IndexExpr(((column, 1),))
    return None if column in rest.dims() else rest + int(body.function in ("ge", "le"))


def _integer(term: Scalar, node: ScalarNode, depth: int) -> IndexExpr | None:
    """An integer primitive over a node's operands, as an index expression."""
    if depth == 0 or term.dtype.is_float:
        return None
    match term.function:
        case "operand":
            inner = node.operands[int(term.value)]
            return None if inner.op is None or inner.op.COMBINE else _integer(inner.op.body(), inner, depth - 1)
        case "index":
            return node.index[int(term.value)]
        case "constant":
            return constant(int(term.value))
        case "cast" if term.dtype.bits >= 32:
            return _integer(term.args[0], node, depth - 1)
        case "add" | "sub":
            left, right = (_integer(part, node, depth - 1) for part in term.args)
            if left is None or right is None:
                return None
            return left + right if term.function == "add" else left - right
        case _:
            return None


def vanishes_behind_mask(loop_body: LoopBody, raw: SSAValue) -> bool:
    """
    Whether all that is stored of the columns that `columns_seen` leaves out is 0, as long as what is read is finite: scores are
    -inf there, and their exponentials factors of it.
    """
    columns = _column_dims(loop_body)
    exposed: set[ScalarNode] = set()
    known: dict[ScalarNode, float] = {}
    for node in loop_body.nodes:
        if node.op is None:
            if node.value is raw:
                exposed.add(node)
            continue
        if not exposed.isdisjoint(node.operands):
            if _guard(node, exposed, columns) is None:
                exposed.add(node)
            elif (other := _constant_of(_other(node))) is not None:
                known[node] = other
            continue
        if node.op.COMBINE:
            return False
        if (value := _behind(node, known)) is not None:
            known[node] = value
    return all(known.get(store.node) == 0 for store in loop_body.stores)


def _constant_of(node: ScalarNode) -> float | None:
    """The number that a node is everywhere."""
    if node.op is None:
        return None
    body = node.op.body()
    if body.function == "operand":
        return _constant_of(node.operands[int(body.value)])
    return float(body.value) if body.function == "constant" else None


def _behind(node: ScalarNode, known: dict[ScalarNode, float]) -> float | None:
    """-inf or 0 where a node is that behind a mask, given which of its operands are, and that others are finite."""
    assert node.op is not None
    found: dict[Scalar, float | None] = {}
    for term in topological(node.op.body()):
        values = [found.get(part) for part in term.args]
        result: float | None = None
        match term.function:
            case "operand":
                operand = node.operands[int(term.value)]
                result = known.get(operand, _constant_of(operand))
            case "constant":
                result = float(term.value)
            case "exp" | "exp2":
                result = 0.0 if values[0] == float("-inf") else None
            case "add" if float("-inf") in values and float("inf") not in values:
                result = float("-inf")
            case "sub" if values[0] == float("-inf") and values[1] != float("-inf"):
                result = float("-inf")
            case "mul" if 0 in values and not any(value is not None and abs(value) == float("inf") for value in values):
                result = 0.0
            case "mul" if float("-inf") in values and any(value is not None and value > 0 for value in values):
                result = float("-inf")
            case "div" if values[0] == 0 and (values[1] or 0) != 0:
                result = 0.0
            case "neg" if values[0] == 0:
                result = 0.0
            case "select" if values[1] == values[2]:
                result = values[1]
            case "cast":
                result = values[0]
            case _:
                pass
        found[term] = result
    return found[node.op.body()]
