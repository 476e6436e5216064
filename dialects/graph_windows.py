"""Sliding windows: reductions over neighbourhoods, pooling and its backward forms."""

from __future__ import annotations
