"""Ops over parts of sparse values, as loops of sparse_tasks.c: products, sums, patterns, rows."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, LibraryCall
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, runtime_text
from fuse_opt.runtime.host.program_call import LoopRow
from fuse_opt.runtime.host.thread_pool import num_threads

_SOURCE = "backends/sparse_tasks.c"
_TASKS = (
    "fuse_csr_matmul",
    "fuse_csr_lanes",
    "fuse_csr_pack",
    "fuse_csr_panel",
    "fuse_csr_sampled_matmul",
    "fuse_csr_sums",
    "fuse_csr_largest",
    "fuse_csr_rows",
    "fuse_csr_transpose",
    "fuse_csr_take",
    "fuse_csr_take_rows",
    "fuse_csr_union",
    "fuse_csr_count",
    "fuse_csr_add_up",
    "fuse_csr_fill",
    "fuse_csr_to_dense",
    "fuse_rows_copy",
    "fuse_rows_put",
    "fuse_rows_subtract",
    "fuse_embedding_order",
    "fuse_embedding_sums",
)
_TASK_WORK = 1 << 16
"""Multiplications, or bytes moved, of a task."""
_MOST_TASKS = 64
_PANEL = 128
"""Bytes of a row of a packed panel; as in sparse_tasks.c."""
_PACKED = 2
"""Panels that are packed at once; as there."""
_LINE = 64
"""Bytes of a line of a cache, which a pack keeps of each row; as there."""
_LANE = _PACKED * _PANEL + _LINE
"""Bytes that a processor packs of a row at a time, and keeps."""
_READ_OFTEN = 40
"""How often rows of a dense operand are read that is packed, times the packs of a row (measured with 2 and 8)."""
_TYPES = ("f32", "f64", "i32", "i64")
"""Element types that the file computes with, by its numbers."""
_IDS = ("i32", "i64", "i16", "i8")
_OF_DENSE = 0.35
"""The rate of a product over what is stored, of that of a dense one."""
_OF_ENTRY = 12
"""What an entry costs beside its multiplications, as so many of them (measured with 1, 8, 128, 512 columns, at 0.1 and 0.3)."""


class _Call(ctypes.Structure):
    """The record `fuse_sparse`."""

    _fields_ = fields_of(_SOURCE, "fuse_sparse")


class SparseFault(ctypes.Structure):
    """The record `fuse_sparse_fault`: what a run was refused for."""

    _fields_ = fields_of(_SOURCE, "fuse_sparse_fault")


@dataclass(frozen=True, slots=True)
class SparseCall:
    """A call as loops, each a phase, and what they note of patterns that are none."""

    rows: tuple[LoopRow, ...]
    memory: tuple[Any, ...]
    """What the loops work on."""
    fault: SparseFault
    call: LibraryCall
    columns: int

    def error(self) -> Exception:
        """What the run is refused with."""
        name, index, place = f"'{self.call.operation}'", int(self.fault.index), int(self.fault.place)
        match int(self.fault.kind):
            case 1:
                return IndexError(
                    f"{name}: index {index} at [{place}] of the indices is out of range; expected 0 <= index < {self.columns}"
                )
            case 2:
                return ValueError(f"{name}: row {index} of indptr does not follow the row before within the capacity")
            case _:
                return ValueError(f"{name}: {index} entries, but a capacity of {place}; give the type a larger one")


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The compiled tasks; None without a C compiler."""
    if (compiler := find_c_compiler()) is None:
        return None
    try:
        return compiler.load_shared(runtime_text(_SOURCE), DiskCache(), _TASKS, ["-ffp-contract=fast"])
    except (CompileError, OSError):
        return None


def sparse_call(call: LibraryCall, table: int) -> SparseCall | None:
    """The call on the buffers of `table`; None where it is no such call, or one that is not for these loops."""
    if (make := _MAKERS.get(call.implementation)) is None or (library := _library()) is None:
        return None
    if (found := make(call)) is None:
        return None
    fault = SparseFault()
    panels = found.panels or (0,) * len(found.loops)
    records = {panel: _record(call, table, fault, {**found.numbers, "panel": panel}) for panel in sorted({*panels})}
    rows = tuple(
        LoopRow(address_in(library, task), ctypes.addressof(records[panel]), n, 1)
        for (task, n), panel in zip(found.loops, panels, strict=True)
    )
    return SparseCall(rows, (*records.values(), fault), fault, call, found.numbers["columns"])


def _record(call: LibraryCall, table: int, fault: SparseFault, numbers: Mapping[str, int]) -> _Call:
    record = _Call()
    record.fault = ctypes.addressof(fault)
    refs = [*call.inputs, *call.outputs] + ([] if call.workspace is None else [call.workspace])
    for number, ref in enumerate(refs):
        record.cells[number], record.offsets[number] = table + 8 * ref.buffer, ref.offset
    for name, value in numbers.items():
        setattr(record, name, value)
    return record


@dataclass(frozen=True, slots=True)
class _Loops:
    """Tasks and how many of them there are, phase by phase; and the numbers of the record."""

    loops: tuple[tuple[str, int], ...]
    numbers: Mapping[str, int]
    panels: tuple[int, ...] = ()
    """Of a dense operand: which one each loop is of; nothing where there are none."""


def _itemsize(ref: BufferRef) -> int:
    return np.dtype(NUMPY_NAMES[ref.dtype]).itemsize


def _task_count(work: int, most: int) -> int:
    return max(1, min(_MOST_TASKS, most, work // _TASK_WORK))


def _over_rows(task: str, work: int, indptr: BufferRef, **numbers: int) -> _Loops:
    """Tasks of equal numbers of rows and entries."""
    rows = indptr.shape[0] - 1
    count = _task_count(work, max(rows, 1))
    return _Loops(((task, count),), {"rows": rows, "columns": 0, "tasks": count, **numbers})


def _matmul(call: LibraryCall) -> _Loops | None:
    indptr, indices, values, x = call.inputs
    if values.dtype not in _TYPES:
        return None
    columns, width = x.shape
    capacity, kind = indices.shape[0], _TYPES.index(values.dtype)
    work = (capacity + indptr.shape[0]) * max(width, 1)
    known = int(len(call.columns) > 1 and call.columns[1] == columns)
    numbers = {"columns": columns, "capacity": capacity, "width": width, "type": kind, "known": known}
    found = _over_rows("fuse_csr_matmul", work, indptr, **numbers)
    if call.workspace is None:
        return found
    size, ((_, tasks),) = _itemsize(x), found.loops
    at_once = _PACKED * _PANEL
    pieces, packs = _task_count(columns * at_once, columns), width * size // at_once
    lanes = min(num_threads(), call.workspace.nbytes // (columns * _LANE))
    if 1 < lanes == num_threads():
        loops, panels = [("fuse_csr_lanes", lanes)], [0]
    else:
        loops = [("fuse_csr_pack", pieces), *[("fuse_csr_panel", tasks)] * _PACKED] * packs
        panels = [_PACKED * pack + max(0, loop) for pack in range(packs) for loop in range(-1, _PACKED)]
    if width * size % at_once:
        loops, panels = [*loops, *found.loops], [*panels, _PACKED * packs]
    numbers = {**found.numbers, "bytes": size, "count": pieces, "lanes": lanes}
    return _Loops(tuple(loops), numbers, tuple(panels))


def _packed_bytes(site: Site) -> int:
    """Of what processors have packed at a time, where rows of x are read often enough and too far apart."""
    capacity, (columns, width) = site.operands[1].size, site.operands[3].shape
    packs = width * site.operands[3].itemsize // (_PACKED * _PANEL)
    lanes = min(packs, 1 if site.device is None else site.device.processors)
    return lanes * columns * _LANE if packs > 1 and capacity * packs >= _READ_OFTEN * columns else 0


def _sampled(call: LibraryCall) -> _Loops | None:
    indptr, indices, x, y = call.inputs
    if x.dtype not in _TYPES:
        return None
    capacity, width = indices.shape[0], x.shape[1]
    numbers = {"columns": y.shape[0], "capacity": capacity, "width": width, "type": _TYPES.index(x.dtype)}
    return _over_rows("fuse_csr_sampled_matmul", capacity * max(width, 1), indptr, **numbers)


def _reduce(call: LibraryCall) -> _Loops | None:
    indptr, values = call.inputs
    largest = call.config.get("reduce") == "max"
    if values.dtype not in (_TYPES[:2] if largest else _TYPES):
        return None
    task, capacity = "fuse_csr_largest" if largest else "fuse_csr_sums", values.shape[0]
    return _over_rows(task, 4 * capacity, indptr, capacity=capacity, type=_TYPES.index(values.dtype))


def _rows(call: LibraryCall) -> _Loops | None:
    capacity = call.outputs[0].shape[0]
    return _over_rows("fuse_csr_rows", 4 * capacity, call.inputs[0], capacity=capacity)


def _transpose(call: LibraryCall) -> _Loops | None:
    indptr, indices = call.inputs
    columns = call.outputs[0].shape[0] - 1
    return _over_rows("fuse_csr_transpose", 0, indptr, columns=columns, capacity=indices.shape[0])


def _take(call: LibraryCall) -> _Loops | None:
    indptr, indices, ids = call.inputs
    if ids.dtype not in _IDS:
        return None
    rows, count, room = indptr.shape[0] - 1, ids.shape[0], call.outputs[1].shape[0]
    tasks = _task_count(8 * room, max(count, 1))
    numbers = {
        "rows": rows,
        "columns": rows,
        "capacity": indices.shape[0],
        "count": count,
        "option": room,
        "tasks": tasks,
    }
    numbers |= {"kind": _IDS.index(ids.dtype), "wraps": int(bool(call.config.get("wrap_negative", True)))}
    return _Loops((("fuse_csr_take_rows", 1), ("fuse_csr_take", tasks)), numbers)


def _union(call: LibraryCall) -> _Loops | None:
    indptr, a, _, b = call.inputs
    room = call.outputs[1].shape[0]
    return _over_rows("fuse_csr_union", 0, indptr, capacity=a.shape[0], count=b.shape[0], option=room)


def _from_dense(call: LibraryCall) -> _Loops | None:
    (x,), (_, indices, _) = call.inputs, call.outputs
    kinds = {**{name: number for number, name in enumerate(_TYPES)}, "i8": 4, "i1": 4}
    if x.dtype not in kinds:
        return None
    rows, columns = x.shape
    count = _task_count(rows * columns, max(rows, 1))
    numbers = {"rows": rows, "columns": columns, "capacity": indices.shape[0], "tasks": count}
    loops = (("fuse_csr_count", count), ("fuse_csr_add_up", 1), ("fuse_csr_fill", count))
    return _Loops(loops, {**numbers, "type": kinds[x.dtype], "bytes": _itemsize(x)})


def _to_dense(call: LibraryCall) -> _Loops | None:
    indptr, indices, values = call.inputs
    columns, size = call.outputs[0].shape[1], _itemsize(values)
    work = (indptr.shape[0] - 1) * columns * size
    return _over_rows("fuse_csr_to_dense", work, indptr, columns=columns, capacity=indices.shape[0], bytes=size)


def _put(call: LibraryCall, task: str = "fuse_rows_put") -> _Loops | None:
    x, _, indices, values = call.inputs
    extent, width, size = x.shape[0], prod(x.shape[1:]), _itemsize(values)
    capacity, some = indices.shape[0], max(1, _TASK_WORK // max(width * size, 1))
    copies = _task_count(extent * width * size, max(extent, 1))
    loops = (("fuse_rows_copy", copies), (task, max(1, -(-capacity // some))))
    numbers = {"rows": 1, "columns": extent, "capacity": capacity, "width": width, "bytes": size}
    return _Loops(loops, {**numbers, "tasks": copies, "option": some})


def _subtract(call: LibraryCall) -> _Loops | None:
    if (dtype := call.inputs[3].dtype) not in _TYPES[:2] or (found := _put(call, "fuse_rows_subtract")) is None:
        return None
    return _Loops(found.loops, {**found.numbers, "type": _TYPES.index(dtype)})


def _embedding(call: LibraryCall) -> _Loops | None:
    grad, ids = call.inputs
    if grad.dtype not in _TYPES or ids.dtype not in _IDS:
        return None
    rows, padding = int(call.config["rows"]), call.config.get("padding_index")  # pyright: ignore[reportArgumentType]
    skipped = -1 if not isinstance(padding, int) else padding + rows if padding < 0 else padding
    count, width, capacity = prod(ids.shape), grad.shape[-1], call.outputs[1].shape[0]
    some = max(1, _TASK_WORK // max(width * _itemsize(grad), 1))
    numbers = {"rows": 1, "columns": rows, "capacity": capacity, "width": width, "count": count, "option": some}
    numbers |= {"type": _TYPES.index(grad.dtype), "kind": _IDS.index(ids.dtype), "skipped": skipped}
    loops = (("fuse_embedding_order", 1), ("fuse_embedding_sums", max(1, -(-capacity // some))))
    return _Loops(loops, {**numbers, "wraps": int(bool(call.config.get("wrap_negative", True)))})


def _embedding_bytes(site: Site) -> int:
    """Where sums begin, the order of ids, and keys twice; begun at a multiple of 64."""
    count, capacity = site.operands[1].size, site.results[1].size
    return (capacity + 1 + count + 15) // 16 * 64 + 16 * max(count, 1)


_MAKERS: Mapping[str, Callable[[LibraryCall], _Loops | None]] = {
    "fuse.csr_matmul": _matmul,
    "fuse.csr_sampled_matmul": _sampled,
    "fuse.csr_reduce": _reduce,
    "fuse.csr_rows": _rows,
    "fuse.csr_transpose": _transpose,
    "fuse.csr_take": _take,
    "fuse.csr_union": _union,
    "fuse.csr_from_dense": _from_dense,
    "fuse.csr_to_dense": _to_dense,
    "fuse.rows_put": _put,
    "fuse.rows_subtract": _subtract,
    "fuse.embedding_rows_backward": _embedding,
}
"""By implementation."""


_WORKSPACE: Mapping[str, Callable[[Site], int]] = {
    "fuse.csr_matmul": _packed_bytes,
    "fuse.embedding_rows_backward": _embedding_bytes,
}
"""Bytes, by implementation."""


def _refusal(name: str, site: Site) -> str | None:
    """Why the loops do not run an op, by making the call as if its operands were somewhere."""
    tensors = (*site.operands, *site.results)
    if any(tensor.dtype not in NUMPY_NAMES for tensor in tensors):
        return "dtype"
    refs = tuple(BufferRef(0, 0, tensor.shape, tensor.dtype) for tensor in tensors)
    count = len(site.operands)
    call = LibraryCall(name, site.name, refs[:count], refs[count:], site.config, _never)
    return None if _MAKERS[name](call) is not None else "dtype"


def _never(inputs: object, outputs: object, config: object) -> None:
    """Such a call is not made."""


def _cost(name: str, site: Site) -> Cost:
    """Of moving what there is, and of products over what may be stored."""
    flops, rate = 0, 1.0
    if name in ("fuse.csr_matmul", "fuse.csr_sampled_matmul"):
        flops = 2 * site.operands[1].size * (site.operands[-1].shape[-1] + _OF_ENTRY)
        element = "f64" if "f64" in site.dtypes else "f32"
        rate = _OF_DENSE * (1e9 if site.device is None else site.device.product_rate(element))
    return Cost(flops, site.nbytes, rate, NATIVE_CALL)


def _register(names: Sequence[str]) -> None:
    for name in names:
        what = name.partition(".")[2]
        refusal, cost = functools.partial(_refusal, name), functools.partial(_cost, name)
        workspace = _WORKSPACE.get(name, 0)
        native_implementation(name, f"numpy.{what}", f"graph.{what}", refusal, cost, workspace=workspace)


_register(list(_MAKERS))
