"""Sums of squared deviations from a mean, made in the same parts as the mean itself: one way through memory for both.

A part's squares are taken about the part's own mean; joining two parts adds what lies between their means (Chan, Golub and
LeVeque 1983: algorithms for computing the sample variance). The error is at most about what rounding the elements once
changes in the result, so it grows with the mean over the deviation; that of two ways through memory grows less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32, f64, i64
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, F64, DType
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import extent
from fuse_opt.lowering.kernel.scope import Scope

Moments = Mapping[ScalarNode, ScalarNode]
"""By sum of squares: the sum whose mean it is about."""


def find_moments(stages: Sequence[Stage]) -> Moments:
    """Those of two stages of which the second only sums squares about means of the first; else none, as of no elements."""
    if len(stages) != 2 or stages[1].stores or stages[0].stores or stages[0].dims != stages[1].dims:
        return {}
    count: Extent = extent(stages[0].dims)
    if isinstance(count, Size) or not count:
        return {}
    sums, squares = stages[0].reductions, stages[1].reductions
    found = {node: mean for node in squares if (mean := _sum_below(node, sums, count)) is not None}
    return found if len(found) == len(squares) and set(found.values()) == set(sums) else {}


def _sum_below(node: ScalarNode, sums: Sequence[ScalarNode], count: int) -> ScalarNode | None:
    """The sum s where the node sums (x - s / count) ** 2 over what s sums, or that with a multiplication by 1 / count."""
    if not is_operand_reduced(node, "add") or dtype(node.value) not in (F32, F64):
        return None
    factors = operands_of(viewed(node.operands[0]), "mul")
    if factors is None or factors[0] is not factors[1]:
        return None
    if (difference := operands_of(factors[0], "sub")) is None:
        return None
    x, mean = difference
    for total, scale, wanted in _scaled(mean, count):
        if (
            total in sums
            and is_operand_reduced(total, "add")
            and viewed(total.operands[0]) is x
            and _is_constant(scale, wanted)
        ):
            return total
    return None


def _scaled(mean: ScalarNode, count: int) -> list[tuple[ScalarNode, ScalarNode, float]]:
    """What may be a sum in a mean, what it is scaled by, and what that has to be."""
    if (parts := operands_of(mean, "mul")) is not None:
        first, second = parts
        return [(first, second, 1.0 / count), (second, first, 1.0 / count)]
    if (parts := operands_of(mean, "div")) is not None:
        return [(parts[0], parts[1], float(count))]
    return []


def viewed(node: ScalarNode) -> ScalarNode:
    """What a node is a view of: the scalar itself, under another shape."""
    while node.op is not None and node.op.is_view() and not node.op.COMBINE:
        node = node.operands[int(node.op.body().value)]
    return node


def is_operand_reduced(node: ScalarNode, primitive: str) -> bool:
    """Whether a node joins its operand as it is, by a primitive."""
    return node.op is not None and primitive == node.op.COMBINE and node.op.body().function == "operand"


def operands_of(node: ScalarNode, function: str) -> tuple[ScalarNode, ...] | None:
    """The nodes that an op with this body takes."""
    if node.op is None or node.op.COMBINE or (body := node.op.body()).function != function:
        return None
    if any(arg.function != "operand" for arg in body.args):
        return None
    return tuple(viewed(node.operands[int(arg.value)]) for arg in body.args)


def _is_constant(node: ScalarNode, value: float) -> bool:
    if node.op is None or (body := node.op.body()).function != "constant":
        return False
    return abs(body.value - value) <= 1e-6 * value


def float_of(scope: Scope, number: SSAValue, kind: DType) -> SSAValue:
    """An index as a float."""
    integer = scope.add(arith.IndexCastOp(number, i64))
    return scope.add(arith.SIToFPOp(integer, f32 if kind is F32 else f64))
