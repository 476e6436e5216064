"""Launches of gpu_sparse.cuh: products and sums over csr patterns, and rows at positions that are data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.gpu_calls import JOINS, Kernel, Planned, blocks_for, itemsize, type_number
from fuse_opt.runtime.backends.nvidia.csr_products import moved_bytes, row_seconds
from fuse_opt.runtime.backends.nvidia.device_calls import Address, workspace_at
from fuse_opt.runtime.host.c_records import fields_of

_SOURCE = "backends/gpu_sparse.cuh"
_ENTRIES = 4
"""Entries that a thread reads at a time; ENTRIES of the text."""
_PART = 64
"""Entries of a part of a long row: sums depend on it, so that it is the same on every device."""
_SHORT_FLOATS = ("f32", "f16", "bf16")
_BESIDE = 4
"""Columns of a thread of `gpu_csr_matmul_4`."""


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


def _parts(call: LibraryCall) -> int:
    """Of entries, where a row may have more than a part has."""
    capacity = call.inputs[1].shape[0]
    return -(-capacity // _PART) if capacity > _PART else 0


def csr_matmul_bytes(call: LibraryCall) -> int:
    """The workspace of a call: the sums of two rows in each part, and the long row that begins there."""
    widest = 8 if call.inputs[2].dtype not in _SHORT_FLOATS else 4
    return _parts(call) * (2 * call.inputs[3].shape[1] * widest + 4)


def csr_matmul(call: LibraryCall) -> Planned | None:
    """A thread for each element of the result, or for four of them; long rows are divided."""
    indptr, indices, values, x = call.inputs
    (out,) = call.outputs
    if (kind := type_number(values, True)) is None:
        return None
    columns, width = x.shape
    rows, parts = out.shape[0], _parts(call)
    record = _record(rows=rows, columns=columns, capacity=indices.shape[0], width=width, type=kind)
    record.part, record.parts = _PART, parts
    is_short = values.dtype in _SHORT_FLOATS

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        memory = workspace_at(call, address)[0] if parts else address(out)

        def arguments(at: Address) -> list[int]:
            return [*map(at, (indptr, indices, values, x, out)), memory, fault]

        step = width * itemsize(x) | address(x) | address(out)
        beside = _BESIDE if is_short and step % (_BESIDE * itemsize(x)) == 0 else 1
        name = f"gpu_csr_matmul_{beside}" if is_short else "gpu_csr_matmul"
        product = Kernel(name, record, arguments, blocks_for((rows + parts) * width // beside))
        join = Kernel("gpu_csr_join", record, lambda at: [at(indptr), at(out), memory], blocks_for(parts * width))
        return [product, join] if parts else [product]

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
    """A pattern with values that ends where its capacity does: its rows, columns and values, and a number, go to the results."""
    indptr, indices, values = call.inputs
    ends, columns, entries, broken = call.outputs
    if values.dtype not in ("f32", "f64"):
        return None
    rows, capacity, limit = indptr.shape[0] - 1, indices.shape[0], int(str(call.config["columns"]))
    record = _record(rows=rows, columns=limit, capacity=capacity, type=type_number(values, True) or 0)

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        def checked(at: Address) -> list[int]:
            return [*map(at, (indptr, indices, values, columns, entries, broken)), fault]

        return [
            Kernel("gpu_csr_begin", record, lambda at: [at(broken)], 1),
            Kernel("gpu_csr_checked", record, checked, blocks_for(max(rows, capacity))),
            Kernel("gpu_csr_padded", record, lambda at: [*map(at, (indptr, broken, ends))], blocks_for(rows + 1)),
        ]

    return Planned(kernels, **_checked(indices, limit), has_shape=True)


def csr_matmul_cost(site: Site) -> Cost:
    """A thread goes over a row, or a part of a long one, some entries at a time."""
    assert site.device is not None
    is_divided = site.operands[1].size > _PART
    row = row_seconds(site, _ENTRIES, _PART)
    return Cost(nbytes=moved_bytes(site), call=(1 + is_divided) * site.device.launch + row)


COSTS: Mapping[str, Callable[[Site], Cost]] = {"csr_matmul": csr_matmul_cost}
"""By op, where it is not that of moving operands and results once."""
HELPERS: Mapping[str, Callable[[LibraryCall], Planned | None]] = {"csr_padded": csr_padded}
"""What no op is: steps before a call of a library."""
SPARSE: Mapping[str, Callable[[LibraryCall], Planned | None]] = {
    "csr_matmul": csr_matmul,
    "csr_reduce": csr_reduce,
    "rows_put": lambda call: _rows(call, False),
    "rows_subtract": lambda call: _rows(call, True),
}
"""By op: what plans its calls."""
