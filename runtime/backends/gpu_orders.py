"""Launches of gpu_orders.cuh: sorting by keys, and what is made of the order."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.gpu_calls import TYPES, Addresses, Kernel, Planned, axis_of, blocks_for, type_number
from fuse_opt.runtime.backends.nvidia.device_calls import Address, workspace_at
from fuse_opt.runtime.host.c_records import fields_of

_SOURCE = "backends/gpu_orders.cuh"
_CHUNK = 1024
"""What a block sorts, `CHUNK` of the text."""
_MOST_THREADS = 512
_MOST_EXTENT = 1 << 31
_SORTED_THREADS, _SORTED, _MERGED = 512, 4608, 2304
"""Threads and keys of a block of `gpu_sort_blocks`, and what one of `gpu_merge_keys` makes: as in the text."""
_SHORT_EACH = 4
"""Elements of a thread of `gpu_sort_lines`."""
_WIDE_TYPES = ("i64", "ui64", "f64")
_ALIGNED = 256


class _Record(ctypes.Structure):
    """The record `lines`."""

    _fields_ = fields_of(_SOURCE, "lines")


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines along the middle axis of [outer, extent, inner], of elements of a type by its number."""

    outer: int
    extent: int
    inner: int
    type: int

    @property
    def count(self) -> int:
        return self.outer * self.extent * self.inner

    def record(self, **fields: int) -> Any:
        record = _Record()
        record.outer, record.extent, record.inner, record.type = self.outer, self.extent, self.inner, self.type
        for name, value in fields.items():
            setattr(record, name, value)
        return record


def sort_bytes(count: int) -> int:
    """The workspace that sorting so many elements takes: keys and numbers, twice."""
    return 2 * (_rounded(8 * count) + _rounded(4 * count))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


@dataclass(frozen=True, slots=True)
class SortMemory:
    """Addresses of keys and of numbers, and of as many again."""

    first: tuple[int, int]
    second: tuple[int, int]

    @classmethod
    def at(cls, start: int, count: int) -> SortMemory:
        keys, numbers = _rounded(8 * count), _rounded(4 * count)
        again = start + keys + numbers
        return cls((start, start + keys), (again, again + keys))


def sorting(lines: Lines, memory: SortMemory) -> tuple[list[Kernel], tuple[int, int]]:
    """Launches that sort the keys of each line, with their numbers; and where they are then."""
    chunk = min(_CHUNK, 1 << max(lines.extent - 1, 1).bit_length())
    runs, here, there = -(-lines.extent // chunk), memory.first, memory.second
    blocks, threads = lines.outer * lines.inner * runs, max(32, min(chunk // 2, _MOST_THREADS))
    launches = [Kernel("gpu_sort_runs", lines.record(chunk=chunk), partial(_fixed, here), blocks, threads)]
    while chunk < lines.extent:
        record = lines.record(run=chunk)
        launches.append(Kernel("gpu_merge_runs", record, partial(_fixed, (*here, *there)), blocks_for(lines.count)))
        here, there, chunk = there, here, 2 * chunk
    return launches, here


def _is_narrow(lines: Lines) -> bool:
    """Whether an element's key and place are 64 bits together."""
    return TYPES[lines.type] not in _WIDE_TYPES


def _run(extent: int) -> int:
    """Elements of the runs that blocks sort of a line: as many as leave no merge to a last run of few."""
    run = extent
    while run > _SORTED:
        run = -(-run // 2)
    return run


def _sort_runs(lines: Lines, arguments: Addresses, **fields: int) -> Kernel:
    """What sorts lines, or runs of longer ones."""
    if lines.extent <= _CHUNK:
        threads = 1 << (max(32, -(-lines.extent // _SHORT_EACH)) - 1).bit_length()
        return Kernel("gpu_sort_lines", lines.record(**fields), arguments, lines.outer * lines.inner, threads)
    run = _run(lines.extent)
    blocks = lines.outer * lines.inner * -(-lines.extent // run)
    return Kernel("gpu_sort_blocks", lines.record(run=run, **fields), arguments, blocks, _SORTED_THREADS)


def _merges(lines: Lines, memory: SortMemory, results: Addresses | None, **wanted: int) -> tuple[list[Kernel], int]:
    """Launches that merge sorted runs of keys, which are at the first address; and where the keys are then.

    With `results`, x and what is wanted of it, the last launch puts that, and no keys.
    """
    here, there, run = memory.first[0], memory.second[0], _run(lines.extent)
    launches: list[Kernel] = []
    while run < lines.extent:
        is_last = results is not None and 2 * run >= lines.extent
        arguments = partial(_merge_addresses, here, there, results)
        blocks = lines.outer * lines.inner * -(-lines.extent // (2 * run)) * -(-2 * run // _MERGED)
        launches.append(
            Kernel("gpu_merge_keys", lines.record(run=run, **(wanted if is_last else {})), arguments, blocks)
        )
        here, there, run = there, here, 2 * run
    return launches, here


def _merge_addresses(here: int, there: int, results: Addresses | None, at: Address) -> Sequence[int]:
    return [here, there, *(results(at) if results is not None else (here, there, there))]


def sorting_keys(count: int, memory: SortMemory) -> tuple[list[Kernel], int]:
    """Launches that sort keys, no two of which are equal; and where they are then."""
    keys, line = memory.first[0], Lines(1, count, 1, 0)
    merges, sorted_keys = _merges(line, memory, None)
    return [_sort_runs(line, partial(_fixed, (keys,) * 4), packed=2), *merges], sorted_keys


def _fixed(addresses: Sequence[int], _: Address) -> Sequence[int]:
    return addresses


def _lines(x: BufferRef, axis: int) -> Lines | None:
    kind = type_number(x, x.dtype != "i1")  # bytes of 0 and 1
    if kind is None or x.shape[axis] >= _MOST_EXTENT:
        return None
    return Lines(prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]), kind)


def _ordering(
    call: LibraryCall, lines: Lines | None, descending: bool, values: BufferRef | None, indices: BufferRef | None
) -> Planned | None:
    """The first elements in order of each line, as many as the results have, and where they come from."""
    if lines is None or lines.outer * lines.inner * (-(-lines.extent // _CHUNK)) >= _MOST_EXTENT:
        return None
    x, out = call.inputs[0], call.outputs[0]
    count = prod(out.shape) // (lines.outer * lines.inner)
    order = {"descending": int(descending)}
    wanted = {"count": count, "values": int(values is not None), "indices": int(indices is not None)}

    def results(at: Address) -> list[int]:
        return [at(values or out), at(indices or out)]

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        if _is_narrow(lines) and lines.extent <= _SORTED:
            return [_sort_runs(lines, lambda at: [at(x), *results(at), at(x)], **order, **wanted)]
        memory = SortMemory.at(workspace_at(call, address)[0], lines.count)
        if _is_narrow(lines):
            runs = _sort_runs(lines, lambda at: [at(x), *results(at), memory.first[0]], **order, packed=1)
            merges, _ = _merges(lines, memory, lambda at: [at(x), *results(at)], **wanted)
            return [runs, *merges]
        sorts, (_, numbers) = sorting(lines, memory)
        made = Kernel("gpu_keys", lines.record(**order), lambda at: [at(x), *memory.first], blocks_for(lines.count))
        put = Kernel(
            "gpu_ordered",
            lines.record(**wanted),
            lambda at: [at(x), numbers, *results(at)],
            blocks_for(prod(out.shape)),
        )
        return [made, *sorts, put]

    return Planned(kernels)


def _axis(call: LibraryCall) -> int:
    return axis_of(call, -1, len(call.inputs[0].shape))


def sort(call: LibraryCall) -> Planned | None:
    """`graph.sort`."""
    descending = bool(call.config.get("descending", 0))
    return _ordering(call, _lines(call.inputs[0], _axis(call)), descending, call.outputs[0], None)


def argsort(call: LibraryCall) -> Planned | None:
    """`graph.argsort`."""
    descending = bool(call.config.get("descending", 0))
    return _ordering(call, _lines(call.inputs[0], _axis(call)), descending, None, call.outputs[0])


def top_k(call: LibraryCall) -> Planned | None:
    """`graph.top_k`."""
    values, indices = call.outputs
    largest = bool(call.config.get("largest", 1))
    return _ordering(call, _lines(call.inputs[0], _axis(call)), largest, values, indices)


def searchsorted(call: LibraryCall) -> Planned | None:
    """`graph.searchsorted`."""
    (x, wanted), (out,) = call.inputs, call.outputs
    if (lines := _lines(x, 0)) is None:
        return None
    count = prod(wanted.shape)
    record = lines.record(right=int(call.config.get("side", "left") == "right"), wanted=count)
    kernel = Kernel("gpu_search", record, lambda at: [at(x), at(wanted), at(out)], blocks_for(count))
    return Planned(lambda address, fault: [kernel])


ORDERS = {"sort": sort, "argsort": argsort, "top_k": top_k}
