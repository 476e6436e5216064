"""The first elements of lines in order, as a loop of top_k_tasks.c."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import NUMPY_NAMES, ConfigValue, LibraryCall
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL, moving_cost
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, number_in, runtime_text
from fuse_opt.runtime.host.program_call import LoopRow

_SOURCE = "backends/top_k_tasks.c"
_TASK = "fuse_top_k"
_NAME = "fuse.top_k"
_TASK_BYTES = 32 << 10
"""What a task reads, where lines are that short."""
_TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "bf16", "f32", "f64")
"""Element types by the file's numbers; truth values are bytes."""
_MOST, _RUN = number_in(_SOURCE, "MOST"), number_in(_SOURCE, "RUN")
_LONGEST = 1 << 31
"""Positions are half of an entry."""


class _Record(ctypes.Structure):
    """The record `fuse_top_k`."""

    _fields_ = fields_of(_SOURCE, "fuse_top_k")


@dataclass(frozen=True, slots=True)
class TopKCall:
    """A call as one loop, and what that works on."""

    row: LoopRow
    memory: tuple[Any, ...]


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The compiled task; None without a C compiler."""
    if (compiler := find_c_compiler()) is None:
        return None
    try:
        return compiler.load_shared(runtime_text(_SOURCE), DiskCache(), [_TASK])
    except (CompileError, OSError):
        return None


def top_k_call(call: LibraryCall, table: int) -> TopKCall | None:
    """The call on the buffers of `table`; None where it is another one."""
    if call.implementation != _NAME or (library := _library()) is None:
        return None
    (x,), (values, positions) = call.inputs, call.outputs
    axis, k = _axis_and_k(call.config, len(x.shape))
    record = _Record()
    for name, ref in (("x", x), ("values", values), ("positions", positions)):
        setattr(record, name, table + 8 * ref.buffer)
        setattr(record, f"{name}_offset", ref.offset)
    record.outer, record.extent, record.inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    record.k, record.type = k, _TYPES.index("ui8" if x.dtype == "i1" else x.dtype)
    record.flip = 0 if call.config.get("largest", True) else -1
    line = record.extent * np.dtype(NUMPY_NAMES[x.dtype]).itemsize
    together = min(_RUN, _MOST // k, record.inner) if record.inner > 1 else -(-_TASK_BYTES // line)
    record.lines = together
    tasks = record.outer * -(-record.inner // together) if record.inner > 1 else -(-record.outer // together)
    return TopKCall(LoopRow(address_in(library, _TASK), ctypes.addressof(record), tasks, 1), (record,))


def _axis_and_k(config: dict[str, ConfigValue] | Any, rank: int) -> tuple[int, int]:
    axis, k = config.get("axis", -1), config["k"]
    assert isinstance(axis, int) and isinstance(k, int)
    return axis % rank, k


def _refusal(site: Site) -> str | None:
    """Why the loop does not run an op."""
    (x,) = site.operands
    if not site.is_static:
        return "extent-unknown"
    if not all(tensor.size for tensor in (x, *site.results)):
        return "empty"
    if x.dtype not in (*_TYPES, "i1"):
        return "dtype"
    axis, k = _axis_and_k(site.config, len(x.shape))
    return "form" if k > _MOST or x.shape[axis] >= _LONGEST else None


def _cost(site: Site) -> Cost:
    return replace(moving_cost(site), call=NATIVE_CALL)


native_implementation(_NAME, "numpy.top_k", "graph.top_k", _refusal, _cost)
