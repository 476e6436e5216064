"""What attention by tiles costs a device: of the blocks of queries and keys that it goes over."""

from __future__ import annotations

from math import prod

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.dialects.types.extents import estimate

_WIDE = 64
"""Columns above which the rate of an implementation is that of its name with `_wide` behind."""


def attention_cost(site: Site, name: str, block: int, launches: int = 1) -> Cost:
    """Of blocks of so many queries and keys, those behind the last one included and those behind a causal mask not."""
    assert site.device is not None
    q, k, v, *_ = site.operands
    rows, keys = (-(-estimate(tensor.shape[-2]) // block) for tensor in (q, k))
    pairs = sum(min(row + 1, keys) for row in range(rows)) if site.config.get("is_causal") else rows * keys
    work = 2 * estimate(prod(q.shape[:-2])) * pairs * block**2 * (q.shape[-1] + v.shape[-1])
    wide = "_wide" if max(q.shape[-1], v.shape[-1]) > _WIDE else ""
    rate = site.device.implementation_rate(name + wide, q.dtype)
    return Cost(work, site.nbytes, rate, launches * site.device.launch)
