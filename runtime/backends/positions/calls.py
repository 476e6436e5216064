"""Calls as loops of indexing_tasks.c and order_tasks.c: their records, and what makes them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, ConfigValue, LibraryCall
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, runtime_text
from fuse_opt.runtime.host.program_call import LoopRow
from fuse_opt.runtime.host.thread_pool import num_threads

_SOURCE, ORDERS = "backends/positions/indexing_tasks.c", "backends/positions/order_tasks.c"
TASK_BYTES = 32 << 10
"""What a task moves."""
MOST_RANGES = 16
"""Parts of a tensor whose rows are written: each looks at all indices."""
TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f32", "f64")
"""Element types that the file computes with, by its numbers; the first eight are those of indices."""
_JOINS = {"none": 0, "add": 1, "mul": 2, "max": 3, "min": 4}


class RowsRecord(ctypes.Structure):
    """The record `fuse_rows`."""

    _fields_ = fields_of(_SOURCE, "fuse_rows")


class LinesRecord(ctypes.Structure):
    """The record `fuse_lines`."""

    _fields_ = fields_of(_SOURCE, "fuse_lines")


class Indices(ctypes.Structure):
    """The record `indices`."""

    _fields_ = fields_of(_SOURCE, "indices")


class Fault(ctypes.Structure):
    """The record `fuse_fault`: the first index of a run that was out of range."""

    _fields_ = fields_of(_SOURCE, "fuse_fault")


MOST_AXES: int = Indices.steps.size // 8


@dataclass(frozen=True, slots=True)
class IndexingCall:
    """A call as one loop and, where indices may be out of range, what it notes of that."""

    row: LoopRow
    memory: tuple[Any, ...]
    """What the loop works on."""
    fault: Fault | None
    shapes: tuple[tuple[int, ...], ...]
    """Those of the operands of indices, by number."""
    call: LibraryCall

    def error(self) -> IndexError:
        """What the run is refused with."""
        assert self.fault is not None
        place, axis, extent = int(self.fault.place), int(self.fault.axis), int(self.fault.extent)
        index, shape = int(self.fault.index), self.shapes[0]
        first = -extent if self.call.config.get("wrap_negative", True) else 0
        at: list[int] = []
        for n in reversed(shape if len(set(self.shapes)) == 1 else (place + 1,)):
            at.insert(0, place % n)
            place //= n
        op = self.call.config.get("op", self.call.operation)
        return IndexError(
            f"'{op}': index {index} at {at} of the indices is out of range for axis {axis} of extent "
            f"{extent}; expected {first} <= index < {extent}"
        )


@functools.cache
def task_library(task: str, kind: int) -> ctypes.CDLL | None:
    """
    One compiled task, for elements of the type of that number: all of them take a compiler ten seconds. None where nothing
    compiles it.
    """
    if (compiler := find_c_compiler()) is None:
        return None
    text, chosen = runtime_text(_SOURCE) + runtime_text(ORDERS), [f"-DTASK={task}", f"-DTYPE={kind}"]
    try:
        return compiler.load_shared(text, DiskCache(), ["fuse_task"], ["-ffp-contract=off", *chosen])
    except (CompileError, OSError):
        return None


def task_address(task: str, kind: int) -> int | None:
    """Of the task; None where there is none."""
    library = task_library(task, kind)
    return None if library is None else address_in(library, "fuse_task")


def itemsize_of(ref: BufferRef) -> int:
    return np.dtype(NUMPY_NAMES[ref.dtype]).itemsize


def axis_of(config: Mapping[str, ConfigValue], name: str, default: int, rank: int) -> int:
    given = config.get(name, default)
    assert isinstance(given, int)
    return given % rank


@dataclass(frozen=True, slots=True)
class Named:
    """Operands of indices that name rows, and the shape of the places for which they do."""

    indices: tuple[Indices, ...]
    refs: tuple[BufferRef, ...]
    together: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallMaker:
    """A call that is to be made a loop."""

    call: LibraryCall
    table: int
    address: Callable[[str, int], int | None] = task_address
    """Of a task, for elements of the type of that number."""

    @property
    def x(self) -> BufferRef:
        return self.call.inputs[0]

    @property
    def out(self) -> BufferRef:
        return self.call.outputs[0]

    def place(self, ref: BufferRef) -> tuple[int, int]:
        return self.table + 8 * ref.buffer, ref.offset

    def indices(
        self, ref: BufferRef, extent: int, axis: int, weight: int, steps: Sequence[int], shift: int = 0
    ) -> Indices | None:
        """The record of an operand of indices, `shift` elements from its beginning; None for another type."""
        if ref.dtype not in TYPES[:8] or not extent:
            return None
        cell, offset = self.place(ref)
        first, table = offset + shift * itemsize_of(ref), (ctypes.c_int64 * MOST_AXES)(*steps)
        kind = TYPES.index(ref.dtype)
        wraps = ref.dtype[0] == "i" and bool(self.call.config.get("wrap_negative", True))
        return Indices(cell, first, kind, wraps, extent, axis, weight, table)

    def joined(self, reduce: str) -> tuple[int, int] | None:
        """The numbers of the element type, any of its size for what only moves, and of the join; None for other types."""
        join = _JOINS[reduce]
        if join and self.out.dtype not in TYPES:
            return None
        return TYPES.index(self.out.dtype if join else f"ui{8 * itemsize_of(self.out)}"), join

    def done(
        self,
        task: str,
        tasks: int,
        record: RowsRecord | LinesRecord,
        indices: Sequence[Indices],
        refs: Sequence[BufferRef],
    ) -> IndexingCall | None:
        """The loop, whose operands of indices are these; None where nothing compiles it."""
        if (address := self.address(task, record.type)) is None:
            return None
        entries, fault = (Indices * max(len(indices), 1))(*indices), Fault()
        record.indices, record.fault = ctypes.addressof(entries), ctypes.addressof(fault)
        row = LoopRow(address, ctypes.addressof(record), tasks, 1)
        shapes = tuple(ref.shape for ref in refs)
        return IndexingCall(row, (record, entries, fault), fault if refs else None, shapes, self.call)

    def place_all(self, record: RowsRecord | LinesRecord, values: BufferRef | None) -> None:
        """Says where the operands and the result are."""
        for name, ref in (("x", self.x), ("out", self.out), ("values", values or self.x)):
            cell, offset = self.place(ref)
            setattr(record, name, cell)
            setattr(record, f"{name}_offset", offset)

    def rows(
        self, named: Named, rows: int, inner: int, *, outer: int = 1, values: BufferRef | None = None
    ) -> RowsRecord:
        """The record of a call on a tensor [outer, rows, inner], in rows that operands of indices name together."""
        together, record = named.together, RowsRecord()
        self.place_all(record, values)
        record.outer, record.rows, record.bytes = outer, rows, inner * itemsize_of(self.out)
        record.count, record.operands = prod(together), len(named.indices)
        record.axes, record.skipped = len(together), -1
        plain = tuple(prod(together[k + 1 :]) for k in range(len(together)))
        record.plain = all(tuple(entry.steps)[: len(plain)] == plain for entry in named.indices)
        record.extents = (ctypes.c_int64 * MOST_AXES)(*together)
        return record

    def reading(self, record: RowsRecord, named: Named) -> IndexingCall | None:
        record.chunk = max(1, TASK_BYTES // record.bytes)
        tasks = -(-record.outer * record.count // record.chunk)
        return self.done("fuse_gather_rows", tasks, record, named.indices, named.refs)

    def writing(self, record: RowsRecord, named: Named) -> IndexingCall | None:
        """Tasks that are parts of the rows: no more than threads, as each looks at all indices, and few of few bytes."""
        parts = min((record.rows + record.count) * record.bytes // (4 * TASK_BYTES), num_threads())
        record.chunk = -(-record.rows // max(1, min(MOST_RANGES, record.rows, parts)))
        return self.done("fuse_put_rows", -(-record.rows // record.chunk), record, named.indices, named.refs)


def lines_along(m: CallMaker, axis: int, values: BufferRef | None = None) -> LinesRecord:
    """The record of a call along an axis of x."""
    x, record = m.x, LinesRecord()
    m.place_all(record, values)
    record.outer, record.extent, record.inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    record.count, record.bytes, record.block = x.shape[axis], itemsize_of(x), max(1, min(prod(x.shape[axis + 1 :]), 64))
    return record
