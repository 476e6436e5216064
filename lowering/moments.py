"""Sums of squared deviations from a mean, made in the same parts as the mean itself: one way through memory for both.

A part's squares are taken about the part's own mean; joining two parts adds what lies between their means (Chan, Golub and
LeVeque 1983: algorithms for computing the sample variance). The error is at most about what rounding the elements once
changes in the result, so it grows with the mean over the deviation; that of two ways through memory grows less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import f32, f64, i64
from xdsl.ir import Block, SSAValue

from ..dialects.dtypes import F32, F64, DType
from ..dialects.graph_op import dtype
from ..dialects.index_expr import Dim
from ..dialects.pull import Point
from .kernel_points import Stage
from .loop_builder import INDEX, Scope
from .loop_space import as_expr, extent
from .phases import Phase, PhasedKernel

Moments = Mapping[Point, Point]
"""By sum of squares: the sum whose mean it is about."""


def find_moments(stages: Sequence[Stage]) -> Moments:
    """Those of two stages of which the second only sums squares about means of the first; else none."""
    if len(stages) != 2 or stages[1].stores or stages[0].stores or stages[0].dims != stages[1].dims:
        return {}
    sums, squares = stages[0].reductions, stages[1].reductions
    found = {point: mean for point in squares if (mean := _sum_below(point, sums, extent(stages[0].dims))) is not None}
    return found if len(found) == len(squares) and set(found.values()) == set(sums) else {}


def _sum_below(point: Point, sums: Sequence[Point], count: int) -> Point | None:
    """The sum s where the point sums (x - s * (1 / count)) ** 2 over what s sums."""
    if not _is_sum(point) or dtype(point.value) not in (F32, F64):
        return None
    factors = _operands(point.operands[0], "mul")
    if factors is None or factors[0] is not factors[1]:
        return None
    if (difference := _operands(factors[0], "sub")) is None:
        return None
    x, mean = difference
    if (parts := _operands(mean, "mul")) is None:
        return None
    for total, scale in (parts, parts[::-1]):
        if total in sums and _is_sum(total) and total.operands[0] is x and _is_constant(scale, 1.0 / count):
            return total
    return None


def _is_sum(point: Point) -> bool:
    return point.op is not None and point.op.COMBINE == "add" and point.op.body().function == "operand"


def _operands(point: Point, function: str) -> tuple[Point, Point] | None:
    """The two points that an op with this body takes."""
    if point.op is None or point.op.COMBINE or (body := point.op.body()).function != function:
        return None
    if len(body.args) != 2 or any(arg.function != "operand" for arg in body.args):
        return None
    first, second = (point.operands[int(arg.value)] for arg in body.args)
    return first, second


def _is_constant(point: Point, value: float) -> bool:
    if point.op is None or (body := point.op.body()).function != "constant":
        return False
    return abs(body.value - value) <= 1e-6 * value


def float_of(scope: Scope, number: SSAValue, kind: DType) -> SSAValue:
    """An index as a float."""
    integer = scope.add(arith.IndexCastOp(number, i64))
    return scope.add(arith.SIToFPOp(integer, f32 if kind is F32 else f64))


def build_moments_join(kernel: PhasedKernel, phase: Phase, moments: Moments, part: int, longest: int) -> None:
    """Joins sums, and squares about their means, part by part; of each part `part` of `longest` elements but for the last."""
    some = next(iter(moments))
    partials = kernel.partials[some]
    if partials.splits < 2:
        return
    split, row = Dim("split", partials.splits), Dim("row", partials.rows)
    kind, constant = dtype(some.value), phase.root.index_constant
    outer = Scope(phase.root, Block(arg_types=[INDEX]))
    outer.block.args[0].name_hint = "split"
    outer.indices[split] = outer.block.args[0]
    before = outer.add(arith.MuliOp(outer.block.args[0], constant(part)))
    rest = outer.add(arith.SubiOp(constant(longest), before))
    size = outer.add(arith.MinSIOp(rest, constant(part)))
    counts = [float_of(outer, number, kind) for number in (before, size)]
    one = outer.constant(1.0, kind)
    inverses = [outer.add(arith.DivfOp(one, count)) for count in counts]
    weight = outer.add(arith.DivfOp(one, outer.add(arith.AddfOp(inverses[0], inverses[1]))))
    inner = Scope(outer, Block(arg_types=[INDEX]))
    inner.block.args[0].name_hint = "row"
    inner.indices[row] = inner.block.args[0]
    first, other = inner.index(as_expr(row)), inner.index(partials.position)
    sums = {total: _pair(phase, inner, total, (first, other)) for total in dict.fromkeys(moments.values())}
    for square, total in moments.items():
        means = [inner.add(arith.MulfOp(v, inverse)) for v, inverse in zip(sums[total], inverses, strict=True)]
        apart = inner.add(arith.SubfOp(means[1], means[0]))
        between = inner.add(arith.MulfOp(inner.add(arith.MulfOp(apart, apart)), weight))
        squares = _pair(phase, inner, square, (first, other))
        joined = inner.add(arith.AddfOp(inner.add(arith.AddfOp(squares[0], squares[1])), between))
        inner.block.add_op(memref.StoreOp.get(joined, phase.parts[square], [first]))
    for total, pair in sums.items():
        joined = inner.add(arith.AddfOp(pair[0], pair[1]))
        inner.block.add_op(memref.StoreOp.get(joined, phase.parts[total], [first]))
    inner.block.add_op(scf.ReduceOp())
    outer.block.add_op(phase.parallel(inner.block, phase.begin, phase.end))
    outer.block.add_op(scf.YieldOp())
    phase.root.block.add_op(phase.loop(outer.block, constant(1), constant(partials.splits)))


def _pair(phase: Phase, scope: Scope, point: Point, places: tuple[SSAValue, SSAValue]) -> tuple[SSAValue, SSAValue]:
    first, other = (scope.add(memref.LoadOp.get(phase.parts[point], [place])) for place in places)
    return first, other
