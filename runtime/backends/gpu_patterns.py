"""Launches of gpu_patterns.cuh: patterns of csr matrices and of rows, and what is computed at their places."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.gpu_calls import TYPES, Kernel, Planned, blocks_for, type_number
from fuse_opt.runtime.backends.gpu_orders import SortMemory, sort_bytes, sorting_keys
from fuse_opt.runtime.backends.nvidia.device_calls import Address, workspace_at
from fuse_opt.runtime.host.c_records import fields_of

_SOURCE = "backends/gpu_patterns.cuh"
_IDS = TYPES[:8]


class _Record(ctypes.Structure):
    """The record `pattern`."""

    _fields_ = fields_of(_SOURCE, "pattern")


def _record(**numbers: int) -> Any:
    record = _Record()
    for name, value in numbers.items():
        setattr(record, name, value)
    return record


def _launch(name: str, record: Any, refs: Sequence[BufferRef], elements: int, *rest: int) -> Kernel:
    """A launch with a thread for each of so many elements; `rest` are addresses behind those of buffers."""
    return Kernel(name, record, lambda at: [*map(at, refs), *rest], blocks_for(elements))


def _ends(record: Any, indptr: BufferRef, fault: int) -> Kernel:
    return Kernel("gpu_csr_ends", record, lambda at: [at(indptr), fault], 1)


def _checked(indices: BufferRef, extent: int, wraps: bool = False) -> dict[str, Any]:
    return {"indices": (indices,), "limits": ((0, extent, wraps),)}


def _wraps(call: LibraryCall, ids: BufferRef) -> bool:
    return ids.dtype[0] == "i" and bool(call.config.get("wrap_negative", True))


def csr_rows(call: LibraryCall) -> Planned | None:
    """A thread for each entry."""
    (indptr,), (out,) = call.inputs, call.outputs
    record = _record(rows=indptr.shape[0] - 1, capacity=out.shape[0])
    return Planned(lambda address, fault: [_launch("gpu_csr_rows", record, (indptr, out), out.shape[0])])


def csr_sampled_matmul(call: LibraryCall) -> Planned | None:
    """A thread for each entry."""
    indptr, indices, x, y = call.inputs
    (out,) = call.outputs
    if (kind := type_number(x, True)) is None:
        return None
    numbers = {"rows": x.shape[0], "columns": y.shape[0], "capacity": out.shape[0], "width": x.shape[1], "type": kind}
    record, refs = _record(**numbers), (indptr, indices, x, y, out)
    plan = Planned(lambda address, fault: [_launch("gpu_csr_sampled", record, refs, out.shape[0], fault)])
    return replace(plan, **_checked(indices, y.shape[0]))


def csr_to_dense(call: LibraryCall) -> Planned | None:
    """Zeros, then a thread for each entry."""
    indptr, indices, values = call.inputs
    (out,) = call.outputs
    if (kind := type_number(values, False)) is None:
        return None
    rows, columns = out.shape
    record = _record(rows=rows, columns=columns, capacity=indices.shape[0], type=kind)
    refs = (indptr, indices, values, out)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        clear = _launch("gpu_csr_clear", record, (out,), prod(out.shape))
        return [clear, _launch("gpu_csr_scatter", record, refs, indices.shape[0], fault)]

    return Planned(kernels, **_checked(indices, columns))


def csr_from_dense(call: LibraryCall) -> Planned | None:
    """A thread for each row, to count and then to write."""
    (x,), (indptr, indices, values) = call.inputs, call.outputs
    kind = type_number(x, x.dtype != "i1")
    if kind is None:
        return None
    rows, columns = x.shape
    record = _record(rows=rows, columns=columns, room=indices.shape[0], type=kind)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        count = _launch("gpu_csr_count", record, (x, indptr), rows)
        fill = _launch("gpu_csr_fill", record, (x, indptr, indices, values), rows)
        return [count, _ends(record, indptr, fault), fill]

    return Planned(kernels, has_room=True)


def csr_union(call: LibraryCall) -> Planned | None:
    """A thread for each row, to count and then to write."""
    indptr, indices, *_ = call.outputs
    rows = indptr.shape[0] - 1
    numbers = {"capacity": call.inputs[1].shape[0], "count": call.inputs[3].shape[0], "room": indices.shape[0]}
    record = _record(rows=rows, **numbers)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        count = _launch("gpu_union_count", record, (*call.inputs, indptr), rows)
        fill = _launch("gpu_union_fill", record, (*call.inputs, *call.outputs), rows)
        return [count, _ends(record, indptr, fault), fill]

    return Planned(kernels, has_room=True)


def csr_take(call: LibraryCall) -> Planned | None:
    """A thread for each id to count, then for each entry."""
    (indptr, indices, ids), (ends, columns, _) = call.inputs, call.outputs
    if ids.dtype not in _IDS:
        return None
    count, room, rows, wraps = ids.shape[0], columns.shape[0], indptr.shape[0] - 1, _wraps(call, ids)
    numbers = {"rows": count, "columns": rows, "capacity": indices.shape[0], "room": room}
    record = _record(**numbers, kind=_IDS.index(ids.dtype), wraps=int(wraps), crowded=1)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        counts = _launch("gpu_take_count", record, (indptr, ids, ends), count, fault)
        fill = _launch("gpu_take_fill", record, (*call.inputs, *call.outputs), room, fault)
        return [counts, _ends(record, ends, fault), fill]

    return Planned(kernels, **_checked(ids, rows, wraps), has_room=True)


def csr_transpose(call: LibraryCall) -> Planned | None:
    """Entries sorted by columns, then by where they are."""
    (indptr, indices), columns = call.inputs, call.outputs[0].shape[0] - 1
    capacity = indices.shape[0]
    record = _record(rows=indptr.shape[0] - 1, columns=columns, capacity=capacity)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        memory = SortMemory.at(workspace_at(call, address)[0], capacity)
        sorts, keys = sorting_keys(capacity, memory)
        first = _launch("gpu_turn_keys", record, (indptr, indices), capacity, memory.first[0], fault)
        elements = max(capacity, columns + 1)
        last = Kernel(
            "gpu_turn_fill", record, lambda at: [at(indptr), keys, *map(at, call.outputs)], blocks_for(elements)
        )
        return [first, *sorts, last]

    return Planned(kernels, **_checked(indices, columns))


def embedding_rows_backward(call: LibraryCall) -> Planned | None:
    """Ids sorted, then by where they are; a thread for each element of the result."""
    (grad, ids), (indptr, indices, values) = call.inputs, call.outputs
    if (kind := type_number(grad, True)) is None or ids.dtype not in _IDS:
        return None
    rows, padding, wraps = call.config["rows"], call.config.get("padding_index"), _wraps(call, ids)
    assert isinstance(rows, int)
    skipped = -1 if not isinstance(padding, int) else padding + rows if padding < 0 else padding
    count, room, width = prod(ids.shape), indices.shape[0], grad.shape[-1]
    numbers = {"columns": rows, "count": count, "room": room, "width": width, "type": kind, "skipped": skipped}
    record = _record(**numbers, kind=_IDS.index(ids.dtype), wraps=int(wraps), crowded=1)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        start = workspace_at(call, address)[0]
        memory, starts = SortMemory.at(start, count), start + sort_bytes(count)
        sorts, keys = sorting_keys(count, memory)
        first = _launch("gpu_id_keys", record, (ids,), count, memory.first[0], fault)
        ends = Kernel("gpu_id_ends", record, lambda at: [keys, at(indptr), at(indices), starts, fault], 1)
        sums = Kernel(
            "gpu_id_sums", record, lambda at: [keys, starts, at(grad), at(values)], blocks_for(prod(values.shape))
        )
        return [first, *sorts, ends, sums]

    return Planned(kernels, **_checked(ids, rows, wraps), has_room=True)


PATTERNS: Mapping[str, Callable[[LibraryCall], Planned | None]] = {
    "csr_rows": csr_rows,
    "csr_sampled_matmul": csr_sampled_matmul,
    "csr_to_dense": csr_to_dense,
    "csr_from_dense": csr_from_dense,
    "csr_union": csr_union,
    "csr_take": csr_take,
    "csr_transpose": csr_transpose,
    "embedding_rows_backward": embedding_rows_backward,
}
"""By op: what plans its calls."""


def pattern_bytes(call: LibraryCall) -> int:
    """The workspace of a call: what is sorted, and where each id begins."""
    match call.implementation.partition(".")[2]:
        case "csr_transpose":
            return sort_bytes(call.inputs[1].shape[0])
        case "embedding_rows_backward":
            return sort_bytes(prod(call.inputs[1].shape)) + 4 * (call.outputs[1].shape[0] + 1)
        case _:
            return 0
