"""`chlo.scan`: what JAX lowers running totals to for GPUs."""

from __future__ import annotations

from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.frontends.builder import Emitter, extents, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, handler, name_of
from fuse_opt.frontends.stablehlo.operators.pointwise import joined
from fuse_opt.frontends.stablehlo.operators.reductions import REDUCTIONS, RUNNING


@handler("chlo.scan")
def scan(h: HloOp, g: Emitter) -> Results:
    """Slices along a dimension joined one after another, from a start value on: all that come out, then the last one."""
    combine = _combiner(h.body)
    if combine not in RUNNING or len(h.operands) != 2 or dtype(h.operand()) is BOOL:
        raise h.refuse(f"expected a scan of one tensor by one of {', '.join(RUNNING)}; got another one")
    x, initial = h.operands
    axis, backwards = h.integer("dimension"), h.integer("is_reverse") != 0
    totals = g.all(RUNNING[combine], x, axis=axis, reverse=backwards)[0]
    if h.number(1) != REDUCTIONS[combine][1]:
        row = [1 if number == axis else extent for number, extent in enumerate(extents(x))]
        start = g.broadcast_to(g.reshaped(initial, row), shape=extents(x))
        totals = joined(g, combine, totals, start)
    if not extents(x)[axis]:
        return [totals, initial]
    starts, stops = [0] * rank(x), list(extents(x))
    starts[axis], stops[axis] = (0, 1) if backwards else (stops[axis] - 1, stops[axis])
    return [totals, g.reshaped(g.slice(totals, starts=starts, stops=stops), list(h.shape(1)))]


def _combiner(block: Block) -> str | None:
    """The op that joins a slice and what was carried, and gives it out and carries it on; None where it is another region."""
    ops = list(block.ops)
    if len(ops) != 2 or len(block.args) != 2:
        return None
    given: set[SSAValue] = {*ops[0].operands}
    given_out = list(ops[1].operands)
    return name_of(ops[0]) if given == {*block.args} and given_out == [ops[0].results[0]] * 2 else None
