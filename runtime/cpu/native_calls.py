"""Calls of libraries as loops of a program, where compiled code makes them: products by a BLAS, convolutions over it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, LibraryCall
from fuse_opt.runtime.backends.blas.convolution import Convolution, convolution_table
from fuse_opt.runtime.backends.blas.convolution_backward import transposed_table, weight_gradient_table
from fuse_opt.runtime.backends.blas.matmul import FLOAT_TYPES, Products, Tasks, load_tasks, product_table
from fuse_opt.runtime.backends.indexing import Fault, indexing_call
from fuse_opt.runtime.host.c_records import int64_table
from fuse_opt.runtime.host.program_call import LoopRow
from fuse_opt.runtime.host.thread_pool import num_threads

NARROW_TYPES = ("f16", "bf16")
_CONVERTED = 4096
"""Numbers of a task of narrow_tasks.c."""
_CONVERSIONS = 4
"""Its tasks that are worth a thread."""


@dataclass(frozen=True, slots=True)
class Follower:
    """The loop of a program that overwrites a product's elements in order, `count` tasks of which `grain` are worth a thread."""

    task: int
    """The address of its function."""
    count: int
    grain: int


@dataclass(frozen=True, slots=True)
class Failure:
    """What a run may be refused with: not 0 at `address` after such a run, until somebody has asked for the `error`."""

    address: int
    error: Callable[[], Exception]

    def take(self) -> Exception | None:
        """The error of the last run, if it failed; the next one starts anew."""
        flag = ctypes.c_int64.from_address(self.address)
        if not flag.value:
            return None
        found = self.error()
        flag.value = 0
        return found


OUT_OF_MEMORY = "a convolution has no memory to unfold its windows: expected some 256 KiB for each thread"


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call as loops, each a phase."""

    rows: tuple[LoopRow, ...]
    memory: tuple[Any, ...]
    """What the rows point to."""
    with_follower: bool = False
    """Whether the loop that follows is in it."""
    failure: Failure | None = None
    calls_blas: bool = True


@dataclass(frozen=True, slots=True)
class _Places:
    """A call whose operands and result are floats of one type that a BLAS knows, in C order, and where they are."""

    call: LibraryCall
    table: int
    """The address of the table of buffers."""
    tasks: Tasks
    item: int
    places: tuple[int, ...]
    """Records `place` of matmul_tasks.c: of both operands and the result."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        a, b = self.call.inputs
        return a.shape, b.shape, self.call.outputs[0].shape


def native_call(call: LibraryCall, table: int, follower: Follower | None = None) -> NativeCall | None:
    """
    The call, on the buffers of `table`, as loops, for the present number of threads; None where it is Python's to make.

    The follower is the loop behind it, where that may run by parts. Floats of 16 bits are computed with in f32, and
    rounded once.
    """
    if (indexing := indexing_call(call, table)) is not None:
        fault = indexing.fault
        failure = None if fault is None else Failure(ctypes.addressof(fault) + Fault.failed.offset, indexing.error)
        return NativeCall((indexing.row,), indexing.memory, failure=failure, calls_blas=False)
    make = _NATIVE.get(call.implementation)
    tasks = None if make is None or os.environ.get("FUSE_OPT_BLAS") == "numpy" else load_tasks()
    if make is None or tasks is None or not _is_plain(call):
        return None
    refs = (*call.inputs, *call.outputs)
    places = tuple((table + 8 * ref.buffer, ref.offset) for ref in refs)
    if refs[0].dtype in NARROW_TYPES:
        return _in_single(make, call, table, tasks, places)
    item = np.dtype(NUMPY_NAMES[refs[0].dtype]).itemsize
    return make(_Places(call, table, tasks, item, tuple(v for place in places for v in place)), follower)


def _is_plain(call: LibraryCall) -> bool:
    """Whether all are aligned floats of one type, and the result shares memory with no operand."""
    refs = (*call.inputs, *call.outputs)
    if len(call.inputs) != 2 or len(call.outputs) != 1 or len({ref.dtype for ref in refs}) > 1:
        return False
    dtype, (out,) = np.dtype(NUMPY_NAMES[refs[0].dtype]), call.outputs
    if refs[0].dtype not in NARROW_TYPES and dtype not in FLOAT_TYPES:
        return False
    if any(ref.offset % dtype.itemsize or not ref.nbytes for ref in refs):
        return False
    return not any(
        ref.buffer == out.buffer and ref.offset < out.offset + out.nbytes and out.offset < ref.offset + ref.nbytes
        for ref in call.inputs
    )


def _in_single(
    make: Callable[[_Places, Follower | None], NativeCall | None],
    call: LibraryCall,
    table: int,
    tasks: Tasks,
    places: Sequence[tuple[int, int]],
) -> NativeCall | None:
    """The call on copies of the operands in f32, which are memory of its own, as the result is before it is rounded."""
    refs = (*call.inputs, *call.outputs)
    memory: list[Any] = [np.empty(prod(ref.shape), np.float32) for ref in refs]
    cells = (ctypes.c_int64 * len(refs))(*(array.ctypes.data for array in memory))
    wide = [(ctypes.addressof(cells) + 8 * number, 0) for number in range(len(refs))]
    found = make(_Places(call, table, tasks, 4, tuple(v for place in wide for v in place)), None)
    if found is None:
        return None
    records = [
        (*narrow, *single, array.size, refs[0].dtype == "bf16")
        for narrow, single, array in zip(places, wide, memory, strict=True)
    ]
    widening = int64_table(*records[0], *records[1])
    rounding = int64_table(*wide[2], *places[2], *records[2][4:])
    memory += cells, widening, rounding, *found.memory
    counts = [-(-record[4] // _CONVERTED) for record in records]
    before = LoopRow(tasks.function("fuse_run_widen"), ctypes.addressof(widening), counts[0] + counts[1], _CONVERSIONS)
    after = LoopRow(tasks.function("fuse_run_narrow"), ctypes.addressof(rounding), counts[2], _CONVERSIONS)
    return NativeCall((before, *found.rows, after), tuple(memory), failure=found.failure)


def _product(places: _Places, follower: Follower | None) -> NativeCall | None:
    threads = num_threads()
    plan = product_table(places.tasks, threads, places.item, *places.shapes, places.call.config)
    if plan is None:
        return None
    record = int64_table(ctypes.addressof(plan), *places.places)
    if follower is not None and (found := _followed(places, follower, plan, record, threads)) is not None:
        return found
    head = Products.from_buffer(plan)
    row = LoopRow(places.tasks.function("fuse_run_product"), ctypes.addressof(record), head.tasks, head.grain)
    return NativeCall((row,), (plan, record))


def _followed(
    places: _Places,
    follower: Follower,
    plan: ctypes.Array[ctypes.c_int64],
    product: ctypes.Array[ctypes.c_int64],
    threads: int,
) -> NativeCall | None:
    """The product and, each of its tasks soon after the rows of the product that it overwrites, the follower."""
    size, head = prod(places.call.outputs[0].shape), Products.from_buffer(plan)
    per_row, rest = divmod(head.n * follower.count, size)
    if rest or not per_row or head.grain > 1 or follower.count <= follower.grain:
        return None
    pieces = max(1, min(2 * threads, min(head.row_block, head.m) * per_row // follower.grain))
    across = -(-head.n // head.column_block)
    panels = head.tasks // across
    missing, left = (ctypes.c_int64 * panels)(), (ctypes.c_int64 * (panels * pieces))()
    arrays = ctypes.addressof(missing), ctypes.addressof(left)
    record = int64_table(*product, per_row, pieces, threads, panels, across, follower.task, places.table, *arrays, 0, 0)
    address = ctypes.addressof(record)
    names = ("fuse_run_followed", "fuse_begin_followed"), ("fuse_run_left", "fuse_begin_left")
    loops = tuple(
        LoopRow(places.tasks.function(run), address, 1, 1, places.tasks.function(begin)) for run, begin in names
    )
    return NativeCall(loops, (plan, record, missing, left), with_follower=True)


def _convolution(places: _Places, follower: Follower | None) -> NativeCall | None:
    plan = convolution_table(places.tasks, num_threads(), places.item, *places.shapes, places.call.config)
    return _convolution_loop(places, plan, "fuse_run_convolution")


def _transposed(places: _Places, follower: Follower | None) -> NativeCall | None:
    plan = transposed_table(places.tasks, places.item, *places.shapes, places.call.config)
    return _convolution_loop(places, plan, "fuse_run_fold")


def _weight_gradient(places: _Places, follower: Follower | None) -> NativeCall | None:
    plan = weight_gradient_table(places.tasks, places.item, *places.shapes, places.call.config)
    return _convolution_loop(places, plan, "fuse_run_weight_gradient")


def _convolution_loop(places: _Places, plan: ctypes.Array[ctypes.c_int64] | None, task: str) -> NativeCall | None:
    if plan is None:
        return None
    record = int64_table(ctypes.addressof(plan), *places.places, 0)
    head = Convolution.from_buffer(plan)
    row = LoopRow(places.tasks.function(task), ctypes.addressof(record), head.tasks, head.grain)
    last = ctypes.addressof(record) + 8 * (len(record) - 1)
    return NativeCall((row,), (plan, record), failure=Failure(last, lambda: MemoryError(OUT_OF_MEMORY)))


_NATIVE: Mapping[str, Callable[[_Places, Follower | None], NativeCall | None]] = {
    "numpy.matmul": _product,
    "numpy.matmul_epilogue": _product,
    "numpy.conv": _convolution,
    "numpy.conv_transpose": _transposed,
    "numpy.conv_backward_data": _transposed,
    "numpy.conv_backward_weight": _weight_gradient,
}
"""By implementation."""
