"""What products of csr matrices and dense ones take on a device, whoever computes them."""

from __future__ import annotations

from math import ceil

from fuse_opt.dialects.implementation.site import Site

_SECTOR = 32
"""Bytes that a read of device memory takes at least."""
_LATENCY = 0.5e-6
"""Seconds from a read of device memory to its use, as published of processors from 8.0 on: 0.3 to 0.6 us."""


def moved_bytes(site: Site) -> int:
    """Operands and results once, and a row of x for each entry."""
    _, indices, _, x = site.operands
    return site.nbytes + indices.size * max(x.shape[1] * x.itemsize, _SECTOR)


def row_seconds(site: Site, at_a_time: int, most: int) -> float:
    """What a row of usual length, `most` entries of it, takes alone: reads of x wait for those of columns, so many at a time."""
    indptr, indices, *_ = site.operands
    return ceil(min(indices.size / max(indptr.size - 1, 1), most) / at_a_time) * 2 * _LATENCY
