"""Calls of libraries as loops of a program, where compiled code makes them: products by a BLAS, convolutions over it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, LibraryCall
from fuse_opt.runtime.blas import FLOAT_TYPES, Tasks, int64_table, load_tasks, product_table
from fuse_opt.runtime.convolution import convolution_table
from fuse_opt.runtime.program_call import LoopRow
from fuse_opt.runtime.thread_pool import num_threads


@dataclass(frozen=True, slots=True)
class Follower:
    """The loop of a program that overwrites a product's elements in order, `count` tasks of which `grain` are worth a thread."""

    task: int
    """The address of its function."""
    count: int
    grain: int


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call as loops, each a phase."""

    rows: tuple[LoopRow, ...]
    memory: tuple[Any, ...]
    """What the rows point to."""
    with_follower: bool = False
    """Whether the loop that follows is in it."""
    failed: ctypes.Array[ctypes.c_int64] | None = None
    """Not 0 in its last element after a run for which there was not enough memory."""


@dataclass(frozen=True, slots=True)
class _Places:
    """A call whose operands and result are floats of one type, in C order, and the address of the table of buffers."""

    call: LibraryCall
    table: int
    tasks: Tasks

    def place(self, ref: BufferRef) -> tuple[int, int]:
        """The record `place` of blas_tasks.c."""
        return self.table + 8 * ref.buffer, ref.offset

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(v for ref in (*self.call.inputs, *self.call.outputs) for v in self.place(ref))

    @property
    def item(self) -> int:
        return np.dtype(NUMPY_NAMES[self.call.outputs[0].dtype]).itemsize

    def function(self, name: str) -> int:
        return ctypes.cast(getattr(self.tasks.library, name), ctypes.c_void_p).value or 0


def native_call(call: LibraryCall, table: int, follower: Follower | None = None) -> NativeCall | None:
    """
    The call, on the buffers of `table`, as loops, for the present number of threads; None where it is Python's to make.

    The follower is the loop behind it, where that may run by parts.
    """
    make = _NATIVE.get(call.implementation)
    tasks = None if make is None or os.environ.get("FUSE_OPT_BLAS") == "numpy" else load_tasks()
    if make is None or tasks is None or not _is_plain(call):
        return None
    return make(_Places(call, table, tasks), follower)


def _is_plain(call: LibraryCall) -> bool:
    """Whether all are aligned floats of one type that a BLAS knows, and the result shares memory with no operand."""
    refs = (*call.inputs, *call.outputs)
    if len(call.inputs) != 2 or len(call.outputs) != 1 or len({ref.dtype for ref in refs}) > 1:
        return False
    dtype, (out,) = np.dtype(NUMPY_NAMES[refs[0].dtype]), call.outputs
    if dtype not in FLOAT_TYPES or any(ref.offset % dtype.itemsize or not ref.nbytes for ref in refs):
        return False
    return not any(
        ref.buffer == out.buffer and ref.offset < out.offset + out.nbytes and out.offset < ref.offset + ref.nbytes
        for ref in call.inputs
    )


def _product(places: _Places, follower: Follower | None) -> NativeCall | None:
    call, threads = places.call, num_threads()
    a, b = call.inputs
    plan = product_table(places.tasks, threads, places.item, a.shape, b.shape, call.outputs[0].shape, call.config)
    if plan is None:
        return None
    record = int64_table(ctypes.addressof(plan), *places.places)
    if follower is not None and (found := _followed(places, follower, plan, record, threads)) is not None:
        return found
    row = LoopRow(places.function("fuse_run_product"), ctypes.addressof(record), plan[11], plan[12])
    return NativeCall((row,), (plan, record))


def _followed(
    places: _Places,
    follower: Follower,
    plan: ctypes.Array[ctypes.c_int64],
    product: ctypes.Array[ctypes.c_int64],
    threads: int,
) -> NativeCall | None:
    """The product and, each of its tasks soon after the rows of the product that it overwrites, the follower."""
    size = prod(places.call.outputs[0].shape)
    m, columns, rows, across, tasks, grain = plan[1], plan[2], plan[9], -(-plan[2] // plan[10]), plan[11], plan[12]
    per_row, rest = divmod(columns * follower.count, size)
    if rest or not per_row or grain > 1 or follower.count <= follower.grain:
        return None
    pieces = max(1, min(2 * threads, min(rows, m) * per_row // follower.grain))
    panels = tasks // across
    missing, left = (ctypes.c_int64 * panels)(), (ctypes.c_int64 * (panels * pieces))()
    arrays = ctypes.addressof(missing), ctypes.addressof(left)
    record = int64_table(*product, per_row, pieces, threads, panels, across, follower.task, places.table, *arrays, 0, 0)
    address = ctypes.addressof(record)
    names = ("fuse_run_followed", "fuse_begin_followed"), ("fuse_run_left", "fuse_begin_left")
    loops = tuple(LoopRow(places.function(run), address, 1, 1, places.function(begin)) for run, begin in names)
    return NativeCall(loops, (plan, record, missing, left), with_follower=True)


def _convolution(places: _Places, follower: Follower | None) -> NativeCall | None:
    x, weight = (ref.shape for ref in places.call.inputs)
    out = places.call.outputs[0].shape
    plan = convolution_table(places.tasks, num_threads(), places.item, x, weight, out, places.call.config)
    if plan is None:
        return None
    record = int64_table(ctypes.addressof(plan), *places.places, 0)
    row = LoopRow(places.function("fuse_run_convolution"), ctypes.addressof(record), plan[-2], plan[-1])
    return NativeCall((row,), (plan, record), failed=record)


_NATIVE: Mapping[str, Callable[[_Places, Follower | None], NativeCall | None]] = {
    "numpy.matmul": _product,
    "numpy.matmul_epilogue": _product,
    "numpy.conv": _convolution,
}
"""By implementation."""
