"""Launches of gpu_sparse.cuh: products and sums over csr patterns, and rows at positions that are data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.gpu_calls import JOINS, Kernel, Planned, blocks_for, type_number
from fuse_opt.runtime.backends.nvidia.device_calls import Address
from fuse_opt.runtime.host.c_records import fields_of

_SOURCE = "backends/gpu_sparse.cuh"


class _Record(ctypes.Structure):
    """The record `stored`."""

    _fields_ = fields_of(_SOURCE, "stored")


def _record(**numbers: int) -> Any:
    record = _Record()
    for name, value in numbers.items():
        setattr(record, name, value)
    return record


def _checked(indices: BufferRef, columns: int) -> dict[str, Any]:
    return {"indices": (indices,), "limits": ((0, columns, False),)}


def csr_matmul(call: LibraryCall) -> Planned | None:
    """A thread for each element of the result."""
    indptr, indices, values, x = call.inputs
    (out,) = call.outputs
    if (kind := type_number(values, True)) is None:
        return None
    columns, width = x.shape
    record = _record(rows=out.shape[0], columns=columns, capacity=indices.shape[0], width=width, type=kind)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        def arguments(at: Address) -> list[int]:
            return [*map(at, (indptr, indices, values, x, out)), fault]

        return [Kernel("gpu_csr_matmul", record, arguments, blocks_for(prod(out.shape)))]

    return Planned(kernels, **_checked(indices, columns))


def csr_reduce(call: LibraryCall) -> Planned | None:
    """A thread for each row."""
    indptr, values = call.inputs
    (out,) = call.outputs
    join = JOINS[str(call.config.get("reduce", "add"))]
    if (kind := type_number(values, True)) is None:
        return None
    record = _record(rows=out.shape[0], capacity=values.shape[0], type=kind, join=join)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        return [
            Kernel("gpu_csr_reduce", record, lambda at: [*map(at, (indptr, values, out))], blocks_for(out.shape[0]))
        ]

    return Planned(kernels)


def _rows(call: LibraryCall, subtracts: bool) -> Planned | None:
    """A thread for each element of the rows that are listed; before that all others are copied, but in place."""
    x, indptr, indices, values = call.inputs
    (out,) = call.outputs
    if (kind := type_number(values, subtracts)) is None:
        return None
    size, width = prod(x.shape), prod(x.shape[1:])
    numbers = {"rows": 1, "columns": x.shape[0], "capacity": indices.shape[0], "width": width}
    record = _record(**numbers, type=kind, size=size, subtracts=int(subtracts))

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        def arguments(at: Address) -> list[int]:
            return [*map(at, (indptr, indices, values, out)), fault]

        put = Kernel("gpu_rows_put", record, arguments, blocks_for(prod(values.shape)))
        copy = Kernel("gpu_rows_copy", record, lambda at: [at(x), at(out)], blocks_for(size))
        return [put] if address(x) == address(out) else [copy, put]

    return Planned(kernels, **_checked(indices, x.shape[0]))


SPARSE: Mapping[str, Callable[[LibraryCall], Planned | None]] = {
    "csr_matmul": csr_matmul,
    "csr_reduce": csr_reduce,
    "rows_put": lambda call: _rows(call, False),
    "rows_subtract": lambda call: _rows(call, True),
}
"""By op: what plans its calls."""
