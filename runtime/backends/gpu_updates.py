"""Launches of gpu_updates.cuh: updates that are joined where they go."""

from __future__ import annotations

from math import prod
from typing import Any

from fuse_opt.lowering.program import BufferRef
from fuse_opt.runtime.backends.gpu_calls import THREADS, TYPES, Addresses, Kernel, blocks_for, itemsize
from fuse_opt.runtime.backends.gpu_places import Places

_SMALL = 1 << 31
_WIDENED = TYPES[:8]
"""What is computed with in 64 bits."""
_ROOM = 1 << 15
"""Bytes of shared memory of `gpu_put_lines`."""
_FEW_LINES = 64
_WIDE_ROW, _GROUP = 32, 128
"""Elements of a row that `gpu_put_rows` is for, and what a warp of it has of one."""

_BESIDE, _SUMMED = 4, 384
"""Elements of a vector of `gpu_sum_rows`, and those that a warp of it has at most."""


def putting(record: Any, arguments: Addresses) -> Kernel:
    """What puts sorted updates where they go."""
    threads = 32 * record.count * -(-record.width // _GROUP)
    if record.join and record.width >= _WIDE_ROW and threads < _SMALL:
        return Kernel("gpu_put_rows", record, arguments, -(-threads // THREADS))
    return Kernel("gpu_put", record, arguments, blocks_for(record.count * record.width))


def is_summed(record: Any, places: Places, out: BufferRef) -> bool:
    """Whether `gpu_sum_rows` is for the updates: what they are put into is zeros, in rows that each has one index for."""
    one = (
        len(places.named) == 1
        and len(places.extents) == 1
        and places.named[0].weight == record.width
        and not any(places.x_steps)
    )
    whole = one and record.width * places.named[0].extent == prod(out.shape)
    side_by_side = record.width % _BESIDE == 0 and record.value_step == 1
    steps = all(step % _BESIDE == 0 for step in places.value_steps)
    return whole and side_by_side and steps and bool(record.packed) and out.dtype in ("f32", "f16", "bf16")


def summing(record: Any, rows: int, arguments: Addresses) -> Kernel | None:
    """What sums sorted updates of all rows of zeros."""
    warps = rows * -(-record.width // _SUMMED)
    return Kernel("gpu_sum_rows", record, arguments, -(-32 * warps // THREADS)) if 32 * warps < _SMALL else None


def line_warps(places: Places, width: int, x: BufferRef, fills: bool) -> int | None:
    """Warps of a block of `gpu_put_lines`; None where updates do not go along the last axis of lines that are apart."""
    if width != 1 or fills or len(places.named) != 1 or len(places.extents) != 2:
        return None
    (named,), (lines, count) = places.named, places.extents
    own = (count, 1)
    apart = places.x_steps == (named.extent, 0) and named.weight == 1 and lines * named.extent == prod(x.shape)
    if not apart or named.steps != own or places.value_steps != own or named.ref.dtype not in ("i32", "i64"):
        return None
    warps = min(_ROOM // (named.extent * max(itemsize(x), 8 if x.dtype in _WIDENED else 4)), THREADS // 32)
    return warps if lines >= _FEW_LINES and warps else None
