"""Calls that read or write at positions that are data, and running totals, as loops of indexing_tasks.c."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, ConfigValue, LibraryCall
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL, moving_cost
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, number_in, runtime_text
from fuse_opt.runtime.host.program_call import LoopRow

_SOURCE = "backends/indexing_tasks.c"
_TASKS = (
    "fuse_gather_rows",
    "fuse_check_rows",
    "fuse_put_rows",
    "fuse_gather_lines",
    "fuse_put_lines",
    "fuse_run_totals",
)
_TASK_BYTES = 32 << 10
"""What a task moves."""
_MOST_RANGES = 16
"""Parts of a tensor whose rows are written: each looks at all indices."""
_LEAST_COLUMNS = 512
"""Of running totals side by side: memory is asked for ahead along rows."""
_MOST_COLUMNS = number_in(_SOURCE, "MOST_COLUMNS")
_TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f32", "f64")
"""Element types that the file computes with, by its numbers; the first eight are those of indices."""
_JOINS = {"none": 0, "add": 1, "mul": 2, "max": 3, "min": 4}


class _Rows(ctypes.Structure):
    """The record `fuse_rows`."""

    _fields_ = fields_of(_SOURCE, "fuse_rows")


class _Lines(ctypes.Structure):
    """The record `fuse_lines`."""

    _fields_ = fields_of(_SOURCE, "fuse_lines")


class _Indices(ctypes.Structure):
    """The record `indices`."""

    _fields_ = fields_of(_SOURCE, "indices")


class Fault(ctypes.Structure):
    """The record `fuse_fault`: the first index of a run that was out of range."""

    _fields_ = fields_of(_SOURCE, "fuse_fault")


_MOST_AXES: int = _Indices.steps.size // 8


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
def _library() -> ctypes.CDLL | None:
    """The compiled tasks; None without a C compiler."""
    if (compiler := find_c_compiler()) is None:
        return None
    try:
        return compiler.load_shared(runtime_text(_SOURCE), DiskCache(), _TASKS, ["-ffp-contract=off"])
    except (CompileError, OSError):
        return None


def indexing_call(call: LibraryCall, table: int) -> IndexingCall | None:
    """The call on the buffers of `table`; None where it is no such call, or one that is not for these loops."""
    if (make := _MAKERS.get(call.implementation)) is None or (library := _library()) is None:
        return None
    return make(_Maker(call, table, functools.partial(address_in, library)))


def _itemsize(ref: BufferRef) -> int:
    return np.dtype(NUMPY_NAMES[ref.dtype]).itemsize


def _axis(config: Mapping[str, ConfigValue], name: str, default: int, rank: int) -> int:
    given = config.get(name, default)
    assert isinstance(given, int)
    return given % rank


@dataclass(frozen=True, slots=True)
class _Maker:
    """A call that is to be made a loop."""

    call: LibraryCall
    table: int
    address: Callable[[str], int]
    """Of a task."""

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
    ) -> _Indices | None:
        """The record of an operand of indices, `shift` elements from its beginning; None for another type."""
        if ref.dtype not in _TYPES[:8] or not extent:
            return None
        cell, offset = self.place(ref)
        first, table = offset + shift * _itemsize(ref), (ctypes.c_int64 * _MOST_AXES)(*steps)
        kind = _TYPES.index(ref.dtype)
        wraps = ref.dtype[0] == "i" and bool(self.call.config.get("wrap_negative", True))
        return _Indices(cell, first, kind, wraps, extent, axis, weight, table)

    def joined(self, reduce: str) -> tuple[int, int] | None:
        """The numbers of the element type, any of its size for what only moves, and of the join; None for other types."""
        join = _JOINS[reduce]
        if join and self.out.dtype not in _TYPES:
            return None
        return _TYPES.index(self.out.dtype if join else f"ui{8 * _itemsize(self.out)}"), join

    def done(
        self, task: str, tasks: int, record: _Rows | _Lines, indices: Sequence[_Indices], refs: Sequence[BufferRef]
    ) -> IndexingCall:
        """The loop, whose operands of indices are these."""
        entries, fault = (_Indices * max(len(indices), 1))(*indices), Fault()
        record.indices, record.fault = ctypes.addressof(entries), ctypes.addressof(fault)
        row = LoopRow(self.address(task), ctypes.addressof(record), tasks, 1)
        shapes = tuple(ref.shape for ref in refs)
        return IndexingCall(row, (record, entries, fault), fault if refs else None, shapes, self.call)

    def place_all(self, record: _Rows | _Lines, values: BufferRef | None) -> None:
        """Says where the operands and the result are."""
        for name, ref in (("x", self.x), ("out", self.out), ("values", values or self.x)):
            cell, offset = self.place(ref)
            setattr(record, name, cell)
            setattr(record, f"{name}_offset", offset)

    def rows(self, named: _Named, rows: int, inner: int, *, outer: int = 1, values: BufferRef | None = None) -> _Rows:
        """The record of a call on a tensor [outer, rows, inner], in rows that operands of indices name together."""
        together, record = named.together, _Rows()
        self.place_all(record, values)
        record.outer, record.rows, record.bytes = outer, rows, inner * _itemsize(self.out)
        record.count, record.operands = prod(together), len(named.indices)
        record.axes, record.skipped = len(together), -1
        plain = tuple(prod(together[k + 1 :]) for k in range(len(together)))
        record.plain = all(tuple(entry.steps)[: len(plain)] == plain for entry in named.indices)
        record.extents = (ctypes.c_int64 * _MOST_AXES)(*together)
        return record

    def reading(self, record: _Rows, named: _Named) -> IndexingCall:
        record.chunk = max(1, _TASK_BYTES // record.bytes)
        tasks = -(-record.outer * record.count // record.chunk)
        return self.done("fuse_gather_rows", tasks, record, named.indices, named.refs)

    def writing(self, record: _Rows, named: _Named) -> IndexingCall:
        """Tasks that are parts of the rows, few of them where each would look at many indices for little."""
        parts = (record.rows + record.count) * record.bytes // (4 * _TASK_BYTES)
        record.chunk = -(-record.rows // max(1, min(_MOST_RANGES, record.rows, parts)))
        return self.done("fuse_put_rows", -(-record.rows // record.chunk), record, named.indices, named.refs)


@dataclass(frozen=True, slots=True)
class _Named:
    """Operands of indices that name rows, and the shape of the places for which they do."""

    indices: tuple[_Indices, ...]
    refs: tuple[BufferRef, ...]
    together: tuple[int, ...]


def _named(indices: Sequence[_Indices | None], refs: Sequence[BufferRef], together: tuple[int, ...]) -> _Named | None:
    known = tuple(entry for entry in indices if entry is not None)
    return None if len(known) < len(indices) or len(together) > _MOST_AXES else _Named(known, tuple(refs), together)


def _broadcast_steps(shape: Sequence[int], together: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours of an operand along the axes of what it broadcasts to."""
    steps = [prod(shape[k + 1 :]) if n > 1 else 0 for k, n in enumerate(shape)]
    kept = zip([0] * (len(together) - len(shape)) + steps, together, strict=True)
    plain = [prod(together[k + 1 :]) for k in range(len(together))]
    return tuple(own if n > 1 else plain[k] for k, (own, n) in enumerate(kept))


def _take(m: _Maker) -> IndexingCall | None:
    x, indices = m.call.inputs
    axis = _axis(m.call.config, "axis", 0, len(x.shape))
    named = _named([m.indices(indices, x.shape[axis], axis, 1, (1,))], [indices], (prod(indices.shape),))
    if named is None:
        return None
    record = m.rows(named, x.shape[axis], prod(x.shape[axis + 1 :]), outer=prod(x.shape[:axis]))
    return m.reading(record, named)


def _checked_positions(m: _Maker) -> IndexingCall | None:
    extent, axis = m.call.config["extent"], m.call.config["axis"]
    assert isinstance(extent, int) and isinstance(axis, int)
    named = _named([m.indices(m.x, extent, axis, 1, (1,))], [m.x], (prod(m.x.shape),))
    if named is None:
        return None
    record = m.rows(named, extent, 1)
    record.chunk = _TASK_BYTES // record.bytes
    return m.done("fuse_check_rows", -(-record.count // record.chunk), record, named.indices, named.refs)


def _neighbours(m: _Maker, operands: Sequence[BufferRef]) -> tuple[_Named, int, int] | None:
    """Operands that name rows together, each for one of neighbouring axes of x: with the first of these, and behind the last."""
    x, given = m.x, m.call.config.get("axes", tuple(range(len(operands))))
    assert isinstance(given, tuple)
    axes = [int(axis) % len(x.shape) for axis in given]
    first, last = min(axes), min(axes) + len(axes)
    together = np.broadcast_shapes(*(ref.shape for ref in operands))
    if sorted(axes) != list(range(first, last)) or len(together) > _MOST_AXES:
        return None
    indices = [
        m.indices(ref, x.shape[axis], axis, prod(x.shape[axis + 1 : last]), _broadcast_steps(ref.shape, together))
        for ref, axis in zip(operands, axes, strict=True)
    ]
    named = _named(indices, operands, together)
    return None if named is None else (named, first, last)


def _index(m: _Maker) -> IndexingCall | None:
    if (found := _neighbours(m, m.call.inputs[1:])) is None:
        return None
    (named, first, last), shape = found, m.x.shape
    return m.reading(m.rows(named, prod(shape[first:last]), prod(shape[last:]), outer=prod(shape[:first])), named)


def _index_put(m: _Maker) -> IndexingCall | None:
    x, values, *operands = m.call.inputs
    found, kind = _neighbours(m, operands), m.joined("add" if m.call.config.get("accumulate") else "none")
    if found is None or kind is None or found[1]:
        return None
    named, _, count = found
    row, places = x.shape[count:], prod(named.together)
    scalar = values.shape == row and places > 1
    if not scalar and prod(values.shape) != places * prod(row):
        return None
    record = m.rows(named, prod(x.shape[:count]), prod(row), values=values)
    record.scalar, (record.type, record.join) = int(scalar), kind
    return m.writing(record, named)


def _entries(m: _Maker, x: BufferRef, indices: BufferRef) -> tuple[_Named, int] | None:
    """The entries of positions along the last axis of the indices, as one operand each; and how many there are."""
    length = indices.shape[-1]
    found = [
        m.indices(indices, x.shape[k], k, prod(x.shape[k + 1 : length]), (length,), shift=k) for k in range(length)
    ]
    named = _named(found, [indices] * length, (prod(indices.shape[:-1]),))
    return None if named is None else (named, length)


def _gather_nd(m: _Maker) -> IndexingCall | None:
    x, indices = m.call.inputs
    if m.call.config.get("batch_dims") or (found := _entries(m, x, indices)) is None:
        return None
    named, length = found
    return m.reading(m.rows(named, prod(x.shape[:length]), prod(x.shape[length:])), named)


def _scatter_nd(m: _Maker) -> IndexingCall | None:
    x, indices, updates = m.call.inputs
    found, kind = _entries(m, x, indices), m.joined(str(m.call.config.get("reduce", "none")))
    if found is None or kind is None:
        return None
    named, length = found
    record = m.rows(named, prod(x.shape[:length]), prod(x.shape[length:]), values=updates)
    record.type, record.join = kind
    return m.writing(record, named)


def _embedding_backward(m: _Maker) -> IndexingCall | None:
    grad, ids = m.call.inputs
    rows, width = m.out.shape
    kind, named = m.joined("add"), _named([m.indices(ids, rows, 0, 1, (1,))], [ids], (prod(ids.shape),))
    if named is None or kind is None:
        return None
    record = m.rows(named, rows, width, values=grad)
    (record.type, record.join), record.fills = kind, 1
    if isinstance(padding := m.call.config.get("padding_index"), int):
        record.skipped = padding + rows if padding < 0 else padding
    return m.writing(record, named)


def _lines(m: _Maker, axis: int, values: BufferRef | None = None) -> _Lines:
    """The record of a call along an axis of x."""
    x, record = m.x, _Lines()
    m.place_all(record, values)
    record.outer, record.extent, record.inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    record.count, record.bytes, record.block = x.shape[axis], _itemsize(x), max(1, min(prod(x.shape[axis + 1 :]), 64))
    return record


def _along(m: _Maker, indices: BufferRef, axis: int) -> _Indices | None:
    """Indices along an axis of x, where they have its extents on the others."""
    shape, given = m.x.shape, indices.shape
    same = (*shape[:axis], *shape[axis + 1 :]) == (*given[:axis], *given[axis + 1 :])
    return m.indices(indices, shape[axis], axis, 1, (1,)) if same else None


def _take_along_axis(m: _Maker) -> IndexingCall | None:
    x, indices = m.call.inputs
    axis = _axis(m.call.config, "axis", -1, len(x.shape))
    if (entry := _along(m, indices, axis)) is None:
        return None
    record = _lines(m, axis)
    record.count = indices.shape[axis]
    record.block = max(1, _TASK_BYTES // (record.inner * record.bytes))
    tasks = -(-record.outer * record.count // record.block)
    return m.done("fuse_gather_lines", tasks, record, [entry], [indices])


def _scatter(m: _Maker, reduce: str) -> IndexingCall | None:
    x, indices, updates = m.call.inputs
    axis = _axis(m.call.config, "axis", 0, len(x.shape))
    kind, entry = m.joined(reduce), _along(m, indices, axis)
    if kind is None or entry is None:
        return None
    record = _lines(m, axis, updates)
    record.count, (record.type, record.join) = indices.shape[axis], kind
    return m.done("fuse_put_lines", record.outer * -(-record.inner // record.block), record, [entry], [indices])


def _total(m: _Maker, join: int) -> IndexingCall | None:
    config = m.call.config
    if m.x.dtype not in _TYPES:
        return None
    axis = _axis(config, "axis", 0, len(m.x.shape))
    record = _lines(m, axis)
    record.type, record.join, record.count = _TYPES.index(m.x.dtype), join, m.out.shape[axis]
    record.late = bool(config.get("exclusive") or config.get("include_initial"))
    record.backwards = bool(config.get("reverse"))
    some = max(-(-record.outer * record.inner // _MOST_RANGES), _LEAST_COLUMNS)
    record.block = min(record.inner, some, _MOST_COLUMNS)
    return m.done("fuse_run_totals", record.outer * -(-record.inner // record.block), record, [], [])


_MAKERS: Mapping[str, Callable[[_Maker], IndexingCall | None]] = {
    "fuse.take": _take,
    "fuse.take_along_axis": _take_along_axis,
    "fuse.checked_positions": _checked_positions,
    "fuse.gather_nd": _gather_nd,
    "fuse.index": _index,
    "fuse.index_put": _index_put,
    "fuse.scatter": lambda m: _scatter(m, "none"),
    "fuse.scatter_add": lambda m: _scatter(m, "add"),
    "fuse.scatter_reduce": lambda m: _scatter(m, str(m.call.config["reduce"])),
    "fuse.scatter_nd": _scatter_nd,
    "fuse.embedding_backward": _embedding_backward,
    "fuse.cumulative_sum": lambda m: _total(m, 1),
    "fuse.cumulative_prod": lambda m: _total(m, 2),
}
"""By implementation."""


def _refusal(name: str, site: Site) -> str | None:
    """Why the loops do not run an op, by making the call as if its operands were somewhere."""
    tensors = (*site.operands, *site.results)
    if not site.is_static:
        return "extent-unknown"
    if not all(tensor.size for tensor in tensors):
        return "empty"
    if any(tensor.dtype not in NUMPY_NAMES for tensor in tensors):
        return "dtype"
    refs = tuple(BufferRef(0, 0, tensor.shape, tensor.dtype) for tensor in tensors)
    count = len(site.operands)
    call = LibraryCall(name, site.name, refs[:count], refs[count:], site.config, _never)
    return None if _MAKERS[name](_Maker(call, 0, lambda task: 0)) is not None else "form"


def _never(inputs: object, outputs: object, config: object) -> None:
    """Such a call is not made."""


def _cost(site: Site) -> Cost:
    return replace(moving_cost(site), call=NATIVE_CALL)


for _name in _MAKERS:
    _what = _name.partition(".")[2]
    native_implementation(_name, f"numpy.{_what}", f"graph.{_what}", functools.partial(_refusal, _name), _cost)
