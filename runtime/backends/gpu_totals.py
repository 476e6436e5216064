"""Launches of gpu_totals.cuh: running sums and products."""

from __future__ import annotations

import ctypes
from math import prod

from fuse_opt.lowering.program import LibraryCall
from fuse_opt.runtime.backends.gpu_calls import THREADS, Kernel, Planned, axis_of, blocks_for, type_number
from fuse_opt.runtime.host.c_records import fields_of

_MOST_INNER = 32
"""Lines side by side from which on a thread has one of its own: neighbours read neighbours."""
_SHORT = 64
"""Elements of a line that are few for a block."""


class _Record(ctypes.Structure):
    """The record `totals`."""

    _fields_ = fields_of("backends/gpu_totals.cuh", "totals")


def _total(call: LibraryCall, join: int) -> Planned | None:
    x, out = call.inputs[0], call.outputs[0]
    axis, kind, record = axis_of(call, 0, len(x.shape)), type_number(x, computes=True), _Record()
    if kind is None:
        return None
    record.outer, record.extent, record.inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    record.type, record.join, record.reverse = kind, join, int(bool(call.config.get("reverse")))
    record.behind = int(any(call.config.get(name) for name in ("exclusive", "include_initial")))
    record.results = out.shape[axis]
    lines = record.outer * record.inner
    if record.inner >= _MOST_INNER or record.extent <= _SHORT or lines >= 1 << 31:
        kernel = Kernel("gpu_total_lines", record, lambda at: [at(x), at(out)], blocks_for(lines))
    else:
        kernel = Kernel("gpu_total_line", record, lambda at: [at(x), at(out)], lines, THREADS)
    return Planned(lambda address, fault: [kernel])


def cumulative_sum(call: LibraryCall) -> Planned | None:
    """`graph.cumulative_sum`."""
    return _total(call, 1)


def cumulative_prod(call: LibraryCall) -> Planned | None:
    """`graph.cumulative_prod`."""
    return _total(call, 2)
