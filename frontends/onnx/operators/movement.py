"""ONNX operators that move elements: shapes, slices, padding, joining, and tensors made from nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import exact_quotient, is_decided, largest
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.builder import Emitter, Value, element_type, extents, rank
from fuse_opt.frontends.onnx.operators.node import Node, Results, as_known, handler, onnx_module

_END = (1 << 63) - 1
"""A stop behind the end of an axis whose extent is a size."""


@handler("Reshape")
def reshape(n: Node, g: Emitter) -> Results:
    wanted = n.axes(1, "shape") or []
    x = n.operand(0)
    if not n.flag("allowzero"):
        wanted = [extents(x)[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    if any(isinstance(size, Size) for size in (*wanted, *extents(x))) and -1 in wanted:
        rest = exact_quotient(math.prod(extents(x)), math.prod(size for size in wanted if size != -1))
        if rest is None:
            raise n.refuse(f"the extent -1 of {wanted} follows from no division of {list(extents(x))}")
        wanted = [rest if size == -1 else size for size in wanted]
    return g.reshape(x, shape=wanted)


@handler("Transpose")
def transpose(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    return g.permute_dims(x, axes=n.integers("perm", range(rank(x))[::-1]))


@handler("Squeeze")
def squeeze(n: Node, g: Emitter) -> Results:
    return g.squeeze(n.operand(0), axes=n.axes())


@handler("Unsqueeze")
def unsqueeze(n: Node, g: Emitter) -> Results:
    return g.expand_dims(n.operand(0), axes=n.axes())


@handler("Flatten")
def flatten(n: Node, g: Emitter) -> Results:
    x, axis = n.operand(0), n.integer("axis", 1)
    shape = extents(x)
    axis += rank(x) if axis < 0 else 0
    return g.reshaped(x, [math.prod(shape[:axis]), math.prod(shape[axis:])])


@handler("Concat")
def concat(n: Node, g: Emitter) -> Results:
    return g.concat(*n.operands(), axis=n.integer("axis"))


@handler("Split")
def split(n: Node, g: Emitter) -> Results:
    x, axis = n.operand(0), n.integer("axis")
    sizes = n.axes(1, "split")
    if sizes is None:
        extent, parts = extents(x)[axis], n.integer("num_outputs", len(n.outputs))
        size = -(-extent // parts)
        sizes = [size] * (parts - 1) + [extent - size * (parts - 1)]
    return g.all("split", x, sizes=sizes, axis=axis)


@handler("Slice")
def slice_(n: Node, g: Emitter) -> Results:
    starts, stops = n.axes(1, "starts") or [], n.axes(2, "ends") or []
    axes = n.axes(3, "axes") or list(range(len(starts)))
    steps = n.known_integers(4) or [1] * len(starts)
    return sliced(g, n.operand(0), starts, stops, axes, steps)


def sliced(
    g: Emitter, x: Value, starts: Sequence[int], stops: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    """A slice by Python's rules on some axes, the others whole; one to the front that begins before it has the first element."""
    shape = extents(x)
    all_starts, all_steps = [0] * rank(x), [1] * rank(x)
    all_stops = [_END if isinstance(extent, Size) else extent for extent in shape]
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        if any(isinstance(each, Size) for each in (start, stop, shape[axis])):
            begin, last = (_from_the_front(place, shape[axis]) for place in (start, stop))
            all_starts[axis], all_stops[axis], all_steps[axis] = begin, _END if last == shape[axis] else last, step
            continue
        taken = range(*slice(first_taken(start, step, shape[axis]), stop, step).indices(shape[axis]))
        last = taken.stop if taken.stop >= 0 else -shape[axis] - 1
        found = (taken.start, last, taken.step) if taken else (0, 0, 1)
        all_starts[axis], all_stops[axis], all_steps[axis] = found
    return g.slice(x, starts=all_starts, stops=all_stops, steps=all_steps)


def first_taken(start: int, step: int, extent: int) -> int:
    """Where a slice begins by Python's rules; one to the front that begins before the axis has its first element."""
    return start if isinstance(start, Size) or step > 0 else max(start, -extent)


def _from_the_front(place: int, extent: int) -> int:
    """A place on an axis, where it is a size that counts from the end."""
    return extent + place if isinstance(place, Size) and is_decided(lambda: place < 0) else place


@handler("Pad")
def pad(n: Node, g: Emitter) -> Results:
    x, given = n.operand(0), n.axes(1, "pads") or []
    axes = n.known_integers(3) if n.has(3) else list(range(rank(x)))
    pads = [0] * 2 * rank(x)
    for position, axis in enumerate(axes or []):
        pads[axis % rank(x)] = given[position]
        pads[axis % rank(x) + rank(x)] = given[position + len(axes or [])]
    value = n.known(2).reshape(()).item() if n.has(2) else n.attributes.get("value")
    if value is not None:
        value = float(value) if dtype(x).is_float else int(value)
    mode = n.text("mode", "constant")
    if mode == "wrap" and min(pads, default=0) < 0:  # around what is left
        x, pads = g.pad(x, pads=[min(width, 0) for width in pads]), [max(width, 0) for width in pads]
    return g.pad(x, pads=pads, mode=mode, value=value)


@handler("CenterCropPad")
def center_crop_pad(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    shape, pads = extents(x), [0] * 2 * rank(x)
    for axis, size in zip(n.integers("axes", range(rank(x))), n.known_integers(1) or [], strict=True):
        missing = size - shape[axis]
        before = missing // 2 if missing >= 0 else -(-missing // 2)
        pads[axis % rank(x)], pads[axis % rank(x) + rank(x)] = before, missing - before
    return g.pad(x, pads=pads)


@handler("Tile")
def tile(n: Node, g: Emitter) -> Results:
    return g.tile(n.operand(0), repeats=n.known_integers(1))


@handler("Expand")
def expand(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    return g.broadcast_to(x, shape=broadcast_shapes([extents(x), tuple(n.known_integers(1) or [])]))


@handler("DepthToSpace")
def depth_to_space(n: Node, g: Emitter) -> Results:
    x, b = n.operand(0), n.integer("blocksize")
    batch, c, h, w = extents(x)
    if n.text("mode", "DCR") == "DCR":
        y = g.permute_dims(g.reshape(x, shape=[batch, b, b, c // b**2, h, w]), axes=[0, 3, 4, 1, 5, 2])
    else:
        y = g.permute_dims(g.reshape(x, shape=[batch, c // b**2, b, b, h, w]), axes=[0, 1, 4, 2, 5, 3])
    return g.reshape(y, shape=[batch, c // b**2, h * b, w * b])


@handler("SpaceToDepth")
def space_to_depth(n: Node, g: Emitter) -> Results:
    x, b = n.operand(0), n.integer("blocksize")
    batch, c, h, w = extents(x)
    axes = [0, 3, 5, 1, 2, 4] if n.text("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    y = g.permute_dims(g.reshape(x, shape=[batch, c, h // b, b, w // b, b]), axes=axes)
    return g.reshape(y, shape=[batch, c * b * b, h // b, w // b])


@handler("Trilu")
def trilu(n: Node, g: Emitter) -> Results:
    x, k = n.operand(0), n.known_integer(1)
    return g.triu(x, k=k) if n.flag("upper", True) else g.tril(x, k=k)


@handler("ReverseSequence")
def reverse_sequence(n: Node, g: Emitter) -> Results:
    x, lengths, time, batch = n.operand(0), n.operand(1), n.integer("time_axis"), n.integer("batch_axis", 1)
    shape = extents(x)
    position = g.iota(shape=[m if k == time else 1 for k, m in enumerate(shape)], axis=time, dtype=I64)
    lengths = g.reshape(g.cast(lengths, I64), shape=[m if k == batch else 1 for k, m in enumerate(shape)])
    mirrored = g.subtract(g.subtract(lengths, g.like(1, lengths)), position)
    return g.take_along_axis(x, g.where(g.less(position, lengths), mirrored, position), axis=time)


@handler("EyeLike")
def eye_like(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    rows, columns = extents(x)
    return g.eye(n=rows, m=columns, k=n.integer("k"), dtype=n.element("dtype", dtype(x)))


@handler("OneHot")
def one_hot(n: Node, g: Emitter) -> Results:
    ids, depth, values = g.cast(n.operand(0), I64), n.known_integer(1), n.known(2)
    ids = g.where(g.less(ids, g.like(0, ids)), g.add(ids, g.like(depth, ids)), ids)
    off, on = (value.item() for value in values)
    return g.one_hot(
        ids, depth=depth, axis=n.integer("axis", -1), off=off, on=on, dtype=element_type(values.dtype.name)
    )


@handler("Shape")
def shape_of(n: Node, g: Emitter) -> Results:
    end = n.attributes.get("end")
    return as_known(extents(n.operand(0))[n.integer("start") : end])


@handler("Size")
def size_of(n: Node, g: Emitter) -> Results:
    return as_known(math.prod(extents(n.operand(0))))


def counted(n: Node, g: Emitter) -> Results:
    """Range up to a size."""
    start, limit, step = (n.known(position).item() for position in range(3))
    if isinstance(step, Size) or step == 0:
        raise n.refuse(f"counts from '{start}' to '{limit}' in steps of '{step}'; expected a number other than 0")
    count = -((start - limit) // step)  # rounded up
    counted = g.iota(
        shape=[largest(count, 0)], dtype=I64, axis=0, start=0 if isinstance(start, Size) else start, step=step
    )
    return g.add(counted, g.sizes(np.asarray([start], dtype=object))) if isinstance(start, Size) else counted


def filled(n: Node, g: Emitter) -> Results:
    """ConstantOfShape of sizes."""
    value = (
        onnx_module().numpy_helper.to_array(n.attributes["value"])
        if "value" in n.attributes
        else np.zeros(1, np.float32)
    )
    return g.number(value.item(), element_type(value.dtype.name), n.known_integers(0) or [])


OF_SIZES = {"Range": counted, "ConstantOfShape": filled}
"""By operator: handlers of nodes that make constants, for those whose operands have sizes."""
