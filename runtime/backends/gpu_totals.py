"""Launches of gpu_totals.cuh: running sums and products."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from fuse_opt.lowering.program import LibraryCall
from fuse_opt.runtime.backends.gpu_calls import THREADS, Kernel, Planned, axis_of, blocks_for, type_number
from fuse_opt.runtime.backends.nvidia.device_calls import Address, workspace_at
from fuse_opt.runtime.host.c_records import fields_of

_MOST_INNER = 32
"""Lines side by side from which on a thread has one of its own: neighbours read neighbours."""
_SHORT = 64
"""Elements of a line that are few for a block."""
_TILE = 2304
"""`TILE` of the text."""
_BLOCKS, _COLUMNS = 2048, 1 << 17
"""Blocks, and threads with a column each, that are enough for a device: where there are fewer, lines are taken in chunks."""
_LEAST_ROWS = 64
"""Rows of a chunk of columns."""
_MOST_BLOCKS = 1 << 31
_WHOLE, _GROUP, _VECTOR = 4096, 64, 16
"""Elements of a tile (`WHOLE_TILE` of the text) and tiles of a group (`GROUP`), and what addresses are multiples of."""


class _Record(ctypes.Structure):
    """The record `totals`."""

    _fields_ = fields_of("backends/gpu_totals.cuh", "totals")


def _record(call: LibraryCall) -> Any:
    """All but the type and the join."""
    x, record = call.inputs[0], _Record()
    axis = axis_of(call, 0, len(x.shape))
    record.outer, record.extent, record.inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    record.reverse = int(bool(call.config.get("reverse")))
    record.behind = int(any(call.config.get(name) for name in ("exclusive", "include_initial")))
    record.results = call.outputs[0].shape[axis]
    lines, unit, wanted, least = record.outer * record.inner, _TILE, _BLOCKS, 2
    if record.inner >= _MOST_INNER:
        lines, unit, wanted, least = record.outer * -(-record.inner // THREADS) * THREADS, _LEAST_ROWS, _COLUMNS, 1
    units = -(-record.extent // unit)
    parts = min(units // least, wanted // lines) if lines <= wanted // 2 else 1
    record.chunk = -(-units // max(parts, 1)) * unit
    record.chunks = -(-record.extent // record.chunk)
    return record


def _tiles(call: LibraryCall, join: int) -> Any | None:
    """The record of a call of `gpu_tile_sums` and `gpu_tile_totals`; None for one that is not for them."""
    x, record = call.inputs[0], _record(call)
    if x.dtype != "f32" or join != 1 or record.inner != 1 or record.reverse or record.behind or record.chunks == 1:
        return None
    record.chunk, record.chunks = _WHOLE, -(-record.extent // _WHOLE)
    if (record.outer > 1 and record.extent % 4) or record.outer * record.chunks >= _MOST_BLOCKS:
        return None
    record.groups = -(-record.chunks // _GROUP)
    return record


def total_bytes(call: LibraryCall) -> int:
    """The workspace of a call: what each chunk adds up to, or each tile and group of tiles, and counts of tiles."""
    record = _record(call)
    tiles = _tiles(call, 1) if call.operation == "graph.cumulative_sum" else None
    if tiles is not None:
        own = 8 * (tiles.chunks + tiles.groups) + 4 * tiles.groups
        return record.outer * max(own, 8 * record.chunks)
    return 8 * record.outer * record.inner * record.chunks if record.chunks > 1 else 0


def _total(call: LibraryCall, join: int) -> Planned | None:
    x, out = call.inputs[0], call.outputs[0]
    if (kind := type_number(x, computes=True)) is None:
        return None
    record, tiles = _record(call), _tiles(call, join)
    record.type, record.join = kind, join
    lines, by_columns = record.outer * record.inner, record.inner >= _MOST_INNER
    blocks = record.chunks * (record.outer * -(-record.inner // THREADS) if by_columns else lines)
    if blocks >= _MOST_BLOCKS or (record.chunks == 1 and record.extent <= _SHORT):
        simple = Kernel("gpu_total_lines", record, lambda at: [at(x), at(out)], blocks_for(lines))
        return Planned(lambda address, fault: [simple])
    sums, totals = ("gpu_column_sums", "gpu_total_columns") if by_columns else ("gpu_chunk_sums", "gpu_total_line")

    def kernels(address: Address, fault: int) -> Sequence[Kernel]:
        if tiles is not None and not (address(x) | address(out)) % _VECTOR:
            parts = workspace_at(call, address)[0]
            counts, each = parts + 8 * tiles.outer * (tiles.chunks + tiles.groups), tiles.outer * tiles.chunks
            return [
                Kernel("gpu_tiles_begin", tiles, lambda at: [counts], blocks_for(tiles.outer * tiles.groups)),
                Kernel("gpu_tile_sums", tiles, lambda at: [at(x), parts, counts], each),
                Kernel("gpu_tile_totals", tiles, lambda at: [at(x), at(out), parts], each),
            ]
        memory = workspace_at(call, address)[0] if record.chunks > 1 else address(out)
        last = Kernel(totals, record, lambda at: [at(x), at(out), memory], blocks)
        if record.chunks == 1:
            return [last]
        return [Kernel(sums, record, lambda at: [at(x), memory], blocks), last]

    return Planned(kernels)


def cumulative_sum(call: LibraryCall) -> Planned | None:
    """`graph.cumulative_sum`."""
    return _total(call, 1)


def cumulative_prod(call: LibraryCall) -> Planned | None:
    """`graph.cumulative_prod`."""
    return _total(call, 2)


TOTALS = {"cumulative_sum": cumulative_sum, "cumulative_prod": cumulative_prod}
