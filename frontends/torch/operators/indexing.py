"""Records of reads and writes at positions that are data: gather, index, embedding, scatter and their kin.

Where PyTorch refuses negative indices, the program does so, too (`wrap_negative`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, I64, U8
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

INDEXING, handler = handlers()


def _at_least_1d(call: Call, value: SSAValue) -> SSAValue:
    return value if shape(value) else call.reshaped(value, [1])


def _axis(call: Call, x: SSAValue) -> int:
    return call["dim"] % max(len(shape(x)), 1)


def _first_part(call: Call, x: SSAValue, extents: Sequence[int]) -> SSAValue:
    """The part of x at its beginning that has these extents."""
    return x if shape(x) == tuple(extents) else call.emit.slice(x, starts=[0] * len(extents), stops=list(extents))


@handler("aten.embedding.default")
def _embedding(call: Call) -> SSAValue:
    return call.emit.take(call.tensor("weight"), call.tensor("indices"), axis=0, wrap_negative=False)


@handler("aten.index_select.default")
def _index_select(call: Call) -> SSAValue:
    x = _at_least_1d(call, call.tensor("self"))
    axis = _axis(call, x)
    index = _at_least_1d(call, call.tensor("index"))
    return call.reshaped(call.emit.take(x, index, axis=axis, wrap_negative=False), call.shape)


@handler("aten.gather.default")
def _gather(call: Call) -> SSAValue:
    x = _at_least_1d(call, call.tensor("self"))
    axis = _axis(call, x)
    index = _at_least_1d(call, call.tensor("index"))
    read = [n if k == axis else m for k, (n, m) in enumerate(zip(shape(x), shape(index), strict=True))]
    found = call.emit.take_along_axis(_first_part(call, x, read), index, axis=axis, wrap_negative=False)
    return call.reshaped(found, call.shape)


@handler("aten.take.default")
def _take(call: Call) -> SSAValue:
    x = call.tensor("self")
    return call.emit.take(call.reshaped(x, [prod(shape(x))]), call.tensor("index"), axis=0)


@handler("aten.put.default")
def _put(call: Call) -> SSAValue:
    x, index = call.tensor("self"), call.tensor("index")
    source = call.reshaped(call.tensor("source"), shape(index))
    flat = call.reshaped(x, [prod(shape(x))])
    return call.reshaped(call.emit.index_put(flat, source, index, axes=[0], accumulate=call["accumulate"]), shape(x))


def _indices(call: Call) -> tuple[list[int], list[SSAValue]]:
    """The axes that index tensors stand for, and these."""
    given = {axis: call.value(item) for axis, item in enumerate(call["indices"]) if item is not None}
    if any(dtype(value) in (BOOL, U8) for value in given.values()):
        raise NotCoveredError("takes a mask for an index")
    if not given:
        raise NotCoveredError("has no index")
    return list(given), list(given.values())


@handler("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(call: Call) -> SSAValue:
    axes, indices = _indices(call)
    return call.emit.index(call.tensor("self"), *indices, axes=axes)


@handler("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(call: Call) -> SSAValue:
    axes, indices = _indices(call)
    x, values = call.tensor("self"), call.tensor("values")
    accumulate = bool(call["accumulate"])
    if accumulate and dtype(x) is BOOL:
        raise NotCoveredError("accumulates truth values")
    return call.emit.index_put(x, values, *indices, axes=axes, accumulate=accumulate)


@handler("aten.embedding_dense_backward.default")
def _embedding_backward(call: Call) -> SSAValue:
    if call["scale_grad_by_freq"]:
        raise NotCoveredError("scales by frequencies")
    grad, rows = call.tensor("grad_output"), int(call["num_weights"])
    padding = int(call["padding_idx"])
    options = {"rows": rows, "padding_index": padding if 0 <= padding < rows else None, "wrap_negative": False}
    return call.emit.embedding_backward(grad, call.tensor("indices"), **options)


@handler("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default")
def _scatter(call: Call) -> SSAValue:
    return _scattered(call, "add" if "add" in str(call.node.target) else None)


@handler("aten.scatter.reduce", "aten.scatter.value_reduce")
def _scatter_joined(call: Call) -> SSAValue:
    return _scattered(call, {"add": "add", "multiply": "mul"}[call["reduce"]])


def _scattered(call: Call, reduce: str | None) -> SSAValue:
    x, index, updates, axis = _updates(call)
    if reduce is not None and dtype(x) is BOOL:
        raise NotCoveredError("reduces truth values")
    options: dict[str, Any] = {"axis": axis, "wrap_negative": False}
    if reduce is None:
        found = call.emit.scatter(x, index, updates, **options)
    else:
        found = call.emit.scatter_reduce(x, index, updates, reduce=reduce, **options)
    return call.reshaped(found, call.shape)


def _updates(call: Call) -> tuple[SSAValue, SSAValue, SSAValue, int]:
    """The operands of a scatter: of one rank, at least 1; the updates as large as the indices."""
    x = _at_least_1d(call, call.tensor("self"))
    axis = _axis(call, x)
    index = _at_least_1d(call, call.tensor("index"))
    if "value" in call.arguments:
        return x, index, call.number(call["value"], dtype(x), shape(index)), axis
    updates = _at_least_1d(call, call.tensor("src", dtype(x)))
    if 0 in shape(index):
        raise NotCoveredError("has no index")
    return x, index, _first_part(call, updates, shape(index)), axis


_JOINS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -inf, "min": inf}


@handler("aten.scatter_reduce.two")
def _scatter_reduce(call: Call) -> SSAValue:
    x, index, updates, axis = _updates(call)
    if dtype(x) is BOOL:
        raise NotCoveredError("reduces truth values")
    return call.reshaped(_reduced(call, x, index, updates, axis, str(call["reduce"])), call.shape)


@handler("aten.index_reduce.default")
def _index_reduce(call: Call) -> SSAValue:
    x = _at_least_1d(call, call.tensor("self"))
    axis = _axis(call, x)
    if dtype(x) is BOOL:
        raise NotCoveredError("reduces truth values")
    index = _at_least_1d(call, call.tensor("index"))
    updates = _at_least_1d(call, call.tensor("source"))
    along = call.reshaped(index, [shape(index)[0] if k == axis else 1 for k in range(len(shape(x)))])
    wide = call.emit.broadcast_to(along, shape=list(shape(updates)))
    return call.reshaped(_reduced(call, x, wide, updates, axis, str(call["reduce"])), call.shape)


def _reduced(call: Call, x: SSAValue, index: SSAValue, updates: SSAValue, axis: int, name: str) -> SSAValue:
    """x with updates joined to what is there, or (`include_self` false) to nothing where there are any."""
    emit, join, element = call.emit, _JOINS.get(name), dtype(x)
    if join is None and name != "prod":
        raise NotCoveredError(f"reduces by {name}")
    assert join is not None
    options: dict[str, Any] = {"axis": axis, "wrap_negative": False}
    before = x
    if not call["include_self"]:
        neutral = call.number(_neutral(call, join), element, shape(index))
        before = emit.scatter(x, index, neutral, **options)
    total = emit.scatter_reduce(before, index, updates, reduce=join, **options)
    if name != "mean":
        return total
    ones = call.number(1, element, shape(index))
    own = call.number(1, element, shape(x))
    if not call["include_self"]:
        own = emit.scatter(own, index, call.number(0, element, shape(index)), **options)
    count = emit.scatter_reduce(own, index, ones, reduce="add", **options)
    return emit.divide(total, count) if element.is_float else emit.floor_divide(total, count)


def _neutral(call: Call, join: str) -> float:
    """What joins with every value of x's type without changing it."""
    found, element = _NEUTRAL[join], call.dtype
    if element.is_float or abs(found) != inf:
        return found
    low = 0 if element.name.startswith("u") else -(2 ** (element.bits - 1))
    return low if found < 0 else low + 2**element.bits - 1


@handler("aten.masked_scatter.default")
def _masked_scatter(call: Call) -> SSAValue:
    emit, x = call.emit, call.tensor("self")
    mask, source = call.tensor("mask", BOOL), call.tensor("source")
    if not prod(shape(source)) or not prod(call.shape):
        raise NotCoveredError("takes nothing")
    count = prod(call.shape)
    flags = call.reshaped(emit.broadcast_to(mask, shape=list(call.shape)), [count])
    place = emit.subtract(emit.cumulative_sum(call.cast(flags, I64), axis=0), call.number(1, I64))
    place = emit.where(flags, place, call.number(0, I64))
    taken = emit.take(call.reshaped(source, [prod(shape(source))]), place, axis=0)
    kept = call.reshaped(emit.broadcast_to(x, shape=list(call.shape)), [count])
    return call.reshaped(emit.where(flags, taken, kept), call.shape)


@handler("aten.diagonal_scatter.default")
def _diagonal_scatter(call: Call) -> SSAValue:
    x, source = call.tensor("self"), call.tensor("src", call.dtype)
    extents = shape(x)
    rows, columns = call["dim1"] % len(extents), call["dim2"] % len(extents)
    offset, count = call["offset"], shape(source)[-1]
    if not prod(shape(source)):
        return x
    emit = call.emit
    rest = [k for k in range(len(extents)) if k not in (rows, columns)]
    front = emit.permute_dims(x, axes=[rows, columns, *rest])
    steps = emit.iota(shape=[count], dtype=I64, axis=0)
    first = emit.add(steps, call.number(max(-offset, 0), I64))
    second = emit.add(steps, call.number(max(offset, 0), I64))
    rank = len(shape(source))
    values = emit.permute_dims(source, axes=[rank - 1, *range(rank - 1)])
    put = emit.index_put(front, values, first, second, axes=[0, 1])
    order = [rows, columns, *rest]
    return emit.permute_dims(put, axes=[order.index(k) for k in range(len(extents))])
