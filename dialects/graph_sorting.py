"""Orders and running totals: sort, top_k, cumulative sums and products."""

from __future__ import annotations
