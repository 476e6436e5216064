"""Launches of gpu_positions.cuh: reads, and writes that are sorted by where they go."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import Any

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends import gpu_places
from fuse_opt.runtime.backends.gpu_calls import (
    JOINS,
    TYPES,
    Kernel,
    Planned,
    blocks_for,
    fill,
    itemsize,
    type_number,
)
from fuse_opt.runtime.backends.gpu_near import Near, near_kernel
from fuse_opt.runtime.backends.gpu_orders import Lines, SortMemory, sorting, sorting_keys
from fuse_opt.runtime.backends.gpu_places import Named, Places
from fuse_opt.runtime.backends.gpu_updates import is_summed, line_warps, putting, summing
from fuse_opt.runtime.backends.nvidia.device_calls import Address, workspace_at
from fuse_opt.runtime.host.c_records import fields_of

_SOURCE = "backends/gpu_positions.cuh"
_SMALL = 1 << 31
_MOST_TARGETS = (1 << 32) - 1
"""Elements from which on one's number does not fit a key beside an update's."""
_UNITS = (16, 8, 4, 2, 1)


class _Record(ctypes.Structure):
    """The record `places`."""

    _fields_ = fields_of(_SOURCE, "places")


MOST_AXES: int = _Record.extents.size // 8
_MOST_INDICES: int = _Record.kinds.size // 8


def _wraps(call: LibraryCall, ref: BufferRef) -> bool:
    return ref.dtype[0] == "i" and bool(call.config.get("wrap_negative", True))


def _is_possible(places: Places) -> bool:
    """Whether the record has room for the places, and their indices are integers of known sizes."""
    known = all(each.ref.dtype in TYPES[:8] and each.extent for each in places.named)
    return known and len(places.extents) <= MOST_AXES and len(places.named) <= _MOST_INDICES


def _record(call: LibraryCall, places: Places, unit: int = 1) -> Any:
    """The places, in units of so many elements of their last axis."""
    record, extents = _Record(), [*places.extents]
    if extents:
        extents[-1] //= unit
    steps = [step // unit if k + 1 < len(extents) else 1 for k, step in enumerate(places.x_steps)]
    record.count, record.axes, record.operands = prod(extents), len(extents), len(places.named)
    record.small, record.skipped = int(record.count < _SMALL), -1
    fill(record, "extents", extents)
    fill(record, "x_steps", steps if unit > 1 else places.x_steps)
    fill(record, "value_steps", places.value_steps)
    for number, each in enumerate(places.named):
        record.kinds[number], record.wraps[number] = TYPES.index(each.ref.dtype), int(_wraps(call, each.ref))
        record.limits[number], record.weights[number] = each.extent, each.weight // unit
        record.shifts[number] = each.shift
        for axis, step in enumerate(each.steps):
            record.steps[number * MOST_AXES + axis] = step
    return record


def _indices(places: Places, address: Address, otherwise: int) -> list[int]:
    """The addresses of all operands of indices; `otherwise` for those that a kernel has no use for."""
    found = [address(each.ref) for each in places.named]
    return found + [otherwise] * (_MOST_INDICES - len(found))


def _unit(places: Places, size: int, addresses: Sequence[int]) -> int:
    """Bytes that a thread moves: elements side by side of what is read, as far as rows and addresses are multiples."""
    if not places.extents or places.x_steps[-1] != 1 or any(each.steps[-1] for each in places.named):
        return size
    steps = [*places.x_steps[:-1], *(each.weight for each in places.named), places.extents[-1]]
    common = gcd(*(step * size for step in steps), *addresses)
    return max(next(unit for unit in _UNITS if common % unit == 0), size)


def _checked(call: LibraryCall, named: Sequence[Named]) -> dict[str, Any]:
    return {
        "indices": tuple(each.ref for each in named),
        "limits": tuple((each.axis, each.extent, _wraps(call, each.ref)) for each in named),
    }


def reading(find: Callable[[LibraryCall], Places]) -> Callable[[LibraryCall], Planned | None]:
    """What plans calls that read at the places of `find`."""

    def plan(call: LibraryCall) -> Planned | None:
        places, x, out = find(call).collapsed(), call.inputs[0], call.outputs[0]
        if not _is_possible(places):
            return None
        size = itemsize(x)
        records: dict[int, Any] = {}
        nears: dict[tuple[int, int], Near | None] = {}

        def kernels(address: Address, fault: int) -> Sequence[Kernel]:
            unit = _unit(places, size, (address(x), address(out)))
            if (record := records.get(unit)) is None:
                record = records[unit] = _record(call, places, unit // size)

            def arguments(at: Address) -> list[int]:
                return [at(x), at(out), *_indices(places, at, at(x)), fault]

            if (key := (unit, address(out) % _UNITS[0])) not in nears:
                nears[key] = near_kernel(record, places, x, *key)
            if (near := nears[key]) is not None:
                numbers, operands = near.numbers, near.operands

                def near_arguments(at: Address) -> list[int]:
                    return [at(x), at(out), *_indices(places, at, at(x))[:operands], fault, *numbers]

                return [Kernel(near.name, record, near_arguments, near.blocks)]
            return [Kernel(f"gpu_read_{unit}", record, arguments, blocks_for(record.count))]

        return Planned(kernels, **_checked(call, places.named))

    return plan


def checking(call: LibraryCall) -> Planned | None:
    """The plan of a call that gives the positions themselves."""
    places, out = gpu_places.checked_positions(call).collapsed(), call.outputs[0]
    if not _is_possible(places):
        return None
    record = _record(call, places)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        def arguments(at: Address) -> list[int]:
            return [at(out), *_indices(places, at, at(out)), fault]

        return [Kernel(f"gpu_check_{itemsize(out)}", record, arguments, blocks_for(record.count))]

    return Planned(kernels, **_checked(call, places.named))


def _split_row(places: Places) -> tuple[Places, int, int]:
    """The places of rows of updates, how many elements are side by side in each, and the step of their values."""
    if not places.extents or places.x_steps[-1] != 1 or any(each.steps[-1] for each in places.named):
        return places, 1, 0
    named = tuple(
        Named(each.ref, each.axis, each.extent, each.weight, each.steps[:-1], each.shift) for each in places.named
    )
    rows = Places(places.extents[:-1], places.x_steps[:-1], named, places.value_steps[:-1])
    return rows, places.extents[-1], places.value_steps[-1]


def sorted_count(find: Callable[[LibraryCall], Places], call: LibraryCall) -> int:
    """How many updates are sorted: what a workspace is made for."""
    return _split_row(find(call).collapsed())[0].count


def writing(
    find: Callable[[LibraryCall], Places], how: Callable[[LibraryCall], str]
) -> Callable[[LibraryCall], Planned | None]:
    """What plans calls that put updates at the places of `find`, joined as `how` says with what is there."""

    def plan(call: LibraryCall) -> Planned | None:
        out, join = call.outputs[0], JOINS[how(call)]
        places, width, value_step = _split_row(find(call).collapsed())
        kind = type_number(out, bool(join))
        if kind is None or places.count >= _SMALL or not _is_possible(places):
            return None
        x, values, fills = _roles(call)
        record = _record(call, places)
        record.width, record.value_step, record.type, record.join = width, value_step, kind, join
        record.fills, record.packed = int(fills), int(prod(out.shape) < _MOST_TARGETS)
        padding = call.config.get("padding_index")
        if isinstance(padding, int):
            record.skipped = padding + places.named[0].extent if padding < 0 else padding
        if (warps := line_warps(places, width, x, fills)) is not None:
            record.extents[1] = places.extents[-1]
            record.extents[0] = places.count // places.extents[-1]

            def by_lines(at: Address) -> list[int]:
                return [*map(at, (x, values, out, places.named[0].ref))]

            def line_kernels(address: Address, fault: int) -> Sequence[Kernel]:
                blocks = -(-record.extents[0] // warps)
                return [Kernel("gpu_put_lines", record, lambda at: [*by_lines(at), fault], blocks, 32 * warps)]

            return Planned(line_kernels, **_checked(call, places.named))
        wide, narrow = _sized(record, out.nbytes // 16), _sized(record, out.nbytes)
        order, summed = Lines(1, places.count, 1, 0), fills and is_summed(record, places, out)

        def kernels(address: Address, fault: int) -> Sequence[Kernel]:
            memory = SortMemory.at(workspace_at(call, address)[0], places.count)
            is_wide = not (out.nbytes | address(out) | address(x)) % 16
            begun = wide if is_wide else narrow
            if record.packed:
                sorts, keys = sorting_keys(places.count, memory)
                numbers = keys
            else:
                sorts, (keys, numbers) = sorting(order, memory)
            targets = Kernel(
                "gpu_targets", record, lambda at: [*memory.first, *_indices(places, at, at(out)), fault],
                blocks_for(places.count),
            )  # fmt: skip
            if summed and not (address(values) | address(out)) % _UNITS[0]:
                sums = summing(record, places.named[0].extent, lambda at: [at(values), at(out), keys])
                if sums is not None:
                    return [targets, *sorts, sums]
            return [
                Kernel("gpu_begin_16" if is_wide else "gpu_begin", begun, lambda at: [at(x), at(out)], blocks_for(begun.size)),
                targets,
                *sorts,
                putting(record, lambda at: [at(x), at(values), at(out), keys, numbers]),
            ]  # fmt: skip

        return Planned(kernels, **_checked(call, places.named))

    return plan


def _sized(record: Any, size: int) -> Any:
    copied = _Record.from_buffer_copy(record)
    copied.size = size
    return copied


def _roles(call: LibraryCall) -> tuple[BufferRef, BufferRef, bool]:
    """What updates are put into, the updates, and whether the first is zeros instead."""
    if call.operation == "graph.embedding_backward":
        return call.outputs[0], call.inputs[0], True
    values = call.inputs[1] if call.operation == "graph.index_put" else call.inputs[2]
    return call.inputs[0], values, False


def _none(_: LibraryCall) -> str:
    return "none"


def _add(_: LibraryCall) -> str:
    return "add"


def _reduce(call: LibraryCall) -> str:
    return str(call.config.get("reduce", "none"))


READS = {
    "take": gpu_places.take,
    "take_along_axis": gpu_places.take_along_axis,
    "gather_nd": gpu_places.gather_nd,
    "index": gpu_places.index,
}
"""By op: the places that it reads at."""
WRITES: dict[str, tuple[Callable[[LibraryCall], Places], Callable[[LibraryCall], str]]] = {
    "scatter": (gpu_places.scatter, _none),
    "scatter_add": (gpu_places.scatter, _add),
    "scatter_reduce": (gpu_places.scatter, _reduce),
    "scatter_nd": (gpu_places.scatter_nd, _reduce),
    "index_put": (gpu_places.index_put, lambda call: "add" if call.config.get("accumulate") else "none"),
    "embedding_backward": (gpu_places.embedding_backward, _add),
}
"""By op: the places that it writes at, and the join."""
