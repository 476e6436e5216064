"""Records of views and movement, and of tensors made from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, DType
from fuse_opt.dialects.types.extents import is_decided
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.torch.fx.api import as_list
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

VIEWS, handler = handlers()
_END = (1 << 63) - 1
"""Behind every axis."""


@handler(
    "aten.view.default", "aten._unsafe_view.default", "aten._reshape_alias.default",
    "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.alias.default",
    "aten.detach.default", "aten.clone.default", "aten.lift_fresh_copy.default",
)  # fmt: skip
def _same_order(call: Call) -> SSAValue:
    """The same elements in the same order."""
    return call.reshaped(call.tensor("self"), call.shape)


@handler("aten.expand.default")
def _expand(call: Call) -> SSAValue:
    return call.emit.broadcast_to(call.tensor("self"), shape=list(call.shape))


@handler("aten.permute.default")
def _permute(call: Call) -> SSAValue:
    return call.emit.permute_dims(call.tensor("self"), axes=call.axes("dims", len(call.shape)))


@handler("aten.transpose.int")
def _transpose(call: Call) -> SSAValue:
    rank = len(call.shape)
    order = list(range(rank))
    if rank:
        a, b = call["dim0"] % rank, call["dim1"] % rank
        order[a], order[b] = order[b], order[a]
    return call.emit.permute_dims(call.tensor("self"), axes=order)


@handler("aten.t.default")
def _t(call: Call) -> SSAValue:
    return call.emit.permute_dims(call.tensor("self"), axes=list(range(len(call.shape)))[::-1])


def _bounds(extents: Sequence[int], axis: int, positions: range) -> dict[str, list[int]]:
    """The properties of a slice of these positions on an axis."""
    starts, stops, steps = [0] * len(extents), list(extents), [1] * len(extents)
    if positions:
        starts[axis], stops[axis], steps[axis] = positions.start, positions[-1] + 1, positions.step
    else:
        stops[axis] = 0
    return {"starts": starts, "stops": stops, "steps": steps}


def _positions(call: Call, extent: int) -> range:
    """What `start`, `end` and `step` select of an axis."""
    start: Any
    end: Any
    step: Any
    start, end, step = (call[name] for name in ("start", "end", "step"))
    return range(extent)[slice(start, end, step)]


def _is_sized(call: Call, x: SSAValue, axis: int) -> bool:
    """Whether a size has a part in what `start` and `end` select."""
    return any(isinstance(number, Size) for number in (shape(x)[axis], call["start"], call["end"]))


def _sized_bounds(call: Call, rank: int, axis: int) -> dict[str, list[int]]:
    """As `_bounds`, of an axis whose extent is a size, or up to one: what is sliced then says what it has to know of it."""
    starts, stops, steps = [0] * rank, [_END] * rank, [1] * rank
    starts[axis], steps[axis] = call["start"] or 0, call["step"]
    stops[axis] = _END if call["end"] is None else call["end"]
    return {"starts": starts, "stops": stops, "steps": steps}


@handler("aten.slice.Tensor")
def _slice(call: Call) -> SSAValue:
    x = call.tensor("self")
    axis: int = call["dim"] % len(shape(x))
    if _is_sized(call, x, axis):
        return call.emit.slice(x, **_sized_bounds(call, len(shape(x)), axis))
    return call.emit.slice(x, **_bounds(shape(x), axis, _positions(call, shape(x)[axis])))


@handler("aten.select.int")
def _select(call: Call) -> SSAValue:
    return call.emit.select(call.tensor("self"), axis=call["dim"], index=call["index"])


@handler("aten.split_with_sizes.default", "aten.split.Tensor")
def _split(call: Call) -> Sequence[SSAValue]:
    x = call.tensor("self")
    axis: int = call["dim"] % len(shape(x))
    parts: list[SSAValue] = []
    start = 0
    for meta in call.out:
        starts, stops = [0] * len(shape(x)), list(shape(x))
        starts[axis], stops[axis] = start, start + call.extents(meta)[axis]
        parts.append(call.emit.slice(x, starts=starts, stops=stops))
        start = stops[axis]
    return parts


@handler("aten.unfold.default")
def _unfold(call: Call) -> SSAValue:
    x, rank = call.tensor("self"), len(call.shape) - 1
    if not rank:
        raise NotCoveredError("is of a number")
    axis = call["dimension"] % rank
    last = [*(k for k in range(rank) if k != axis), axis]
    windows = {"window": [call["size"]], "strides": [call["step"]], "dilations": [1]}
    x = call.emit.sliding_windows(call.emit.permute_dims(x, axes=last), **windows)
    return call.emit.permute_dims(x, axes=[*range(axis), rank - 1, *range(axis, rank - 1), rank])


@handler("aten.unbind.int")
def _unbind(call: Call) -> Sequence[SSAValue]:
    x = call.tensor("self")
    return [call.emit.select(x, axis=call["dim"], index=number) for number in range(len(call.out))]


@handler("aten.diagonal.default")
def _diagonal(call: Call) -> SSAValue:
    axes = {"axis1": call["dim1"], "axis2": call["dim2"]}
    return call.emit.diagonal(call.tensor("self"), offset=call["offset"], **axes)


@handler("aten.slice_scatter.default")
def _slice_scatter(call: Call) -> SSAValue:
    x = call.tensor("self")
    axis: int = call["dim"] % len(shape(x))
    if _is_sized(call, x, axis):
        return call.emit.slice_scatter(x, call.tensor("src", dtype(x)), **_sized_bounds(call, len(shape(x)), axis))
    positions = _positions(call, shape(x)[axis])
    if not positions:
        return x
    return call.emit.slice_scatter(x, call.tensor("src", dtype(x)), **_bounds(shape(x), axis, positions))


@handler("aten.select_scatter.default")
def _select_scatter(call: Call) -> SSAValue:
    source = call.tensor("src", call.dtype)
    return call.emit.select_scatter(call.tensor("self"), source, axis=call["dim"], index=call["index"])


_MOST_JOINED = 8
"""Tensors that a kernel joins, where it reads for each element one of each; for more, PyTorch's kernel copies one by one."""


def _check_joined(call: Call) -> None:
    if len(call["tensors"]) > _MOST_JOINED and not call.exported:
        raise NotCoveredError(f"joins more than {_MOST_JOINED} tensors")


@handler("aten.cat.default")
def _cat(call: Call) -> SSAValue:
    _check_joined(call)
    kept = [x for x in call.tensors("tensors", call.dtype) if shape(x) != (0,) or len(call.shape) == 1]
    return kept[0] if len(kept) == 1 else call.emit.concat(*kept, axis=call["dim"])


@handler("aten.stack.default")
def _stack(call: Call) -> SSAValue:
    _check_joined(call)
    return call.emit.stack(*call.tensors("tensors", call.dtype), axis=call["dim"])


@handler("aten.constant_pad_nd.default")
def _pad(call: Call) -> SSAValue:
    given, rank = list(call["pad"]), len(call.shape)
    before, after = [0] * rank, [0] * rank
    for number in range(len(given) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = given[2 * number : 2 * number + 2]
    x, pads = call.tensor("self"), [*before, *after]
    taken = [k for k, n in enumerate(pads) if _is_taken(n)]
    if taken:
        less = [-n if k in taken else 0 for k, n in enumerate(pads)]
        stops = [extent - n for extent, n in zip(shape(x), less[rank:], strict=True)]
        x = call.emit.slice(x, starts=less[:rank], stops=stops)
        pads = [0 if k in taken else n for k, n in enumerate(pads)]
    return call.emit.pad(x, pads=pads, value=_value(call["value"], call.dtype))


def _is_taken(pad: int) -> bool:
    """Whether a size is what is taken away, as in the gradient of what adds it."""
    return isinstance(pad, Size) and is_decided(lambda: pad <= 0)


def _value(number: float, element: DType) -> object:
    """A number as the property of an op on an element type."""
    if element.is_float:
        return FloatAttr(float(number), 64)
    return int(bool(number)) if element is BOOL else int(number)


@handler("aten.flip.default")
def _flip(call: Call) -> SSAValue:
    dims = [axis % max(len(call.shape), 1) for axis in call["dims"]]
    return call.emit.flip(call.tensor("self"), axes=dims) if dims and call.shape else call.tensor("self")


@handler("aten.repeat.default")
def _repeat(call: Call) -> SSAValue:
    if not prod(call.shape):
        return call.number(0, call.dtype, call.shape)
    return call.emit.tile(call.tensor("self"), repeats=call["repeats"])


@handler("aten.roll.default")
def _roll(call: Call) -> SSAValue:
    x, shifts, axes = call.tensor("self"), as_list(call["shifts"]), as_list(call["dims"])
    if not any(isinstance(n, Size) for n in (*shape(x), *shifts)):
        return call.emit.roll(x, shifts=shifts, axes=axes or None)
    if not axes:
        x, axes = call.reshaped(x, [prod(call.shape)]), [0]
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(call, x, shift, axis % len(shape(x)))
    return call.reshaped(x, call.shape)


def _rolled(call: Call, x: SSAValue, shift: int, axis: int) -> SSAValue:
    """Along an axis of any extent, by a size or number that is not more than that."""
    extents = list(shape(x))
    extent = extents[axis]
    if not is_decided(lambda: -extent <= shift <= extent):
        raise NotCoveredError("may go round more than once")
    if not isinstance(shift, Size):
        return call.emit.roll(x, shifts=[shift], axes=[axis])
    if not is_decided(lambda: shift >= 0) and not is_decided(lambda: shift <= 0):
        raise NotCoveredError("may go round in either direction")
    first = extent - shift if is_decided(lambda: shift >= 0) else -shift
    starts, stops = [0] * len(extents), list(extents)
    starts[axis] = stops[axis] = first
    ends = call.emit.slice(x, starts=starts, stops=extents)
    return call.emit.concat(ends, call.emit.slice(x, starts=[0] * len(extents), stops=stops), axis=axis)


@handler("aten.tril.default", "aten.triu.default")
def _triangle(call: Call) -> SSAValue:
    keep = call.emit.tril if "tril" in str(call.node.target) else call.emit.triu
    return keep(call.tensor("self"), k=call["diagonal"])


@handler("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def _full(call: Call) -> SSAValue:
    return call.number(call["fill_value"], call.dtype, call.shape)


@handler("aten.scalar_tensor.default")
def _scalar_tensor(call: Call) -> SSAValue:
    return call.number(call["s"], call.dtype)


@handler(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.empty.memory_format",
    "aten.empty_permuted.default", "aten.empty_strided.default", "aten.new_empty_strided.default",
    "aten.empty_like.default", "aten.new_empty.default", "aten.ones.default",
    "aten.ones_like.default", "aten.new_ones.default",
)  # fmt: skip
def _zeros_or_ones(call: Call) -> SSAValue:
    return call.number(int("ones" in str(call.node.target)), call.dtype, call.shape)


@handler("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def _arange(call: Call) -> SSAValue:
    start, step = call.arguments.get("start") or 0, call.arguments.get("step", 1)
    start, step = (call["start"] if "start" in call.arguments else start), (call["step"] if step != 1 else 1)
    if call.dtype.is_float and call.dtype.bits < 32:
        raise NotCoveredError("counts in narrow floats")
    return _counted(call, start, step)


@handler("prims.iota.default")
def _iota(call: Call) -> SSAValue:
    return _counted(call, call["start"], call["step"])


def _counted(call: Call, start: float, step: float) -> SSAValue:
    if isinstance(start, Size) or isinstance(step, Size):
        if call.dtype.is_float:
            raise NotCoveredError("counts in floats from or by what a call says")
        places = call.emit.iota(shape=list(call.shape), dtype=call.dtype, axis=0)
        scaled = call.emit.multiply(places, call.number(step, call.dtype))
        return call.emit.add(scaled, call.number(start, call.dtype))
    values = {"start": _value(start, call.dtype), "step": _value(step, call.dtype)}
    return call.emit.iota(shape=list(call.shape), dtype=call.dtype, axis=0, **values)
