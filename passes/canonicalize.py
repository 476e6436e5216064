"""Simplify ops by exact algebra: neutral elements, double negations, views of views, casts that change nothing."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from ..dialects.fused import KernelOp, directives
from ..dialects.graph_op import FusionKind, GraphOp, StructuredOp
from ..dialects.scalar import Scalar
from ..dialects.scalar_algebra import simplify

_INVOLUTIONS = ("neg", "not")


@dataclass(frozen=True)
class CanonicalizePass(ModulePass):
    """Applies each op's own simplification and the algebra of scalar bodies, in one forward sweep per round.

    ```mlir
    %one = graph.constant dense<1.0> : tensor<f32>
    %r = graph.multiply %x, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>   // becomes %x
    ```
    Exact: NaN, infinities, signed zeros and rounding are as before. Ops with directives are left alone.
    """

    name = "canonicalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        while any([_simplify_op(inner) for inner in op.walk() if isinstance(inner, GraphOp)]):
            pass


def _simplify_op(op: GraphOp) -> bool:
    """Replaces the op when something simpler gives the same; whether it did."""
    if op.parent is None or directives(op) or not any(result.uses for result in op.results):
        return False
    if isinstance(kernel := op.parent.parent_op(), KernelOp) and kernel.schedule is not None:
        return False
    value = _known_value(op)
    if value is None and (simpler := op.canonical()) is not None:
        simpler.location = op.location
        op.parent.insert_op_before(simpler, op)
        value = simpler.results[0]
    if value is None:
        return False
    value.name_hint = value.name_hint or op.results[0].name_hint
    op.results[0].replace_all_uses_with(value)
    _erase_dead(op)
    return True


def _known_value(op: GraphOp) -> SSAValue | None:
    """An operand that equals the result, element for element."""
    if not isinstance(op, StructuredOp) or not op.operands or op.COMBINE:
        return None
    if op.is_alias() and op.operands[0].type == op.results[0].type:
        return op.operands[0]
    if (undone := _undone(op)) is not None:
        return undone
    constants = {k: body for k, value in enumerate(op.operands) if (body := _splat(value)) is not None}
    body = simplify(op.body(), constants)
    if body.function != "operand":
        return None
    kept = op.operands[int(body.value)]
    return kept if kept.type == op.results[0].type and not op.is_view() else None


def _undone(op: StructuredOp) -> SSAValue | None:
    """What the op gives back by doing once more what its operand's op did: two negations."""
    function = op.body().function
    inner = op.operands[0].owner
    if function not in _INVOLUTIONS or not isinstance(inner, StructuredOp) or len(inner.operands) != 1:
        return None
    for each in (op, inner):
        body = each.body()
        if (
            each.fusion_kind() > FusionKind.ELEMENTWISE
            or body.function != function
            or body.args[0].function != "operand"
        ):
            return None
    kept = inner.operands[0]
    return kept if kept.type == op.operands[0].type == op.results[0].type else None


def _splat(value: SSAValue) -> Scalar | None:
    owner = value.owner
    if not isinstance(owner, StructuredOp) or owner.operands or owner.stored_value() is not None:
        return None
    return owner.body()


def _erase_dead(op: GraphOp) -> None:
    """Erases the op and, upwards, the pure ops that only it kept alive."""
    stack = [op]
    while stack:
        dead = stack.pop()
        if any(result.uses for result in dead.results) or dead.parent is None:
            continue
        owners = [value.owner for value in dead.operands]
        Rewriter.erase_op(dead)
        stack.extend(o for o in dict.fromkeys(owners) if isinstance(o, GraphOp) and o.has_trait(Pure()))
