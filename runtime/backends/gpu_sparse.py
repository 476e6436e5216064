"""Launches of gpu_sparse.cuh: products and sums over csr patterns, and rows at positions that are data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.gpu_calls import JOINS, Kernel, Planned, blocks_for, type_number
from fuse_opt.runtime.backends.nvidia.csr_products import moved_bytes, row_seconds
from fuse_opt.runtime.backends.nvidia.device_calls import Address
from fuse_opt.runtime.host.c_records import fields_of

_SOURCE = "backends/gpu_sparse.cuh"
_LANES = 32
"""Columns of a block that computes one row."""
_PIECES = 4
"""Entries that a thread reads at a time; PIECES in gpu_elements.cuh."""


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


def csr_padded(call: LibraryCall) -> Planned | None:
    """A pattern whose entries end where its capacity does: its rows, its columns and a number go to the results."""
    indptr, indices = call.inputs
    ends, columns, broken = call.outputs
    rows, capacity, limit = indptr.shape[0] - 1, indices.shape[0], int(str(call.config["columns"]))
    record = _record(rows=rows, columns=limit, capacity=capacity)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        def checked(at: Address) -> list[int]:
            return [*map(at, (indptr, indices, columns, broken)), fault]

        return [
            Kernel("gpu_csr_begin", record, lambda at: [at(broken)], 1),
            Kernel("gpu_csr_checked", record, checked, blocks_for(max(rows, capacity))),
            Kernel("gpu_csr_padded", record, lambda at: [*map(at, (indptr, broken, ends))], blocks_for(rows + 1)),
        ]

    return Planned(kernels, **_checked(indices, limit), has_shape=True)


def csr_last_row(call: LibraryCall) -> Planned | None:
    """The last row of a product, by columns that are known to be some."""
    indptr, indices, values, x = call.inputs
    (out,) = call.outputs
    kind, width = type_number(values, True), x.shape[1]
    if kind is None or values.dtype not in ("f32", "f64"):
        return None
    record = _record(rows=out.shape[0], columns=x.shape[0], capacity=indices.shape[0], width=width, type=kind)
    used = (indptr, indices, values, x, out)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        return [Kernel("gpu_csr_last_row", record, lambda at: [*map(at, used)], -(-width // _LANES))]

    return Planned(kernels)


def csr_matmul_cost(site: Site) -> Cost:
    """A thread goes over a row, some entries at a time."""
    assert site.device is not None
    return Cost(nbytes=moved_bytes(site), call=site.device.launch + row_seconds(site, _PIECES))


COSTS: Mapping[str, Callable[[Site], Cost]] = {"csr_matmul": csr_matmul_cost}
"""By op, where it is not that of moving operands and results once."""
HELPERS: Mapping[str, Callable[[LibraryCall], Planned | None]] = {
    "csr_padded": csr_padded,
    "csr_last_row": csr_last_row,
}
"""What no op is: steps around a call of a library."""
SPARSE: Mapping[str, Callable[[LibraryCall], Planned | None]] = {
    "csr_matmul": csr_matmul,
    "csr_reduce": csr_reduce,
    "rows_put": lambda call: _rows(call, False),
    "rows_subtract": lambda call: _rows(call, True),
}
"""By op: what plans its calls."""
