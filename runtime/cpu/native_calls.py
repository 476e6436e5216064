"""Calls of libraries as loops of a program, where compiled code makes them: products by a BLAS, convolutions over it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.lowering.program import NUMPY_NAMES, LibraryCall
from fuse_opt.runtime.backends.blas.convolution import Convolution, convolution_table
from fuse_opt.runtime.backends.blas.convolution_backward import transposed_table, weight_gradient_table
from fuse_opt.runtime.backends.blas.matmul import Products, Tasks, load_tasks, product_table
from fuse_opt.runtime.backends.onednn.calls import onednn_call
from fuse_opt.runtime.backends.onednn.library import OneDnnError
from fuse_opt.runtime.backends.positions.calls import Fault
from fuse_opt.runtime.backends.positions.offers import indexing_call
from fuse_opt.runtime.backends.sparse import SparseFault, sparse_call
from fuse_opt.runtime.backends.top_k import top_k_call
from fuse_opt.runtime.host.c_records import int64_table
from fuse_opt.runtime.host.program_call import LoopRow
from fuse_opt.runtime.host.thread_pool import num_threads


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

    The follower is the loop behind it, where that may run by parts. Raises RuntimeError where a routine is not there that the
    call names: that was no choice of this machine's.
    """
    if (indexing := indexing_call(call, table)) is not None:
        fault = indexing.fault
        failure = None if fault is None else Failure(ctypes.addressof(fault) + Fault.failed.offset, indexing.error)
        return NativeCall((indexing.row,), indexing.memory, failure=failure, calls_blas=False)
    if (top_k := top_k_call(call, table)) is not None:
        return NativeCall((top_k.row,), top_k.memory, calls_blas=False)
    if (sparse := sparse_call(call, table)) is not None:
        failure = Failure(ctypes.addressof(sparse.fault) + SparseFault.failed.offset, sparse.error)
        return NativeCall(sparse.rows, sparse.memory, failure=failure, calls_blas=False)
    if call.implementation.partition(".")[0] == "onednn":
        return _onednn(call, table)
    if (make := _NATIVE.get(call.implementation)) is None:
        if (offer := find_offer(call.operation, call.implementation)) is not None and offer.native and not offer.sized:
            raise _not_run(call, "it does not take such operands, or nothing could be compiled for it")
        return None
    if (tasks := load_tasks()) is None:
        raise _not_run(call, "NumPy's BLAS cannot be called here")
    refs = (*call.inputs, *call.outputs)
    places = tuple(v for ref in refs for v in (table + 8 * ref.buffer, ref.offset))
    item = np.dtype(NUMPY_NAMES[refs[0].dtype]).itemsize
    if (found := make(_Places(call, table, tasks, item, places), follower)) is None:
        raise _not_run(call, "it does not take such operands")
    return found


def _onednn(call: LibraryCall, table: int) -> NativeCall:
    try:
        found = onednn_call(call, table)
    except OneDnnError as error:
        raise _not_run(call, str(error)) from error
    return NativeCall((found.row,), found.memory, failure=Failure(found.failed, found.error), calls_blas=False)


def _not_run(call: LibraryCall, why: str) -> RuntimeError:
    name, backend = call.implementation, call.implementation.partition(".")[0]
    types = ", ".join(f"tensor<{'x'.join(map(str, (*ref.shape, ref.dtype)))}>" for ref in call.inputs)
    return RuntimeError(
        f"'{call.operation}' of {types}: expected to be run by '{name}', but {why}; compile with backend='-{backend}'"
    )


def _product(places: _Places, follower: Follower | None) -> NativeCall | None:
    threads = num_threads()
    plan = product_table(places.tasks.wide, threads, places.item, *places.shapes, places.call.config)
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
    plan = convolution_table(places.tasks.wide, num_threads(), places.item, *places.shapes, places.call.config)
    return _convolution_loop(places, plan, "fuse_run_convolution")


def _transposed(places: _Places, follower: Follower | None) -> NativeCall | None:
    plan = transposed_table(places.tasks.wide, places.item, *places.shapes, places.call.config)
    return _convolution_loop(places, plan, "fuse_run_fold")


def _weight_gradient(places: _Places, follower: Follower | None) -> NativeCall | None:
    plan = weight_gradient_table(places.tasks.wide, places.item, *places.shapes, places.call.config)
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
    "blas.matmul": _product,
    "blas.matmul_epilogue": _product,
    "blas.conv": _convolution,
    "blas.conv_transpose": _transposed,
    "blas.conv_backward_data": _transposed,
    "blas.conv_backward_weight": _weight_gradient,
}
"""By implementation."""
