"""Parts of tensors that are read and written over in random programs: boxes that begin where data says, and slices."""

from __future__ import annotations

from typing import cast

from position_programs import Writer
from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.graph.creation.constant import ConstantOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AbsOp, MaximumOp, MultiplyOp
from fuse_opt.dialects.graph.movement import views
from fuse_opt.dialects.graph.movement.dynamic_slices import DynamicSliceOp, DynamicUpdateSliceOp
from fuse_opt.dialects.graph.movement.slice_update import SliceScatterOp
from fuse_opt.dialects.interfaces.properties import int_array, shape_attribute
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import I32, I64
from fuse_opt.dialects.types.extents import is_number, least
from fuse_opt.dialects.types.size import Extent

_END = (1 << 63) - 1


def parts(writer: Writer) -> None:
    """A part of a value that is read, changed, or written over, once or twice; the value is mostly read behind that, too."""
    rng, x = writer.rng, writer.pick()
    if not shape(x) or not all(least(n) for n in shape(x)):
        return
    found = rng.choice([_read, _written, _written, _scattered, _scattered])(writer, x)
    if found is not None and rng.random() < 0.4:
        found = rng.choice([_written, _scattered])(writer, found)
    if found is not None and shape(found) == shape(x) and rng.random() < 0.5:
        writer.add(rng.choice([MaximumOp, MultiplyOp]), x, found)


def _box(writer: Writer, x: SSAValue) -> tuple[list[int], list[int], list[SSAValue]]:
    """The axes along which data says where a box begins, its extents there, and where that is: anywhere, also outside."""
    rng, extents = writer.rng, shape(x)
    axes = rng.sample(range(len(extents)), rng.randint(1, len(extents)))
    sizes = [rng.choice([1, min(2, least(extents[axis])), least(extents[axis])]) for axis in axes]
    element = rng.choice([I32, I64])
    type_ = cast(TensorType[AnyFloat], TensorType(element.attribute, []))
    starts: list[SSAValue] = []
    for axis in axes:
        if rng.random() < 0.3:
            number = rng.choice([0, 1, -1, least(extents[axis]) - 1, 100])
            start = writer.add(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(type_, [number]))
        else:
            start = writer.of_type(type_)
        assert start is not None
        starts.append(start)
    return axes, sizes, starts


def _read(writer: Writer, x: SSAValue) -> SSAValue | None:
    axes, sizes, starts = _box(writer, x)
    return writer.add(DynamicSliceOp, x, *starts, axes=int_array(axes), sizes=int_array(sizes))


def _written(writer: Writer, x: SSAValue) -> SSAValue | None:
    """A box of the value itself, of a value there is, or of a new argument."""
    axes, sizes, starts = _box(writer, x)
    if writer.rng.random() < 0.4:
        box = writer.add(DynamicSliceOp, x, *starts, axes=int_array(axes), sizes=int_array(sizes))
        update = None if box is None else _changed(writer, box)
    else:
        extents = [dict(zip(axes, sizes, strict=True)).get(axis, n) for axis, n in enumerate(shape(x))]
        update = _value(writer, x, extents)
    return None if update is None else writer.add(DynamicUpdateSliceOp, x, update, *starts, axes=int_array(axes))


def _scattered(writer: Writer, x: SSAValue) -> SSAValue | None:
    """A slice from near an edge to near the other one, in steps, forwards or backwards."""
    rng, starts, stops, steps = writer.rng, list[int](), list[Extent](), list[int]()
    says_sizes = rng.random() < 0.3  # which are never negative
    for extent in shape(x):
        low = rng.choice([0, 0, 1]) if least(extent) > 2 else 0
        if is_number(extent) and not says_sizes and rng.random() < 0.2:
            starts, stops, steps = [*starts, extent - 1], [*stops, low - extent - 1], [*steps, rng.choice([-1, -2])]
            continue
        ends: list[Extent] = [extent] if says_sizes else [_END, _END, -1 if least(extent) > 2 else _END]
        stops.append(rng.choice([*ends, low + 1]))
        starts, steps = [*starts, low], [*steps, rng.choice([1, 1, 1, 2, 3])]
    limits: dict[str, Attribute] = {"starts": int_array(starts), "stops": shape_attribute(stops)}
    if steps != [1] * len(steps):
        limits["steps"] = int_array(steps)
    part = writer.add(views.SliceOp, x, **limits)
    if part is None:
        return None
    update = _changed(writer, part) if rng.random() < 0.5 else _value(writer, x, shape(part))
    return None if update is None else writer.add(SliceScatterOp, x, update, **limits)


def _changed(writer: Writer, x: SSAValue) -> SSAValue | None:
    return x if writer.rng.random() < 0.2 else writer.add(AbsOp, x) or x


def _value(writer: Writer, x: SSAValue, extents: list[int] | tuple[int, ...]) -> SSAValue | None:
    if all(map(is_number, extents)):
        return writer.of_type(TensorType(dtype(x).attribute, extents))
    return writer.argument(dtype(x), extents)
