"""ONNX operators that read or write at positions that are data, that order, and that sum along."""

from __future__ import annotations

from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.frontends.builder import Emitter, extents, rank
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler


@handler("Gather")
def gather(n: Node, g: Emitter) -> Results:
    return g.take(n.operand(0), n.operand(1), axis=n.integer("axis"))


@handler("GatherElements")
def gather_elements(n: Node, g: Emitter) -> Results:
    x, indices = n.operand(0), n.operand(1)
    axis = n.integer("axis") % rank(x)
    shape = list(extents(x))
    read = [shape[axis] if k == axis else extent for k, extent in enumerate(extents(indices))]
    if read != shape:
        x = g.slice(x, starts=[0] * len(read), stops=read)
    return g.take_along_axis(x, indices, axis=axis)


@handler("GatherND")
def gather_nd(n: Node, g: Emitter) -> Results:
    return g.gather_nd(n.operand(0), n.operand(1), batch_dims=n.integer("batch_dims"))


@handler("Scatter", "ScatterElements")
def scatter(n: Node, g: Emitter) -> Results:
    reduction, axis = n.text("reduction", "none"), n.integer("axis")
    if reduction == "none":
        return g.scatter(*n.operands(), axis=axis)
    return g.scatter_reduce(*n.operands(), axis=axis, reduce=reduction)


@handler("ScatterND")
def scatter_nd(n: Node, g: Emitter) -> Results:
    return g.scatter_nd(*n.operands(), reduce=n.text("reduction", "none"))


@handler("TensorScatter")
def tensor_scatter(n: Node, g: Emitter) -> Results:
    x, updates = n.operand(0), n.operand(1)
    shape, written = extents(x), extents(updates)
    axis = n.integer("axis", -2) % rank(x)
    at = g.iota(shape=[m if k == axis else 1 for k, m in enumerate(written)], axis=axis, dtype=I64)
    if n.has(2):
        at = g.add(g.reshape(n.operand(2), shape=[shape[0]] + [1] * (rank(x) - 1)), at)
    if n.text("mode", "linear") == "circular":
        at = g.remainder(at, g.like(shape[axis], at))
    return g.scatter(x, g.broadcast_to(at, shape=written), updates, axis=axis)


@handler("ArgMax", "ArgMin")
def argmax(n: Node, g: Emitter) -> Results:
    name = n.op_type.lower()
    x, axis, keepdims = n.operand(0), n.integer("axis"), n.flag("keepdims", True)
    if not n.flag("select_last_index"):
        return g.all(name, x, axis=axis, keepdims=keepdims)
    (from_end,) = g.all(name, g.flip(x, axes=[axis]), axis=axis, keepdims=keepdims)
    return g.subtract(g.like(extents(x)[axis] - 1, from_end), from_end)


@handler("CumSum", "CumProd")
def cumulative(n: Node, g: Emitter) -> Results:
    build = g.cumulative_sum if n.op_type == "CumSum" else g.cumulative_prod
    exclusive, reverse = n.flag("exclusive"), n.flag("reverse")
    return build(n.operand(0), axis=n.known_integer(1), exclusive=exclusive, reverse=reverse)


@handler("TopK")
def top_k(n: Node, g: Emitter) -> Results:
    k = n.known_integer(1) if n.has(1) else n.integer("k")
    largest, ordered = n.flag("largest", True), n.flag("sorted", True)
    return g.all("top_k", n.operand(0), k=k, axis=n.integer("axis", -1), largest=largest, sorted=ordered)
