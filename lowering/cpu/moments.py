"""Joining sums and squares about their means, part by part."""

from __future__ import annotations

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.cpu.split_reduction import Phase, PhasedKernel
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.moments import Moments, float_of
from fuse_opt.lowering.kernel.scope import INDEX, Scope


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


def _pair(phase: Phase, scope: Scope, node: ScalarNode, places: tuple[SSAValue, SSAValue]) -> tuple[SSAValue, SSAValue]:
    first, other = (scope.add(memref.LoadOp.get(phase.parts[node], [place])) for place in places)
    return first, other
