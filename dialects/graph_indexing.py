"""Reads and writes at positions that are data: take, gather, scatter, index_put."""

from __future__ import annotations
